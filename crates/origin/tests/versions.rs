//! Objects that change, behind servers that tell their versions, or do not.

mod common;

use std::path::Path;
use std::time::Duration;

use common::server::{Fault, Server, Versions};
use common::{fetch, open, spec, tree};
use forebay_origin::{Dataset, DatasetSpec, Error, Layout, Refresh};
use tempfile::{TempDir, tempdir};

const LENGTH: usize = 100_000;

/// One file of a web server, whose length the manifest tells or not.
fn web(server: &Server, cache: &Path, tells_length: bool) -> DatasetSpec {
    let manifest = if tells_length {
        format!("path,length\nx.bin,{LENGTH}\n")
    } else {
        "path\nx.bin\n".to_owned()
    };
    let path = cache.join(format!("{tells_length}.csv"));
    std::fs::write(&path, manifest).unwrap();
    let layout = Layout::Manifest {
        manifest: path.to_str().unwrap().to_owned(),
        allow_outside: false,
    };
    let url = format!("http://{}/data", server.address);
    let mut spec = spec(url, cache, layout);
    spec.read.backoff = Duration::from_millis(5);
    spec
}

fn content(version: u8) -> Vec<u8> {
    vec![version; LENGTH]
}

fn served(versions: Versions) -> (Server, TempDir) {
    let (server, cache) = (Server::plain(), tempdir().unwrap());
    server.tell(versions);
    server.put("data/x.bin", content(1));
    (server, cache)
}

/// Opens where opening may block.
fn opened(spec: &DatasetSpec) -> Dataset {
    std::thread::scope(|scope| scope.spawn(|| open(spec)).join().unwrap())
}

/// Whether a sample that was kept during one opening is found by the next.
fn outlives_its_opening(spec: &DatasetSpec) -> bool {
    let (first, second) = (opened(spec), opened(spec));
    let same = first.identity(0).unwrap() == second.identity(0).unwrap();
    assert_eq!(first.digest() == second.digest(), same);
    assert_eq!(first.is_versioned(), same);
    same
}

#[test]
fn without_a_version_nothing_is_found_by_a_later_opening() {
    for (versions, tells_length, outlives) in [
        (Versions::ETag, false, true),
        (Versions::Time, false, true),
        (Versions::Untold, false, false),
        (Versions::ETag, true, false), // nobody has asked for it
    ] {
        let (server, cache) = served(versions);
        let spec = web(&server, cache.path(), tells_length);
        assert_eq!(outlives_its_opening(&spec), outlives, "{versions:?}");
    }
}

#[test]
fn local_files_have_versions() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    tree(root.path(), &["a/1"]);
    assert!(outlives_its_opening(&spec(
        root.path(),
        cache.path(),
        common::folders()
    )));
}

#[tokio::test]
async fn parts_of_two_versions_are_never_joined_after_a_break() {
    for versions in [
        Versions::ETag,
        Versions::Weak,
        Versions::Time,
        Versions::Untold,
    ] {
        for tells_length in [true, false] {
            let (server, cache) = served(versions);
            let dataset = opened(&web(&server, cache.path(), tells_length));
            // Of equal size, and between the two halves of a read.
            let faults = [Fault::Truncate(30_000), Fault::Replace(content(2))];
            server.fail("data/x.bin", &faults);
            match fetch(&dataset, &[0]).await {
                Ok(read) => {
                    // A server that gives both the same time is believed.
                    let joined = read[0].iter().any(|byte| *byte != read[0][0]);
                    assert!(!joined || versions == Versions::Time, "{versions:?}");
                }
                Err(error) => assert!(matches!(error, Error::Changed { .. }), "{error}"),
            }
        }
    }
}

#[tokio::test]
async fn a_read_without_a_version_begins_anew_and_one_with_insists_on_it() {
    for (versions, insists) in [
        (Versions::ETag, Some("if-match")),
        (Versions::Time, Some("if-unmodified-since")),
        (Versions::Weak, None),
        (Versions::Untold, None),
    ] {
        let (server, cache) = served(versions);
        let dataset = opened(&web(&server, cache.path(), true));
        server.requests();
        server.fail("data/x.bin", &[Fault::Truncate(30_000)]);
        assert!(fetch(&dataset, &[0]).await.unwrap()[0] == content(1));
        let second = &server.requests()[1].headers;
        let from = if insists.is_some() { 30_000 } else { 0 };
        assert_eq!(second["range"], format!("bytes={from}-99999"));
        for condition in ["if-match", "if-unmodified-since"] {
            let expected = insists == Some(condition);
            assert_eq!(second.contains_key(condition), expected, "{versions:?}");
        }
    }
}

