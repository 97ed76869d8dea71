//! Room on the disk: several datasets in one cache directory, objects that change, and a budget
//! that all of them share.

mod log_rig;

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_cache::log::{Log, LogSettings, used};
use log_rig::{HOME, Reading, Set, device, segments};

const SET: Set = Set {
    samples: 400,
    longest: 16_000,
    version: 0,
};
const BUDGET: u64 = 2 << 20;

fn settings(set: Set, name: &str, dir: &Path) -> LogSettings {
    LogSettings {
        name: name.into(),
        disk: BUDGET,
        ..set.settings(&[dir])
    }
}

fn bytes_held(set: Set, log: &Log) -> u64 {
    let there = (0..set.samples).filter(|&id| log.find(id, 1).is_some());
    there.map(|id| set.sample(id).length).sum()
}

#[test]
fn what_a_changed_listing_still_has_is_not_given_up_for_new_samples() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(!SET.fill(&log, 0..SET.samples), "it is to be full");
    log.flush();
    let held: Vec<_> = (0..SET.samples)
        .filter(|&id| log.find(id, 1).is_some())
        .collect();
    drop(log);
    // Another listing of the very same objects: nothing has changed but its digest.
    let mut other = settings(SET, "set-1", folder.path());
    other.subject.index += 1000;
    let warnings = other.warnings.clone();
    let log = Log::open(other).unwrap();
    assert!(held.iter().all(|&id| log.find(id, 1).is_some()));
    assert!(
        !SET.fill(&log, 0..SET.samples),
        "there is no room for the others"
    );
    let reading = Reading::new(log, SET);
    let found = reading.read(held.clone());
    let whole = found.values().filter(|&&whole| whole).count();
    assert_eq!(warnings.take(), Vec::<String>::new());
    assert_eq!(whole, held.len(), "of those that were there");
}

#[test]
fn segments_of_changed_samples_make_room_and_no_row_points_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(!SET.fill(&log, 0..SET.samples));
    drop(log);
    for version in 1..5 {
        let set = SET.at(version);
        let new = settings(set, "set-1", folder.path());
        let warnings = new.warnings.clone();
        let log = Log::open(new).unwrap();
        set.fill(&log, 0..set.samples);
        log.flush();
        let reading = Reading::new(log, set);
        let held = bytes_held(set, reading.log());
        let found = reading.read(0..set.samples);
        assert!(found.values().all(|&whole| whole), "version {version}");
        assert_eq!(warnings.take(), Vec::<String>::new());
        assert!(
            held > BUDGET / 4,
            "version {version}: {held} bytes are of use"
        );
        assert!(used(&folder.path().join("log")) <= BUDGET);
    }
}

#[test]
fn a_full_log_whose_table_is_lost_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(!SET.fill(&log, 0..SET.samples));
    log.flush();
    let held = bytes_held(SET, &log);
    drop(log);
    std::fs::remove_file(folder.path().join(HOME).join("samples.map")).unwrap();
    let again = settings(SET, "set-1", folder.path());
    let warnings = again.warnings.clone();
    let log = Log::open(again).unwrap();
    assert_eq!(warnings.take(), Vec::<String>::new());
    assert_eq!(bytes_held(SET, &log), held);
    assert!(used(&folder.path().join("log")) <= BUDGET);
}

#[test]
fn a_log_whose_writer_was_killed_is_read_on_a_disk_that_has_no_room_left() {
    let folder = tempfile::tempdir().unwrap();
    let map = folder.path().join(HOME).join("samples.map");
    let log = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(SET.fill(&log, 0..60));
    // As a writer leaves it that is killed.
    let table = std::fs::read(&map).unwrap();
    drop(log);
    std::fs::write(&map, table).unwrap();
    // Others have filled the file system meanwhile.
    for _ in 0..2 {
        let log = Log::open(LogSettings {
            floor: u64::MAX / 2,
            ..settings(SET, "set-1", folder.path())
        });
        assert_eq!(Reading::new(log.unwrap(), SET).whole(), 60);
    }
}

#[test]
fn another_listing_finds_its_samples_on_a_disk_that_has_no_room_left() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(SET.fill(&log, 0..60));
    drop(log);
    // The new table takes the old one's place, and no more.
    for listing in 1..3 {
        let mut other = LogSettings {
            floor: u64::MAX / 2,
            ..settings(SET, "set-1", folder.path())
        };
        other.subject.index += listing;
        let log = Log::open(other).unwrap();
        assert_eq!(Reading::new(log, SET).whole(), 60, "listing {listing}");
    }
}

