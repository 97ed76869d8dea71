//! A dataset opened again, by another process of a job, after its index file has changed.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{folders, names, open, read, spec, tree};
use forebay_origin::{Dataset, DatasetSpec, Error, Kind, Refresh};
use tempfile::tempdir;

/// The spec of a process that has the dataset from `first`.
fn again(spec: &DatasetSpec, first: &Dataset) -> DatasetSpec {
    let mut spec = spec.clone();
    spec.refresh = Refresh::Never;
    spec.numbering = Some(first.numbering());
    spec
}

/// The dataset listed anew, with one file more that comes first.
fn refreshed(spec: &DatasetSpec, root: &Path, name: &str) -> Dataset {
    tree(root, &[name]);
    let mut spec = spec.clone();
    spec.refresh = Refresh::Always;
    open(&spec)
}

fn index_file(dataset: &Dataset) -> PathBuf {
    dataset.opened().index_path.clone().unwrap()
}

#[test]
fn numbers_stay_when_another_process_has_listed_the_dataset_again() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1", "b/2"]);
    let spec = spec(root.path(), cache.path(), folders());
    let first = open(&spec);
    let other = refreshed(&spec, root.path(), "a/0");
    assert_eq!(names(&other), ["a/0", "a/1", "b/2"]);
    let second = open(&again(&spec, &first));
    assert_eq!(names(&second), names(&first));
    assert_eq!(read(&second, 0).unwrap(), b"a/1");
    // A listing that finds the same numbers leaves the one before in its place.
    refreshed(&spec, root.path(), "a/0");
    assert_eq!(names(&open(&again(&spec, &first))), names(&first));
    // A third one takes it.
    refreshed(&spec, root.path(), "a/00");
    let error = Dataset::open(&again(&spec, &first), &()).unwrap_err();
    assert!(matches!(error, Error::Renumbered { .. }), "{error}");
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.hint().unwrap().contains("open it anew"));
}

#[test]
fn an_index_that_is_gone_is_listed_again_and_compared() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1", "b/2"]);
    let spec = spec(root.path(), cache.path(), folders());
    let first = open(&spec);
    let spec = again(&spec, &first);
    fs::remove_file(index_file(&first)).unwrap();
    assert_eq!(names(&open(&spec)), names(&first));
    fs::remove_file(index_file(&first)).unwrap();
    tree(root.path(), &["a/0"]);
    let error = Dataset::open(&spec, &()).unwrap_err();
    assert!(matches!(error, Error::Renumbered { .. }), "{error}");
}

#[test]
fn an_index_can_be_handed_on() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1", "b/2"]);
    let spec = spec(root.path(), cache.path(), folders());
    let first = open(&spec);
    refreshed(&spec, root.path(), "a/0");
    let child = Dataset::open_with(&spec, first.index().clone()).unwrap();
    assert_eq!(names(&child), ["a/1", "b/2"]);
    assert_eq!(read(&child, 1).unwrap(), b"b/2");
    assert_eq!(child.cache_name(), first.cache_name());
    assert_ne!(child.number(), first.number());
}

#[test]
fn an_index_file_that_is_cut_while_it_is_open_changes_nothing() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    let files: Vec<_> = (0..2000).map(|i| format!("a/{i:060}")).collect();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    tree(root.path(), &files);
    let spec = spec(root.path(), cache.path(), folders());
    let dataset = open(&spec);
    let loaded = open(&again(&spec, &dataset)); // the one was built, the other is read
    let file = fs::File::options()
        .write(true)
        .open(index_file(&dataset))
        .unwrap();
    file.set_len(100).unwrap();
    for dataset in [&dataset, &loaded] {
        assert_eq!(names(dataset), files);
    }
    // And those who come later build it anew.
    let rebuilt = open(&spec);
    assert!(rebuilt.opened().rebuilt_because_corrupt.is_some());
    assert_eq!(names(&rebuilt), files);
}

#[test]
fn an_index_file_that_was_made_very_long_takes_no_memory() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1"]);
    let spec = spec(root.path(), cache.path(), folders());
    let file = fs::File::options()
        .write(true)
        .open(index_file(&open(&spec)))
        .unwrap();
    // Of holes: it takes no disk.
    file.set_len(8 << 40).unwrap();
    let rebuilt = open(&spec);
    assert!(rebuilt.opened().rebuilt_because_corrupt.is_some());
    assert_eq!(names(&rebuilt), ["a/1"]);
}