#[tokio::test]
async fn parts_of_two_versions_are_never_joined_by_a_hedge() {
    for stuck in [
        Fault::Hang(Duration::from_millis(300)),
        Fault::Stall(30_000, Duration::from_millis(300)),
        Fault::Drip(10_000, Duration::from_millis(40)),
    ] {
        for versions in [Versions::ETag, Versions::Weak, Versions::Untold] {
            let (server, cache) = served(versions);
            let mut spec = web(&server, cache.path(), true);
            spec.read.hedge_after = Some(Duration::from_millis(100));
            let dataset = opened(&spec);
            server.fail("data/x.bin", &[stuck.clone(), Fault::Replace(content(2))]);
            let read = fetch(&dataset, &[0]).await.unwrap();
            let joined = read[0].iter().any(|byte| *byte != read[0][0]);
            assert!(!joined, "{versions:?} {stuck:?}");
        }
    }
}

#[tokio::test]
async fn all_reads_of_an_opening_are_of_one_version() {
    let (server, cache) = served(Versions::ETag);
    let spec = web(&server, cache.path(), true);
    let dataset = opened(&spec);
    assert!(fetch(&dataset, &[0]).await.unwrap()[0] == content(1));
    server.put("data/x.bin", content(2));
    let error = fetch(&dataset, &[0]).await.unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    let dataset = opened(&spec);
    assert!(fetch(&dataset, &[0]).await.unwrap()[0] == content(2));
}

#[tokio::test]
async fn a_version_that_the_server_tells_is_asked_for_again_when_told_to() {
    let (server, cache) = served(Versions::ETag);
    let mut spec = web(&server, cache.path(), false);
    spec.refresh = Refresh::Always;
    let before = opened(&spec).identity(0).unwrap();
    server.put("data/x.bin", content(2));
    let after = opened(&spec).identity(0).unwrap();
    assert_eq!(before.key, after.key);
    assert_ne!(before.validator, after.validator);
}

#[tokio::test]
async fn a_read_that_makes_progress_may_take_longer_than_its_deadline() {
    let (server, cache) = served(Versions::ETag);
    let mut spec = web(&server, cache.path(), true);
    spec.read.deadline = Duration::from_secs(3);
    let dataset = opened(&spec);
    let begun = std::time::Instant::now();
    let slow = Fault::Drip(4_200, Duration::from_millis(140));
    // Where the machine is slow a piece may come too late: then it is resumed, as slowly.
    server.fail("data/x.bin", &vec![slow; 20]);
    assert!(fetch(&dataset, &[0]).await.unwrap()[0] == content(1));
    assert!(begun.elapsed() > spec.read.deadline);
}

#[tokio::test]
async fn a_read_that_has_to_start_over_may_take_as_long_again() {
    let (server, cache) = served(Versions::Untold);
    let mut spec = web(&server, cache.path(), true);
    spec.read.deadline = Duration::from_secs(3);
    let dataset = opened(&spec);
    let begun = std::time::Instant::now();
    let mut faults = vec![Fault::Drip(4_200, Duration::from_millis(140)); 20];
    faults.insert(0, Fault::Truncate(99_000));
    server.fail("data/x.bin", &faults);
    assert!(fetch(&dataset, &[0]).await.unwrap()[0] == content(1));
    assert!(begun.elapsed() > spec.read.deadline);
}

#[tokio::test]
async fn a_read_that_starts_over_again_and_again_fails_at_its_deadline() {
    let (server, cache) = served(Versions::Untold);
    let mut spec = web(&server, cache.path(), true);
    spec.read.deadline = Duration::from_millis(500);
    spec.read.backoff = Duration::from_millis(50);
    let dataset = opened(&spec);
    server.fail("data/x.bin", &vec![Fault::Truncate(99_000); 100]);
    let error = fetch(&dataset, &[0]).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn a_few_bytes_now_and_then_are_no_progress() {
    let (server, cache) = served(Versions::ETag);
    let mut spec = web(&server, cache.path(), true);
    spec.read.deadline = Duration::from_millis(500);
    let dataset = opened(&spec);
    let drip = Fault::Drip(1, Duration::from_millis(20));
    server.fail("data/x.bin", &vec![drip; 50]);
    let error = fetch(&dataset, &[0]).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}
