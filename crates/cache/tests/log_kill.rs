//! `kill -9` in the middle of writing, many times, and the log opened again each time.
//!
//! ```text
//!   this test --starts--> itself, as a writer --pieces left of the write--> state
//!       |                      |
//!       +---kill -9, at random-+--each sample that can be read-------------> reports
//!       |
//!       +-- opens the log: every reported sample is there, no byte is wrong
//! ```
//!
//! The writer's disk is slow: 4 KiB at a time. Who is killed in a write leaves a torn chunk.
//! `FOREBAY_SLOW_TESTS=1` kills a thousand times.

// What was found is said: a run that proves little is to be seen.
#![allow(clippy::print_stderr)]

mod log_rig;

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_cache::log::{DeviceChoice, Log, LogSettings, Op, Spot, used};
use log_rig::{HOME, LONG, Random, Reading, Set, device};

const ORDERS: &str = "FOREBAY_LOG_KILL_TEST";
const PIECE: usize = 4096;
const SET: Set = Set {
    samples: 400,
    longest: 24_000,
    version: 0,
};
/// A report of a version that begins, and of a log that is full.
const BEGINS: u32 = u32::MAX;
const FULL: u32 = u32::MAX - 1;

/// What a writer is to do, and where its files are.
#[derive(Debug, Clone)]
struct Orders {
    root: PathBuf,
    dirs: usize,
    budget: u64,
    version: u64,
}

impl Orders {
    fn to_text(&self) -> String {
        let root = self.root.display();
        format!("{}:{}:{}:{root}", self.dirs, self.budget, self.version)
    }

    fn from_text(text: &str) -> Self {
        let mut words = text.splitn(4, ':');
        let mut next = || words.next().unwrap();
        Self {
            dirs: next().parse().unwrap(),
            budget: next().parse().unwrap(),
            version: next().parse().unwrap(),
            root: next().into(),
        }
    }

    fn dirs(&self) -> Vec<PathBuf> {
        let name = |number| self.root.join(format!("cache-{number}"));
        (0..self.dirs).map(name).collect()
    }

    fn settings(&self, set: Set, device: DeviceChoice) -> LogSettings {
        let dirs = self.dirs();
        let dirs: Vec<_> = dirs.iter().map(|dir| &**dir).collect();
        LogSettings {
            disk: self.budget,
            device,
            ..set.settings(&dirs)
        }
    }
}

/// One line of a writer's reports.
#[derive(Debug, Clone, Copy)]
struct Report {
    version: u64,
    id: u32,
    dir: u8,
    segment: u32,
    offset: u32,
}

impl Report {
    const BYTES: usize = 32;

    fn new(version: u64, id: u32, spot: Option<Spot>) -> Self {
        Self {
            version,
            id,
            dir: spot.map_or(0, |spot| spot.at.dir),
            segment: spot.map_or(0, |spot| spot.at.segment),
            offset: spot.map_or(0, |spot| spot.at.offset),
        }
    }

