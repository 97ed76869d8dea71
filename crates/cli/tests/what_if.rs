//! `forebay sim what-if` on folders of files.

mod forebay;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use forebay::{Ran, command, file, finish};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

const SAMPLES: usize = 64;

/// 64 files of one to four parts, and a cache of its own.
struct Place(TempDir);

impl Place {
    /// A part is a block.
    fn new() -> Self {
        Self::with_parts_of(4000)
    }

    fn with_parts_of(bytes: usize) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for sample in 0..SAMPLES {
            let name = format!("c{}/{sample}.bin", sample % 2);
            file(&place.root().join(name), bytes * (1 + sample % 4));
        }
        place
    }

    fn root(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap().join("train")
    }

    fn ask(&self, rest: &str) -> Ran {
        let root = self.root();
        let mut arguments = vec!["sim", "what-if", root.to_str().unwrap()];
        arguments.extend(rest.split_whitespace());
        finish(command(&arguments).env("FOREBAY_CACHE", self.0.path().join("cache")))
    }
}

fn figures(rows: &Value, name: &str) -> Vec<f64> {
    let rows = rows["rows"].as_array().unwrap();
    rows.iter().map(|row| row[name].as_f64().unwrap()).collect()
}

#[test]
fn every_size_of_memory_and_disk_has_its_row() {
    let place = Place::with_parts_of(100_000);
    let rest = "--json --batch-size 8 --memory 4MiB,8MiB,64MiB --disk 0,64MiB --step-ms 1 \
                --policy farthest,lru --price-per-gb 1 --price-per-1000-requests 2";
    let answer = place.ask(rest).json();
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    assert_eq!(
        (&rows[0]["policy"], &rows[11]["policy"]),
        (&"farthest".into(), &"lru".into())
    );
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap();
        let found = number("memory_hits") + number("disk_hits") + number("origin_reads");
        assert_eq!(found, SAMPLES as f64, "{row}");
        assert!(
            number("seconds") >= 0.008 && (0.0..1.0).contains(&number("waiting")),
            "{row}"
        );
        let cost = number("origin_bytes") / 1e9 + number("origin_reads") * 2.0 / 1e3;
        assert!((number("cost") - cost).abs() < 1e-9, "{row}");
        // Memory and disk are empty at first, and nothing is there twice.
        let first = &row["epochs"][0];
        assert_eq!(
            first["origin_reads"].as_f64(),
            Some(SAMPLES as f64),
            "{row}"
        );
    }
    let hits = figures(&answer, "memory_hits");
    assert!(hits[0] < hits[1] && hits[1] < hits[2], "{hits:?}");
    assert_eq!(hits[2], SAMPLES as f64, "all of it fits");
    // As much as fits, and no more.
    assert!(hits[0] * 100_000.0 <= f64::from(4 << 20), "{hits:?}");
    // A disk that has everything leaves nothing to the origin.
    assert_eq!(figures(&answer, "origin_reads")[3..6], [0.0; 3]);
}

#[test]
fn a_disk_is_of_no_use_to_too_little_memory_as_in_the_engine() {
    let answer = Place::new()
        .ask("--json --memory 256KiB --disk 0,64MiB")
        .json();
    let reads = figures(&answer, "origin_reads");
    assert!(reads[0] > 0.0 && reads[0] == reads[1], "{reads:?}");
    assert_eq!(figures(&answer, "disk_hits"), [0.0, 0.0]);
}

