//! `forebay cache`: status, verify and clear, and the command line of all four.

mod forebay;

use std::fs;

use forebay::place::{Place, content, du, lock};
use forebay::run;
use serde_json::{Value, json};

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
