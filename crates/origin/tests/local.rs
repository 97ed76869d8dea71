//! Local class folders: their order, their reading, their index.

mod common;

use std::fs;
use std::io::IoSliceMut;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use common::{age, folders, images, names, open, read, set_modified, spec, tree};
use forebay_origin::{Dataset, Difference, Kind, Layout, Progress, Refresh};
use tempfile::tempdir;

#[test]
fn samples_come_in_torchvisions_order_with_its_labels() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(
        root.path(),
        &[
            "b/2.jpg",
            "b/10.JPG",
            "a-b/x.png",
            "a/z.jpg",
            "a/q/1.jpg",
            "a/q-/1.jpg",
            "a/n.txt",
            "top.jpg",
        ],
    );
    let dataset = open(&spec(root.path(), cache.path(), images()));
    let expected = [
        "a/z.jpg",
        "a/q/1.jpg",
        "a/q-/1.jpg",
        "a-b/x.png",
        "b/10.JPG",
        "b/2.jpg",
    ];
    assert_eq!(names(&dataset), expected);
    assert_eq!(dataset.index().classes(), ["a", "a-b", "b"]);
    let labels: Vec<_> = (0..6).map(|i| dataset.index().label(i).unwrap()).collect();
    assert_eq!(labels, [0, 0, 0, 1, 2, 2]);
    assert!(dataset.opened().built && dataset.is_local());
}

/// Trees and the order that torchvision 0.29 gave for them.
#[test]
fn the_order_is_the_one_recorded_from_torchvision() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/torchvision.json");
    let golden: serde_json::Value = serde_json::from_slice(&fs::read(golden).unwrap()).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    for case in golden.as_array().unwrap() {
        let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
        for file in case["files"].as_array().unwrap() {
            tree(root.path(), &[&text(file)]);
        }
        for link in case["links"].as_array().unwrap() {
            let (from, to) = (root.path().join(text(&link[0])), text(&link[1]));
            fs::create_dir_all(from.parent().unwrap()).unwrap();
            symlink(to, from).unwrap();
        }
        let layout = Layout::ClassFolders {
            extensions: Some(vec![".jpg".into(), ".png".into()]),
            allow_empty: true,
        };
        let dataset = open(&spec(root.path(), cache.path(), layout));
        let samples: Vec<_> = names(&dataset)
            .into_iter()
            .zip((0..).map(|i| dataset.index().label(i).unwrap_or(-9)))
            .collect();
        let expected: Vec<_> = case["samples"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pair| (text(&pair[0]), pair[1].as_i64().unwrap()))
            .collect();
        assert_eq!(samples, expected);
        let classes: Vec<_> = case["classes"]
            .as_array()
            .unwrap()
            .iter()
            .map(text)
            .collect();
        assert_eq!(dataset.index().classes(), classes);
    }
}

#[test]
fn a_file_is_read_into_any_slices_that_have_its_length() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/some-name.bin", "a/empty"]);
    fs::write(root.path().join("a/empty"), "").unwrap();
    let dataset = open(&spec(root.path(), cache.path(), folders()));
    assert_eq!(read(&dataset, 0).unwrap(), b"");
    assert_eq!(read(&dataset, 1).unwrap(), b"a/some-name.bin");
    for cuts in [vec![15], vec![1, 14], vec![0, 7, 0, 8, 0], vec![1; 15]] {
        let mut parts: Vec<Vec<u8>> = cuts.iter().map(|&length| vec![0; length]).collect();
        let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        dataset.read_local(1, &mut slices).unwrap();
        assert_eq!(parts.concat(), b"a/some-name.bin", "{cuts:?}");
    }
    let mut short = [0; 14];
    let error = dataset
        .read_local(1, &mut [IoSliceMut::new(&mut short)])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "sample 1 has 15 bytes, room was given for 14"
    );
}

#[test]
fn a_file_that_became_shorter_or_longer_is_an_error_with_both_sizes() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/file.bin"]);
    let dataset = open(&spec(root.path(), cache.path(), folders()));
    for (content, size) in [("shor", 4), ("much longer than", 16), ("", 0)] {
        fs::write(root.path().join("a/file.bin"), content).unwrap();
        let error = read(&dataset, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("a/file.bin: file is {size} bytes, index says 10")
        );
        assert_eq!(error.kind(), Kind::Corrupt);
        assert!(error.hint().unwrap().contains("forebay index"));
    }
}

