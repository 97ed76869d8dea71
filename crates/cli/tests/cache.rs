//! `forebay cache` on logs of folders and of a server that stands still.

mod forebay;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use forebay::{Ran, command, finish, run};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Bytes that no other sample has.
fn content(sample: usize, bytes: usize) -> Vec<u8> {
    let mut state = sample as u64 + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// A dataset, and a cache of its own.
struct Place {
    folder: TempDir,
}

impl Place {
    /// Samples of so many bytes each.
    fn new(samples: usize, bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        for sample in 0..samples {
            let path = place.root().join(format!("{}/{sample:04}", sample % 2));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content(sample, bytes)).unwrap();
        }
        place
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("train")
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("cache")
    }

    fn command(&self, line: &str) -> std::process::Command {
        let root = self.root();
        let arguments: Vec<_> = std::iter::once("cache")
            .chain(line.split_whitespace())
            .map(|word| {
                if word == "ROOT" {
                    root.to_str().unwrap()
                } else {
                    word
                }
            })
            .collect();
        let mut command = command(&arguments);
        command.env("FOREBAY_CACHE", self.cache());
        command
    }

    fn run(&self, line: &str) -> Ran {
        finish(&mut self.command(line))
    }

    fn warm(&self, rest: &str) -> Value {
        self.run(&format!("warm ROOT --disk 64MiB --json {rest}"))
            .json()
    }

    /// The one log there is.
    fn status(&self) -> Value {
        let mut document = self.run("status --json").json();
        assert_eq!(document["logs"].as_array().unwrap().len(), 1, "{document}");
        document["logs"][0].take()
    }

    fn log(&self) -> PathBuf {
        let entries = fs::read_dir(self.cache().join("log")).unwrap();
        let mut folders = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir());
        folders.next().unwrap()
    }

    /// Turns a bit of the log at the first place where these bytes are.
    fn flip(&self, bytes: &[u8]) {
        for entry in fs::read_dir(self.log()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "segment") {
                continue;
            }
            let all = fs::read(&path).unwrap();
            if let Some(at) = all.windows(bytes.len()).position(|window| window == bytes) {
                let file = File::options().write(true).open(&path).unwrap();
                file.write_all_at(&[all[at] ^ 1], at as u64).unwrap();
                return;
            }
        }
        panic!("the log does not have these bytes");
    }
}

fn du(folder: &Path) -> u64 {
    let own = fs::symlink_metadata(folder).unwrap().blocks() * 512;
    let Ok(entries) = fs::read_dir(folder) else {
        return own;
    };
    own + entries.map(|entry| du(&entry.unwrap().path())).sum::<u64>()
}

/// What a job that writes a log has.
fn lock(folder: &Path) -> File {
    let path = folder.join("lease");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .unwrap();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    file
}

