//! A reordered log after an epoch was left early, a directory was lost, or the order turned out
//! otherwise: the origin is read for what the disk lacks, and for nothing else.

mod log_rig;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::log::{LayoutChoice, Log, LogSettings, Order};
use log_rig::{HOME, LONG, Random, Reading, Set, device};

const SET: Set = Set {
    samples: 240,
    longest: 30_000,
    version: 0,
};
const BATCH: usize = 12;
const BATCHES: usize = SET.samples as usize / BATCH;
const BLOCK: u64 = 4096;
/// Bytes before a sample in its record.
const RECORD_HEAD: u64 = 32;

fn order_of(set: Set, seed: u64) -> Order {
    let mut random = Random(seed);
    let mut ids: Vec<u32> = (0..set.samples).collect();
    for at in (1..ids.len()).rev() {
        ids.swap(at, random.below(at + 1));
    }
    Order {
        ids: Arc::new(ids),
        batch: BATCH,
    }
}

fn order(seed: u64) -> Order {
    order_of(SET, seed)
}

/// What is left of an epoch after so many batches.
fn rest(order: &Order, batches: usize) -> Order {
    Order {
        ids: Arc::new(order.ids[batches * BATCH..].to_vec()),
        batch: BATCH,
    }
}

fn settings(dirs: &[PathBuf]) -> LogSettings {
    let dirs: Vec<_> = dirs.iter().map(PathBuf::as_path).collect();
    LogSettings {
        layout: LayoutChoice::Reorder,
        disk: 64 << 20,
        memory: 8 << 20,
        ..SET.settings(&dirs)
    }
}

fn open(dirs: &[PathBuf]) -> Reading {
    let log = Log::open(settings(dirs)).unwrap();
    // A loaded machine is waited for.
    log.set_patience(LONG);
    Reading::new(log, SET)
}

fn dirs(root: &Path, count: usize) -> Vec<PathBuf> {
    (0..count).map(|at| root.join(at.to_string())).collect()
}

/// Trains on the first batches of an order as a loader does; samples that came from the origin.
fn train(reading: &Reading, order: &Order, next: &Order, batches: usize) -> usize {
    let (log, set) = (reading.log(), reading.set);
    log.begin(Some(order));
    log.foresee(next);
    let mut origin = 0;
    for ids in order.ids.chunks(BATCH).take(batches) {
        let found = reading.read(ids.iter().copied());
        for &id in ids {
            origin += usize::from(found.get(&id) != Some(&true));
            log.offer(&set.sample(id), set.bytes(id).chunks(1000));
        }
        log.consumed(ids);
    }
    log.flush();
    origin
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Left {
    /// By `break`: the same process goes on.
    Broken,
    /// Closed, and opened by another process.
    Closed,
}

#[test]
fn an_epoch_that_was_left_anywhere_is_resumed_without_the_origin() {
    for left in [Left::Broken, Left::Closed] {
        for batches in [0, 1, 7, BATCHES - 1, BATCHES] {
            for same_epoch in [true, false] {
                let case = format!("{left:?} after {batches} batches, same epoch: {same_epoch}");
                let root = tempfile::tempdir().unwrap();
                let dirs = dirs(root.path(), 1);
                let mut reading = open(&dirs);
                let all = SET.samples as usize;
                assert_eq!(train(&reading, &order(0), &order(1), BATCHES), all);
                assert_eq!(train(&reading, &order(1), &order(2), batches), 0, "{case}");
                if left == Left::Closed {
                    drop(reading);
                    reading = open(&dirs);
                }
                let (first, then) = match same_epoch {
                    true => (rest(&order(1), batches), [2, 3]),
                    false => (order(7), [8, 9]),
                };
                let [next, after] = then.map(order);
                assert_eq!(train(&reading, &first, &next, BATCHES), 0, "{case}");
                assert_eq!(train(&reading, &next, &after, BATCHES), 0, "{case}");
                assert_eq!(reading.log().stats().corrupt, 0);
            }
        }
    }
}

/// How many logs there are in a folder.
fn orders(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_order = |path: &PathBuf| path.extension().is_some_and(|end| end == "order");
    paths.filter(is_order).count()
}

#[test]
fn an_epoch_that_is_left_again_and_again_loses_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dirs = dirs(root.path(), 2);
    let mut reading = open(&dirs);
    train(&reading, &order(0), &order(1), BATCHES);
    for round in 1..12 {
        let seed = 10 * round;
        let batches = 1 + (round as usize * 5) % 4;
        let origin = train(&reading, &order(seed), &order(seed + 1), batches);
        assert_eq!(origin, 0, "round {round}");
        // Each has a table in memory: the smallest of too many are brought over and go.
        let logs = orders(&dirs[0].join(HOME));
        assert!(logs <= 6, "{logs} logs after round {round}");
        if round % 3 == 0 {
            drop(reading);
            reading = open(&dirs);
        }
    }
}

