//! Local files that a manifest names.

mod common;

use std::fs;
use std::path::Path;

use common::{age, names, open, read, spec, tree};
use forebay_origin::{Dataset, DatasetSpec, Difference, Error, Layout};
use tempfile::tempdir;

fn manifest(root: &Path, cache: &Path, name: &str) -> DatasetSpec {
    spec(
        root,
        cache,
        Layout::Manifest {
            manifest: name.to_owned(),
            allow_outside: false,
        },
    )
}

#[test]
fn samples_come_in_the_manifests_order() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["x/2.bin", "1.bin"]);
    fs::write(
        root.path().join("m.csv"),
        "path,label\nx/2.bin,dog\n1.bin,cat\nx/2.bin,dog\n",
    )
    .unwrap();
    let dataset = open(&manifest(root.path(), cache.path(), "m.csv"));
    assert_eq!(names(&dataset), ["x/2.bin", "1.bin", "x/2.bin"]);
    assert_eq!(dataset.index().classes(), ["cat", "dog"]);
    let labels: Vec<_> = (0..3).map(|i| dataset.index().label(i).unwrap()).collect();
    assert_eq!(labels, [1, 0, 1]);
    assert_eq!(read(&dataset, 2).unwrap(), b"x/2.bin");
}

#[test]
fn integer_labels_are_kept_and_missing_ones_are_minus_one() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a", "b", "c"]);
    fs::write(root.path().join("m.csv"), "path,label\na,70000\nb,\nc,2\n").unwrap();
    let dataset = open(&manifest(root.path(), cache.path(), "m.csv"));
    let labels: Vec<_> = (0..3).map(|i| dataset.index().label(i).unwrap()).collect();
    assert_eq!(
        (labels, dataset.index().classes().len()),
        (vec![70000, -1, 2], 0)
    );
}

#[test]
fn parts_of_files_are_read_by_range() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    fs::write(root.path().join("all.bin"), "0123456789").unwrap();
    let rows = "path,offset,length\nall.bin,2,3\nall.bin,0,10\nall.bin,9,1\nall.bin,4,0\n";
    fs::write(root.path().join("m.csv"), rows).unwrap();
    let dataset = open(&manifest(root.path(), cache.path(), "m.csv"));
    let samples: Vec<_> = (0..4)
        .map(|i| String::from_utf8(read(&dataset, i).unwrap()).unwrap())
        .collect();
    assert_eq!(samples, ["234", "0123456789", "9", ""]);
}

#[test]
fn what_is_not_there_is_told_with_its_line() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a"]);
    let failed = |text: &str| {
        fs::write(root.path().join("m.csv"), text).unwrap();
        Dataset::open(&manifest(root.path(), cache.path(), "m.csv"), &())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(failed("path\na\nb\n"), "m.csv, line 3: b: no such file");
    let message = failed("path,offset,length\na,0,1\na,1,7\n");
    assert_eq!(
        message,
        "m.csv, line 3: a has 1 bytes, bytes 1 to 8 are asked for"
    );
    fs::create_dir(root.path().join("folder")).unwrap();
    assert_eq!(failed("path\na\nfolder\n"), "folder: not a regular file");
    fs::remove_file(root.path().join("m.csv")).unwrap();
    let error = Dataset::open(&manifest(root.path(), cache.path(), "m.csv"), &()).unwrap_err();
    assert_eq!(error.to_string(), "m.csv: No such file or object");
}

#[test]
fn a_manifest_that_changed_is_read_again() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a", "b"]);
    fs::write(root.path().join("m.csv"), "path\na\n").unwrap();
    age(root.path());
    let spec = manifest(root.path(), cache.path(), "m.csv");
    open(&spec);
    assert_eq!(open(&spec).opened().refreshed, None);
    fs::write(root.path().join("m.csv"), "path\na\nb\n").unwrap();
    assert_eq!(
        open(&spec).opened().refreshed,
        Some(Difference {
            added: 1,
            changed: 0,
            removed: 0
        })
    );
}

#[test]
fn a_manifest_may_lie_elsewhere() {
    let (root, other, cache) = (tempdir().unwrap(), tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a"]);
    let path = other.path().join("m.jsonl");
    fs::write(&path, "{\"path\":\"a\"}\n").unwrap();
    let dataset = open(&manifest(root.path(), cache.path(), path.to_str().unwrap()));
    assert_eq!(read(&dataset, 0).unwrap(), b"a");
}

#[test]
fn a_manifest_names_files_outside_of_the_dataset_only_where_that_is_allowed() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["secret", "data/a", "data/..b", "data/c../d"]);
    let (data, secret) = (root.path().join("data"), root.path().join("secret"));
    let path = root.path().join("m.csv");
    let mut spec = manifest(&data, cache.path(), path.to_str().unwrap());
    for outside in [
        "../secret",
        "x/../../secret",
        secret.to_str().unwrap(),
        "..",
    ] {
        fs::write(&path, format!("path\na\n{outside}\n")).unwrap();
        let error = Dataset::open(&spec, &()).unwrap_err();
        assert!(matches!(error, Error::Outside { line: 3, .. }), "{error}");
        assert!(error.hint().unwrap().contains("allow_outside=True"));
    }
    fs::write(&path, "path\n..b\nc../d\n./a\n").unwrap();
    assert_eq!(open(&spec).index().len(), 3, "these lie in it");

    let allow = |allow| Layout::Manifest {
        manifest: path.to_str().unwrap().to_owned(),
        allow_outside: allow,
    };
    fs::write(&path, format!("path\n../secret\n{}\n", secret.display())).unwrap();
    age(root.path());
    spec.layout = allow(true);
    let dataset = open(&spec);
    assert_eq!(read(&dataset, 0).unwrap(), b"secret");
    assert_eq!(read(&dataset, 1).unwrap(), b"secret");
    // The index that this has left is none for those who do not allow it.
    spec.layout = allow(false);
    let error = Dataset::open(&spec, &()).unwrap_err();
    assert!(matches!(error, Error::Outside { line: 2, .. }), "{error}");
}