#[test]
fn a_dataset_is_warmed_shown_and_verified() {
    let place = Place::new(100, 3000);
    let text = place.run("warm ROOT --disk 64MiB --seed 7").ok();
    let root = place.root();
    let start = format!(
        "{}\n  kept        100 samples, 293.0 KiB of 100 (100.0 %)\n  on disk     ",
        root.display()
    );
    assert!(text.starts_with(&start), "{text}");
    assert!(
        text.contains("all logs may take 64.0 MiB\n  read        100 samples"),
        "{text}"
    );

    let log = place.log();
    let status = place.status();
    let expected = json!({
        "name": log.file_name().unwrap().to_str(), "url": root, "folders": [log],
        "is_log": true, "problem": null, "layout": "packed", "samples": 100, "held": 100,
        "held_elsewhere": 0, "bytes": du(&log), "segments": 1, "other_files": [], "writer": null,
    });
    assert_eq!(status, expected);
    let text = place.run("status").ok();
    for words in [
        "  samples     100 of 100 (100.0 %)\n",
        "  layout      packed\n",
        "  written by  nobody now\n",
        "  in use      ",
        "  free        ",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let document = place.run("status --json").json();
    assert_eq!(document["bytes"], du(&place.cache().join("log")));
    assert!(document["cache_dirs"][0]["free"].as_u64().unwrap() > 0);

    let verified = place.run("verify").ok();
    let expected = format!("{}\n  verified    100 samples, 293.0 KiB\n", root.display());
    assert_eq!(verified, expected);
    let verified = place.run("verify ROOT --json").json();
    let row = &verified["logs"][0];
    let figures = ["samples", "bytes", "bad", "lost", "repaired"].map(|name| row[name].clone());
    assert_eq!(json!(figures), json!([100, 300_000, 0, 0, 0]));
}

#[test]
fn what_is_there_is_not_read_again() {
    let place = Place::new(50, 2000);
    let first = place.warm("--seed 3 --epoch 2");
    assert_eq!((&first["read"], &first["added"]), (&json!(50), &json!(50)));
    let again = place.warm("--no-shuffle");
    assert_eq!((&again["read"], &again["held"]), (&json!(0), &json!(50)));
    fs::write(place.root().join("0/0000"), content(1234, 999)).unwrap();
    fs::write(place.root().join("1/new"), content(1235, 10)).unwrap();
    let changed = place.warm("--shuffle");
    assert_eq!(
        (&changed["read"], &changed["held"]),
        (&json!(2), &json!(51))
    );
    assert_eq!(place.status()["held"], 51);
}

#[test]
fn a_log_lies_in_the_order_of_the_epoch_that_it_was_warmed_for() {
    const SAMPLES: usize = 6000;
    let place = Place::new(0, 0);
    fs::create_dir_all(place.root().join("a")).unwrap();
    for sample in 0..SAMPLES {
        let path = place.root().join(format!("a/{sample:04}"));
        fs::write(path, format!("<sample {sample:04}>")).unwrap();
    }
    place.warm("--seed 5 --epoch 1");
    let mut segments: Vec<_> = fs::read_dir(place.log())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "segment"))
        .collect();
    segments.sort();
    let bytes: Vec<u8> = segments
        .iter()
        .flat_map(|path| fs::read(path).unwrap())
        .collect();
    let text = String::from_utf8_lossy(&bytes);
    let lying: Vec<usize> = text
        .split("<sample ")
        .filter_map(|part| part.get(..4)?.parse().ok())
        .collect();
    assert_eq!(lying.len(), SAMPLES);
    let number = SAMPLES.to_string();
    let order = run(&["order", "--samples", &number, "--seed", "5", "--epoch", "1"]).ok();
    let mut places = vec![0; SAMPLES];
    for (at, line) in order.lines().enumerate() {
        places[line.parse::<usize>().unwrap()] = at;
    }
    // Threads that read at the same time change places; by chance it would be a third of all.
    let off = lying
        .iter()
        .enumerate()
        .map(|(at, &sample)| at.abs_diff(places[sample]));
    let mean = off.sum::<usize>() / SAMPLES;
    assert!(mean < SAMPLES / 6, "{mean}");
}

#[test]
fn a_flipped_bit_is_found_and_taken_out_and_the_sample_is_read_again() {
    let place = Place::new(30, 5000);
    place.warm("");
    place.flip(&content(17, 5000)[2000..2032]);
    let ran = place.run("verify");
    assert_eq!(ran.code, 1);
    assert!(
        ran.out
            .contains("verified    29 samples, 141.6 KiB\n  bad         1 sample\n"),
        "{}",
        ran.out
    );
    let words = "forebay: error: 1 sample on disk is not whole\nhint: pass --repair";
    assert!(ran.err.contains(words), "{}", ran.err);
    assert_eq!(place.status()["held"], 30, "looking changes nothing");

    let text = place.run("verify --repair").ok();
    assert!(text.contains("repaired    1 sample taken out\n"), "{text}");
    assert_eq!(place.status()["held"], 29);
    let row = place.run("verify --json").json()["logs"][0].take();
    assert_eq!((&row["samples"], &row["bad"]), (&json!(29), &json!(0)));

    let warmed = place.warm("");
    assert_eq!((&warmed["read"], &warmed["held"]), (&json!(1), &json!(30)));
    let row = place.run("verify --json").json()["logs"][0].take();
    assert_eq!(
        (&row["samples"], &row["bytes"]),
        (&json!(30), &json!(150_000))
    );
}

