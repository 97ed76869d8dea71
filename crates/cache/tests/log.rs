//! The log from its handle: written, read, reopened, damaged.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_cache::log::{
    Answer, DeviceChoice, LayoutChoice, Log, LogSettings, Reader, Sample, Subject, Want,
};
use forebay_format::chunk::Identity;

const SAMPLES: u32 = 300;

fn identity(id: u32) -> Identity {
    Identity {
        key: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(id) + 1),
        validator: 7,
    }
}

fn bytes(id: u32) -> Vec<u8> {
    let length = 1 + (id as usize * 7919) % 40_000;
    (0..length)
        .map(|at| (at as u32 * 31 + id * 17) as u8)
        .collect()
}

fn sample(id: u32) -> Sample {
    Sample {
        id,
        identity: identity(id),
        length: bytes(id).len() as u64,
    }
}

fn settings(dirs: &[&Path]) -> LogSettings {
    let total: u64 = (0..SAMPLES).map(|id| sample(id).length).sum();
    LogSettings {
        dirs: dirs.iter().map(PathBuf::from).collect(),
        name: "set-1".into(),
        about: "test://set".into(),
        subject: Subject {
            dataset: 11,
            index: 22,
            samples: SAMPLES,
            dirs: 0,
        },
        total_bytes: total,
        max_length: 40_000,
        disk: 1 << 30,
        floor: 0,
        chunk: None,
        memory: 16 << 20,
        device: DeviceChoice::Auto,
        identify: Arc::new(|id| Some(identity(id))),
        warnings: Arc::default(),
        layout: LayoutChoice::Auto,
        length: Arc::new(|id| Some(sample(id).length)),
    }
}

fn fill(log: &Log, ids: impl Iterator<Item = u32>) {
    for id in ids {
        let bytes = bytes(id);
        // A writer that is behind takes nothing: a test has the time to ask again.
        while !log.offer(&sample(id), bytes.chunks(1000)) {
            assert!(
                log.find(id, 1).is_none() && !log.stats().full,
                "sample {id}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    log.flush();
}

struct Reading {
    reader: Reader<u32>,
    answers: Mutex<Receiver<Vec<Answer<u32>>>>,
}

impl Reading {
    fn new(log: Log) -> Self {
        let (tell, answers) = channel();
        let reader = Reader::start(Arc::new(log), move |answers| {
            let _ = tell.send(answers);
        });
        Self {
            reader: reader.unwrap(),
            answers: Mutex::new(answers),
        }
    }

    /// What the log has of the samples it says it has; none are wrong.
    fn read(&self, ids: impl Iterator<Item = u32>) -> HashMap<u32, bool> {
        let log = self.reader.log();
        let wants: Vec<_> = ids
            .filter_map(|id| {
                let sample = sample(id);
                let spot = log.find(id, sample.length)?;
                Some(Want {
                    sample,
                    spot,
                    payload: id,
                })
            })
            .collect();
        let mut left = wants.len();
        self.reader.ask(wants);
        let mut found = HashMap::new();
        while left > 0 {
            let answers = self.answers.lock().unwrap().recv().unwrap();
            for (id, slice) in answers {
                left -= 1;
                if let Some(slice) = &slice {
                    assert!(slice[..] == bytes(id), "sample {id}: other bytes");
                }
                found.insert(id, slice.is_some());
            }
        }
        found
    }

    fn whole(&self) -> usize {
        self.read(0..SAMPLES)
            .values()
            .filter(|&&whole| whole)
            .count()
    }
}

#[test]
fn what_was_written_is_read_again_here_and_after_a_restart() {
    for device in [DeviceChoice::Auto, DeviceChoice::Threads] {
        let folder = tempfile::tempdir().unwrap();
        let settings = LogSettings {
            device,
            ..settings(&[folder.path()])
        };
        let log = Log::open(settings.clone()).unwrap();
        fill(&log, 0..SAMPLES);
        let reading = Reading::new(log);
        assert_eq!(reading.whole(), SAMPLES as usize);
        let stats = reading.reader.log().stats();
        // Neighbours are read together, as many as a buffer of four samples holds.
        assert!(stats.requests < u64::from(SAMPLES) / 3, "{stats:?}");
        drop(reading);
        let reading = Reading::new(Log::open(settings).unwrap());
        assert_eq!(reading.whole(), SAMPLES as usize);
        assert_eq!(reading.reader.log().stats().written_bytes, 0);
    }
}

#[test]
fn a_lost_table_is_made_again_from_the_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(settings(&[folder.path()])).unwrap();
    fill(&log, 0..SAMPLES);
    drop(log);
    std::fs::remove_file(folder.path().join("log/set-1/samples.map")).unwrap();
    let reading = Reading::new(Log::open(settings(&[folder.path()])).unwrap());
    assert_eq!(reading.whole(), SAMPLES as usize);
}

#[test]
fn another_listing_finds_its_samples_by_name_and_drops_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(settings(&[folder.path()])).unwrap();
    fill(&log, 0..SAMPLES);
    drop(log);
    // The same samples, ten new ones before them, one of them changed.
    let mut other = settings(&[folder.path()]);
    other.subject.index = 23;
    other.subject.samples += 10;
    other.identify = Arc::new(|id| match id.checked_sub(10) {
        None => Some(identity(1_000_000 + id)),
        Some(5) => Some(Identity {
            validator: 8,
            ..identity(5)
        }),
        Some(id) => Some(identity(id)),
    });
    let log = Log::open(other).unwrap();
    for id in 0..SAMPLES + 10 {
        let there = log.find(id, 1).is_some();
        assert_eq!(there, id >= 10 && id != 15, "sample {id}");
    }
}

#[test]
fn several_directories_share_the_chunks_and_one_may_be_lost() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let dirs: Vec<_> = folders.iter().map(|folder| folder.path()).collect();
    let log = Log::open(settings(&dirs)).unwrap();
    fill(&log, 0..SAMPLES);
    let reading = Reading::new(log);
    assert_eq!(reading.whole(), SAMPLES as usize);
    for dir in &dirs {
        let segments = std::fs::read_dir(dir.join("log/set-1")).unwrap();
        let any = segments
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().ends_with("segment"));
        assert!(any, "{} has none", dir.display());
    }
    drop(reading);
    std::fs::remove_dir_all(dirs[1]).unwrap();
    let reading = Reading::new(Log::open(settings(&dirs)).unwrap());
    let whole = reading.whole();
    assert!(
        whole > SAMPLES as usize / 3 && whole < SAMPLES as usize,
        "{whole}"
    );
}

