//! Tar shards: local and in a bucket, whole and damaged.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use common::server::Server;
use common::{age, fetch, names, open, read, spec};
use forebay_origin::tar::members;
use forebay_origin::{Dataset, Difference, Error, Kind, Layout, Refresh};
use tempfile::tempdir;

/// An archive of these files, by another writer than our reader.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        // Long names become GNU's extra member.
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn sample(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let parts = members(bytes).unwrap().into_iter();
    parts
        .map(|part| {
            (
                format!("{}.{}", part.key, part.ext),
                bytes[part.range.start as usize..part.range.end as usize].to_vec(),
            )
        })
        .collect()
}

fn expect(parts: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
    parts
        .iter()
        .map(|(name, content)| ((*name).to_owned(), content.to_vec()))
        .collect()
}

#[test]
fn a_sample_is_a_run_of_members_with_one_key() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    let big = vec![7; 100_000];
    let long = format!("{}/long.jpg", "deep".repeat(60));
    fs::write(
        root.path().join("x.tar"),
        archive(&[
            ("dir/", b""),
            ("dir/a.JPG", &big),
            ("dir/a.cls", b"3"),
            ("README", b"not a sample"),
            ("dir/b.seg.png", b""),
            ("dir/b.json", b"{}"),
            ("__meta__/x.json", b"{}"),
            (&long, b"long name"),
            ("dir/a.txt", b"again"),
        ]),
    )
    .unwrap();
    let dataset = open(&spec(root.path(), cache.path(), Layout::Tar));
    assert_eq!(names(&dataset), ["x.tar"; 4]);
    let samples: Vec<_> = (0..4)
        .map(|i| sample(&read(&dataset, i).unwrap()))
        .collect();
    assert_eq!(
        samples[0],
        expect(&[("dir/a.jpg", &big), ("dir/a.cls", b"3")])
    );
    assert_eq!(
        samples[1],
        expect(&[("dir/b.seg.png", b""), ("dir/b.json", b"{}")])
    );
    assert_eq!(samples[2], expect(&[(&long, b"long name")]));
    assert_eq!(samples[3], expect(&[("dir/a.txt", b"again")]));
    assert!(dataset.name(1).starts_with("x.tar at byte "));
    assert_eq!(dataset.index().label(0).unwrap(), -1);
}

#[test]
fn pax_records_give_name_and_size() {
    let mut builder = tar::Builder::new(Vec::new());
    let name = format!("{}/ü.jpg", "p".repeat(150));
    builder
        .append_pax_extensions([("path", name.as_bytes()), ("mtime", b"1.5"), ("size", b"5")])
        .unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_path("short.jpg").unwrap();
    header.set_size(5);
    header.set_cksum();
    builder.append(&header, &b"hello"[..]).unwrap();
    let bytes = builder.into_inner().unwrap();
    assert_eq!(sample(&bytes), expect(&[(&name, b"hello")]));
}

#[test]
fn shards_are_named_by_a_pattern_or_found_in_a_folder() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    fs::create_dir(root.path().join("sub")).unwrap();
    for name in ["t-09.tar", "t-10.tar", "sub/t-11.tar", "other.txt"] {
        fs::write(
            root.path().join(name),
            archive(&[("k.txt", name.as_bytes())]),
        )
        .unwrap();
    }
    let all = open(&spec(root.path(), cache.path(), Layout::Tar));
    assert_eq!(names(&all), ["sub/t-11.tar", "t-09.tar", "t-10.tar"]);
    let some = open(&spec(
        root.path().join("t-{09..10}.tar"),
        cache.path(),
        Layout::Tar,
    ));
    assert_eq!(names(&some), ["t-09.tar", "t-10.tar"]);
    assert_eq!(
        sample(&read(&some, 1).unwrap()),
        expect(&[("k.txt", b"t-10.tar")])
    );
    let missing = Dataset::open(
        &spec(
            root.path().join("t-{09..12}.tar"),
            cache.path(),
            Layout::Tar,
        ),
        &(),
    );
    assert_eq!(
        missing.unwrap_err().to_string(),
        "t-11.tar: No such file or object"
    );
}