#[test]
fn a_log_that_nobody_uses_makes_room_for_another_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let first = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(!SET.fill(&first, 0..SET.samples));
    drop(first);
    let second = settings(SET, "set-2", folder.path());
    let warnings = second.warnings.clone();
    let second = Log::open(second).unwrap();
    SET.fill(&second, 0..SET.samples);
    assert_eq!(warnings.take(), Vec::<String>::new());
    let held = bytes_held(SET, &second);
    assert!(held > BUDGET / 2, "{held} bytes of the budget of {BUDGET}");
    assert!(used(&folder.path().join("log")) <= BUDGET);
}

#[test]
fn all_logs_that_nobody_uses_go_before_a_log_is_full() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["set-2", "set-3", "set-4"] {
        let log = Log::open(settings(SET, name, folder.path())).unwrap();
        assert!(SET.fill(&log, 0..60));
    }
    let log = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(!SET.fill(&log, 0..SET.samples));
    let held = bytes_held(SET, &log);
    assert!(
        held > BUDGET * 3 / 4,
        "{held} bytes of the budget of {BUDGET}"
    );
}

#[test]
fn a_log_that_somebody_uses_stays_when_another_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let first = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(SET.fill(&first, 0..100));
    // It may be refused, or begin and be full.
    if let Ok(second) = Log::open(settings(SET, "set-2", folder.path())) {
        assert!(!SET.fill(&second, 0..SET.samples));
    }
    assert_eq!(Reading::new(first, SET).whole(), 100);
    assert!(used(&folder.path().join("log")) <= BUDGET);
}

#[test]
fn the_budget_holds_however_many_datasets_come() {
    let folder = tempfile::tempdir().unwrap();
    let mut logs = Vec::new();
    for number in 0..8 {
        // All stay in use, so none makes room.
        if let Ok(log) = Log::open(settings(SET, &format!("set-{number}"), folder.path())) {
            SET.fill(&log, 0..SET.samples);
            logs.push(log);
        }
        let used = used(folder.path());
        assert!(used <= BUDGET, "{used} bytes with {} datasets", number + 1);
    }
}