#[test]
fn one_writes_others_read_and_take_over() {
    let folder = tempfile::tempdir().unwrap();
    let writer = Log::open(settings(&[folder.path()])).unwrap();
    let other = Log::open(settings(&[folder.path()])).unwrap();
    assert!(writer.stats().writes && !other.stats().writes);
    assert!(!other.offer(&sample(0), [&bytes(0)[..]].into_iter()));
    fill(&writer, 0..100);
    other.begin(None);
    assert!(other.find(50, 1).is_some());
    drop(writer);
    other.begin(None);
    assert!(other.stats().writes);
    fill(&other, 100..SAMPLES);
    assert_eq!(Reading::new(other).whole(), SAMPLES as usize);
}

#[test]
fn the_budget_is_never_passed_and_a_full_log_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 2 << 20;
    let log = Log::open(LogSettings {
        disk: limit,
        ..settings(&[folder.path()])
    })
    .unwrap();
    for id in 0..SAMPLES {
        log.offer(&sample(id), [&bytes(id)[..]].into_iter());
        log.flush();
        let used = log.stats().disk_bytes;
        assert!(used <= limit, "{used} of {limit}");
    }
    let stats = log.stats();
    assert!(stats.full);
    let held: u64 = (0..SAMPLES)
        .filter(|&id| log.find(id, 1).is_some())
        .map(|id| sample(id).length)
        .sum();
    assert!(held > limit * 8 / 10, "{held} of {limit}");
}

#[test]
fn flipped_bits_are_found_counted_and_never_served() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::open(settings(&[folder.path()])).unwrap();
    fill(&log, 0..SAMPLES);
    drop(log);
    let path = folder.path().join("log/set-1/00000000.segment");
    let whole = std::fs::read(&path).unwrap();
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    let (mut flips, mut lost) = (0, 0);
    while flips < 20_000 {
        let file = std::fs::File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .unwrap();
        file.write_all_at(&whole, 0).unwrap();
        file.set_len(whole.len() as u64).unwrap();
        for _ in 0..200 {
            let bit = random(whole.len() * 8);
            let byte = whole[bit / 8] ^ 1 << (bit % 8);
            file.write_all_at(&[byte], bit as u64 / 8).unwrap();
        }
        flips += 200;
        if random(2) == 0 {
            let _ = std::fs::remove_file(folder.path().join("log/set-1/samples.map"));
        }
        let reading = Reading::new(Log::open(settings(&[folder.path()])).unwrap());
        let found = reading.read(0..SAMPLES);
        let bad = found.values().filter(|&&whole| !whole).count();
        assert_eq!(reading.reader.log().stats().corrupt, bad as u64);
        lost += SAMPLES as usize - (found.len() - bad);
    }
    assert!(lost > 10_000, "{lost}: the flips have hit nothing");
}
