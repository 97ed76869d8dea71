//! A disk that fails: reads and writes with errors, files cut short, flipped bits.

mod log_rig;

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use forebay_cache::log::{DeviceChoice, Log, LogSettings, Warnings};
use log_rig::{
    HOME, Random, Reading, Set, device, fast_folder, path_of, segments, within_a_minute,
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
/// Failed reads in a row after which a directory is given up.
const MOST_ERRORS: u32 = 16;

const SET: Set = Set {
    samples: 300,
    longest: 20_000,
    version: 0,
};

/// A disk whose reads and writes fail when told to, in one directory or everywhere.
#[derive(Default)]
struct Faults {
    reads: AtomicI32,
    writes: AtomicI32,
    only_in: Mutex<Option<PathBuf>>,
}

impl Faults {
    fn device(self: &Arc<Self>) -> DeviceChoice {
        let faults = self.clone();
        device(move |op| {
            let errno = if op.write {
                &faults.writes
            } else {
                &faults.reads
            };
            let errno = errno.load(Ordering::SeqCst);
            let only_in = faults.only_in.lock().unwrap();
            let here = only_in
                .as_ref()
                .is_none_or(|dir| path_of(op).starts_with(dir));
            (errno != 0 && here).then(|| Err(io::Error::from_raw_os_error(errno)))
        })
    }

    fn fail_reads(&self, errno: i32) {
        self.reads.store(errno, Ordering::SeqCst);
    }

    fn fail_writes(&self, errno: i32) {
        self.writes.store(errno, Ordering::SeqCst);
    }
}

fn open(dirs: &[&Path], faults: &Arc<Faults>) -> (Log, Arc<Warnings>) {
    let settings = LogSettings {
        device: faults.device(),
        ..SET.settings(dirs)
    };
    let warnings = settings.warnings.clone();
    (Log::open(settings).unwrap(), warnings)
}

/// Offers samples and waits until they are written, or not.
fn offer_all(log: &Arc<Log>, ids: Vec<u32>) {
    let log = log.clone();
    within_a_minute("offers to a disk that fails", move || {
        for id in ids {
            log.offer(&SET.sample(id), [&SET.bytes(id)[..]].into_iter());
            log.flush();
        }
    });
}

#[test]
fn reads_that_fail_are_answered_and_sixteen_in_a_row_end_the_directory_with_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let (log, warnings) = open(&[folder.path()], &faults);
    assert!(SET.fill(&log, 0..SET.samples));
    let reading = Reading::new(log, SET);
    // One that works in between: it is not the directory that is broken.
    for _ in 0..3 {
        faults.fail_reads(EIO);
        for id in 0..MOST_ERRORS - 1 {
            assert!(!reading.read([id])[&id]);
        }
        faults.fail_reads(0);
        assert!(reading.read([200])[&200]);
    }
    assert_eq!(warnings.take(), Vec::<String>::new());
    faults.fail_reads(EIO);
    for id in 0..MOST_ERRORS {
        assert!(!reading.read([id])[&id]);
    }
    let said = warnings.take();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains(folder.path().to_str().unwrap()),
        "{said:?}"
    );
    assert_eq!(reading.whole(), 0);
    assert!(reading.log().find(200, 1).is_none());
    assert_eq!(warnings.take(), Vec::<String>::new());
    // Nor does it wait for what it cannot take.
    offer_all(reading.log(), (0..SET.samples).collect());
    let log = reading.log().clone();
    within_a_minute("flush", move || log.flush());
}

#[test]
fn many_reads_that_fail_together_are_all_answered() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let (log, warnings) = open(&[folder.path()], &faults);
    assert!(SET.fill(&log, 0..SET.samples));
    let reading = Reading::new(log, SET);
    faults.fail_reads(EIO);
    let found = reading.read(0..SET.samples);
    assert_eq!(found.len(), SET.samples as usize);
    assert!(found.values().all(|whole| !whole));
    assert!(reading.log().stats().errors > 0);
    assert!(warnings.take().len() <= 1);
}