#[test]
fn samples_whose_chunk_cannot_be_read_any_more_are_lost_until_they_are_read_again() {
    let place = Place::new(20, 1000);
    place.warm("");
    place.flip(b"FBchunk\n");
    let ran = place.run("verify --json");
    assert_eq!(ran.code, 1);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["logs"][0]["lost"], 20);
    let text = place.run("verify --repair").ok();
    assert!(text.contains("lost        20 samples"), "{text}");
    assert_eq!(place.warm("")["read"], 20);
    assert!(place.run("verify").ok().contains("verified    20 samples"));
}

#[test]
fn nothing_is_repaired_or_deleted_while_a_process_writes() {
    let place = Place::new(20, 5000);
    place.warm("");
    let lease = lock(&place.log());
    let number = std::process::id();
    assert_eq!(place.status()["writer"], number);
    let text = place.run("status").ok();
    assert!(
        text.contains(&format!("  written by  process {number}\n")),
        "{text}"
    );
    place.run("verify").ok();

    let error = place.run("clear ROOT --yes");
    let words = format!("is not deleted: process {number} writes it now\nhint: end that process");
    assert_eq!(error.code, 1);
    assert!(error.err.contains(&words), "{}", error.err);
    assert!(place.log().join("00000000.segment").exists());

    fs::write(place.root().join("0/more"), "more").unwrap();
    let error = place.run("warm ROOT --disk 64MiB").fails(1);
    assert!(
        error.contains(&format!("is written by process {number}")),
        "{error}"
    );

    place.flip(&content(3, 5000)[100..132]);
    let ran = place.run("verify --repair");
    assert_eq!(ran.code, 1);
    assert!(
        ran.err
            .contains(&format!("cannot be repaired: process {number}")),
        "{}",
        ran.err
    );
    drop(lease);
    place.run("verify --repair").ok();
    assert_eq!(place.status()["writer"], Value::Null);
}

#[test]
fn clear_deletes_and_says_how_much_that_freed() {
    let place = Place::new(20, 5000);
    place.warm("");
    let error = place.run("clear ROOT").fails(2);
    assert!(error.contains("no terminal to ask at"), "{error}");
    assert!(error.contains("hint: pass --yes\n"), "{error}");
    fs::write(place.log().join("epoch-0.log"), "somebody else's").unwrap();
    let verified = place.run("verify").ok();
    assert!(
        verified.contains("  unchecked   files of another layout or kind: 1, 15 B\n"),
        "{verified}"
    );
    let before = du(&place.cache().join("log"));
    let document = place.run("clear ROOT --yes --json").json();
    let freed = before - du(&place.cache().join("log"));
    assert_eq!(document["freed"], freed);
    assert!(freed > 100_000);
    let text = place.run("status").ok();
    let words = format!("nothing is kept in {}\n", place.cache().display());
    assert!(text.starts_with(&words), "{text}");

    place.warm("");
    let name = place
        .log()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let text = place.run(&format!("clear {name} --yes")).ok();
    let words = format!("deleted {}\n", place.root().display());
    assert!(
        text.starts_with(&words) && text.ends_with(" freed\n"),
        "{text}"
    );
    place.warm("");
    place.run("clear --all --yes").ok();
    assert_eq!(place.run("status --json").json()["logs"], json!([]));
}

#[test]
fn an_empty_cache_is_no_failure() {
    let place = Place::new(0, 0);
    let words = format!("nothing is kept in {}\n", place.cache().display());
    for line in ["status", "verify", "clear --all"] {
        let text = place.run(line).ok();
        assert!(text.starts_with(&words), "{line}: {text}");
    }
    assert_eq!(place.run("verify --json").json()["logs"], json!([]));
    let error = place.run("verify s3://bucket/train").fails(1);
    assert!(error.contains("no log of s3://bucket/train in "), "{error}");
    assert!(
        error.contains("hint: forebay cache status shows"),
        "{error}"
    );
    assert!(!place.cache().exists(), "looking makes nothing");
}