#[test]
fn the_budget_holds_when_several_datasets_come_at_once() {
    const TOGETHER: usize = 4;
    // Tables of half a megabyte, and room for one or for two.
    let set = Set {
        samples: 32_768,
        longest: 40,
        version: 0,
    };
    for (round, disk) in [700 << 10, 1200 << 10]
        .into_iter()
        .cycle()
        .take(40)
        .enumerate()
    {
        let folder = tempfile::tempdir().unwrap();
        let begin = Barrier::new(TOGETHER);
        let open = |number| {
            let settings = LogSettings {
                disk,
                ..settings(set, &format!("set-{number}"), folder.path())
            };
            begin.wait();
            Log::open(settings)
        };
        let logs: Vec<_> = std::thread::scope(|scope| {
            let open = &open;
            let threads: Vec<_> = (0..TOGETHER)
                .map(|number| scope.spawn(move || open(number)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let used = used(&folder.path().join("log"));
        assert!(used <= disk, "round {round}: {used} bytes of {disk}");
        let writers = logs.iter().flatten().filter(|log| log.is_writer());
        assert!(writers.count() > 0, "round {round}: nobody has a log");
    }
}

#[test]
fn a_disk_that_cannot_be_written_costs_no_other_dataset_its_log() {
    static BROKEN: AtomicBool = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    let other = Log::open(settings(SET, "set-2", folder.path())).unwrap();
    assert!(SET.fill(&other, 0..60));
    drop(other);
    let disk = device(|op| {
        let fails = op.write && BROKEN.load(Ordering::SeqCst);
        fails.then(|| Err(std::io::Error::from_raw_os_error(5)))
    });
    let log = Log::open(LogSettings {
        device: disk,
        ..settings(SET, "set-1", folder.path())
    })
    .unwrap();
    assert!(SET.fill(&log, 0..30));
    BROKEN.store(true, Ordering::SeqCst);
    SET.fill(&log, 30..90);
    let kept = segments(&folder.path().join("log/set-2"));
    assert!(!kept.is_empty(), "the other dataset's log is gone");
    assert_eq!(segments(&folder.path().join(HOME)).len(), 1);
}

#[test]
fn a_smaller_budget_is_kept_from_the_next_opening_on() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(!SET.fill(&log, 0..SET.samples));
    drop(log);
    let log = Log::open(LogSettings {
        disk: BUDGET / 2,
        ..settings(SET, "set-1", folder.path())
    })
    .unwrap();
    SET.fill(&log, 0..SET.samples);
    let used = used(&folder.path().join("log"));
    assert!(used <= BUDGET / 2, "{used} bytes of {}", BUDGET / 2);
}

#[test]
fn a_reader_takes_no_new_segment_for_one_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    // Several segments: each run begins one of its own.
    for part in 0..4 {
        let log = Log::open(settings(SET, "set-1", folder.path())).unwrap();
        assert!(SET.fill(&log, part * 25..(part + 1) * 25));
    }
    let writer = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    let reader = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(!reader.is_writer());
    let reader = Reading::new(reader, SET);
    assert_eq!(reader.whole(), 100);
    drop(writer);
    // A smaller budget costs the last segments; then there is room for others.
    let shrunk = Log::open(LogSettings {
        disk: BUDGET / 4,
        ..settings(SET, "set-1", folder.path())
    })
    .unwrap();
    assert!(bytes_held(SET, &shrunk) < BUDGET / 4);
    drop(shrunk);
    let writer = Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(SET.fill(&writer, 0..100));
    assert_eq!(reader.whole(), 100);
    assert_eq!(reader.log().stats().corrupt, 0);
}

#[test]
fn the_numbers_of_segments_go_on_when_all_of_them_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join(HOME);
    let mut last = None;
    for listing in [0, 0, 1] {
        let mut settings = settings(SET, "set-1", folder.path());
        settings.subject.index += listing;
        let reading = Reading::new(Log::open(settings).unwrap(), SET);
        // What the table has of segments that are gone is noticed when it is read.
        assert_eq!(reading.whole(), 0);
        assert!(SET.fill(reading.log(), 0..60));
        assert_eq!(reading.whole(), 60);
        drop(reading);
        let segments = segments(&home);
        assert!(
            segments.first() > last.as_ref(),
            "{segments:?} after {last:?}"
        );
        last = segments.last().cloned();
        for segment in segments {
            std::fs::remove_file(segment).unwrap();
        }
    }
}

#[test]
fn a_segment_that_cannot_be_looked_at_is_not_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join(HOME);
    let open = || Log::open(settings(SET, "set-1", folder.path())).unwrap();
    assert!(SET.fill(&open(), 0..60));
    let segment = segments(&home).remove(0);
    let aside = folder.path().join("aside");
    std::fs::rename(&segment, &aside).unwrap();
    std::os::unix::fs::symlink(folder.path().join("nothing"), &segment).unwrap();
    // Without its table all segments are looked at.
    std::fs::remove_file(home.join("samples.map")).unwrap();
    drop(open());
    assert!(segment.symlink_metadata().is_ok(), "it was deleted");
    std::fs::remove_file(&segment).unwrap();
    std::fs::rename(&aside, &segment).unwrap();
    std::fs::remove_file(home.join("samples.map")).unwrap();
    assert_eq!(Reading::new(open(), SET).whole(), 60);
}

#[test]
fn a_log_in_two_directories_that_nobody_uses_makes_room_in_both() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let dirs = [folders[0].path(), folders[1].path()];
    let of = |name: &str| LogSettings {
        name: name.to_owned(),
        disk: 2 * BUDGET,
        ..SET.settings(&dirs)
    };
    let first = Log::open(of("first")).unwrap();
    SET.fill(&first, 0..SET.samples);
    drop(first);
    let parts = dirs.map(|dir| dir.join("log/first"));
    assert!(parts.iter().all(|part| part.exists()));
    // Another dataset takes the room of one that nobody uses, in both of them.
    let second = Log::open(of("second")).unwrap();
    SET.fill(&second, 0..SET.samples);
    second.flush();
    SET.fill(&second, 0..SET.samples);
    assert!(
        parts.iter().all(|part| !part.exists()),
        "{:?}",
        parts.map(|part| used(&part))
    );
}

#[test]
fn logs_that_share_one_of_their_directories_do_not_cut_each_other() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [a, b] = &folders;
    let both = Log::open(LogSettings {
        disk: 16 << 20,
        ..SET.settings(&[a.path(), b.path()])
    })
    .unwrap();
    assert!(SET.fill(&both, 0..100));
    // Another process that was given only the second.
    let second = Log::open(LogSettings {
        disk: 8 << 20,
        ..SET.settings(&[b.path()])
    })
    .unwrap();
    SET.fill(&second, 0..SET.samples);
    assert!(SET.fill(&both, 100..SET.samples));
    assert!(used(&b.path().join("log")) <= 8 << 20);
    assert_eq!(Reading::new(both, SET).whole(), SET.samples as usize);
}
