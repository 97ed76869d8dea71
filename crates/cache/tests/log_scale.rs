//! A log of 14.1 million samples: what its index takes, and how soon it is ready.
//!
//! The samples are made up: chunks have heads and tables, and holes where the bytes would be. It
//! takes half a gigabyte of disk and some seconds, so it runs with `FOREBAY_SLOW_TESTS=1`; without,
//! a tenth of it does. The process holds nothing else, so what it grows by is the log's.

// What was found is said.
#![allow(clippy::print_stderr)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use forebay_cache::log::{DeviceChoice, LayoutChoice, Log, LogSettings, Order, Subject};
use forebay_format::chunk::{ChunkBuilder, Home, Identity};

const LENGTH: u64 = 1000;
const PER_CHUNK: u32 = 4000;
const CHUNKS_PER_SEGMENT: u32 = 200;
const SUBJECT: Subject = Subject {
    dataset: 1,
    index: 2,
    samples: 0,
    dirs: 0,
};

fn samples() -> u32 {
    match std::env::var_os("FOREBAY_SLOW_TESTS") {
        Some(value) if value == "1" => 14_100_000,
        _ => 1_410_000,
    }
}

fn identity(id: u32) -> Identity {
    Identity {
        key: u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        validator: 3,
    }
}

fn settings(folder: &Path, layout: LayoutChoice) -> LogSettings {
    let samples = samples();
    LogSettings {
        dirs: vec![PathBuf::from(folder)],
        name: "large".into(),
        about: "test://large".into(),
        subject: Subject { samples, ..SUBJECT },
        total_bytes: u64::from(samples) * LENGTH,
        max_length: LENGTH,
        disk: 1 << 40,
        floor: 0,
        chunk: None,
        memory: 64 << 20,
        layout,
        device: DeviceChoice::Auto,
        identify: Arc::new(|id| Some(identity(id))),
        length: Arc::new(|_| Some(LENGTH)),
        warnings: Arc::default(),
    }
}

/// Segments as a writer would have left them, but for the samples' bytes.
fn write_segments(folder: &Path) {
    let bytes = vec![0; LENGTH as usize];
    let mut buffer = vec![0; 5 << 20];
    let (mut segment, mut offset) = (0, 0);
    let mut file = File::create(folder.join("00000000.segment")).unwrap();
    for (chunk, first) in (0..samples()).step_by(PER_CHUNK as usize).enumerate() {
        if chunk as u32 / CHUNKS_PER_SEGMENT > segment {
            (segment, offset) = (segment + 1, 0);
            file = File::create(folder.join(format!("{segment:08}.segment"))).unwrap();
        }
        let mut builder = ChunkBuilder::default();
        for id in first..(first + PER_CHUNK).min(samples()) {
            builder.push(&mut buffer, id, identity(id), [&bytes[..]].into_iter());
        }
        let length = builder.length();
        let table = 64 + builder.entries().len() * LENGTH as usize;
        builder.seal(
            &mut buffer,
            Home {
                dataset: 1,
                index: 2,
                number: u64::from(segment) << 32 | offset,
                segment,
                offset: offset as u32,
            },
        );
        file.write_all_at(&buffer[..64], offset).unwrap();
        file.write_all_at(&buffer[table..length], offset + table as u64)
            .unwrap();
        offset += length as u64;
    }
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    words[1].parse::<u64>().unwrap() << 10
}

fn report(what: &str, begun: Instant, before: u64) -> u64 {
    let grown = resident().saturating_sub(before);
    eprintln!(
        "{what}, {} samples: {:.2} s, {:.0} MB",
        samples(),
        begun.elapsed().as_secs_f64(),
        grown as f64 / 1e6
    );
    // Of the samples' share; the rest is buffers and does not grow with them.
    let most = u64::from(samples()) * 400_000_000 / 14_100_000 + (64 << 20);
    assert!(grown <= most, "{what}: {grown} bytes, {most} allowed");
    grown
}

#[test]
fn an_index_of_millions_is_small_and_soon_ready() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("log/large");
    std::fs::create_dir_all(&home).unwrap();
    write_segments(&home);
    // The first one makes the table from the chunks; then it is there.
    for what in ["packed, found again", "packed, opened"] {
        let (begun, before) = (Instant::now(), resident());
        let log = Log::open(settings(folder.path(), LayoutChoice::Packed)).unwrap();
        let held = (0..samples()).filter(|&id| log.find(id, LENGTH).is_some());
        assert_eq!(held.count() as u32, samples());
        report(what, begun, before);
    }
    let order = |stride: u64| Order {
        ids: Arc::new(
            (0..u64::from(samples()))
                .map(|at| (at * stride % u64::from(samples())) as u32)
                .collect(),
        ),
        batch: 256,
    };
    let (current, next) = (order(7_919), order(104_729));
    let (begun, before) = (Instant::now(), resident());
    let log = Log::open(settings(folder.path(), LayoutChoice::Reorder)).unwrap();
    log.foresee(&current);
    log.begin(Some(&current));
    log.foresee(&next);
    report("reorder, two epochs", begun, before);
}