#[test]
fn folders_that_are_no_logs_are_shown_as_such_and_left_alone() {
    let place = Place::new(10, 100);
    place.warm("");
    let root = place.cache().join("log");
    for (name, file) in [
        ("a-mine", "notes.txt"),
        ("b-broken", "samples.map"),
        ("c-part", "00000007.segment"),
    ] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join(file), "x").unwrap();
    }
    let document = place.run("status --json").json();
    let row = |name: &str| {
        let rows = document["logs"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap().clone()
    };
    assert_eq!(
        (
            row("a-mine")["is_log"].clone(),
            row("a-mine")["problem"].clone()
        ),
        (json!(false), json!("not a log"))
    );
    let problem = row("b-broken")["problem"].as_str().unwrap().to_owned();
    assert!(problem.contains("samples.map"), "{problem}");
    assert_eq!(
        (
            row("c-part")["segments"].clone(),
            row("c-part")["held"].clone()
        ),
        (json!(1), json!(0))
    );
    let text = place.run("status").ok();
    assert!(text.contains("  problem     not a log\n"), "{text}");
    place.run("verify").ok();

    let ran = place.run("clear --all --yes");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(
        ran.err.contains("a-mine is not a log and stays"),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("lease lies in another cache directory"),
        "{}",
        ran.err
    );
    assert!(root.join("a-mine/notes.txt").exists() && root.join("c-part").exists());
    assert!(!root.join("b-broken").exists());
}

#[test]
fn a_log_over_several_directories_is_one_log() {
    let place = Place::new(60, 20_000);
    let dirs = ["one", "two"].map(|name| place.cache().join(name));
    let both = format!(
        "--cache-dir {} --cache-dir {}",
        dirs[0].display(),
        dirs[1].display()
    );
    let warmed = place
        .run(&format!("warm ROOT --disk 16MiB --json {both}"))
        .json();
    assert_eq!(warmed["held"], 60);
    let document = place.run(&format!("status --json {both}")).json();
    let row = &document["logs"][0];
    assert_eq!(document["logs"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&row["held"], &row["held_elsewhere"], &row["segments"]),
        (&json!(60), &json!(0), &json!(2))
    );
    let verified = place.run(&format!("verify --json {both}")).json();
    assert_eq!(verified["logs"][0]["samples"], 60);

    let first = format!("--cache-dir {}", dirs[0].display());
    let row = place.run(&format!("status --json {first}")).json()["logs"][0].take();
    let [held, elsewhere] = ["held", "held_elsewhere"].map(|name| row[name].as_u64().unwrap());
    assert!(held > 0 && elsewhere > 0 && held + elsewhere == 60, "{row}");
    place.run(&format!("verify {first}")).ok();
    let second = format!("--cache-dir {}", dirs[1].display());
    assert_eq!(place.run(&format!("clear --all --yes {second}")).code, 1);
    let freed = place
        .run(&format!("clear --all --yes --json {both}"))
        .json();
    assert!(freed["freed"].as_u64().unwrap() > 1_200_000, "{freed}");
    assert_eq!(du(&dirs[1].join("log")), du(&dirs[0].join("log")));
}

#[test]
fn what_the_budget_has_no_room_for_is_counted_and_no_failure() {
    let place = Place::new(64, 65_000);
    let text = place.run("warm ROOT --disk 2MiB").ok();
    assert!(text.contains("  did not fit "), "{text}");
    let status = place.status();
    let held = status["held"].as_u64().unwrap();
    assert!((16..32).contains(&held), "{status}");
    assert!(du(&place.cache().join("log")) <= 2 << 20);
    let warmed = place.run("warm ROOT --disk 2MiB --json").json();
    assert_eq!(warmed["full"], true, "{warmed}");
    // A segment that was closed may have left room for one more.
    let again = warmed["held"].as_u64().unwrap();
    assert!((held..32).contains(&again), "{warmed}");
    assert_eq!(warmed["missing"], 64 - again);
    // More of the disk, and it goes on.
    assert_eq!(place.warm("")["held"], 64);
}

