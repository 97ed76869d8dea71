//! `kill -9` while a log is written anew for the next epoch, and opened again each time.
//!
//! The writer is this test itself, with a slow disk: 4 KiB at a time, marked in a file while a
//! write is under way, so that it can be told where the kill fell; each that is done is reported,
//! so that what it wrote must be found, unless its blocks were given back.

// What was found is said: a run that proves little is to be seen.
#![allow(clippy::print_stderr)]

mod log_rig;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::log::{DeviceChoice, LayoutChoice, Log, LogSettings, Op, Order, used};
use log_rig::{Random, Reading, Set, device, path_of};

const ORDERS: &str = "FOREBAY_LOG_REORDER_KILL_TEST";
const SET: Set = Set {
    samples: 200,
    longest: 24_000,
    version: 0,
};
const BATCH: usize = 10;
const BUDGET: u64 = 3 << 20;

fn order(seed: u64) -> Order {
    let mut random = Random(seed);
    let mut ids: Vec<u32> = (0..SET.samples).collect();
    for at in (1..ids.len()).rev() {
        ids.swap(at, random.below(at + 1));
    }
    Order {
        ids: Arc::new(ids),
        batch: BATCH,
    }
}

fn settings(folder: &Path, device: DeviceChoice) -> LogSettings {
    LogSettings {
        layout: LayoutChoice::Reorder,
        disk: BUDGET,
        device,
        ..SET.settings(&[&folder.join("cache")])
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

fn slow_disk(state: File, reports: File) -> DeviceChoice {
    device(move |op: &mut Op| {
        if !op.write {
            return None;
        }
        state.write_all_at(&[1], 0).unwrap();
        let bytes = &op.buffer[op.range.clone()];
        for (at, piece) in bytes.chunks(4096).enumerate() {
            let place = op.offset + at as u64 * 4096;
            op.file.write_all_at(piece, place).unwrap();
            std::thread::sleep(Duration::from_micros(1000));
        }
        let (path, offset, length) = (path_of(op), op.offset, bytes.len());
        let line = format!("{offset} {length} {} {}\n", hash(bytes), path.display());
        (&reports).write_all(line.as_bytes()).unwrap();
        state.write_all_at(&[0], 0).unwrap();
        Some(Ok(()))
    })
}

/// Writes that were reported.
fn count(reports: &Path) -> usize {
    let bytes = std::fs::read(reports).unwrap();
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

/// Samples whose records were reported as written and are on the disk as they were.
fn whole_records(reports: &Path) -> HashSet<u32> {
    let by_key: HashMap<_, _> = (0..SET.samples)
        .map(|id| (SET.identity(id).key, id))
        .collect();
    let mut found = HashSet::new();
    for line in std::fs::read_to_string(reports).unwrap().lines() {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        let [offset, length, written, path] = words[..] else {
            panic!("a report of {line:?}");
        };
        let mut bytes = vec![0; length.parse().unwrap()];
        let read = File::open(path)
            .and_then(|file| file.read_exact_at(&mut bytes, offset.parse().unwrap()));
        if read.is_ok() && hash(&bytes) == written.parse::<u64>().unwrap() {
            let key = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
            found.insert(by_key[&key]);
        }
    }
    found
}

/// The writer's life: epoch after epoch, until it is killed.
fn write(folder: &Path) {
    let state = File::options()
        .write(true)
        .open(folder.join("state"))
        .unwrap();
    let reports = File::options()
        .append(true)
        .open(folder.join("reports"))
        .unwrap();
    let log = Log::open(settings(folder, slow_disk(state, reports))).unwrap();
    let reading = Reading::new(log, SET);
    let log = reading.log();
    for seed in u64::from(std::process::id())..u64::MAX {
        let current = order(seed);
        log.begin(Some(&current));
        log.foresee(&order(seed + 1));
        for ids in current.ids.chunks(BATCH) {
            reading.read(ids.iter().copied());
            for &id in ids {
                log.offer(&SET.sample(id), SET.bytes(id).chunks(1000));
            }
            log.consumed(ids);
        }
    }
}

#[test]
fn a_log_that_was_being_reordered_opens_again_without_a_wrong_byte() {
    if let Some(folder) = std::env::var_os(ORDERS) {
        return write(Path::new(&folder));
    }
    let kills = match std::env::var_os("FOREBAY_SLOW_TESTS") {
        Some(value) if value == "1" => 300,
        _ => 60,
    };
    let folder = tempfile::tempdir().unwrap();
    let reports = folder.path().join("reports");
    std::fs::write(&reports, []).unwrap();
    let mut random = Random(9);
    let (mut in_a_write, mut whole, mut torn, mut held) = (0, 0, 0, 0);
    for _ in 0..kills {
        std::fs::write(folder.path().join("state"), [0]).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "a_log_that_was_being_reordered_opens_again_without_a_wrong_byte",
            ])
            .env(ORDERS, folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // After so many writes, however long they take.
        let writes = count(&reports) + 5 + random.below(60);
        while count(&reports) < writes {
            assert!(child.try_wait().unwrap().is_none(), "the writer has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(random.below(4000) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        in_a_write += usize::from(std::fs::read(folder.path().join("state")).unwrap() == [1]);
        let used = used(&folder.path().join("cache/log"));
        assert!(used <= BUDGET);
        let written = whole_records(&reports);
        let log = Log::open(settings(folder.path(), DeviceChoice::Auto)).unwrap();
        assert!(log.stats().writes, "the dead one's lease is taken over");
        // Reading asserts that no byte is wrong.
        let reading = Reading::new(log, SET);
        let mut found = reading.read(0..SET.samples);
        // What is torn in this epoch's log may be whole in the next one's.
        let torn_ids: Vec<_> = (0..SET.samples)
            .filter(|id| found.get(id) == Some(&false))
            .collect();
        torn += torn_ids.len();
        found.extend(reading.read(torn_ids));
        whole += found.values().filter(|&&whole| whole).count();
        // With more than it should have, it begins by letting go.
        if used <= BUDGET * 15 / 16 {
            for id in written {
                assert_eq!(found.get(&id), Some(&true), "sample {id} was written");
                held += 1;
            }
        }
    }
    eprintln!(
        "{kills} kills, {in_a_write} in a write; {whole} samples whole, {torn} torn, {held} that \
         had to be there"
    );
    assert!(held > kills * 20, "{held} samples that had to be there");
    assert!(in_a_write * 100 >= kills * 80, "{in_a_write} of {kills}");
    assert!(whole > kills * 20, "{whole} samples after {kills} kills");
    assert!(torn <= kills * 2, "a kill tears one record or two: {torn}");
}
