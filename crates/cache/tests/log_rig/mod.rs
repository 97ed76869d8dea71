//! A dataset whose objects change from version to version, and a reader that takes no wrong byte
//! and does not wait for ever.

#![allow(dead_code)]

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_cache::log::{
    Answer, Device, DeviceChoice, Done, LayoutChoice, Log, LogSettings, Op, Reader, Sample,
    Subject, Want, transfer,
};
use forebay_format::chunk::Identity;

/// Only guards against a hang: no test measures time by it.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The log's folder in a cache directory.
pub(crate) const HOME: &str = "log/set-1";

/// A generator of its own for each test, so that a failure comes again.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// A dataset at a version: with each version two thirds of the objects change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Set {
    pub(crate) samples: u32,
    /// Bytes of the longest sample.
    pub(crate) longest: u64,
    pub(crate) version: u64,
}

impl Set {
    pub(crate) fn at(self, version: u64) -> Self {
        Self { version, ..self }
    }

    pub(crate) fn identity(&self, id: u32) -> Identity {
        let changed = |version: &u64| !mix(u64::from(id) << 32 | version).is_multiple_of(3);
        Identity {
            key: mix(u64::from(id) + 1),
            validator: (1..=self.version).rev().find(changed).unwrap_or(0),
        }
    }

    pub(crate) fn bytes(&self, id: u32) -> Vec<u8> {
        let Identity { key, validator } = self.identity(id);
        let mut random = Random(key ^ mix(validator));
        let length = 1 + random.next() % self.longest;
        let mut bytes = Vec::with_capacity(length as usize + 8);
        while bytes.len() < length as usize {
            bytes.extend(random.next().to_le_bytes());
        }
        bytes.truncate(length as usize);
        bytes
    }

    pub(crate) fn sample(&self, id: u32) -> Sample {
        let identity = self.identity(id);
        let mut random = Random(identity.key ^ mix(identity.validator));
        Sample {
            id,
            identity,
            length: 1 + random.next() % self.longest,
        }
    }

    /// A small log's settings: chunks of 64 KiB.
    pub(crate) fn settings(self, dirs: &[&Path]) -> LogSettings {
        LogSettings {
            dirs: dirs.iter().map(PathBuf::from).collect(),
            name: "set-1".into(),
            about: "test://set".into(),
            subject: Subject {
                dataset: 11,
                index: 100 + self.version,
                samples: self.samples,
                dirs: 0,
            },
            total_bytes: (0..self.samples).map(|id| self.sample(id).length).sum(),
            max_length: self.longest,
            disk: 8 << 20,
            floor: 0,
            chunk: None,
            memory: 2 << 20,
            device: DeviceChoice::Auto,
            layout: LayoutChoice::Packed,
            identify: Arc::new(move |id| Some(self.identity(id))),
            length: Arc::new(move |id| Some(self.sample(id).length)),
            warnings: Arc::default(),
        }
    }

    /// Offers samples until each is taken. False if the log is full, or not written by us.
    pub(crate) fn fill(&self, log: &Log, ids: impl IntoIterator<Item = u32>) -> bool {
        for id in ids {
            let bytes = self.bytes(id);
            // A writer that is behind takes nothing: a test has the time to ask again.
            while !log.offer(&self.sample(id), bytes.chunks(1000)) {
                if log.find(id, 1).is_some() {
                    break;
                }
                let stats = log.stats();
                if stats.full || !stats.writes {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        log.flush();
        !log.stats().full
    }
}

/// A log that is read.
pub(crate) struct Reading {
    pub(crate) reader: Reader<u32>,
    pub(crate) set: Set,
    answers: Mutex<Receiver<Vec<Answer<u32>>>>,
}

impl Reading {
    pub(crate) fn new(log: impl Into<Arc<Log>>, set: Set) -> Self {
        let (tell, answers) = channel();
        let reader = Reader::start(log.into(), move |answers| {
            let _ = tell.send(answers);
        });
        Self {
            reader: reader.unwrap(),
            set,
            answers: Mutex::new(answers),
        }
    }

    pub(crate) fn log(&self) -> &Arc<Log> {
        self.reader.log()
    }

    /// Of the samples that the log says it has: whether it gave their bytes. None are wrong.
    pub(crate) fn read(&self, ids: impl IntoIterator<Item = u32>) -> HashMap<u32, bool> {
        let wants: Vec<_> = ids
            .into_iter()
            .filter_map(|id| {
                let sample = self.set.sample(id);
                let spot = self.log().find(id, sample.length)?;
                Some(Want {
                    sample,
                    spot,
                    payload: id,
                })
            })
            .collect();
        let mut left = wants.len();
        self.reader.ask(wants);
        let answers = self.answers.lock().unwrap();
        let mut found = HashMap::new();
        while left > 0 {
            for (id, slice) in answers.recv_timeout(LONG).expect("the reader hangs") {
                left -= 1;
                if let Some(slice) = &slice {
                    assert!(slice[..] == self.set.bytes(id), "sample {id}: other bytes");
                }
                found.insert(id, slice.is_some());
            }
        }
        found
    }

    /// How many samples it has, whole.
    pub(crate) fn whole(&self) -> usize {
        let found = self.read(0..self.set.samples);
        found.values().filter(|&&whole| whole).count()
    }
}

/// Fails instead of hanging; the thread that hangs is left behind.
pub(crate) fn within_a_minute<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (done, told) = channel();
    std::thread::spawn(move || {
        let _ = done.send(work());
    });
    match told.recv_timeout(LONG) {
        Ok(result) => result,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Does to an operation what a disk may do; `None` lets it pass.
pub(crate) type Fate = Arc<dyn Fn(&mut Op) -> Option<std::io::Result<()>> + Send + Sync>;

/// A disk in one thread, with a fate.
struct Fated {
    fate: Fate,
    under_way: VecDeque<Op>,
}

impl Device for Fated {
    fn name(&self) -> &'static str {
        "fated"
    }

    fn start(&mut self, op: Op) {
        self.under_way.push_back(op);
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        while let Some(mut op) = self.under_way.pop_front() {
            let result = (self.fate)(&mut op).unwrap_or_else(|| transfer(&mut op));
            done.push(Done { op, result });
        }
    }

    fn in_flight(&self) -> usize {
        self.under_way.len()
    }
}

pub(crate) fn device(
    fate: impl Fn(&mut Op) -> Option<std::io::Result<()>> + Send + Sync + 'static,
) -> DeviceChoice {
    let fate: Fate = Arc::new(fate);
    DeviceChoice::Own(Arc::new(move || {
        Box::new(Fated {
            fate: fate.clone(),
            under_way: VecDeque::new(),
        })
    }))
}

/// The path of an operation's file.
pub(crate) fn path_of(op: &Op) -> PathBuf {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", op.file.as_raw_fd())).unwrap()
}

/// The segments in a log's folder, by name.
pub(crate) fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "segment"))
        .collect();
    paths.sort();
    paths
}

/// A temporary directory in memory, if there is one.
pub(crate) fn fast_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}