#[test]
fn a_write_that_fails_ends_writing_with_one_warning_and_what_is_there_is_still_read() {
    for errno in [EIO, ENOSPC] {
        let folder = tempfile::tempdir().unwrap();
        let faults = Arc::new(Faults::default());
        let (log, warnings) = open(&[folder.path()], &faults);
        assert!(SET.fill(&log, 0..100));
        faults.fail_writes(errno);
        let log = Arc::new(log);
        offer_all(&log, (100..SET.samples).collect());
        let said = warnings.take();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(&format!("os error {errno}")), "{said:?}");
        // Later writes would work: the directory is left alone all the same.
        faults.fail_writes(0);
        for id in 100..SET.samples {
            log.offer(&SET.sample(id), [&SET.bytes(id)[..]].into_iter());
        }
        log.flush();
        let reading = Reading::new(log, SET);
        assert_eq!(reading.whole(), 100);
        assert_eq!(warnings.take(), Vec::<String>::new());
        drop(reading);
        // The next run tries again, with what was there.
        let (log, warnings) = open(&[folder.path()], &faults);
        assert!(SET.fill(&log, 0..SET.samples));
        assert_eq!(Reading::new(log, SET).whole(), SET.samples as usize);
        assert_eq!(warnings.take(), Vec::<String>::new());
    }
}

#[test]
fn a_failed_write_keeps_no_blocks_for_chunks_that_never_come() {
    let folder = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let (log, _) = open(&[folder.path()], &faults);
    assert!(SET.fill(&log, 0..20));
    faults.fail_writes(EIO);
    SET.fill(&log, 20..60);
    drop(log);
    let held: u64 = (0..20).map(|id| SET.sample(id).length).sum();
    // Reopened, so that whatever is given back then is given back.
    let (log, _) = open(&[folder.path()], &faults);
    let used = log.stats().disk_bytes;
    assert!(
        used < held + (512 << 10),
        "{used} bytes for {held} of samples"
    );
}

#[test]
fn a_directory_that_cannot_be_written_leaves_the_writing_to_the_others() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let dirs: Vec<_> = folders.iter().map(|folder| folder.path()).collect();
    let faults = Arc::new(Faults::default());
    let (log, warnings) = open(&dirs, &faults);
    assert!(SET.fill(&log, 0..100));
    *faults.only_in.lock().unwrap() = Some(dirs[1].to_owned());
    faults.fail_writes(ENOSPC);
    // A chunk is lost with the write that fails; who asks again is served by the others.
    for _ in 0..2 {
        assert!(SET.fill(&log, 100..SET.samples));
    }
    let said = warnings.take();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains(dirs[1].to_str().unwrap()), "{said:?}");
    for id in 100..SET.samples {
        let spot = log.find(id, 1).unwrap();
        assert!(
            spot.at.dir != 1 || id < 200,
            "sample {id} went to the broken one"
        );
    }
    assert_eq!(Reading::new(log, SET).whole(), SET.samples as usize);
}

#[test]
fn a_directory_that_cannot_be_read_costs_its_own_samples_only() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let dirs: Vec<_> = folders.iter().map(|folder| folder.path()).collect();
    let faults = Arc::new(Faults::default());
    let (log, warnings) = open(&dirs, &faults);
    assert!(SET.fill(&log, 0..SET.samples));
    let of_dir_1 = |log: &Log, id: &u32| log.find(*id, 1).is_some_and(|spot| spot.at.dir == 1);
    let reading = Reading::new(log, SET);
    let lost: HashSet<u32> = (0..SET.samples)
        .filter(|id| of_dir_1(reading.log(), id))
        .collect();
    assert!(lost.len() > SET.samples as usize / 5);
    *faults.only_in.lock().unwrap() = Some(dirs[1].to_owned());
    faults.fail_reads(EIO);
    for id in 0..SET.samples {
        let whole = reading.read([id]).get(&id) == Some(&true);
        assert_eq!(whole, !lost.contains(&id), "sample {id}");
    }
    let said = warnings.take();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains(dirs[1].to_str().unwrap()), "{said:?}");
    // What was there is not asked for any more, and is written elsewhere.
    assert!(lost.iter().all(|&id| reading.log().find(id, 1).is_none()));
    offer_all(reading.log(), lost.into_iter().collect());
    let again = reading.read(0..SET.samples);
    assert!(again.values().all(|&whole| whole));
}