#[test]
fn nothing_kept_at_all_is_a_failure_that_names_the_setting() {
    let place = Place::new(10, 65_000);
    for disk in ["0", "16KiB"] {
        let ran = place.run(&format!("warm ROOT --disk {disk}"));
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(
            ran.err.contains("error: nothing could be kept"),
            "{}",
            ran.err
        );
        assert!(
            ran.err
                .contains("hint: raise --disk, or pass a --cache-dir"),
            "{}",
            ran.err
        );
    }
    let ran = place.run("warm ROOT --disk 64MiB --memory 4MiB");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.out.contains("  too long    10 samples"), "{}", ran.out);
    assert!(ran.err.contains("hint: raise --memory"), "{}", ran.err);
    let blocked = place.folder.path().join("file");
    fs::write(&blocked, "").unwrap();
    let ran = place.run(&format!("warm ROOT --cache-dir {}", blocked.display()));
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("hint: pass a --cache-dir"), "{}", ran.err);
    let error = place.run("warm ROOT --memory 1KiB").fails(1);
    assert!(error.contains("hint: raise --memory"), "{error}");
}

#[test]
fn a_sample_that_cannot_be_read_is_named_and_the_others_are_kept() {
    let server = Server::start(10, 100, usize::MAX);
    let place = Place::new(0, 0);
    let url = format!("http://127.0.0.1:{}/data", server.port);
    let line = format!("warm {url} --manifest {url}/samples.csv --disk 8MiB --json");
    server.state.0.lock().unwrap().gone = Some(3);
    let ran = place.run(&line);
    assert_eq!(ran.code, 1);
    let words = "1 sample could not be read, the first: s3: ";
    assert!(ran.err.contains(words), "{}", ran.err);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&document["held"], &document["unreadable"]),
        (&json!(9), &json!(1))
    );
    server.state.0.lock().unwrap().gone = None;
    assert_eq!(place.run(&line).json()["read"], 1);
}

#[test]
fn each_verb_has_a_help_with_examples() {
    for verb in ["status", "warm", "verify", "clear"] {
        let help = run(&["cache", verb, "--help"]).ok();
        assert!(
            help.contains(&format!("Examples:\n  forebay cache {verb}")),
            "{help}"
        );
    }
    assert!(
        run(&["cache", "--help"])
            .ok()
            .contains("Examples:\n  forebay cache status")
    );
    assert_eq!(run(&["cache"]).code, 2);
}

#[test]
fn wrong_arguments_are_refused_with_what_is_right() {
    let place = Place::new(2, 10);
    for (line, words) in [
        ("warm", "<URL>"),
        (
            "warm ROOT --disk lots",
            "not a size; write it as 512MiB or 200GiB",
        ),
        ("warm ROOT --disk -1", "not a size"),
        (
            "warm ROOT --disk-layout reorder",
            "[possible values: auto, packed]",
        ),
        ("warm ROOT --seed 1 --no-shuffle", "cannot be used with"),
        ("warm ROOT --epoch 1 --no-shuffle", "cannot be used with"),
        ("warm ROOT --shuffle --no-shuffle", "cannot be used with"),
        (
            "warm ROOT --cache-dir /a --cache-dir /a/",
            "--cache-dir names /a twice",
        ),
        ("clear", "<URL or NAME>"),
        ("clear ROOT --all", "cannot be used with"),
        ("clear --all --json", "no terminal to ask at"),
        ("fill", "unrecognized subcommand 'fill'"),
    ] {
        if line == "clear --all --json" {
            place.warm("");
        }
        let error = place.run(line).fails(2);
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn a_log_of_another_layout_is_replaced_only_if_that_is_said() {
    let place = Place::new(10, 100);
    place.warm("");
    let log = place.log();
    for entry in fs::read_dir(&log).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() != "lease" {
            fs::remove_file(path).unwrap();
        }
    }
    fs::write(log.join("00000000.ordered"), "x").unwrap();
    let status = place.status();
    assert_eq!(
        (&status["layout"], &status["held"]),
        (&json!("reorder"), &Value::Null)
    );
    let error = place.run("warm ROOT --disk 64MiB").fails(1);
    assert!(error.contains("has the layout reorder"), "{error}");
    assert!(log.join("00000000.ordered").exists());
    assert_eq!(place.warm("--disk-layout packed")["held"], 10);
    assert_eq!(place.status()["layout"], "packed");
}

/// A server of samples that stops answering for them after a while.
struct Server {
    port: u16,
    state: Arc<(Mutex<State>, Condvar)>,
}

struct State {
    samples: usize,
    bytes: usize,
    /// Samples that were asked for.
    asked: usize,
    /// Samples that are answered.
    allowed: usize,
    /// This one can be listed but not read.
    gone: Option<usize>,
}

impl Server {
    fn start(samples: usize, bytes: usize, allowed: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            samples,
            bytes,
            asked: 0,
            allowed,
            gone: None,
        };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { port, state }
    }

    fn asked(&self) -> usize {
        self.state.0.lock().unwrap().asked
    }

    fn allow_all(&self) {
        self.state.0.lock().unwrap().allowed = usize::MAX;
        self.state.1.notify_all();
    }
}

