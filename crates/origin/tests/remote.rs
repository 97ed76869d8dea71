//! Buckets and web servers, behaving and misbehaving.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::server::{Fault, Server};
use common::{fetch, folders, images, names, spec};
use forebay_origin::{Dataset, DatasetSpec, Difference, Error, Kind, Layout, Refresh};
use tempfile::{TempDir, tempdir};

/// A spec for a folder of the server's bucket, quick to lose patience.
fn s3(server: &Server, cache: &Path, layout: Layout) -> DatasetSpec {
    let mut spec = spec("s3://bucket/train", cache, layout);
    for (name, value) in [
        (
            "aws_endpoint",
            format!("http://{}", server.address).as_str(),
        ),
        ("aws_allow_http", "true"),
        ("aws_access_key_id", "AKIAHUNTER2"),
        ("aws_secret_access_key", "hunter2"),
    ] {
        spec.storage_options.insert(name.to_owned(), value.into());
    }
    spec.read.backoff = Duration::from_millis(5);
    spec
}

/// Opens where opening may block.
async fn open(spec: &DatasetSpec) -> Result<Dataset, Error> {
    let spec = spec.clone();
    tokio::task::spawn_blocking(move || Dataset::open(&spec, &()))
        .await
        .unwrap()
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// One object of 100 KB, indexed.
async fn one() -> (Server, Dataset, TempDir) {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    server.put("train/a/1.jpg", content(100_000));
    let dataset = open(&s3(&server, cache.path(), folders())).await.unwrap();
    server.requests();
    (server, dataset, cache)
}

#[tokio::test]
async fn a_bucket_is_listed_in_pages_and_read() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    for i in 0..10 {
        server.put(
            &format!("train/{}/{i}.jpg", ["a", "a-b", "c d"][i % 3]),
            content(i * 1000),
        );
    }
    server.put("train/a/notes.txt", "x");
    server.put("training/a/other.jpg", "x");
    let dataset = open(&s3(&server, cache.path(), images())).await.unwrap();
    assert_eq!(dataset.index().classes(), ["a", "a-b", "c d"]);
    assert_eq!(
        names(&dataset)[..4],
        ["a/0.jpg", "a/3.jpg", "a/6.jpg", "a/9.jpg"]
    );
    assert_eq!(dataset.index().len(), 10);
    assert!(!dataset.is_local());
    let all: Vec<_> = (0..10).collect();
    let read = fetch(&dataset, &all).await.unwrap();
    for (i, bytes) in read.iter().enumerate() {
        let number: usize = names(&dataset)[i]
            .split(['/', '.'])
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        assert!(*bytes == content(number * 1000), "sample {i}");
    }
}

#[tokio::test]
async fn an_index_of_a_bucket_is_used_as_it_is_until_asked_otherwise() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    server.put("train/a/1", "one");
    server.put("train/a/2", "two");
    let mut spec = s3(&server, cache.path(), folders());
    assert!(open(&spec).await.unwrap().opened().built);
    server.requests();
    server.put("train/a/1", "changed");
    server.put("train/b/3", "three");
    server.remove("train/a/2");
    let dataset = open(&spec).await.unwrap();
    assert_eq!((dataset.index().len(), server.requests().len()), (2, 0));
    spec.refresh = Refresh::Always;
    let dataset = open(&spec).await.unwrap();
    assert_eq!(
        dataset.opened().refreshed,
        Some(Difference {
            added: 1,
            changed: 1,
            removed: 1
        })
    );
    assert_eq!(names(&dataset), ["a/1", "b/3"]);
}

#[tokio::test]
async fn server_errors_are_healed_and_retry_after_is_honoured() {
    let (server, dataset, _cache) = one().await;
    let faults = [
        Fault::Status(503, ""),
        Fault::Status(500, ""),
        Fault::Status(429, "Retry-After: 1"),
    ];
    server.fail("train/a/1.jpg", &faults);
    let start = Instant::now();
    assert!(fetch(&dataset, &[0]).await.unwrap()[0] == content(100_000));
    assert!(
        start.elapsed() >= Duration::from_secs(1),
        "Retry-After is a least wait"
    );
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn a_truncated_body_is_resumed_where_it_stopped() {
    let (server, dataset, _cache) = one().await;
    server.fail(
        "train/a/1.jpg",
        &[
            Fault::Truncate(30_000),
            Fault::Truncate(20_000),
            Fault::Truncate(0),
        ],
    );
    assert!(fetch(&dataset, &[0]).await.unwrap()[0] == content(100_000));
    let ranges: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.headers.get("range").cloned())
        .collect();
    let at = |from: &str| Some(format!("bytes={from}-99999"));
    assert_eq!(ranges, [None, at("30000"), at("50000"), at("50000")]);
}

