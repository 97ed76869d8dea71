//! `forebay cache warm` on folders, and on a server that stands still.

mod forebay;

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use forebay::place::{Place, content, du};
use forebay::run;
use forebay::server::Server;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

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