#[test]
fn a_file_that_is_gone_or_closed_to_us_is_named() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/gone.bin", "a/shut.bin"]);
    let dataset = open(&spec(root.path(), cache.path(), folders()));
    fs::remove_file(root.path().join("a/gone.bin")).unwrap();
    let error = read(&dataset, 0).unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.kind()),
        ("a/gone.bin", Kind::Corrupt)
    );
    fs::set_permissions(
        root.path().join("a/shut.bin"),
        fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    match read(&dataset, 1) {
        // Root may read everything.
        Ok(bytes) => assert!(rustix::process::geteuid().is_root() && bytes == b"a/shut.bin"),
        Err(error) => {
            assert_eq!(
                (error.to_string().as_str(), error.kind()),
                ("a/shut.bin", Kind::Invalid)
            );
            assert!(error.hint().unwrap().contains("right to read"));
        }
    }
}

#[test]
fn a_missing_root_is_named_even_if_there_is_an_index() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    let data = root.path().join("data");
    let spec = spec(&data, cache.path(), folders());
    let missing = format!("no such directory: {}", data.display());
    assert_eq!(Dataset::open(&spec, &()).unwrap_err().to_string(), missing);
    tree(&data, &["a/1"]);
    open(&spec);
    fs::remove_dir_all(&data).unwrap();
    assert_eq!(Dataset::open(&spec, &()).unwrap_err().to_string(), missing);
}

#[test]
fn empty_and_absent_classes_are_told_in_torchvisions_words() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    let error = Dataset::open(&spec(root.path(), cache.path(), images()), &()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Couldn't find any class folder in "),
        "{error}"
    );
    tree(root.path(), &["a/1.jpg", "b/1.txt"]);
    fs::create_dir(root.path().join("c")).unwrap();
    let error = Dataset::open(&spec(root.path(), cache.path(), images()), &()).unwrap_err();
    let words = "Found no valid file for the classes b, c. Supported extensions are: .jpg, .png";
    assert_eq!(
        (error.to_string().as_str(), error.kind()),
        (words, Kind::Invalid)
    );
    let layout = Layout::ClassFolders {
        extensions: Some(vec![".jpg".into()]),
        allow_empty: true,
    };
    let dataset = open(&spec(root.path(), cache.path(), layout));
    assert_eq!(dataset.index().classes(), ["a", "b", "c"]);
}

#[test]
fn links_are_followed_and_a_cycle_is_an_error() {
    let (root, other, cache) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1"]);
    tree(other.path(), &["x/2", "3"]);
    symlink(other.path(), root.path().join("b")).unwrap();
    symlink(other.path().join("3"), root.path().join("a/three")).unwrap();
    symlink("nowhere", root.path().join("a/dangling")).unwrap();
    let dataset = open(&spec(root.path(), cache.path(), folders()));
    assert_eq!(
        names(&dataset),
        ["a/1", "a/dangling", "a/three", "b/3", "b/x/2"]
    );
    assert_eq!(read(&dataset, 2).unwrap(), b"3");
    assert_eq!(read(&dataset, 1).unwrap_err().to_string(), "a/dangling");

    symlink("..", root.path().join("a/up")).unwrap();
    symlink("../../a", root.path().join("a/deep")).unwrap_or(());
    let error = Dataset::open(&spec(root.path(), cache.path(), folders()), &()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("leads back to a folder that it lies in"),
        "{error}"
    );
    assert_eq!(error.kind(), Kind::Invalid);
}

#[test]
fn a_name_that_is_not_unicode_is_told() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1.jpg"]);
    let odd = root
        .path()
        .join("a")
        .join(std::ffi::OsStr::from_bytes(b"\xff.jpg"));
    fs::write(odd, "x").unwrap();
    let error = Dataset::open(&spec(root.path(), cache.path(), images()), &()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"a/\u{fffd}.jpg\": file name is not UTF-8"
    );
}