#[test]
fn more_figures_than_memory_holds_are_refused() {
    let place = Place::new();
    for (rest, words) in [
        (
            "--ranks 65536 --epochs 10000",
            "--epochs: 655360000 epochs of ranks",
        ),
        (
            "--ranks 65536 --nodes 65536 --epochs 100",
            "--epochs: 6553600 epochs of ranks",
        ),
    ] {
        let said = place.ask(&format!("{rest} --batch-size 1")).fails(2);
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_directory_alone_is_answered_with_what_was_assumed() {
    let text = Place::new().ask("").ok();
    for words in [
        "64 samples",
        "1 rank, batches of 256, 100 ms each",
        "1000 MB/s",
        "from memory",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().last().unwrap().contains("100.0 %"), "{text}");
}

#[test]
fn a_slower_origin_makes_training_wait_longer() {
    let place = Place::new();
    let wait = |mbps: &str| {
        let rest = format!(
            "--json --memory 256KiB --batch-size 8 --step-ms 1 --threads 1 --origin-mbps {mbps}"
        );
        figures(&place.ask(&rest).json(), "waiting")[0]
    };
    let (slow, quick) = (wait("1"), wait("10000"));
    assert!(slow > 0.9 && quick < slow, "{slow} {quick}");
}

#[test]
fn the_drawing_has_a_line_for_each_policy_and_disk() {
    let place = Place::new();
    let path = place.0.path().join("sizes.svg");
    let rest = format!(
        "--memory 256KiB,1MiB --policy farthest,lru --disk 0,1MiB --plot {}",
        path.display()
    );
    let text = place.ask(&rest).ok();
    assert!(text.contains("sizes.svg"), "{text}");
    let drawing = fs::read_to_string(path).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.ends_with("</svg>\n"));
    // Two panels with a dashed line each, one without, for four series.
    assert_eq!(drawing.matches("<polyline ").count(), 4 * 5);
    for words in [
        "farthest",
        "lru, disk of 1.0 MiB",
        "256.0 KiB",
        "64 samples",
    ] {
        assert!(drawing.contains(words), "{words}");
    }
    assert!(!drawing.contains("NaN") && !drawing.contains("inf"));
}

#[test]
fn absurd_questions_are_refused_by_name() {
    let place = Place::new();
    for (rest, words) in [
        (
            "--memory 0",
            "--memory: 0 bytes do not hold the longest sample",
        ),
        ("--memory 8KiB", "--memory: 8192 bytes do not hold"),
        ("--memory 8GB,,", "--memory"),
        ("--memory lots", "not a size"),
        ("--disk -1", "not a size"),
        ("--policy best", "--policy: \"best\" is not one of farthest"),
        (
            "--step-ms -1",
            "--step-ms: -1 is not a number from 0 to 86400000",
        ),
        ("--step-ms NaN", "--step-ms: NaN is not a number"),
        ("--step-ms inf", "--step-ms: inf is not a number"),
        ("--prepare-ms -1", "--prepare-ms: -1"),
        ("--batch-size 0", "--batch-size"),
        ("--ranks 0", "--ranks"),
        (
            "--ranks 70000 --nodes 1",
            "--ranks: 70000 is not a number from 1 to 65536",
        ),
        (
            "--ranks 3 --nodes 2",
            "--nodes: 3 ranks do not go evenly onto 2 nodes",
        ),
        ("--nodes 2", "--nodes: 2 is not a number from 1 to 1"),
        ("--epochs 0", "--epochs"),
        ("--epochs 10001", "--epochs: 10001"),
        ("--threads 2000", "--threads: 2000"),
        (
            "--origin-mbps 0",
            "--origin-mbps: 0 is not a number from 0.001",
        ),
        ("--origin-latency-ms -3", "--origin-latency-ms: -3"),
        ("--disk-mbps 0", "--disk-mbps: 0"),
        ("--disk-latency-ms -3", "--disk-latency-ms: -3"),
        ("--price-per-gb -1", "--price-per-gb: -1"),
        (
            "--price-per-1000-requests -1",
            "--price-per-1000-requests: -1",
        ),
        ("--plot sizes.png", "--plot: sizes.png does not end in .svg"),
        (
            "--plot nowhere/sizes.svg",
            "--plot: there is no folder nowhere",
        ),
    ] {
        let ran = place.ask(rest);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{rest}: {}", ran.err);
        assert!(ran.err.contains(words), "{rest}: {}", ran.err);
    }
    let many = vec!["1MiB"; 1001].join(",");
    let err = place.ask(&format!("--memory {many}")).fails(2);
    assert!(err.contains("1001 answers are too many"), "{err}");
}

#[test]
fn ctrl_c_ends_a_long_answer() {
    let place = Place::new();
    let (root, many) = (place.root(), vec!["1MiB"; 1000].join(","));
    let line = format!(
        "sim what-if {} --epochs 10000 --memory {many}",
        root.display()
    );
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let mut child = command(&arguments)
        .env("FOREBAY_CACHE", place.0.path().join("cache"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // SIGTERM is the last of the signals that it begins to answer.
    let answers = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() >> 14 & 1 == 1)
    };
    let status = format!("/proc/{}/status", child.id());
    while !answers(&fs::read_to_string(&status).unwrap()) {
        assert!(
            child.try_wait().unwrap().is_none(),
            "{:?}",
            child.wait_with_output()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let number = Pid::from_raw(child.id() as i32).unwrap();
    kill_process(number, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(130), &b""[..])
    );
}