#[test]
fn a_damaged_shard_is_told_with_its_offset() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    let good = archive(&[("a.jpg", &[1; 1000]), ("b.jpg", &[2; 1000])]);
    let write = |bytes: &[u8]| fs::write(root.path().join("x.tar"), bytes).unwrap();
    let spec = spec(root.path(), cache.path(), Layout::Tar);
    let failed = || Dataset::open(&spec, &()).unwrap_err();
    write(&good[..2000]);
    assert_eq!(
        failed().to_string(),
        "x.tar, offset 1536: archive of 2000 bytes is cut off in a member"
    );
    write(&good[..2500]);
    let error = failed();
    assert_eq!(
        error.to_string(),
        "x.tar, offset 1536: archive of 2500 bytes is cut off in member \"b.jpg\""
    );
    assert_eq!(error.kind(), Kind::Corrupt);
    let mut bad = good;
    bad[1536] ^= 1;
    write(&bad);
    assert!(
        failed()
            .to_string()
            .starts_with("x.tar, offset 1536: not a tar header: checksum is ")
    );
    write(&archive(&[("a.jpg", b"1"), ("a.JPG", b"2")]));
    assert!(
        failed()
            .to_string()
            .contains("sample \"a\" has two members that end in \"jpg\"")
    );
    write(&archive(&[("README", b"1")]));
    assert!(
        failed()
            .to_string()
            .ends_with("no sample in its tar shards")
    );
    fs::remove_file(root.path().join("x.tar")).unwrap();
    assert!(failed().to_string().ends_with("no *.tar file in it"));
}

#[test]
fn an_archive_may_end_without_its_zeros_and_padding() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    let good = archive(&[("a.jpg", &[1; 1000]), ("b.jpg", &[2; 1000])]);
    for end in [1536 + 512 + 1000, 1536 + 512 + 1024] {
        fs::write(root.path().join("x.tar"), &good[..end]).unwrap();
        let dataset = open(&spec(root.path(), cache.path(), Layout::Tar));
        assert_eq!(
            sample(&read(&dataset, 1).unwrap()),
            expect(&[("b.jpg", &[2; 1000])]),
            "{end}"
        );
    }
}

#[test]
fn hostile_bytes_give_an_error_and_never_a_panic() {
    let good = archive(&[
        ("a.jpg", &[1; 600]),
        (&"long/".repeat(50), b""),
        ("b.jpg", b"x"),
    ]);
    for at in 0..good.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            if let Ok(members) = members(&bad) {
                assert!(
                    members
                        .iter()
                        .all(|member| member.range.end <= bad.len() as u64)
                );
            }
        }
    }
    for end in 0..good.len() {
        let _ = members(&good[..end]);
    }
}

#[test]
fn a_shard_that_was_replaced_is_an_error_until_refreshed() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    let path = root.path().join("x.tar");
    fs::write(&path, archive(&[("a.jpg", b"old")])).unwrap();
    age(root.path());
    let spec = spec(root.path(), cache.path(), Layout::Tar);
    let dataset = open(&spec);
    let again = open(&spec);
    assert!(again.opened().refreshed.is_none() && !again.opened().built);
    // A dataset that has not read yet notices the new file; one that has keeps the old.
    assert_eq!(
        sample(&read(&dataset, 0).unwrap()),
        expect(&[("a.jpg", b"old")])
    );
    fs::remove_file(&path).unwrap();
    fs::write(&path, archive(&[("a.jpg", b"new")])).unwrap();
    assert_eq!(
        sample(&read(&dataset, 0).unwrap()),
        expect(&[("a.jpg", b"old")])
    );
    assert!(matches!(
        read(&again, 0).unwrap_err(),
        Error::Changed { .. }
    ));
    let fresh = open(&spec);
    assert_eq!(
        fresh.opened().refreshed,
        Some(Difference {
            added: 0,
            changed: 1,
            removed: 0
        })
    );
    assert_eq!(
        sample(&read(&fresh, 0).unwrap()),
        expect(&[("a.jpg", b"new")])
    );
}

#[test]
fn more_shards_than_may_be_open_are_read_all_the_same() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    for i in 0..300 {
        fs::write(
            root.path().join(format!("{i:03}.tar")),
            archive(&[("k.txt", i.to_string().as_bytes())]),
        )
        .unwrap();
    }
    let dataset = open(&spec(root.path(), cache.path(), Layout::Tar));
    let open_files = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open_files();
    for i in (0..300).chain(0..300) {
        assert_eq!(
            sample(&read(&dataset, i).unwrap()),
            expect(&[("k.txt", i.to_string().as_bytes())])
        );
    }
    assert!(open_files() < before + 200);
}

/// The same bucket under another url each, so that tests do not share an index.
fn bucket(server: &Server, cache: &Path, url: &str) -> forebay_origin::DatasetSpec {
    let mut spec = spec(url, cache, Layout::Tar);
    for (name, value) in [
        ("endpoint", format!("http://{}", server.address).as_str()),
        ("allow_http", "true"),
        ("access_key_id", "k"),
        ("secret_access_key", "s"),
    ] {
        spec.storage_options.insert(name.to_owned(), value.into());
    }
    spec
}

