//! The disk tier of an engine: the logs of its datasets, and what they deliver.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use forebay_cache::log::{
    Answer, DeviceChoice, LayoutChoice, Log, LogSettings, LogStats, Order, Reader, Subject,
    Warnings,
};
use forebay_origin::{Dataset, View};

use crate::fetch;
use crate::job::Desk;
use crate::sequence::Sequence;
use crate::task::{Place, Task};

/// The most memory that a log's buffers take, and its share of the engine's.
const MOST_MEMORY: u64 = 64 << 20;
const SHARE: u64 = 8;
/// With less for its buffers a log is of no use.
const LEAST_MEMORY: u64 = 512 << 10;
/// The most that is left free by itself.
const MOST_FLOOR: u64 = 8 << 30;

/// What the buffers of a disk cache take of an engine's memory; `None` where that is too little to
/// have one.
pub fn disk_buffers(memory: u64) -> Option<u64> {
    let share = (memory / SHARE).min(MOST_MEMORY);
    (share >= LEAST_MEMORY).then_some(share)
}

/// Where samples are kept on disk, and how many bytes of it.
#[derive(Debug, Clone)]
pub struct DiskSettings {
    /// Cache directories; what is kept is spread over them.
    pub dirs: Vec<PathBuf>,
    /// Bytes that all logs there may take together, never passed.
    pub bytes: u64,
    /// Bytes that stay free on each file system.
    pub floor: u64,
    /// How samples are laid out.
    pub layout: LayoutChoice,
    /// Bytes of a chunk, which is read by one request; `None` for what suits the layout.
    pub chunk: Option<u64>,
    /// How the disk is spoken to.
    pub device: DeviceChoice,
}

impl DiskSettings {
    /// With at most `bytes`, or half of what is free. A twentieth of each file system stays free,
    /// but no more than 8 GiB.
    pub fn new(dirs: Vec<PathBuf>, bytes: Option<u64>, layout: LayoutChoice) -> Self {
        let spaces: Vec<_> = dirs.iter().filter_map(|dir| space(dir)).collect();
        let floor = spaces.iter().map(|(_, size)| size / 20).min().unwrap_or(0);
        let usable: u64 = spaces.iter().map(|(usable, _)| usable).sum();
        Self {
            bytes: bytes.unwrap_or(usable),
            floor: floor.min(MOST_FLOOR),
            dirs,
            layout,
            chunk: None,
            device: DeviceChoice::Auto,
        }
    }
}

/// Bytes for a cache in `dir`: half of those that are free or its own already, but never less than
/// its own, or it would be given up bit by bit where others fill the disk; and the file system's
/// size.
fn space(dir: &Path) -> Option<(u64, u64)> {
    let there = dir.ancestors().find(|path| path.exists())?;
    let stat = rustix::fs::statvfs(there).ok()?;
    let own = forebay_cache::log::used(&dir.join(forebay_cache::log::FOLDER));
    Some((
        ((stat.f_bavail * stat.f_frsize + own) / 2).max(own),
        stat.f_blocks * stat.f_frsize,
    ))
}

/// A sample that was asked of a log, and for whom. One that goes without an answer is read from the
/// origin.
#[derive(Debug)]
pub(crate) struct Arrival(Option<Asked>);

#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) desk: Arc<Desk>,
    pub(crate) place: Place,
    pub(crate) task: Task,
    pub(crate) into_slab: bool,
}

impl From<Asked> for Arrival {
    fn from(asked: Asked) -> Self {
        Self(Some(asked))
    }
}

impl Arrival {
    /// Which dataset of the view has the sample.
    pub(crate) fn part(&self, view: &View) -> Option<usize> {
        self.0.as_ref().map(|asked| view.part(asked.task.id).0)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(asked) = self.0.take() {
            fetch::never_came(asked);
        }
    }
}

pub(crate) type LogReader = Reader<Arrival>;

/// The logs of an engine, one a dataset.
#[derive(Debug)]
pub(crate) struct Disk {
    settings: DiskSettings,
    memory: u64,
    logs: Mutex<HashMap<u32, Option<Arc<LogReader>>>>,
}

