//! `forebay order` against the plan, and against torch.

mod forebay;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use forebay::{command, run};
use forebay_plan::{Deal, Order, Plan, Uneven};

fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect()
}

#[test]
fn the_order_is_that_of_torch() {
    // torch.randperm(10, generator=torch.Generator().manual_seed(3)), and of seed 8.
    let third = "6\n0\n3\n7\n8\n5\n1\n9\n2\n4\n";
    let eighth = "3\n5\n0\n1\n2\n6\n4\n7\n8\n9\n";
    let order = |rest: &str| {
        let line = format!("order --samples 10 {rest}");
        run(&line.split(' ').collect::<Vec<_>>()).ok()
    };
    assert_eq!(order("--seed 3"), third);
    assert_eq!(order("--seed 0 --epoch 3"), third);
    assert_eq!(order("--seed 3 --epoch 5"), eighth);
    assert_eq!(order("--seed 3 --head 2"), "6\n0\n");
    assert_eq!(order("--seed 3 --head 0"), "");
    assert_eq!(order("--seed 3 --batch-size 4"), "6 0 3 7\n8 5 1 9\n2 4\n");
    assert_eq!(
        order("--seed 3 --batch-size 4 --drop-last"),
        "6 0 3 7\n8 5 1 9\n"
    );
    assert_eq!(order("--seed 3 --rank 1 --world-size 3"), "0\n8\n9\n6\n");
    assert_eq!(
        order("--seed 3 --rank 1 --world-size 3 --uneven drop"),
        "0\n8\n9\n"
    );
    assert_eq!(
        order("--seed 3 --rank 2 --world-size 3 --uneven keep"),
        "3\n5\n2\n"
    );
    assert_eq!(
        order("--seed 3 --rank 1 --world-size 2 --batch-size 3 --deal batches"),
        "7 8 5\n4 6 0\n"
    );
}

#[test]
fn a_sequential_order_needs_no_seed() {
    let arguments = [
        "order",
        "--samples",
        "4_000_000_000",
        "--sequential",
        "--head",
        "3",
    ];
    assert_eq!(run(&arguments).ok(), "0\n1\n2\n");
}

#[test]
fn every_rank_has_the_samples_that_its_plan_gives() {
    let uneven = Uneven::Pad;
    let order = Order::Seeded { seed: 11 };
    let plan = Plan::new(1003, order, Deal::Strided { uneven }, 4, Some(7), false).unwrap();
    let epoch = plan.epoch(2);
    for rank in 0..4 {
        let line = format!(
            "order --samples 1003 --seed 11 --epoch 2 --rank {rank} --world-size 4 --batch-size 7"
        );
        let text = run(&line.split(' ').collect::<Vec<_>>()).ok();
        assert_eq!(numbers(&text), epoch.rank(rank).collect::<Vec<_>>());
        assert_eq!(text.lines().count() as u64, epoch.batches(rank));
    }
}

#[test]
fn drop_last_drops_uneven_samples_too_as_the_loader_does() {
    let line = "order --samples 11 --sequential --rank 0 --world-size 2 --batch-size 3 --drop-last";
    let text = run(&line.split(' ').collect::<Vec<_>>()).ok();
    assert_eq!(text, "0 2 4\n");
    let padded = format!("{line} --uneven pad");
    let text = run(&padded.split(' ').collect::<Vec<_>>()).ok();
    assert_eq!(text, "0 2 4\n6 8 10\n");
}

#[test]
fn json_says_the_settings_and_the_samples() {
    let line = "order --samples 5 --sequential --rank 0 --world-size 2 --json";
    let document = run(&line.split(' ').collect::<Vec<_>>()).json();
    let expected = serde_json::json!({
        "samples": 5, "seed": null, "epoch": 0, "rank": 0, "world_size": 2,
        "batch_size": null, "order": [0, 2, 4],
    });
    assert_eq!(document, expected);
    let line = "order --samples 5 --seed 18446744073709551615 --batch-size 2 --json --head 2";
    let document = run(&line.split(' ').collect::<Vec<_>>()).json();
    assert_eq!(document["seed"], u64::MAX);
    assert_eq!(document["batches"].as_array().unwrap().len(), 2);
    let line = "order --samples 0 --seed 1 --json";
    let document = run(&line.split(' ').collect::<Vec<_>>()).json();
    assert_eq!(document["order"], serde_json::json!([]));
}

#[test]
fn a_reader_that_stops_early_ends_it_quietly() {
    let mut child = command(&["order", "--samples", "3000000", "--sequential"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut first).unwrap();
    drop(reader);
    let output = child.wait_with_output().unwrap();
    assert_eq!(first, "0\n");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn settings_that_cannot_be_are_usage_errors() {
    for (line, words) in [
        (
            "--samples -1 --seed 1",
            "invalid value '-1' for '--samples <N>': not a whole number from 0 to 4294967295",
        ),
        (
            "--samples 4294967296 --seed 1",
            "not a whole number from 0 to 4294967295",
        ),
        (
            "--samples ten --seed 1",
            "not a whole number from 0 to 4294967295",
        ),
        (
            "--samples 10 --seed -3",
            "invalid value '-3' for '--seed <S>'",
        ),
        (
            "--samples 10 --seed 1 --epoch -1",
            "invalid value '-1' for '--epoch <E>'",
        ),
        (
            "--samples 10 --seed 1 --rank 2 --world-size 2",
            "rank 2 is outside a world of 2\nhint: ranks count from 0 to world size - 1",
        ),
        (
            "--samples 10 --seed 1 --rank 0 --world-size 0",
            "not a whole number from 1 to 4294967295",
        ),
        ("--samples 10 --seed 1 --rank 1", "--world-size <W>"),
        ("--samples 10 --seed 1 --world-size 2", "--rank <R>"),
        (
            "--samples 10 --seed 1 --batch-size 0",
            "not a whole number from 1 to 4294967295",
        ),
        ("--samples 10 --seed 1 --sequential", "cannot be used with"),
        ("--samples 10", "--seed <S>"),
        ("--samples 10 --seed 1 --drop-last", "--batch-size <B>"),
        (
            "--samples 10 --seed 1 --deal batches",
            "--deal batches without a batch size\nhint: pass --batch-size as well",
        ),
        (
            "--samples 10 --seed 1 --batch-size 2 --deal batches --uneven pad",
            "--uneven does not go with --deal batches",
        ),
        (
            "--samples 10 --seed 1 --uneven some",
            "[possible values: pad, drop, keep]",
        ),
    ] {
        let line = format!("order {line}");
        let error = run(&line.split(' ').collect::<Vec<_>>()).fails(2);
        assert!(error.contains(words), "{line}: {error}");
    }
}