#[test]
fn shards_in_a_bucket_are_scanned_by_range_and_only_when_they_changed() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    let large = vec![9; 2_000_000];
    server.put(
        "s/0.tar",
        archive(&[("a.jpg", &large), ("b.jpg", &large), ("c.jpg", b"small")]),
    );
    server.put(
        "s/1.tar",
        archive(&[("d.jpg", b"x"), ("d.cls", b"1"), ("e.jpg", b"y")]),
    );
    let mut spec = bucket(&server, cache.path(), "s3://bucket/s/{0..1}.tar");
    let dataset = open(&spec);
    assert_eq!(dataset.index().len(), 5);
    let gets = |server: &Server| {
        let requests = server.requests().into_iter();
        requests
            .filter(|request| request.method == "GET")
            .map(|request| request.target)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        gets(&server).len(),
        4,
        "three windows of the large shard, one of the small"
    );

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let read = runtime.block_on(fetch(&dataset, &[4, 0, 3])).unwrap();
    assert_eq!(sample(&read[0]), expect(&[("e.jpg", b"y")]));
    assert_eq!(sample(&read[1]), expect(&[("a.jpg", &large)]));
    assert_eq!(
        sample(&read[2]),
        expect(&[("d.jpg", b"x"), ("d.cls", b"1")])
    );
    assert_eq!(gets(&server).len(), 2, "d and e are neighbours");

    server.put("s/1.tar", archive(&[("d.jpg", b"x"), ("f.jpg", b"z")]));
    let error = runtime.block_on(fetch(&dataset, &[4])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "s3://bucket/s/1.tar: object changed since it was indexed"
    );
    gets(&server);
    spec.refresh = Refresh::Always;
    let dataset = open(&spec);
    assert_eq!(dataset.index().len(), 5);
    assert!(gets(&server).iter().all(|target| target.contains("1.tar")));
}

#[test]
fn a_truncated_shard_in_a_bucket_is_named() {
    let (server, cache) = (Server::new(), tempdir().unwrap());
    let good = archive(&[("a.jpg", &[1; 5000])]);
    server.put("s/0.tar", &good[..3000]);
    let error = Dataset::open(&bucket(&server, cache.path(), "s3://bucket/s"), &()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "s3://bucket/s/0.tar, offset 0: archive of 3000 bytes is cut off in member \"a.jpg\""
    );
}

#[test]
fn shards_of_a_list_come_in_its_order_from_wherever_they_are() {
    let (root, cache) = (tempdir().unwrap(), tempdir().unwrap());
    fs::create_dir_all(root.path().join("x/y")).unwrap();
    let server = Server::new();
    let mut urls = [Vec::new(), Vec::new()];
    for shard in ["x/2.tar", "x/y/1.tar", "x/2.tar", "3.tar"] {
        let bytes = archive(&[("k.txt", shard.as_bytes())]);
        fs::write(root.path().join(shard), &bytes).unwrap();
        server.put(&format!("train/{shard}"), bytes);
        urls[0].push(root.path().join(shard).to_str().unwrap().to_owned());
        urls[1].push(format!("s3://bucket/train/{shard}"));
    }
    let expected = ["x/2.tar", "x/y/1.tar", "x/2.tar", "3.tar"];
    let [local, remote] = urls;
    let mut spec = spec(&local[0], cache.path(), Layout::Tar);
    spec.more_shards = local[1..].to_vec();
    let dataset = open(&spec);
    let texts: Vec<_> = (0..4)
        .map(|i| sample(&read(&dataset, i).unwrap())["k.txt"].clone())
        .collect();
    assert_eq!(texts, expected.map(|shard| shard.as_bytes().to_vec()));
    assert!(dataset.path(1).unwrap().ends_with("/x/y/1.tar"));
    // Another list is another index.
    spec.more_shards.pop();
    let shorter = open(&spec);
    assert!(shorter.opened().built);
    assert_eq!(shorter.index().len(), 3);

    let mut spec = bucket(&server, cache.path(), &remote[0]);
    spec.more_shards = remote[1..].to_vec();
    let dataset = open(&spec);
    assert_eq!(names(&dataset), expected);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let read = runtime.block_on(fetch(&dataset, &[3, 1])).unwrap();
    assert_eq!(sample(&read[0])["k.txt"], b"3.tar");
    assert_eq!(sample(&read[1])["k.txt"], b"x/y/1.tar");
}
