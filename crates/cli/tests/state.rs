//! `forebay state` on files as Python writes them.

mod forebay;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use forebay::{Ran, run};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with `loader.json` in it.
struct Saved {
    folder: TempDir,
    file: PathBuf,
}

fn planned() -> Value {
    json!({"kind": "planned", "seed": 7, "epoch": 3})
}

fn state(order: Value) -> Value {
    json!({
        "version": 1, "kind": "forebay.DataLoader", "samples": 1000, "fingerprint": "00ff",
        "epoch": 3, "consumed": 256, "batches": 4, "order": order,
    })
}

fn save(content: &str) -> Saved {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loader.json");
    fs::write(&file, content).unwrap();
    Saved { folder, file }
}

impl Saved {
    fn of(order: Value) -> Self {
        save(&state(order).to_string())
    }

    fn run(&self, command: &str, rest: &str) -> Ran {
        let mut arguments = vec!["state", command, self.file.to_str().unwrap()];
        arguments.extend(rest.split_whitespace());
        run(&arguments)
    }

    fn skip(&self, rest: &str) -> Ran {
        self.run("skip", rest)
    }

    fn read(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(&self.file).unwrap()).unwrap()
    }

    /// Epoch, consumed, batches, order.
    fn position(&self) -> (u64, u64, u64, Value) {
        let read = self.read();
        let number = |name: &str| read[name].as_u64().unwrap();
        let numbers = (number("epoch"), number("consumed"), number("batches"));
        (numbers.0, numbers.1, numbers.2, read["order"].clone())
    }
}

#[test]
fn show_says_where_a_loader_is() {
    let saved = Saved::of(planned());
    let expected = format!(
        "{}\n  epoch       3\n  consumed    256 of 1,000 samples (25.6 %)\n  \
         batches     4 on each rank\n  order       planned: seed 7, epoch 3\n  \
         dataset     1,000 samples\n  fingerprint 00ff\n",
        saved.file.display()
    );
    assert_eq!(saved.run("show", "").ok(), expected);
    assert_eq!(saved.run("show", "--json").json(), state(planned()));
}

