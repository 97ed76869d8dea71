//! The reordered log from its handle: epochs in their orders, restarts, little room, kills.

mod log_rig;

use std::sync::Arc;

use forebay_cache::log::{LayoutChoice, Log, LogSettings, Order};
use log_rig::{Random, Reading, Set};

const SET: Set = Set {
    samples: 400,
    longest: 30_000,
    version: 0,
};
const BATCH: usize = 16;

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

fn settings(folder: &std::path::Path, disk: u64) -> LogSettings {
    LogSettings {
        layout: LayoutChoice::Reorder,
        disk,
        memory: 4 << 20,
        ..SET.settings(&[folder])
    }
}

/// An epoch as a loader has it: reads two batches ahead, offers what it used. Samples that had to
/// come from the origin.
fn epoch(reading: &Reading, seed: u64, after_each: impl Fn(&Log)) -> usize {
    let log = reading.log();
    let (current, next) = (order(seed), order(seed + 1));
    log.begin(Some(&current));
    log.foresee(&next);
    let mut origin = 0;
    for ids in current.ids.chunks(BATCH) {
        let found = reading.read(ids.iter().copied());
        for &id in ids {
            if found.get(&id) != Some(&true) {
                origin += 1;
            }
            log.offer(&SET.sample(id), SET.bytes(id).chunks(1000));
        }
        log.consumed(ids);
        after_each(log);
    }
    log.flush();
    origin
}

#[test]
fn every_epoch_is_read_from_the_log_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let reading = Reading::new(Log::open(settings(folder.path(), 64 << 20)).unwrap(), SET);
    assert_eq!(epoch(&reading, 0, |_| {}), SET.samples as usize);
    for seed in 1..5 {
        let before = reading.log().stats();
        assert_eq!(epoch(&reading, seed, |_| {}), 0, "epoch {seed}");
        let after = reading.log().stats();
        let requests = after.requests - before.requests;
        let chunks = u64::from(SET.samples) / BATCH as u64;
        assert_eq!(requests, chunks, "a chunk is one request");
        assert_eq!(after.written - before.written, u64::from(SET.samples));
        assert_eq!(after.corrupt, 0);
    }
}

#[test]
fn where_the_log_is_small_what_comes_first_is_kept_and_the_budget_holds() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 4 << 20;
    let reading = Reading::new(Log::open(settings(folder.path(), limit)).unwrap(), SET);
    let check = |log: &Log| {
        let used = log.stats().disk_bytes;
        assert!(used <= limit, "{used} of {limit}");
    };
    epoch(&reading, 0, check);
    for seed in 1..5 {
        let log = reading.log();
        let next = order(seed);
        log.begin(Some(&next));
        let there: Vec<_> = next
            .ids
            .iter()
            .map(|&id| log.find(id, 1).is_some())
            .collect();
        let kept = there.iter().filter(|&&there| there).count();
        let first = there.iter().take(kept).filter(|&&there| there).count();
        assert!(first * 100 >= kept * 95, "{first} of {kept} come first");
        let origin = epoch(&reading, seed, check);
        // Records take whole blocks: 2 KiB more a sample, and some room for what is under way.
        let fit = limit as usize * 8 / 10 / (15_000 + 2_048);
        let least = SET.samples as usize - fit;
        assert!(
            origin <= least,
            "{origin} from the origin, {least} would do"
        );
    }
}

#[test]
fn another_run_finds_what_is_there_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let reading = Reading::new(Log::open(settings(folder.path(), 64 << 20)).unwrap(), SET);
    epoch(&reading, 0, |_| {});
    drop(reading);
    let reading = Reading::new(Log::open(settings(folder.path(), 64 << 20)).unwrap(), SET);
    assert_eq!(epoch(&reading, 1, |_| {}), 0, "the order that was foreseen");
    drop(reading);
    let reading = Reading::new(Log::open(settings(folder.path(), 64 << 20)).unwrap(), SET);
    assert_eq!(epoch(&reading, 77, |_| {}), 0, "another one");
    assert_eq!(epoch(&reading, 78, |_| {}), 0);
}

#[test]
fn samples_read_ahead_of_their_epoch_are_carried_over() {
    let folder = tempfile::tempdir().unwrap();
    let reading = Reading::new(Log::open(settings(folder.path(), 64 << 20)).unwrap(), SET);
    epoch(&reading, 0, |_| {});
    let log = reading.log();
    // The first three batches of epoch 1 are read and used before it begins.
    let early: Vec<u32> = order(1).ids[..3 * BATCH].to_vec();
    assert!(
        reading
            .read(early.iter().copied())
            .values()
            .all(|&whole| whole)
    );
    for &id in &early {
        log.offer(&SET.sample(id), SET.bytes(id).chunks(1000));
    }
    log.begin(Some(&order(1)));
    log.foresee(&order(2));
    log.consumed(&early);
    for ids in order(1).ids[3 * BATCH..].chunks(BATCH) {
        reading.read(ids.iter().copied());
        for &id in ids {
            log.offer(&SET.sample(id), SET.bytes(id).chunks(1000));
        }
        log.consumed(ids);
    }
    assert_eq!(epoch(&reading, 2, |_| {}), 0);
}

#[test]
fn an_epoch_that_was_left_early_costs_reads_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let reading = Reading::new(Log::open(settings(folder.path(), 64 << 20)).unwrap(), SET);
    epoch(&reading, 0, |_| {});
    let log = reading.log();
    log.begin(Some(&order(1)));
    log.foresee(&order(2));
    for ids in order(1).ids[..10 * BATCH].chunks(BATCH) {
        reading.read(ids.iter().copied());
        for &id in ids {
            log.offer(&SET.sample(id), SET.bytes(id).chunks(1000));
        }
        log.consumed(ids);
    }
    let origin = epoch(&reading, 2, |_| {});
    assert_eq!(origin, SET.samples as usize - 10 * BATCH);
    assert_eq!(epoch(&reading, 3, |_| {}), 0);
}

#[test]
fn the_other_layout_begins_anew_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let reading = Reading::new(Log::open(settings(folder.path(), 64 << 20)).unwrap(), SET);
    epoch(&reading, 0, |_| {});
    drop(reading);
    let packed = LogSettings {
        layout: LayoutChoice::Packed,
        ..settings(folder.path(), 64 << 20)
    };
    let log = Log::open(packed).unwrap();
    assert_eq!(log.stats().layout, "packed");
    let left: Vec<_> = std::fs::read_dir(folder.path().join(log_rig::HOME))
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains("order"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    drop(log);
    // What is there decides if nobody asks for one.
    let auto = LogSettings {
        layout: LayoutChoice::Auto,
        ..settings(folder.path(), 64 << 20)
    };
    assert_eq!(Log::open(auto).unwrap().stats().layout, "packed");
}