#[test]
fn a_pipe_among_the_files_is_an_error_and_does_not_hang() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1", "a/2"]);
    let dataset = open(&spec(root.path(), cache.path(), folders()));
    fs::remove_file(root.path().join("a/2")).unwrap();
    let pipe = root.path().join("a/2");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from(0o600),
        0,
    )
    .unwrap();
    assert!(read(&dataset, 1).is_err());
    let error = Dataset::open(&spec(root.path(), cache.path(), folders()), &()).unwrap_err();
    assert_eq!(error.to_string(), "a/2: not a regular file");
}

#[test]
fn an_unchanged_dataset_is_not_listed_again() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1", "a/sub/2", "b/1"]);
    age(root.path());
    let spec = spec(root.path(), cache.path(), folders());
    let first = open(&spec);
    assert!(first.opened().built);
    let second = open(&spec);
    assert!(!second.opened().built && second.opened().refreshed.is_none());
    assert_eq!(first.index().fingerprint(), second.index().fingerprint());

    tree(root.path(), &["a/sub/3"]);
    let third = open(&spec);
    assert_eq!(
        third.opened().refreshed,
        Some(Difference {
            added: 1,
            changed: 0,
            removed: 0
        })
    );
    assert_eq!(names(&third), ["a/1", "a/sub/2", "a/sub/3", "b/1"]);
    assert_ne!(first.index().fingerprint(), third.index().fingerprint());
}

#[test]
fn a_dataset_that_changed_a_moment_ago_is_looked_at_again() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1"]);
    age(root.path());
    // However slow this machine is, an hour ahead is not long ago.
    set_modified(
        &root.path().join("a"),
        SystemTime::now() + Duration::from_secs(3600),
    );
    let spec = spec(root.path(), cache.path(), folders());
    assert!(open(&spec).opened().built);
    assert_eq!(open(&spec).opened().refreshed, Some(Difference::default()));
}

#[test]
fn only_a_change_of_the_objects_changes_the_digest() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1"]);
    age(root.path());
    let folder = root.path().join("a");
    set_modified(&folder, SystemTime::now() + Duration::from_secs(3600));
    let spec = spec(root.path(), cache.path(), folders());
    let digest = |dataset: &Dataset| dataset.index().digest();
    let unsettled = open(&spec);
    // Time has passed: the folder is believed now, and so it stands otherwise in the index.
    set_modified(&folder, SystemTime::now() - Duration::from_secs(3600));
    let settled = open(&spec);
    assert_eq!(settled.opened().refreshed, Some(Difference::default()));
    assert_eq!(digest(&unsettled), digest(&settled));
    // Of the same length: only its validator tells.
    let file = folder.join("1");
    set_modified(&file, SystemTime::now() - Duration::from_secs(7200));
    set_modified(&folder, SystemTime::now() - Duration::from_secs(1800));
    assert_ne!(digest(&settled), digest(&open(&spec)));
}

#[test]
fn a_refresh_counts_what_was_added_changed_and_removed() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1", "a/2", "a/3", "b/4"]);
    let mut spec = spec(root.path(), cache.path(), folders());
    open(&spec);
    fs::remove_file(root.path().join("a/1")).unwrap();
    fs::write(root.path().join("a/2"), "another content").unwrap();
    tree(root.path(), &["b/5", "b/6"]);
    spec.refresh = Refresh::Never;
    assert_eq!(names(&open(&spec)), ["a/1", "a/2", "a/3", "b/4"]);
    spec.refresh = Refresh::Always;
    assert_eq!(
        open(&spec).opened().refreshed,
        Some(Difference {
            added: 2,
            changed: 1,
            removed: 1
        })
    );
    assert_eq!(open(&spec).opened().refreshed, Some(Difference::default()));
}

#[test]
fn a_corrupt_index_file_is_rebuilt_and_that_is_said() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1", "b/2"]);
    age(root.path());
    let spec = spec(root.path(), cache.path(), folders());
    let path = open(&spec).opened().index_path.clone().unwrap();
    let good = fs::read(&path).unwrap();
    let damaged = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    for bad in [
        Vec::new(),
        good[..100].to_vec(),
        damaged(20),
        damaged(good.len() - 1),
        b"not an index".to_vec(),
    ] {
        fs::remove_file(&path).unwrap();
        fs::write(&path, bad).unwrap();
        let dataset = open(&spec);
        let reason = dataset
            .opened()
            .rebuilt_because_corrupt
            .clone()
            .expect("said");
        assert!(reason.contains(path.to_str().unwrap()), "{reason}");
        assert_eq!(names(&dataset), ["a/1", "b/2"]);
        assert_eq!(fs::read(&path).unwrap(), good);
        assert_eq!(open(&spec).opened().rebuilt_because_corrupt, None);
    }
}