#[tokio::test]
async fn a_resumed_read_asks_for_the_same_object() {
    let (server, dataset, _cache) = one().await;
    server.fail("train/a/1.jpg", &[Fault::Truncate(30_000)]);
    fetch(&dataset, &[0]).await.unwrap();
    let requests = server.requests();
    assert!(!requests[0].headers.contains_key("if-match"));
    assert!(requests[1].headers.contains_key("if-match"));
}

#[tokio::test]
async fn an_object_that_changed_is_an_error_not_other_bytes() {
    let (server, dataset, _cache) = one().await;
    let mut other = content(100_000);
    other[5] ^= 1;
    server.put("train/a/1.jpg", other);
    let error = fetch(&dataset, &[0]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "s3://bucket/train/a/1.jpg: object changed since it was indexed"
    );
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.hint().unwrap().contains("forebay index"));
    server.put("train/a/1.jpg", "shorter");
    let error = fetch(&dataset, &[0]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "s3://bucket/train/a/1.jpg: file is 7 bytes, index says 100000"
    );
}

#[tokio::test]
async fn an_object_that_changes_in_the_middle_of_a_read_is_an_error() {
    let (server, dataset, _cache) = one().await;
    let mut other = content(100_000);
    other[5] ^= 1;
    server.fail(
        "train/a/1.jpg",
        &[Fault::Truncate(30_000), Fault::Replace(other)],
    );
    let error = fetch(&dataset, &[0]).await.unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
}

#[tokio::test]
async fn an_object_that_is_gone_is_named() {
    let (server, dataset, _cache) = one().await;
    server.remove("train/a/1.jpg");
    let error = fetch(&dataset, &[0]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "s3://bucket/train/a/1.jpg: no such object"
    );
    assert_eq!(error.kind(), Kind::Corrupt);
}

#[tokio::test]
async fn wrong_credentials_name_the_settings_and_not_the_secret() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    server.put("train/a/1", "x");
    server.fail("", &[Fault::Status(403, "")]);
    let spec = s3(&server, cache.path(), folders());
    let error = open(&spec).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    let hint = error.hint().unwrap();
    assert!(hint.contains("storage_options") && hint.contains("AWS_ACCESS_KEY_ID"));
    let dataset = open(&spec).await.unwrap();
    let said = format!("{error} {hint} {spec:?} {dataset:?}");
    assert!(!said.to_lowercase().contains("hunter2"), "{said}");
}

#[tokio::test]
async fn a_wrong_bucket_is_named() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    let mut spec = s3(&server, cache.path(), folders());
    spec.url = "s3://no-such-bucket/train".to_owned();
    let error = open(&spec).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "bucket of s3://no-such-bucket/train does not exist"
    );
    assert_eq!(error.kind(), Kind::Invalid);
}

#[tokio::test]
async fn a_prefix_that_matches_nothing_says_so() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    server.put("Train/a/1", "x");
    let error = open(&s3(&server, cache.path(), folders()))
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "s3://bucket/train: no object has a name that begins so"
    );
    assert!(error.hint().unwrap().contains("upper and lower case"));
}