#[test]
fn a_lost_directory_costs_what_it_held() {
    for batches in [0, 7, BATCHES] {
        for is_empty in [true, false] {
            let root = tempfile::tempdir().unwrap();
            let mut dirs = dirs(root.path(), 3);
            let reading = open(&dirs);
            train(&reading, &order(0), &order(1), BATCHES);
            train(&reading, &order(1), &order(2), batches);
            let lies_in = |id: &u32| reading.log().find(*id, 1).unwrap().at.dir;
            let lost: HashSet<u32> = (0..SET.samples).filter(|id| lies_in(id) == 1).collect();
            drop(reading);
            std::fs::remove_dir_all(&dirs[1]).unwrap();
            if !is_empty {
                dirs.remove(1); // the user leaves it out
            }
            let reading = open(&dirs);
            let first = rest(&order(1), batches);
            let at_once = first.ids.iter().filter(|id| lost.contains(id)).count();
            let case = format!("{} lost after {batches} batches", lost.len());
            let origin = train(&reading, &first, &order(2), BATCHES);
            assert_eq!(origin, at_once, "{case}");
            let origin = train(&reading, &order(2), &order(3), BATCHES);
            assert_eq!(origin, lost.len() - at_once, "{case}");
            assert_eq!(train(&reading, &order(3), &order(4), BATCHES), 0, "{case}");
        }
    }
}

#[test]
fn chunks_go_round_the_directories() {
    let root = tempfile::tempdir().unwrap();
    let dirs = dirs(root.path(), 3);
    let reading = open(&dirs);
    train(&reading, &order(0), &order(1), BATCHES);
    for (batch, ids) in order(1).ids.chunks(BATCH).enumerate() {
        for &id in ids {
            let at = reading.log().find(id, 1).unwrap().at;
            assert_eq!(usize::from(at.dir), batch % 3, "batch {batch}");
        }
    }
    // And so do the bytes.
    let bytes: Vec<u64> = dirs
        .iter()
        .map(|dir| forebay_cache::log::used(&dir.join(HOME)))
        .collect();
    let mean = bytes.iter().sum::<u64>() / 3;
    assert!(
        bytes.iter().all(|&one| one.abs_diff(mean) < mean / 4),
        "{bytes:?}"
    );
}

/// How many chunks of at most `most` bytes an order has.
fn chunks(set: Set, order: &Order, most: u64) -> u64 {
    let (mut count, mut bytes) = (0, u64::MAX);
    for &id in order.ids.iter() {
        let room = (set.sample(id).length + RECORD_HEAD).next_multiple_of(BLOCK);
        if bytes.saturating_add(room) > most {
            (count, bytes) = (count + 1, 0);
        }
        bytes += room;
    }
    count
}

#[test]
fn a_chunk_is_one_request_whatever_its_size() {
    // Batches of 640 KB, and chunks that are a part of one or several.
    let set = Set {
        longest: 107_000,
        ..SET
    };
    for chunk in [None, Some(128 << 10), Some(1 << 20), Some(3 << 20)] {
        let root = tempfile::tempdir().unwrap();
        let log = Log::open(LogSettings {
            layout: LayoutChoice::Reorder,
            disk: 256 << 20,
            memory: 64 << 20,
            chunk,
            ..set.settings(&[root.path()])
        });
        let log = log.unwrap();
        log.set_patience(LONG);
        let reading = Reading::new(log, set);
        let of = |seed| order_of(set, seed);
        train(&reading, &of(0), &of(1), BATCHES);
        for seed in 1..3 {
            let before = reading.log().stats().requests;
            assert_eq!(train(&reading, &of(seed), &of(seed + 1), BATCHES), 0);
            let requests = reading.log().stats().requests - before;
            let expected = match chunk {
                None => BATCHES as u64,
                Some(most) => chunks(set, &of(seed), most),
            };
            assert_eq!(requests, expected, "chunks of {chunk:?}");
        }
    }
}

#[test]
fn a_wrong_forecast_costs_no_read_of_the_origin_and_is_said_once() {
    let root = tempfile::tempdir().unwrap();
    let settings = settings(&dirs(root.path(), 1));
    let warnings = settings.warnings.clone();
    let log = Log::open(settings).unwrap();
    log.set_patience(LONG);
    let reading = Reading::new(log, SET);
    let log = reading.log();
    train(&reading, &order(0), &order(1), BATCHES);
    assert!(warnings.take().is_empty());
    let mut said = Vec::new();
    for (at, seed) in [1, 5, 9].into_iter().enumerate() {
        log.begin(Some(&order(seed)));
        log.forecast(&order(seed + 1));
        for ids in order(seed).ids.chunks(BATCH) {
            let found = reading.read(ids.iter().copied());
            assert!(ids.iter().all(|id| found.get(id) == Some(&true)));
            for &id in ids {
                log.offer(&SET.sample(id), SET.bytes(id).chunks(1000));
            }
            log.consumed(ids);
        }
        let wrong = log.stats().wrong_forecasts;
        assert_eq!(wrong, at as u64, "in the epoch of seed {seed}");
        said.extend(warnings.take());
        // Told again near its end, as a loader does.
        log.foresee(&order(seed + 1));
    }
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("hint: pass seed="), "{said:?}");
}

#[test]
fn a_sample_that_is_wanted_while_it_is_written_is_read_from_the_log() {
    let root = tempfile::tempdir().unwrap();
    let slow = device(|op| {
        if op.write {
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    });
    let log = Log::open(LogSettings {
        device: slow,
        ..settings(&dirs(root.path(), 1))
    });
    let log = log.unwrap();
    log.set_patience(LONG);
    let reading = Reading::new(log, SET);
    let log = reading.log();
    log.begin(Some(&order(0)));
    log.foresee(&order(1));
    for &id in order(0).ids.iter().take(30) {
        assert!(log.offer(&SET.sample(id), SET.bytes(id).chunks(1000)));
        assert_eq!(reading.read([id]).get(&id), Some(&true), "sample {id}");
    }
}