    fn write(&self, mut file: &File) {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend(self.version.to_le_bytes());
        for word in [self.id, self.dir.into(), self.segment, self.offset, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        file.write_all(&bytes).unwrap();
    }

    fn read_all(path: &Path) -> Vec<Self> {
        let bytes = std::fs::read(path).unwrap();
        let word =
            |cell: &[u8], at: usize| u32::from_le_bytes(cell[at..at + 4].try_into().unwrap());
        bytes
            .chunks_exact(Self::BYTES)
            .map(|cell| Self {
                version: u64::from_le_bytes(cell[..8].try_into().unwrap()),
                id: word(cell, 8),
                dir: word(cell, 12) as u8,
                segment: word(cell, 16),
                offset: word(cell, 20),
            })
            .collect()
    }
}

/// A slow disk that says how much of a write it has not yet begun with.
fn slow_disk(state: Arc<File>) -> DeviceChoice {
    device(move |op: &mut Op| {
        if !op.write {
            return None;
        }
        let bytes = &op.buffer[op.range.clone()];
        let pieces = bytes.len().div_ceil(PIECE);
        for (number, piece) in bytes.chunks(PIECE).enumerate() {
            let left = (pieces - number - 1) as u64;
            state.write_all_at(&left.to_le_bytes(), 0).unwrap();
            let offset = op.offset + (number * PIECE) as u64;
            if let Err(error) = op.file.write_all_at(piece, offset) {
                return Some(Err(error));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Some(Ok(()))
    })
}

/// The writer: without orders this is no test at all.
#[test]
fn writer_that_is_killed() {
    let Some(orders) = std::env::var_os(ORDERS) else {
        return;
    };
    let orders = Orders::from_text(orders.to_str().unwrap());
    let state = File::options()
        .write(true)
        .open(orders.root.join("state"))
        .unwrap();
    let reports = File::options()
        .append(true)
        .open(orders.root.join("reports"))
        .unwrap();
    let disk = slow_disk(Arc::new(state));
    let end = Instant::now() + LONG;
    // When all is written or the log is full, objects change and it begins again.
    for version in orders.version.. {
        assert!(Instant::now() < end, "nobody has killed the writer");
        let set = SET.at(version);
        let settings = orders.settings(set, disk.clone());
        let warnings = settings.warnings.clone();
        let log = Log::open(settings).unwrap();
        assert!(
            log.stats().writes,
            "nobody can write any more: {:?}",
            warnings.take()
        );
        Report::new(version, BEGINS, None).write(&reports);
        let mut waiting = Vec::new();
        for id in 0..set.samples {
            if log.find(id, 1).is_none() {
                waiting.push(id);
                if !set.fill_one(&log, id) {
                    Report::new(version, FULL, None).write(&reports);
                    break;
                }
            }
            report_found(&log, version, &mut waiting, &reports);
        }
        log.flush();
        report_found(&log, version, &mut waiting, &reports);
    }
}

impl Set {
    /// False if the log is full.
    fn fill_one(&self, log: &Log, id: u32) -> bool {
        let bytes = self.bytes(id);
        while !log.offer(&self.sample(id), [&bytes[..]].into_iter()) {
            if log.stats().full {
                return false;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        true
    }
}

fn report_found(log: &Log, version: u64, waiting: &mut Vec<u32>, reports: &File) {
    waiting.retain(|&id| {
        let spot = log.find(id, 1);
        if spot.is_some() {
            Report::new(version, id, spot).write(reports);
        }
        spot.is_none()
    });
}

/// Starts a writer, kills it in the midst; whether that was in a write.
fn kill_a_writer(orders: &Orders, random: &mut Random) -> bool {
    let state = orders.root.join("state");
    let unbegun = u64::MAX.to_le_bytes();
    std::fs::write(&state, unbegun).unwrap();
    let words = orders.root.join("words");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer_that_is_killed", "--nocapture"])
        .env(ORDERS, orders.to_text())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&words).unwrap())
        .spawn()
        .unwrap();
    let end = Instant::now() + LONG;
    let mut begun = false;
    while !begun && Instant::now() < end && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_micros(300));
        begun = std::fs::read(&state).unwrap() != unbegun;
    }
    std::thread::sleep(Duration::from_micros(random.below(80_000) as u64));
    child.kill().unwrap();
    let status = child.wait().unwrap();
    let words = std::fs::read_to_string(words).unwrap();
    assert!(begun, "the writer never wrote: {words}");
    assert_eq!(
        status.signal(),
        Some(9),
        "the writer ended by itself: {words}"
    );
    u64::from_le_bytes(std::fs::read(state).unwrap().try_into().unwrap()) > 0
}

/// What a look at a log after a kill has found.
#[derive(Debug, Default)]
struct Found {
    whole: usize,
    promised: usize,
    /// Reported, but its segment was given up for newer samples since.
    reclaimed: usize,
    /// The same before any object had changed: only segments of next to nothing are given up then.
    reclaimed_early: usize,
}

fn look(orders: &Orders, reports: &[Report], random: &mut Random) -> (Found, u64) {
    let dirs = orders.dirs();
    let total: u64 = dirs.iter().map(|dir| used(&dir.join("log"))).sum();
    assert!(total <= orders.budget, "{total} bytes of {}", orders.budget);
    let begins = reports.iter().rev().find(|report| report.id == BEGINS);
    let version = begins.map_or(orders.version, |report| report.version);
    let set = SET.at(version);
    // Where each sample was last, if it is still the same.
    let mut last = HashMap::new();
    for report in reports.iter().filter(|report| report.id < FULL) {
        if SET.at(report.version).identity(report.id) == set.identity(report.id) {
            last.insert(report.id, *report);
        }
    }
    // Its bytes are: where the table was lost, a segment that was given up may have left its number
    // to another.
    let is_there = |report: &Report| {
        let dir = &dirs[usize::from(report.dir)].join(HOME);
        let path = dir.join(format!("{:08}.segment", report.segment));
        let expected = set.bytes(report.id);
        let mut found = vec![0; expected.len()];
        File::open(path)
            .and_then(|file| file.read_exact_at(&mut found, report.offset.into()))
            .is_ok_and(|()| found == expected)
    };
    let there: HashMap<_, _> = last
        .iter()
        .map(|(&id, report)| (id, is_there(report)))
        .collect();
    if random.once_in(4) {
        let _ = std::fs::remove_file(dirs[0].join(HOME).join("samples.map"));
    }
    let settings = orders.settings(set, DeviceChoice::Auto);
    let warnings = settings.warnings.clone();
    let log = Log::open(settings).unwrap();
    assert!(
        log.stats().writes,
        "nobody can write any more: {:?}",
        warnings.take()
    );
    let reading = Reading::new(log, set);
    let answers = reading.read(0..set.samples);
    let mut found = Found::default();
    for (id, there) in there {
        let whole = answers.get(&id) == Some(&true);
        if there {
            assert!(whole, "sample {id} was sealed: {:?}", last[&id]);
            found.promised += 1;
        } else {
            found.reclaimed += 1;
            found.reclaimed_early += usize::from(version == 0);
        }
    }
    found.whole = answers.values().filter(|&&whole| whole).count();
    assert_eq!(warnings.take(), Vec::<String>::new());
    let stats = reading.log().stats();
    assert!(stats.disk_bytes <= orders.budget, "{stats:?}");
    (found, version)
}

#[test]
fn a_log_whose_writer_was_killed_has_all_that_was_sealed_and_no_wrong_byte() {
    let slow = std::env::var_os("FOREBAY_SLOW_TESTS").is_some_and(|value| value == "1");
    let kills = if slow { 1000 } else { 200 };
    let mut random = Random(2026);
    let (mut in_a_write, mut full) = (0, 0);
    let mut all = Found::default();
    let mut number = 0;
    while number < kills {
        // A life of a cache directory: several writers one after the other.
        let folder = tempfile::tempdir().unwrap();
        let mut orders = Orders {
            root: folder.path().to_owned(),
            dirs: 1 + usize::from(random.once_in(4)),
            budget: [1 << 20, 3 << 19, 3 << 20, 6 << 20][random.below(4)],
            version: 0,
        };
        orders.budget *= orders.dirs as u64;
        for _ in 0..10.min(kills - number) {
            let reports = orders.root.join("reports");
            if !reports.exists() {
                File::create(&reports).unwrap();
            }
            in_a_write += usize::from(kill_a_writer(&orders, &mut random));
            let reports = Report::read_all(&reports);
            full += reports.iter().filter(|report| report.id == FULL).count();
            let (found, version) = look(&orders, &reports, &mut random);
            all.whole += found.whole;
            all.promised += found.promised;
            all.reclaimed += found.reclaimed;
            all.reclaimed_early += found.reclaimed_early;
            orders.version = version + random.below(2) as u64;
            number += 1;
        }
    }
    eprintln!("{kills} kills, {in_a_write} in a write, {full} times full: {all:?}");
    // Most do; how many depends on the machine, and a few would be enough.
    assert!(
        in_a_write * 4 >= kills,
        "{in_a_write} of {kills} kills fell into a write"
    );
    assert!(
        all.promised > kills * 20,
        "{all:?}: too little was sealed to say anything"
    );
    assert!(all.reclaimed_early * 100 <= all.promised, "{all:?}");
    assert!(
        full > kills / 10 && all.reclaimed > 0,
        "{full} times full, {all:?}"
    );
}
