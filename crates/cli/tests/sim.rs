//! `forebay sim paper` at a small scale: the tables hold what theory says.

mod forebay;

use std::process::Stdio;
use std::time::Duration;

use forebay::{command, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn of<'a>(rows: &'a Value, policy: &str) -> &'a Value {
    let rows = rows.as_array().expect("a list");
    let row = rows.iter().find(|row| row["policy"] == policy);
    row.unwrap_or_else(|| panic!("no row of {policy}"))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn lobsters_table_keeps_hits_and_ready_apart_and_no_policy_passes_its_ceiling() {
    let table = run(&["sim", "paper", "lobster", "--scale", "0.02", "--json"]).json();
    let ceiling = number(&table["ceiling"]);
    assert!((ceiling - 40.0 / 135.0).abs() < 1e-6);
    let hits = |policy| number(&of(&table["rows"], policy)["hit_ratio"]);
    for policy in ["lru", "dali", "minio", "nopfs", "reuse", "farthest"] {
        assert!(hits(policy) <= ceiling + 1e-9, "{policy}: {}", hits(policy));
        let row = of(&table["rows"], policy);
        let ready = number(&row["ready_ratio"]);
        assert!(ready > hits(policy) && ready <= 1.0, "{policy}: {ready}");
    }
    for policy in ["minio", "nopfs", "reuse", "farthest"] {
        assert!(hits(policy) > 0.29, "{policy}: {}", hits(policy));
    }
    for policy in ["lru", "dali"] {
        assert!((0.04..0.06).contains(&hits(policy)), "{}", hits(policy));
    }
    assert_eq!(of(&table["rows"], "reuse")["paper"], 0.632);
    assert_eq!(of(&table["rows"], "farthest")["paper"], Value::Null);

    let jobs = &table["jobs"];
    let shared = |policy| number(&of(&jobs["rows"], policy)["hit_ratio"]);
    assert!(shared("farthest") > 1.5 * shared("minio"));
    assert!(shared("farthest") <= number(&jobs["ceiling"]) + 1e-9);

    let nodes = &table["nodes"];
    for policy in ["lru", "minio"] {
        let row = of(&nodes["with_peers"], policy);
        assert_eq!(number(&row["origin_ratio"]), 0.0, "all is on some node");
        let alone = of(&nodes["without_peers"], policy);
        assert!(number(&alone["origin_ratio"]) > 0.6);
    }
    let eviction = table["eviction"].as_array().expect("a list");
    for case in eviction {
        assert!(
            number(&case["farthest"]) <= number(&case["optimum"]) + 1e-9,
            "{case}"
        );
    }
}

#[test]
fn the_same_run_prints_the_same_table_for_people() {
    let arguments = ["sim", "paper", "lobster", "--scale", "0.001"];
    let first = run(&arguments).ok();
    assert_eq!(first, run(&arguments).ok());
    for words in [
        "One node",
        "Eight nodes",
        "Two jobs",
        "2*I-h (reuse)",
        "farthest",
        "origin",
    ] {
        assert!(first.contains(words), "{words}:\n{first}");
    }
}

#[test]
fn lcaches_table_has_the_papers_ratios_beside_ours() {
    let table = run(&["sim", "paper", "lcache", "--scale", "0.02", "--json"]).json();
    let rows = table["rows"].as_array().expect("a list");
    let row = |system: &str, disk: &str| {
        let mut rows = rows.iter();
        let row = rows.find(|row| row["system"] == system && row["disk"] == disk);
        row.expect("a row")
    };
    let speedup = |system, disk| number(&row(system, disk)["speedup"]);
    assert!(speedup("lcache", "full") > 8.0);
    assert!(
        (speedup("lcache", "half") - 1.45).abs() < 0.15,
        "{}",
        speedup("lcache", "half")
    );
    // One copy on the disk instead of two: more of the dataset is there.
    assert!(speedup("packed", "half") > speedup("lcache", "half"));
    assert!(number(&row("packed", "half")["log_ratio"]) > 0.45);
    assert_eq!(
        number(&row("packed", "full")["bytes_written_per_epoch"]),
        0.0
    );
    assert!(
        run(&["sim", "paper", "lcache", "--scale", "0.005"])
            .ok()
            .contains("packed")
    );
}

#[test]
fn without_a_name_the_papers_are_listed() {
    let text = run(&["sim", "paper"]).ok();
    assert!(
        text.contains("lobster") && text.contains("lcache"),
        "{text}"
    );
    let list = run(&["sim", "paper", "--json"]).json();
    assert_eq!(list["papers"][0]["name"], "lobster");
    assert_eq!(run(&["sim", "paper", "lobster", "--scale", "2"]).code, 2);
    assert_eq!(run(&["sim", "paper", "alexnet"]).code, 2);
}

#[test]
fn ctrl_c_ends_it_with_the_code_of_the_signal() {
    // Too early, and the signal finds a process that does not listen yet.
    let ended = [1, 5, 20, 60].into_iter().any(|seconds| {
        let mut child = command(&["sim", "paper", "lobster"])
            .stdout(Stdio::null())
            .spawn()
            .expect("the command starts");
        std::thread::sleep(Duration::from_secs(seconds));
        kill_process(Pid::from_child(&child), Signal::INT).expect("it still runs");
        child.wait().expect("a child").code() == Some(130)
    });
    assert!(ended);
}
