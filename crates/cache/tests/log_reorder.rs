//! The reordered log from its handle: epochs in their orders, restarts, little room, disks that
//! cannot be written to.

mod log_rig;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_cache::log::{LayoutChoice, Log, LogSettings, Order};
use log_rig::{HOME, Random, Reading, Set, device};

const SET: Set = Set {
    samples: 400,
    longest: 30_000,
    version: 0,
};
const BATCH: usize = 16;
/// However slow the disk is, samples are written.
const PATIENCE: Duration = Duration::from_secs(20);

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
    log.set_patience(PATIENCE);
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
fn a_smaller_budget_is_kept_from_the_next_opening_on() {
    let folder = tempfile::tempdir().unwrap();
    let reading = Reading::new(Log::open(settings(folder.path(), 64 << 20)).unwrap(), SET);
    epoch(&reading, 0, |_| {});
    drop(reading);
    let limit = 4 << 20;
    let log = Log::open(settings(folder.path(), limit)).unwrap();
    let used = log.stats().disk_bytes;
    assert!(used <= limit && used > limit / 2, "{used} of {limit}");
    let next = order(1);
    let there: Vec<_> = next
        .ids
        .iter()
        .map(|&id| log.find(id, 1).is_some())
        .collect();
    let kept = there.iter().filter(|&&there| there).count();
    assert!(
        kept > 100 && there[..kept].iter().all(|&there| there),
        "what comes first is kept"
    );
    let reading = Reading::new(log, SET);
    for seed in 1..4 {
        epoch(&reading, seed, |log| {
            assert!(log.stats().disk_bytes <= limit);
        });
    }
    assert_eq!(reading.log().stats().corrupt, 0);
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
fn an_epoch_that_was_left_early_costs_no_read_of_the_origin() {
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
    assert_eq!(epoch(&reading, 2, |_| {}), 0);
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
    let left: Vec<_> = std::fs::read_dir(folder.path().join(HOME))
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

#[test]
fn a_log_that_nobody_can_write_is_read_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let reading = Reading::new(Log::open(settings(folder.path(), 64 << 20)).unwrap(), SET);
    epoch(&reading, 0, |_| {});
    reading.log().close();
    assert_eq!(reading.whole(), SET.samples as usize, "of a closed log");
    drop(reading);
    // As on a disk that is mounted read-only: the lease cannot be written.
    let lease = folder.path().join(HOME).join("lease");
    std::fs::remove_file(&lease).unwrap();
    std::fs::create_dir(&lease).unwrap();
    let settings = settings(folder.path(), 64 << 20);
    let warnings = settings.warnings.clone();
    let reading = Reading::new(Log::open(settings).unwrap(), SET);
    let said = warnings.take();
    assert!(
        said.len() == 1 && said[0].contains("is still read"),
        "{said:?}"
    );
    for seed in [1, 77, 78] {
        assert_eq!(epoch(&reading, seed, |_| {}), 0, "epoch {seed}");
    }
    let stats = reading.log().stats();
    assert_eq!(
        (stats.layout, stats.writes, stats.corrupt),
        ("reorder", false, 0)
    );
    assert_eq!(warnings.take(), Vec::<String>::new());
}

#[test]
fn what_is_there_when_writing_fails_is_read_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = broken.clone();
    let settings = LogSettings {
        device: device(move |op| {
            let fails = op.write && is_broken.load(Ordering::SeqCst);
            fails.then(|| Err(std::io::Error::from_raw_os_error(5)))
        }),
        ..settings(folder.path(), 64 << 20)
    };
    let warnings = settings.warnings.clone();
    let reading = Reading::new(Log::open(settings).unwrap(), SET);
    epoch(&reading, 0, |_| {});
    let batches = Cell::new(0);
    let origin = epoch(&reading, 1, |log| {
        batches.set(batches.get() + 1);
        broken.store(batches.get() > 4, Ordering::SeqCst);
        log.flush();
    });
    assert_eq!(origin, 0);
    let said = warnings.take();
    assert!(
        said.len() == 1 && said[0].contains("is still read"),
        "{said:?}"
    );
    // What was on its way when it failed is lost, and no more.
    let lost = epoch(&reading, 2, |_| {});
    assert!(lost <= 2 * BATCH, "{lost} samples are lost");
    for seed in 3..6 {
        assert_eq!(epoch(&reading, seed, |_| {}), lost, "epoch {seed}");
    }
}
