//! `forebay index` and `forebay inspect` on folders of files.

mod forebay;

use std::fs;
use std::path::{Path, PathBuf};

use forebay::{Ran, command, file, finish};
use serde_json::json;
use tempfile::TempDir;

/// A dataset of two classes, and a cache of its own.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self::empty();
        file(&place.root().join("cat/1.jpg"), 1000);
        file(&place.root().join("cat/2.jpg"), 3000);
        file(&place.root().join("cat/notes.txt"), 10);
        file(&place.root().join("dog/3.PNG"), 5000);
        place
    }

    fn empty() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("train")).unwrap();
        Self { folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("train")
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn run_at(&self, url: &Path, subcommand: &str, rest: &str) -> Ran {
        let mut arguments = vec![subcommand, url.to_str().unwrap()];
        arguments.extend(rest.split_whitespace());
        finish(command(&arguments).env("FOREBAY_CACHE", self.cache()))
    }

    fn run(&self, subcommand: &str, rest: &str) -> Ran {
        self.run_at(&self.root(), subcommand, rest)
    }

    fn index_files(&self, folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.extension().is_some_and(|end| end == "index"))
            .collect()
    }
}

#[test]
fn index_builds_and_then_refreshes() {
    let place = Place::new();
    let built = place.run("index", "--images").ok();
    let files = place.index_files(&place.cache().join("index"));
    assert_eq!(files.len(), 1);
    let root = place.root();
    let start = format!(
        "built the index of {}\n  samples     3\n  bytes       8.8 KiB\n  classes     2\n  \
         index       {} (",
        root.display(),
        files[0].display()
    );
    assert!(built.starts_with(&start), "{built}");

    fs::remove_file(root.join("dog/3.PNG")).unwrap();
    file(&root.join("dog/4.jpg"), 1);
    file(&root.join("dog/5.webp"), 2);
    file(&root.join("cat/1.jpg"), 1001);
    let refreshed = place.run("index", "--images").ok();
    let words = "  changes     2 added, 1 changed, 1 removed\n";
    assert!(
        refreshed.starts_with("refreshed the index of"),
        "{refreshed}"
    );
    assert!(refreshed.contains(words), "{refreshed}");
}

#[test]
fn index_in_json_has_the_figures_and_the_file() {
    let place = Place::new();
    let other = place.folder.path().join("other");
    let rest = format!("--json --index-dir {}", other.display());
    let mut document = place.run("index", &rest).json();
    let files = place.index_files(&other);
    assert_eq!(document["index"]["file"], json!(files[0]));
    let size = fs::metadata(&files[0]).unwrap().len();
    assert_eq!(document["index"]["bytes"], size);
    assert!(document["seconds"].as_f64().unwrap() >= 0.0);
    let fingerprint = document["fingerprint"].clone();
    for name in ["index", "seconds", "fingerprint"] {
        document.as_object_mut().unwrap().remove(name);
    }
    let expected = json!({
        "action": "built", "url": place.root(), "samples": 4, "bytes": 9010, "classes": 2,
        "added": 4, "changed": 0, "removed": 0,
    });
    assert_eq!(document, expected);
    let again = place.run("index", &rest).json();
    assert_eq!(again["action"], "refreshed");
    assert_eq!(again["added"], 0);
    assert_eq!(again["fingerprint"], fingerprint);
}