/// One request, then the connection ends.
fn serve(mut stream: TcpStream, (state, changed): &(Mutex<State>, Condvar)) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let request = lines.next()?.ok()?;
    let mut range = None;
    while let Some(Ok(line)) = lines.next()
        && !line.is_empty()
    {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            let (from, to) = value.split_once('-')?;
            range = Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?));
        }
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let mut guard = state.lock().unwrap();
    let gone = method == "GET"
        && guard
            .gone
            .is_some_and(|gone| path == format!("/data/s{gone}"));
    let body = match path.strip_prefix("/data/s")?.parse() {
        Ok(sample) => content(sample, guard.bytes),
        Err(_) => {
            let rows = (0..guard.samples).map(|sample| format!("s{sample},0\n"));
            format!("path,label\n{}", rows.collect::<String>()).into_bytes()
        }
    };
    if method == "GET" && !path.ends_with(".csv") {
        guard.asked += 1;
        let turn = guard.asked;
        drop(
            changed
                .wait_while(guard, |state| state.allowed < turn)
                .unwrap(),
        );
    } else {
        drop(guard);
    }
    let all = body.len();
    let (status, part, extra) = match range {
        _ if gone => ("404 Not Found", &body[..0], String::new()),
        Some((from, to)) => {
            let to = to.min(all - 1);
            let extra = format!("Content-Range: bytes {from}-{to}/{all}\r\n");
            ("206 Partial Content", &body[from..=to], extra)
        }
        None => ("200 OK", &body[..], String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"v1\"\r\n\
         Last-Modified: Tue, 01 Jul 2025 10:00:00 GMT\r\nConnection: close\r\n{extra}\r\n",
        part.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    if method == "GET" {
        stream.write_all(part).ok()?;
    }
    Some(())
}

#[test]
fn ctrl_c_keeps_what_was_read_and_the_same_command_goes_on_from_there() {
    let server = Server::start(60, 20_000, 30);
    let place = Place::new(0, 0);
    let url = format!("http://127.0.0.1:{}/data", server.port);
    // Chunks of a small log are small: some are written before the server stands still.
    let line = format!("warm {url} --manifest {url}/samples.csv --disk 8MiB --seed 1 --json");
    let mut warm = place.command(&line);
    let mut child = warm
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let held = || {
        let document = place.run("status --json").json();
        document["logs"][0]["held"].as_u64().unwrap_or(0)
    };
    while held() < 10 {
        assert!(
            child.try_wait().unwrap().is_none(),
            "{:?}",
            child.wait_with_output()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(place.status()["writer"], child.id());
    let number = Pid::from_raw(child.id() as i32).unwrap();
    kill_process(number, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{error}");
    let stopped: Value = serde_json::from_slice(&output.stdout).unwrap();
    let held = stopped["held"].as_u64().unwrap();
    assert!((10..=30).contains(&held), "{stopped}");
    assert_eq!(stopped["stopped"], true);
    let status = place.status();
    assert_eq!(
        (&status["held"], &status["writer"]),
        (&json!(held), &Value::Null)
    );
    assert!(
        place
            .run("verify")
            .ok()
            .contains(&format!("verified    {held} samples"))
    );

    server.allow_all();
    let before = server.asked();
    let done = place.run(&line).json();
    assert_eq!(
        (&done["held"], &done["read"]),
        (&json!(60), &json!(60 - held))
    );
    assert_eq!(server.asked() - before, (60 - held) as usize);
    assert!(
        place
            .run("verify")
            .ok()
            .contains("verified    60 samples, 1.1 MiB")
    );
}