#[test]
fn show_knows_every_order() {
    for (order, words) in [
        (json!(null), "not drawn yet"),
        (
            json!({"kind": "planned", "seed": null, "epoch": 3}),
            "sequential, epoch 3",
        ),
        (json!({"kind": "drawn", "seed": 5}), "drawn: seed 5"),
        (
            json!({"kind": "generator", "state": "AAEC"}),
            "from a generator in state ",
        ),
        (json!({"kind": "sampler"}), "a sampler's own"),
        (json!({"kind": "stream"}), "an iterable dataset's own"),
        (
            json!({"kind": "drawn", "between": {"base": "AAEC"}}),
            "not drawn yet: the state has its generators",
        ),
    ] {
        let text = Saved::of(order).run("show", "").ok();
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn skipped_batches_count_on_all_ranks() {
    let saved = Saved::of(planned());
    let text = saved
        .skip("--batches 3 --batch-size 16 --world-size 4")
        .ok();
    assert_eq!(saved.position(), (3, 448, 7, planned()));
    assert!(text.contains("consumed    256 -> 448\n"), "{text}");
    assert!(text.contains("batches     4 -> 7\n"), "{text}");
    saved.skip("--batches 1 --batch-size 2").ok();
    assert_eq!(saved.position(), (3, 450, 8, planned()));
    saved.skip("--samples 50").ok();
    assert_eq!(saved.position(), (3, 500, 8, planned()));
}

#[test]
fn a_plan_is_not_left_beyond_its_end() {
    let saved = Saved::of(planned());
    // 744 are left: eleven batches of 64 and a short one.
    let ran = saved.skip("--batches 99 --batch-size 64");
    assert!(
        ran.err.contains("warning: this is the end of epoch 3"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("--epoch 4"), "{}", ran.err);
    assert_eq!(ran.code, 0);
    assert_eq!(saved.position(), (3, 1000, 16, planned()));
    saved.skip("--samples 18446744073709551615").ok();
    assert_eq!(saved.position(), (3, 1000, 16, planned()));
    let text = saved.run("show", "").ok();
    assert!(text.contains("(100.0 %), the end of the epoch"), "{text}");
}

#[test]
fn a_drawn_order_may_be_longer_than_the_dataset() {
    let drawn = json!({"kind": "drawn", "seed": 5});
    let saved = Saved::of(drawn.clone());
    let ran = saved.skip("--batches 20 --batch-size 64");
    assert!(
        ran.err.contains("past the dataset's 1000 samples"),
        "{}",
        ran.err
    );
    assert_eq!(saved.position(), (3, 256 + 1280, 24, drawn));
}

#[test]
fn a_samplers_own_order_is_skipped_by_batches_alone() {
    let sampler = json!({"kind": "sampler"});
    let saved = Saved::of(sampler.clone());
    saved.skip("--batches 5").ok();
    assert_eq!(saved.position(), (3, 256, 9, sampler));
    let error = saved.skip("--samples 5").fails(1);
    assert!(
        error.contains("samples cannot be counted\nhint: pass --batches"),
        "{error}"
    );
}

#[test]
fn an_epochs_start_is_the_plans_too() {
    let saved = Saved::of(planned());
    let ran = saved.skip("--epoch 9");
    assert_eq!(ran.err, "");
    let order = json!({"kind": "planned", "seed": 7, "epoch": 9});
    assert_eq!(saved.position(), (9, 0, 0, order));
}

#[test]
fn an_order_that_was_drawn_is_drawn_anew_in_another_epoch() {
    for order in [
        json!({"kind": "drawn", "seed": 5}),
        json!({"kind": "drawn", "between": {"base": "AAEC"}}),
        json!({"kind": "generator", "state": "AAEC"}),
    ] {
        let saved = Saved::of(order);
        let ran = saved.skip("--epoch 4");
        assert!(
            ran.err
                .contains("warning: the order of epoch 4 is not known ahead"),
            "{}",
            ran.err
        );
        assert_eq!(saved.position(), (4, 0, 0, Value::Null));
    }
}

#[test]
fn what_an_order_has_beside_its_seed_stays() {
    let order = json!({"kind": "drawn", "seed": 5, "base_seed": 8, "after": {"base": "AAEC"}});
    let saved = Saved::of(order.clone());
    saved.skip("--batches 1 --batch-size 2").ok();
    assert_eq!(saved.position(), (3, 258, 5, order));
}

#[test]
fn a_position_in_words_of_the_users_own_is_not_moved() {
    let own = json!({"kind": "sampler", "sampler_state": {"i": 4}});
    let saved = Saved::of(own);
    let error = saved.skip("--batches 1").fails(1);
    assert!(error.contains("hint: pass --epoch"), "{error}");
    saved.skip("--epoch 4").ok();
    assert_eq!(saved.position(), (4, 0, 0, json!({"kind": "sampler"})));

    let mut state = state(json!({"kind": "stream"}));
    state["samples"] = Value::Null;
    state["_snapshot"] = json!({"_worker_snapshots": {}});
    let saved = save(&state.to_string());
    assert!(saved.run("show", "").ok().contains("unknown samples"));
    saved.skip("--batches 1").fails(1);
    saved.skip("--epoch 4").ok();
    assert_eq!(saved.read().get("_snapshot"), None);
}

#[test]
fn skip_in_json_says_before_and_after() {
    let saved = Saved::of(planned());
    let document = saved.skip("--samples 4 --json").json();
    assert_eq!(document["before"], state(planned()));
    assert_eq!(document["after"], saved.read());
    assert_eq!(document["notes"], json!([]));
}

#[test]
fn an_output_file_leaves_the_state_alone() {
    let saved = Saved::of(planned());
    let before = saved.read();
    let output = saved.folder.path().join("other.json");
    saved
        .skip(&format!("--epoch 5 --output {}", output.display()))
        .ok();
    assert_eq!(saved.read(), before);
    let written: Value = serde_json::from_str(&fs::read_to_string(output).unwrap()).unwrap();
    assert_eq!(written["epoch"], 5);
}

#[test]
fn the_rest_of_a_checkpoint_stays_byte_for_byte() {
    let around = |state: &str| {
        format!(
            "{{\n  \"loss\": 0.12345000,\n  \"loader\": {state},\n  \"é\": [1e400, 18446744073709551616]\n}}\n"
        )
    };
    let before = state(planned()).to_string();
    let saved = save(&around(&before));
    let error = saved.skip("--epoch 4").fails(1);
    assert!(
        error.contains("hint: there is one in it: pass --key loader"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&saved.file).unwrap(), around(&before));

    saved.skip("--epoch 4 --key loader").ok();
    let text = fs::read_to_string(&saved.file).unwrap();
    let (start, rest) = text.split_once("\"loader\": ").unwrap();
    let (after, end) = rest.split_once(",\n  \"é\"").unwrap();
    assert_eq!(around(after), text, "{start}{end}");
    assert_eq!(serde_json::from_str::<Value>(after).unwrap()["epoch"], 4);

    let error = saved.run("show", "--key model").fails(1);
    assert!(
        error.contains("no key \"model\"\nhint: it has: loader, loss, é"),
        "{error}"
    );
    let error = saved.run("show", "--key loss").fails(1);
    assert!(
        error.contains("not the state of a forebay.DataLoader"),
        "{error}"
    );
}

#[test]
fn an_indented_state_stays_indented() {
    let saved = save(&serde_json::to_string_pretty(&json!({"loader": state(planned())})).unwrap());
    saved.skip("--epoch 3 --key loader").ok();
    let text = fs::read_to_string(&saved.file).unwrap();
    assert!(text.contains("\n    \"consumed\": 0,\n"), "{text}");
    assert!(text.ends_with("\n    }\n  }\n}"), "{text}");
}

#[test]
fn a_rewritten_file_keeps_its_rights_and_its_link() {
    let saved = Saved::of(planned());
    fs::set_permissions(&saved.file, fs::Permissions::from_mode(0o640)).unwrap();
    let link = saved.folder.path().join("latest.json");
    symlink(&saved.file, &link).unwrap();
    run(&["state", "skip", link.to_str().unwrap(), "--epoch", "8"]).ok();
    assert_eq!(saved.position().0, 8);
    assert!(link.is_symlink());
    let mode = fs::metadata(&saved.file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    // Nothing but the file and the link is left behind.
    assert_eq!(fs::read_dir(saved.folder.path()).unwrap().count(), 2);
}

#[test]
fn diff_tells_what_differs() {
    let a = Saved::of(planned());
    let b = a.folder.path().join("b.json");
    let b = b.to_str().unwrap();
    fs::copy(&a.file, b).unwrap();
    assert_eq!(a.run("diff", b).ok(), "no difference\n");
    let same = json!({"same": true, "differences": {}});
    assert_eq!(a.run("diff", &format!("{b} --json")).json(), same);

    a.skip(&format!("--batches 2 --batch-size 8 --output {b}"))
        .ok();
    let expected = "  consumed    256 -> 272 (+16)\n  batches     4 -> 6 (+2)\n";
    assert_eq!(a.run("diff", b).ok(), expected);
    let differences = json!({"consumed": [256, 272], "batches": [4, 6]});
    let expected = json!({"same": false, "differences": differences});
    assert_eq!(a.run("diff", &format!("{b} --json")).json(), expected);
}

#[test]
fn what_is_not_a_state_is_refused() {
    let without = |name: &str| {
        let mut state = state(planned());
        state.as_object_mut().unwrap().remove(name);
        state.to_string()
    };
    let with = |name: &str, value: Value| {
        let mut state = state(planned());
        state[name] = value;
        state.to_string()
    };
    for (content, words) in [
        (
            "{\"version\": 1,",
            "loader.json: not JSON: EOF while parsing",
        ),
        ("", "loader.json: not JSON: EOF while parsing"),
        (
            "[1, 2]",
            "loader.json: not the state of a forebay.DataLoader\nhint: a state is kept by json.dump(",
        ),
        ("{}", "not the state of a forebay.DataLoader"),
        (
            &with("kind", json!("other")),
            "not the state of a forebay.DataLoader",
        ),
        (
            &with("version", json!(2)),
            "state has version 2, this forebay reads 1",
        ),
        (
            &with("consumed", json!(-1)),
            "state is damaged: consumed is -1",
        ),
        (&with("epoch", json!(1.5)), "state is damaged: epoch is 1.5"),
        (
            &with("order", json!({"kind": "x"})),
            "state is damaged: order.kind is \"x\"",
        ),
        (
            &without("samples"),
            "state is damaged: it has no \"samples\"",
        ),
        (&without("order"), "state is damaged: it has no \"order\""),
    ] {
        let saved = save(content);
        for (command, rest) in [("show", ""), ("skip", "--epoch 1"), ("diff", "/dev/null")] {
            let error = saved.run(command, rest).fails(1);
            assert!(error.contains(words), "{content}: {error}");
        }
        assert_eq!(fs::read_to_string(&saved.file).unwrap(), content);
    }
    let saved = save("");
    fs::write(&saved.file, b"PK\x03\x04\xff\xfe").unwrap();
    let error = saved.run("show", "").fails(1);
    assert!(error.contains("loader.json: not JSON\nhint: "), "{error}");
    let error = run(&["state", "show", "/nowhere/x.json"]).fails(1);
    assert!(error.contains("/nowhere/x.json: No such file"), "{error}");
}

#[test]
fn how_far_to_skip_is_said_once_and_in_full() {
    let saved = Saved::of(planned());
    let before = saved.read();
    for (rest, words) in [
        ("", "required arguments were not provided"),
        ("--epoch 1 --samples 2", "cannot be used with"),
        (
            "--batches 3",
            "--batches without the size of a batch\nhint: pass --batch-size",
        ),
        ("--batches -3 --batch-size 2", "not a whole number from 0"),
        ("--batches 3 --batch-size 0", "not a whole number from 1"),
        (
            "--batches 3 --batch-size 2 --world-size 0",
            "not a whole number from 1",
        ),
        ("--samples 3 --batch-size 2", "cannot be used with"),
    ] {
        let error = saved.skip(rest).fails(2);
        assert!(error.contains(words), "{rest}: {error}");
    }
    assert_eq!(saved.read(), before);
}