#[test]
fn inspect_shows_classes_and_sizes() {
    let place = Place::new();
    let text = place.run("inspect", "--images").ok();
    let middle = "  classes     2\n    \
        cat            2   66.7 %\n    \
        dog            1   33.3 %\n  \
        sizes       min 1000 B, median 2.9 KiB, mean 2.9 KiB, max 4.9 KiB\n";
    assert!(text.contains(middle), "{text}");
    let first = "      1000 B ..    1.4 KiB  ########################################  1\n";
    assert!(text.contains(first), "{text}");

    let document = place.run("inspect", "--images --json").json();
    assert_eq!(document["samples"], 3);
    assert_eq!(document["bytes"], 9000);
    let classes = json!([
        {"label": 0, "name": "cat", "samples": 2},
        {"label": 1, "name": "dog", "samples": 1},
    ]);
    assert_eq!(document["classes"], classes);
    let sizes = &document["sizes"];
    assert_eq!(
        (
            &sizes["min"],
            &sizes["median"],
            &sizes["mean"],
            &sizes["max"]
        ),
        (&json!(1000), &json!(3000), &json!(3000), &json!(5000))
    );
    let bars = sizes["histogram"].as_array().unwrap();
    assert_eq!(
        bars.iter()
            .map(|bar| bar["samples"].as_u64().unwrap())
            .sum::<u64>(),
        3
    );
}

#[test]
fn inspect_notices_what_was_added_to_a_folder() {
    let place = Place::new();
    assert_eq!(place.run("inspect", "--json").json()["samples"], 4);
    file(&place.root().join("dog/9.jpg"), 9);
    assert_eq!(place.run("inspect", "--json").json()["samples"], 5);
}

#[test]
fn inspect_shows_the_largest_classes_first_and_all_if_asked() {
    let place = Place::empty();
    for class in 0..12 {
        for number in 0..=class {
            file(&place.root().join(format!("c{class:02}/{number}")), 1);
        }
    }
    let text = place.run("inspect", "").ok();
    let at = |name: &str| text.find(&format!("    {name} "));
    assert!(at("c11").unwrap() < at("c10").unwrap(), "{text}");
    assert!(at("c00").is_none(), "{text}");
    assert!(
        text.contains("    and 2 more: --classes shows all\n"),
        "{text}"
    );
    let text = place.run("inspect", "--classes").ok();
    assert!(
        text.find("c00 ").unwrap() < text.find("c11 ").unwrap(),
        "{text}"
    );
    assert!(!text.contains("more:"), "{text}");
}