#[test]
fn a_cache_that_cannot_be_written_leaves_the_index_in_memory() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1"]);
    let blocked = cache.path().join("file");
    fs::write(&blocked, "in the way").unwrap();
    let dataset = open(&spec(root.path(), &blocked.join("index"), folders()));
    assert_eq!(dataset.opened().index_path, None);
    let warning = dataset.opened().warning.clone().unwrap();
    assert!(warning.contains("index cannot be kept in"), "{warning}");
    assert_eq!(read(&dataset, 0).unwrap(), b"a/1");
}

#[test]
fn many_openers_at_once_list_once_and_agree() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    let files: Vec<_> = (0..200).map(|i| format!("c{}/{i:03}", i % 7)).collect();
    tree(
        root.path(),
        &files.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    age(root.path());
    let spec = spec(root.path(), cache.path(), folders());
    let built: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&spec))).collect();
        let datasets: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert!(datasets.iter().all(|dataset| names(dataset).len() == 200));
        datasets
            .iter()
            .filter(|dataset| dataset.opened().built)
            .count()
    });
    assert_eq!(built, 1);
    let left: Vec<_> = fs::read_dir(cache.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "an index and its lock: {left:?}");
}

#[test]
fn other_extensions_are_another_index() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1.jpg", "a/2.txt"]);
    assert_eq!(
        names(&open(&spec(root.path(), cache.path(), images()))),
        ["a/1.jpg"]
    );
    assert_eq!(
        names(&open(&spec(root.path(), cache.path(), folders()))).len(),
        2
    );
}

#[test]
fn progress_is_told_and_ends() {
    struct Watcher(Mutex<(u64, bool)>);
    impl Progress for Watcher {
        fn listed(&self, objects: u64) {
            self.0.lock().unwrap().0 = objects;
        }
        fn done(&self) {
            self.0.lock().unwrap().1 = true;
        }
    }
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1", "a/2", "b/3"]);
    let watcher = Watcher(Mutex::new((0, false)));
    Dataset::open(&spec(root.path(), cache.path(), folders()), &watcher).unwrap();
    assert_eq!(*watcher.0.lock().unwrap(), (3, true));
}

#[test]
fn a_file_url_is_a_local_path() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a b/1"]);
    let url = format!("file://{}", root.path().display());
    let dataset = open(&spec(&url, cache.path(), folders()));
    assert_eq!(read(&dataset, 0).unwrap(), b"a b/1");
}

#[tokio::test]
async fn a_local_dataset_is_not_read_by_groups() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1"]);
    let spec = spec(root.path(), cache.path(), folders());
    let dataset = std::thread::spawn(move || open(&spec)).join().unwrap();
    let error = common::fetch(&dataset, &[0]).await.unwrap_err();
    assert_eq!(error.to_string(), "dataset is local: read_local reads it");
}

#[test]
fn more_slices_than_one_call_takes_are_filled_all_the_same() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    let content: Vec<u8> = (0..1000u32).map(|i| (i % 251) as u8).collect();
    for length in [63, 64, 65, 128, 1000] {
        tree(root.path(), &["a/1"]);
        fs::write(root.path().join("a/1"), &content[..length]).unwrap();
        let mut spec = spec(root.path(), cache.path(), folders());
        spec.refresh = Refresh::Always;
        let dataset = open(&spec);
        let mut parts = vec![[0]; length];
        let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        dataset.read_local(0, &mut slices).unwrap();
        assert_eq!(parts.concat(), content[..length]);
        fs::write(root.path().join("a/1"), [&content[..length], b"x"].concat()).unwrap();
        let mut slices: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        assert!(
            dataset.read_local(0, &mut slices).is_err(),
            "longer than {length}"
        );
    }
}