#[test]
fn segments_cut_short_under_the_reader_give_the_rest_and_nothing_wrong() {
    for choice in [DeviceChoice::Auto, DeviceChoice::Threads] {
        let folder = tempfile::tempdir().unwrap();
        let settings = LogSettings {
            device: choice,
            ..SET.settings(&[folder.path()])
        };
        let log = Log::open(settings).unwrap();
        assert!(SET.fill(&log, 0..SET.samples));
        let reading = Reading::new(log, SET);
        assert_eq!(reading.whole(), SET.samples as usize);
        let path = segments(&folder.path().join(HOME)).remove(0);
        let file = File::options().write(true).open(path).unwrap();
        let length = file.metadata().unwrap().len();
        let mut before = SET.samples as usize;
        // Within a block, a sector, and at the edge of one; each shorter than the last.
        for cut in [
            length * 3 / 4 / 4096 * 4096,
            length / 2 / 512 * 512 + 512,
            length / 4 + 13,
        ] {
            file.set_len(cut).unwrap();
            let whole = reading.whole();
            assert!(whole <= before, "{whole} of {before}");
            before = whole;
        }
        assert!(before > 0 || reading.log().find(0, 1).is_none());
    }
}

#[test]
fn a_hundred_thousand_flipped_bits_are_found_counted_and_never_served() {
    const FLIPS: usize = 100_000;
    const ROUND: usize = 1000;
    let set = Set {
        samples: 1500,
        longest: 1800,
        version: 0,
    };
    let folder = fast_folder();
    let log = Log::open(set.settings(&[folder.path()])).unwrap();
    assert!(set.fill(&log, 0..set.samples));
    drop(log);
    let path = segments(&folder.path().join(HOME)).remove(0);
    let map = folder.path().join(HOME).join("samples.map");
    let whole = std::fs::read(&path).unwrap();
    let table = std::fs::read(&map).unwrap();
    let mut random = Random(3);
    let (mut flips, mut hit, mut served) = (0, 0, 0);
    while flips < FLIPS {
        let mut damaged = whole.clone();
        for _ in 0..ROUND {
            let bit = random.below(whole.len() * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
        flips += ROUND;
        std::fs::write(&path, damaged).unwrap();
        std::fs::write(&map, &table).unwrap();
        if random.once_in(2) {
            std::fs::remove_file(&map).unwrap();
        }
        let reading = Reading::new(Log::open(set.settings(&[folder.path()])).unwrap(), set);
        let found = reading.read(0..set.samples);
        let bad = found.values().filter(|&&whole| !whole).count();
        assert_eq!(reading.log().stats().corrupt, bad as u64);
        served += found.len() - bad;
        hit += set.samples as usize - (found.len() - bad);
    }
    assert!(hit > FLIPS / 2, "{hit}: the flips have hit nothing");
    assert!(
        served > FLIPS / 10,
        "{served}: there was nothing left to be wrong"
    );
}

#[test]
fn a_damaged_table_costs_its_samples_and_nothing_else() {
    let set = Set {
        longest: 2000,
        ..SET
    };
    let folder = fast_folder();
    let log = Log::open(set.settings(&[folder.path()])).unwrap();
    assert!(set.fill(&log, 0..set.samples));
    drop(log);
    let map = folder.path().join(HOME).join("samples.map");
    let table = std::fs::read(&map).unwrap();
    let mut random = Random(4);
    let mut served = 0;
    for _ in 0..100 {
        let mut damaged = table.clone();
        // Behind the head: rows of another place, of other bytes, of nowhere.
        for _ in 0..20 {
            let bit = random.below((table.len() - 4096) * 8);
            damaged[4096 + bit / 8] ^= 1 << (bit % 8);
        }
        std::fs::write(&map, damaged).unwrap();
        let settings = set.settings(&[folder.path()]);
        let warnings = settings.warnings.clone();
        let reading = Reading::new(Log::open(settings).unwrap(), set);
        let whole = reading.whole();
        served += whole;
        // What a request read along is lost with it; the directory is not to blame.
        assert_eq!(warnings.take(), Vec::<String>::new());
        // Asked again, those that were read along with a bad row are there.
        let again = reading.whole();
        assert!(again >= set.samples as usize - 20, "{again} after {whole}");
    }
    assert!(served > 0);
}

#[test]
fn a_segment_that_is_gone_is_written_again_and_does_not_end_its_directory() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let settings = LogSettings {
            disk: 64 << 20,
            ..SET.settings(&[folder.path()])
        };
        let warnings = settings.warnings.clone();
        (Log::open(settings).unwrap(), warnings)
    };
    // Several segments: each run begins one of its own.
    for part in 0..6 {
        let (log, _) = open();
        assert!(SET.fill(&log, part * 50..(part + 1) * 50));
    }
    let paths = segments(&folder.path().join(HOME));
    assert!(paths.len() >= 6);
    std::fs::remove_file(&paths[2]).unwrap();
    let (log, warnings) = open();
    let reading = Reading::new(log, SET);
    // One at a time, as a slow epoch would.
    let mut whole = 0;
    for id in 0..SET.samples {
        whole += usize::from(reading.read([id]).get(&id) == Some(&true));
    }
    assert_eq!(warnings.take(), Vec::<String>::new());
    assert_eq!(whole, SET.samples as usize - 50);
    assert!(SET.fill(reading.log(), 0..SET.samples));
    assert_eq!(reading.whole(), SET.samples as usize);
}