#[test]
fn a_name_cannot_speak_to_the_terminal() {
    let place = Place::empty();
    file(&place.root().join("\x1b[31mred/1"), 1);
    let text = place.run("inspect", "").ok();
    assert!(text.contains("\\u{1b}[31mred"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}

#[test]
fn a_manifest_names_the_samples() {
    let place = Place::new();
    let manifest = place.root().join("some.csv");
    fs::write(
        &manifest,
        "path,label\ncat/2.jpg,7\ndog/3.PNG,7\ncat/1.jpg,0\n",
    )
    .unwrap();
    let rest = format!("--manifest {} --json", manifest.display());
    let document = place.run("inspect", &rest).json();
    assert_eq!(document["samples"], 3);
    let of_label = |label: i64| {
        let classes = document["classes"].as_array().unwrap();
        classes.iter().find(|row| row["label"] == label).unwrap()["samples"].clone()
    };
    assert_eq!((of_label(7), of_label(0)), (json!(2), json!(1)));
}

#[test]
fn shards_are_indexed_by_their_members() {
    let place = Place::empty();
    // A member is a block of header and its content in blocks of 512 bytes.
    let shard = |names: &[&str]| {
        let mut bytes = Vec::new();
        for name in names {
            let mut header = [0u8; 512];
            header[..name.len()].copy_from_slice(name.as_bytes());
            header[100..107].copy_from_slice(b"0000644");
            header[124..135].copy_from_slice(b"00000000003");
            header[148..156].copy_from_slice(b"        ");
            header[156] = b'0';
            header[257..263].copy_from_slice(b"ustar\0");
            header[263..265].copy_from_slice(b"00");
            let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
            header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            bytes.extend(header);
            let mut content = [0u8; 512];
            content[..3].copy_from_slice(b"abc");
            bytes.extend(content);
        }
        bytes.extend([0u8; 1024]);
        bytes
    };
    fs::write(
        place.root().join("s-0.tar"),
        shard(&["a.jpg", "a.cls", "b.jpg"]),
    )
    .unwrap();
    fs::write(place.root().join("s-1.tar"), shard(&["c.jpg"])).unwrap();
    let pattern = place.root().join("s-{0..1}.tar");
    let document = place.run_at(&pattern, "index", "--json").json();
    assert_eq!(document["samples"], 3);
    let document = place.run("inspect", "--layout tar --json").json();
    assert_eq!(document["samples"], 3);
    assert_eq!(document["unlabelled"], 3);
}

#[test]
fn a_missing_root_is_said_with_a_hint() {
    let place = Place::empty();
    let nowhere = place.root().join("nowhere");
    for subcommand in ["index", "inspect"] {
        let error = place.run_at(&nowhere, subcommand, "").fails(1);
        let words = format!(
            "no such directory: {}\nhint: check the path",
            nowhere.display()
        );
        assert!(error.contains(&words), "{error}");
    }
}

#[test]
fn an_empty_class_folder_is_refused_unless_allowed() {
    let place = Place::new();
    fs::create_dir(place.root().join("emu")).unwrap();
    let error = place.run("index", "").fails(1);
    let words = "Found no valid file for the classes emu.\nhint: remove the empty folders or pass --allow-empty\n";
    assert!(error.contains(words), "{error}");
    let document = place.run("inspect", "--allow-empty --json").json();
    let emu = json!({"label": 2, "name": "emu", "samples": 0});
    assert_eq!(document["classes"][2], emu);
}

#[test]
fn a_root_without_class_folders_says_what_else_there_is() {
    let place = Place::empty();
    file(&place.root().join("1.jpg"), 1);
    let error = place.run("inspect", "").fails(1);
    assert!(error.contains("Couldn't find any class folder"), "{error}");
    assert!(
        error.contains("pass --manifest FILE or --layout tar"),
        "{error}"
    );
}

#[test]
fn a_damaged_index_is_built_anew_and_said() {
    let place = Place::new();
    place.run("index", "").ok();
    let path = place.index_files(&place.cache().join("index")).remove(0);
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(&path, bytes).unwrap();
    let ran = place.run("index", "--json");
    assert!(
        ran.err
            .contains("forebay: warning: the index could not be used and is built anew: "),
        "{}",
        ran.err
    );
    let document = ran.json();
    assert_eq!(document["action"], "rebuilt");
    assert_eq!(document["samples"], 4);
    assert_eq!(document["added"], json!(null));
}

#[test]
fn an_index_that_cannot_be_kept_is_a_failure() {
    let place = Place::new();
    let blocked = place.folder.path().join("file");
    fs::write(&blocked, "").unwrap();
    let rest = format!("--index-dir {}", blocked.display());
    let error = place.run("index", &rest).fails(1);
    assert!(error.contains("index cannot be kept in"), "{error}");
    assert!(error.contains("hint: pass --index-dir"), "{error}");
    // To look at the dataset it is not needed.
    let ran = place.run("inspect", &rest);
    assert!(
        ran.err.contains("forebay: warning: index cannot be kept"),
        "{}",
        ran.err
    );
    assert!(ran.ok().contains("  samples     4\n"));
}

#[test]
fn secrets_on_the_command_line_are_not_repeated() {
    let place = Place::new();
    for rest in ["--storage-option hunter2", "--storage-option =hunter2"] {
        let error = place.run("index", rest).fails(2);
        assert!(
            error.contains("--storage-option number 1 is not KEY=VALUE"),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
    }
    let url = Path::new("http://me:hunter2@127.0.0.1:9/train");
    let ran = place.run_at(url, "inspect", "--storage-option secret_access_key=hunter2");
    assert_eq!(ran.code, 1);
    assert!(!ran.err.contains("hunter2"), "{}", ran.err);
}