impl Disk {
    /// Also says how much of the engine's memory it takes.
    pub(crate) fn new(settings: DiskSettings, memory: u64, warnings: &Warnings) -> Option<Self> {
        let Some(share) = disk_buffers(memory) else {
            warnings.say(format!(
                "memory of {memory} bytes is too little to use a disk cache with; hint: raise \
                 memory= to at least {}MiB",
                (LEAST_MEMORY * SHARE) >> 20
            ));
            return None;
        };
        Some(Self {
            settings,
            memory: share,
            logs: Mutex::default(),
        })
    }

    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// The log of a dataset, opened when it is first asked for. `None` if it cannot be: that is
    /// said once, and the origin is read instead. `among`: so many logs have the memory for buffers
    /// between them.
    pub(crate) fn log(
        &self,
        dataset: &Arc<Dataset>,
        among: usize,
        warnings: &Arc<Warnings>,
    ) -> Option<Arc<LogReader>> {
        let mut logs = self.logs.lock().expect("the engine's lock");
        let memory = self.memory / among.max(1) as u64;
        let open = || match self.open(dataset, memory, warnings) {
            Ok(reader) => Some(Arc::new(reader)),
            Err(why) => {
                warnings.say(format!("no disk cache: {why}"));
                None
            }
        };
        logs.entry(dataset.number()).or_insert_with(open).clone()
    }

    fn open(
        &self,
        dataset: &Arc<Dataset>,
        memory: u64,
        warnings: &Arc<Warnings>,
    ) -> Result<LogReader, String> {
        let index = dataset.index();
        if !dataset.is_versioned() {
            warnings.say(format!(
                "the versions (ETag or Last-Modified) of some objects of {} are not known: what the \
                 disk cache keeps of them is for this run only; hint: where a manifest leaves lengths \
                 out, each object is asked for its version",
                index.url()
            ));
        }
        let log = Log::open(LogSettings {
            dirs: self.settings.dirs.clone(),
            name: dataset.cache_name().to_owned(),
            about: index.url().to_owned(),
            subject: Subject {
                dataset: dataset.cache_key(),
                index: dataset.digest(),
                samples: index.len(),
                dirs: 0,
            },
            total_bytes: index.total_bytes(),
            max_length: index.max_length(),
            disk: self.settings.bytes,
            floor: self.settings.floor,
            memory,
            layout: self.settings.layout,
            chunk: self.settings.chunk,
            device: self.settings.device.clone(),
            length: Arc::new({
                let index = index.clone();
                move |sample| index.length(sample).ok()
            }),
            identify: Arc::new({
                let dataset = dataset.clone();
                move |sample| dataset.identity(sample).ok()
            }),
            warnings: warnings.clone(),
        })
        .map_err(|error| format!("{}; hint: {}", chain(&error), error.hint()))?;
        Reader::start(Arc::new(log), deliver).map_err(|error| format!("its thread: {error}"))
    }

    /// Ends all writing now: a job that is still somewhere would keep its log from others.
    pub(crate) fn close(&self) {
        let logs = self.logs.lock().expect("the engine's lock");
        for reader in logs.values().flatten() {
            reader.log().close();
        }
    }

    /// The device of the logs that are open, and their figures together.
    pub(crate) fn stats(&self) -> Option<(&'static str, LogStats)> {
        let logs = self.logs.lock().expect("the engine's lock");
        let readers: Vec<_> = logs.values().flatten().cloned().collect();
        drop(logs);
        let device = readers.first()?.device();
        let figures = readers.iter().map(|reader| reader.log().stats());
        let together = figures.reduce(|sum, one| sum.and(&one))?;
        Some((device, together))
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// Runs in a log's thread.
fn deliver(answers: Vec<Answer<Arrival>>) {
    let mut by_desk: Vec<(Arc<Desk>, Vec<fetch::Logged>)> = Vec::with_capacity(1);
    for (mut arrival, slice) in answers {
        let Some(asked) = arrival.0.take() else {
            continue;
        };
        let Asked {
            desk,
            place,
            task,
            into_slab,
        } = asked;
        let logged = fetch::Logged {
            place,
            task,
            into_slab,
            slice,
        };
        match by_desk
            .iter_mut()
            .find(|(known, _)| Arc::ptr_eq(known, &desk))
        {
            Some((_, samples)) => samples.push(logged),
            None => by_desk.push((desk, vec![logged])),
        }
    }
    for (desk, samples) in by_desk {
        let board = desk.plant.board.clone();
        board.guard(|| fetch::arrived(&desk, samples));
    }
}

/// A planned epoch as a log wants it. Not that of one rank of several: the others read most of
/// what it will want next.
pub(crate) fn order(sequence: &Sequence) -> Option<Order> {
    let Sequence::Planned { epoch, rank } = sequence else {
        return None;
    };
    let batches = epoch.batches(*rank);
    (epoch.world() == 1 && batches > 0).then(|| Order {
        ids: Arc::new(epoch.rank(*rank).collect()),
        batch: epoch.batch(*rank, 0).len().max(1),
    })
}