#[test]
fn a_reader_ends_while_somebody_holds_all_of_its_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(SET.settings(&[folder.path()])).unwrap();
    assert!(SET.fill(&log, 0..SET.samples));
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = kept.clone();
    let reader = forebay_cache::log::Reader::start(Arc::new(log), move |answers| {
        keep.lock().unwrap().extend(answers);
    });
    let reader = reader.unwrap();
    let wants = (0..SET.samples).map(|id| forebay_cache::log::Want {
        sample: SET.sample(id),
        spot: reader.log().find(id, 1).unwrap(),
        payload: id,
    });
    reader.ask(wants.collect());
    while kept.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    within_a_minute("the reader's end", move || drop(reader));
    let kept = kept.lock().unwrap();
    for (id, slice) in kept.iter() {
        assert!(
            slice
                .as_ref()
                .is_none_or(|slice| slice[..] == SET.bytes(*id))
        );
    }
}

#[test]
fn a_table_of_random_bytes_is_never_believed() {
    let set = Set {
        longest: 2000,
        ..SET
    };
    let folder = fast_folder();
    let log = Log::open(set.settings(&[folder.path()])).unwrap();
    assert!(set.fill(&log, 0..set.samples));
    drop(log);
    let map = folder.path().join(HOME).join("samples.map");
    let mut random = Random(5);
    let file = File::options().write(true).open(&map).unwrap();
    let rows: Vec<u8> = (0..set.samples * 2)
        .flat_map(|_| (random.next() | 1 << 63).to_le_bytes())
        .collect();
    file.write_all_at(&rows, 4096).unwrap();
    drop(file);
    let reading = Reading::new(Log::open(set.settings(&[folder.path()])).unwrap(), set);
    assert_eq!(reading.whole(), 0);
}