#[tokio::test]
async fn an_endpoint_that_is_down_fails_within_the_deadline() {
    let cache = tempdir().unwrap();
    let server = Server::down();
    let mut spec = s3(&server, cache.path(), folders());
    spec.read.deadline = Duration::from_millis(300);
    let start = Instant::now();
    let error = open(&spec).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(
        error
            .to_string()
            .contains("no answer within the deadline of 300ms"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("deadline="));
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn a_server_that_hangs_fails_within_the_deadline() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    server.put("train/a/1", content(1000));
    let mut spec = s3(&server, cache.path(), folders());
    open(&spec).await.unwrap();
    spec.read.deadline = Duration::from_millis(400);
    let dataset = open(&spec).await.unwrap();
    let forever = Duration::from_secs(600);
    server.fail("train/a/1", &vec![Fault::Hang(forever); 50]);
    let error = fetch(&dataset, &[0]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_body_that_stalls_is_given_up_and_resumed() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    server.put("train/a/1", content(100_000));
    let mut spec = s3(&server, cache.path(), folders());
    open(&spec).await.unwrap();
    spec.read.deadline = Duration::from_secs(8); // an attempt is given up after a quarter of it
    let dataset = open(&spec).await.unwrap();
    server.requests();
    server.fail(
        "train/a/1",
        &[Fault::Stall(40_000, Duration::from_secs(600))],
    );
    assert!(fetch(&dataset, &[0]).await.unwrap()[0] == content(100_000));
    assert!(server.requests().len() >= 2);
}

#[tokio::test]
async fn a_stuck_read_is_hedged_if_asked_for() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    server.put("train/a/1", content(100_000));
    let mut spec = s3(&server, cache.path(), folders());
    spec.read.hedge_after = Some(Duration::from_millis(50));
    spec.read.deadline = Duration::from_secs(3600);
    let dataset = open(&spec).await.unwrap();
    server.requests();
    // With a deadline of an hour only the second request can save these.
    for stuck in [
        Fault::Hang(Duration::from_secs(3600)),
        Fault::Stall(1000, Duration::from_secs(3600)),
    ] {
        server.fail("train/a/1", &[stuck]);
        assert!(fetch(&dataset, &[0]).await.unwrap()[0] == content(100_000));
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_listing_that_breaks_goes_on_where_it_was() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    for i in 0..10 {
        server.put(&format!("train/a/{i}"), "x");
    }
    server.fail(
        "",
        &[
            Fault::Status(503, ""),
            Fault::Truncate(20),
            Fault::Status(500, ""),
        ],
    );
    let dataset = open(&s3(&server, cache.path(), folders())).await.unwrap();
    assert_eq!(dataset.index().len(), 10);
}

#[tokio::test]
async fn no_more_requests_run_than_allowed() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    for i in 0..12 {
        server.put(&format!("train/a/{i:02}"), content(1000));
    }
    let mut spec = s3(&server, cache.path(), folders());
    spec.read.requests_in_flight = 3;
    let dataset = open(&spec).await.unwrap();
    server.requests();
    for i in 0..12 {
        server.fail(
            &format!("train/a/{i:02}"),
            &[Fault::Hang(Duration::from_millis(100))],
        );
    }
    let start = Instant::now();
    let all: Vec<_> = (0..12).collect();
    let reads = all
        .iter()
        .map(|&i| fetch(&dataset, std::slice::from_ref(&all[i as usize])));
    for read in futures_util::future::join_all(reads).await {
        assert!(read.unwrap()[0] == content(1000));
    }
    assert!(
        start.elapsed() >= Duration::from_millis(400),
        "twelve reads of 100 ms, three at a time"
    );
}

#[tokio::test]
async fn a_read_larger_than_the_budget_goes_alone() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    server.put("train/a/1", content(300_000));
    let mut spec = s3(&server, cache.path(), folders());
    spec.read.bytes_in_flight = 10_000;
    let dataset = open(&spec).await.unwrap();
    assert!(fetch(&dataset, &[0, 0]).await.unwrap()[1] == content(300_000));
}

#[tokio::test]
async fn a_web_server_that_cannot_list_asks_for_a_manifest() {
    let (server, cache) = (Server::plain(), tempdir().unwrap());
    let mut spec = spec(
        format!("http://{}/data", server.address),
        cache.path(),
        folders(),
    );
    let error = open(&spec).await.unwrap_err();
    assert!(matches!(error, Error::CannotList { .. }), "{error}");
    assert!(error.hint().unwrap().contains("manifest"));

    server.put(
        "data/list.csv",
        "path,label\nx/1.bin,cat\nx/2.bin,ant\nx/1.bin,cat\n",
    );
    server.put("data/x/1.bin", content(5000));
    server.put("data/x/2.bin", content(70));
    spec.layout = Layout::Manifest {
        manifest: "list.csv".to_owned(),
        allow_outside: false,
    };
    let dataset = open(&spec).await.unwrap();
    assert_eq!(dataset.index().classes(), ["ant", "cat"]);
    let read = fetch(&dataset, &[0, 1, 2]).await.unwrap();
    assert!(read == [content(5000), content(70), content(5000)]);

    // This server can resume, or not: both heal.
    server.requests();
    server.fail("data/x/1.bin", &[Fault::Truncate(100), Fault::NoRange]);
    assert!(fetch(&dataset, &[0]).await.unwrap()[0] == content(5000));
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_manifest_of_a_bucket_may_name_parts_of_objects() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    server.put("train/big.bin", content(10_000));
    server.put("train/m.jsonl", "{\"path\":\"big.bin\",\"label\":1,\"offset\":0,\"length\":100}\n\
        {\"path\":\"big.bin\",\"label\":0,\"offset\":150,\"length\":100}\n{\"path\":\"big.bin\",\"offset\":9000,\"length\":1000}");
    let mut spec = s3(
        &server,
        cache.path(),
        Layout::Manifest {
            manifest: "m.jsonl".to_owned(),
            allow_outside: false,
        },
    );
    spec.read.coalesce_gap = 60;
    let dataset = open(&spec).await.unwrap();
    server.requests();
    let read = fetch(&dataset, &[2, 1, 0]).await.unwrap();
    let all = content(10_000);
    assert!(read == [&all[9000..], &all[150..250], &all[..100]]);
    let mut ranges: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.headers["range"].clone())
        .collect();
    ranges.sort();
    assert_eq!(ranges, ["bytes=0-249", "bytes=9000-9999"]);
    assert_eq!(dataset.name(1), "big.bin at byte 150");
}

#[tokio::test]
async fn a_bucket_that_has_no_such_manifest_says_so() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    let layout = Layout::Manifest {
        manifest: "nowhere.csv".to_owned(),
        allow_outside: false,
    };
    let error = open(&s3(&server, cache.path(), layout)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "s3://bucket/train/nowhere.csv: No such file or object"
    );
}
