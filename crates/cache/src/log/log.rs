//! The handle of one dataset's log: where it lies, who writes it, what it holds.
//!
//! ```text
//!   <cache dir>/log/book                     held while blocks are taken
//!                  /<dataset>/about          the dataset's address, for people
//!                            /lease          locked by the one process that writes
//!                            /samples.map    where each sample lies
//!                            /00000000.segment ...
//! ```
//!
//! One process writes; others read what is there, and one of them takes over when the writer has
//! ended, at its next epoch. Whatever fails here costs reads of the origin and nothing else.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use forebay_format::chunk::{BLOCK, ENTRY, HEAD};
use forebay_format::hash;

use super::budget::{Budget, RESERVED, used};
use super::buffer::Pool;
use super::core::{Core, Figures, Identify, Length, Traffic};
use super::device::DeviceChoice;
use super::files::{Dir, Files};
use super::index::{SampleIndex, Subject};
use super::layout::{Layout, LayoutChoice, Order, Parts, Sample, Spot};
use super::layout_packed::{self, Packed};
use super::layout_reorder::Reorder;
use super::lease::Lease;
use super::measure::Speeds;
use super::reclaim::{self, LEASE};
use super::record;
use super::recover;
use super::warnings::Warnings;
use crate::Error;

/// The folder of all logs in a cache directory.
pub const FOLDER: &str = "log";
pub(super) const MAP: &str = "samples.map";
pub(super) const ABOUT: &str = "about";
/// A chunk as long as this is read as fast as a longer one.
const CHUNK: u64 = 4 << 20;
/// Smaller datasets are packed: which layout would be faster is not worth a second.
const WORTH_MEASURING: u64 = 64 << 20;
/// Disk for a log's folder, lease and address.
const LEAST: u64 = 16 << 10;
/// Room of a segment, in chunks.
const CHUNKS_OF_A_SEGMENT: u64 = 64;
/// A request's buffer.
const REQUEST: u64 = 1 << 20;

/// How a log is set up.
#[derive(Clone)]
pub struct LogSettings {
    /// Cache directories; chunks go round.
    pub dirs: Vec<PathBuf>,
    /// The dataset's folder in each.
    pub name: String,
    /// The dataset's address, for people.
    pub about: String,
    /// Which dataset, which index. `dirs` is filled in.
    pub subject: Subject,
    /// Bytes of all samples.
    pub total_bytes: u64,
    /// Bytes of the longest.
    pub max_length: u64,
    /// Bytes that all logs in the directories may take, in equal shares.
    pub disk: u64,
    /// Bytes that stay free on each file system.
    pub floor: u64,
    /// Bytes of memory for buffers.
    pub memory: u64,
    /// How samples are laid out.
    pub layout: LayoutChoice,
    /// How the disk is spoken to.
    pub device: DeviceChoice,
    /// From a sample's number to who it is.
    pub identify: Identify,
    /// From a sample's number to its bytes.
    pub length: Length,
    /// Where words for the user go.
    pub warnings: Arc<Warnings>,
}

impl std::fmt::Debug for LogSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSettings")
            .field("dirs", &self.dirs)
            .field("name", &self.name)
            .field("disk", &self.disk)
            .finish_non_exhaustive()
    }
}

/// A log's figures so far.
#[derive(Debug, Clone, Default)]
pub struct LogStats {
    /// How samples are laid out.
    pub layout: &'static str,
    /// Whether this process writes.
    pub writes: bool,
    /// Whether the page cache is left out.
    pub direct: bool,
    /// Bytes that all logs of the directories take, as `du` counts.
    pub disk_bytes: u64,
    /// Bytes that they may take.
    pub disk_limit: u64,
    /// Samples read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Requests that they were read by.
    pub requests: u64,
    /// Bytes of those, gaps and edges included.
    pub request_bytes: u64,
    /// Samples written.
    pub written: u64,
    /// Bytes written to the device, all overhead included.
    pub written_bytes: u64,
    /// Samples that were not written because the writer was behind, or they are too long.
    pub skipped: u64,
    /// Samples whose bytes were not what they should be; read from the origin instead.
    pub corrupt: u64,
    /// Requests that failed.
    pub errors: u64,
    /// No more room.
    pub full: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Log {
    core: Arc<Core>,
    role: RwLock<Role>,
    read_pool: Pool,
    /// Longer samples are not kept here.
    longest: u64,
    kind: Kind,
    settings: LogSettings,
}

/// What this process is to the log. The layout goes before the lease.
#[derive(Debug)]
struct Role {
    layout: Arc<dyn Layout>,
    lease: Option<Lease>,
}

impl Log {
    /// Opens the log of a dataset, or begins it.
    pub fn open(mut settings: LogSettings) -> Result<Self, Error> {
        let warnings = settings.warnings.clone();
        let share = settings.disk / settings.dirs.len().max(1) as u64;
        let (mut dirs, mut refused) = (Vec::new(), Vec::new());
        for dir in &settings.dirs {
            let root = dir.join(FOLDER);
            let folder = root.join(&settings.name);
            let budget = Budget::new(&root, share, settings.floor);
            match make_folder(&folder, &budget) {
                Ok(()) => dirs.push(Dir::new(folder, budget)),
                Err(error) => refused.push((dir, error)),
            }
        }
        if dirs.is_empty() {
            let refused = refused.pop().map(|(dir, error)| (dir.clone(), error));
            let (folder, source) =
                refused.unwrap_or_else(|| (PathBuf::new(), io::ErrorKind::NotFound.into()));
            return Err(Error::CacheDir { folder, source });
        }
        for (dir, error) in refused {
            warnings.say(format!(
                "cache directory {} cannot be used ({error}); going on without it",
                dir.display()
            ));
        }
        let paths: Vec<_> = dirs.iter().map(|dir| dir.folder.as_os_str()).collect();
        settings.subject.dirs = hash(format!("{paths:?}").as_bytes());
        let kind = Kind::choose(&settings, &dirs[0]);
        let sizes = Sizes::new(&settings);
        let read_pool = pool(sizes.requests, sizes.request)?;
        let core = Arc::new(Core {
            subject: settings.subject,
            files: Files::new(dirs, kind.extension(), warnings),
            figures: Figures::default(),
            traffic: Traffic::default(),
            device: settings.device.clone(),
            identify: settings.identify.clone(),
            length: settings.length.clone(),
        });
        let log = Self {
            role: RwLock::new(Role {
                layout: Arc::new(ReadOnly(None)),
                lease: None,
            }),
            core,
            read_pool,
            longest: sizes.longest,
            kind,
            settings,
        };
        log.assume_role();
        Ok(log)
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn read_pool(&self) -> &Pool {
        &self.read_pool
    }

    fn home(&self) -> &Path {
        &self.core.files.dirs()[0].folder
    }

    /// Becomes the writer if there is none, else looks for what a writer has made.
    fn assume_role(&self) {
        let mut role = self.role.write().expect("the log's lock");
        if role.lease.is_some() {
            return;
        }
        match Lease::take(&self.home().join(LEASE)) {
            Ok(Some(lease)) => match self.lead() {
                Ok(layout) => {
                    role.layout = layout;
                    role.lease = Some(lease);
                }
                Err(error) => self.core.files.write_failed(0, &error),
            },
            Ok(None) => {}
            Err(error) => self.core.files.write_failed(0, &error),
        }
        if role.lease.is_none() {
            role.layout = self.read_only();
        }
    }

    /// The layout of a writer: the index is made complete first.
    fn lead(&self) -> io::Result<Arc<dyn Layout>> {
        let about = self.home().join(ABOUT);
        if fs::read_to_string(&about).ok().as_deref() != Some(&self.settings.about) {
            fs::write(about, &self.settings.about)?;
        }
        for dir in self.core.files.dirs() {
            self.kind.delete_other(&dir.folder);
        }
        self.check_budget()?;
        match self.kind {
            Kind::Packed => self.lead_packed(),
            Kind::Reorder => {
                let slot = record::room(self.longest);
                let count = (self.settings.memory / 2 / slot).clamp(4, 256);
                let pool = Pool::new(count as usize, slot as usize)?;
                Ok(Arc::new(Reorder::new(self.core.clone(), pool)?))
            }
        }
    }

    /// An error if the budget holds nothing at all.
    fn check_budget(&self) -> io::Result<()> {
        let limit = self.core.files.dirs()[0].budget.limit();
        let mean = self.settings.total_bytes / u64::from(self.core.subject.samples.max(1));
        let sample = forebay_format::chunk::chunk_of_one(mean);
        let least = self.core.subject.table_bytes() + LEAST + 2 * sample;
        if limit < least {
            return Err(io::Error::other(format!(
                "its {limit} bytes hold no sample, {least} would; hint: raise disk="
            )));
        }
        Ok(())
    }

    fn lead_packed(&self) -> io::Result<Arc<dyn Layout>> {
        let map = self.home().join(MAP);
        let subject = self.core.subject;
        let index = match SampleIndex::open_for_writing(&map, subject)? {
            Some(index) => index,
            None => self.make_index(&map)?,
        };
        if !index.is_clean() {
            recover::recover(&self.core, &index);
        }
        index.set_clean(false);
        reclaim::shrink(&self.core, &index);
        let sizes = Sizes::new(&self.settings);
        let pool = Pool::new(sizes.chunks, sizes.chunk as usize)?;
        // Never more than the dataset could fill.
        let most = (sizes.chunk * CHUNKS_OF_A_SEGMENT)
            .min(self.settings.total_bytes + self.settings.total_bytes / 16 + 2 * sizes.chunk);
        Ok(Arc::new(Packed::new(
            self.core.clone(),
            Arc::new(index),
            pool,
            most.min(1 << 31).next_multiple_of(BLOCK as u64),
        )?))
    }

    fn make_index(&self, map: &Path) -> io::Result<SampleIndex> {
        let home = &self.core.files.dirs()[0];
        let bytes = self
            .core
            .subject
            .table_bytes()
            .next_multiple_of(BLOCK as u64);
        // In place of the old one, which is in the way and has the room.
        let old = used(map);
        while old < self.core.subject.table_bytes()
            && home.budget.spare() + old < bytes + BLOCK as u64
        {
            if !reclaim::evict_stranger(&home.folder) {
                return Err(io::Error::other(format!(
                    "its table alone takes {bytes} bytes of disk"
                )));
            }
        }
        let _ = fs::remove_file(map);
        SampleIndex::create(map, self.core.subject)
    }

    /// Where a sample can be read.
    pub fn find(&self, sample: u32, length: u64) -> Option<Spot> {
        let role = self.role.read().expect("the log's lock");
        let spot = role.layout.find(sample)?;
        // A damaged table may name any directory.
        let dir = self.core.files.dirs().get(usize::from(spot.at.dir));
        let alive = dir.is_some_and(Dir::is_alive);
        (alive && length <= self.longest).then_some(spot)
    }

    /// Takes a copy of a sample to write it, if it has a place for it. A packed log never waits
    /// for the disk, unless [`Log::set_patience`] says so; a reordered one does for a moment.
    pub fn offer<'a>(&self, sample: &Sample, mut parts: impl Iterator<Item = &'a [u8]>) -> bool {
        if sample.length > self.longest {
            Figures::add(&self.core.figures.skipped, 1);
            return false;
        }
        let role = self.role.read().expect("the log's lock");
        role.layout.offer(sample, &mut parts)
    }

    /// From now on an offer waits so long for the writer before a sample is skipped: for those who
    /// would rather fill the log than be fast.
    pub fn set_patience(&self, patience: Duration) {
        self.core.traffic.set_patience(patience);
    }

    /// The longest sample that it takes.
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// Whether there is no more room.
    pub fn is_full(&self) -> bool {
        let role = self.role.read().expect("the log's lock");
        role.layout.is_full()
    }

    /// Whether this process writes it.
    pub fn is_writer(&self) -> bool {
        self.role.read().expect("the log's lock").lease.is_some()
    }

    /// Whether it will hold all samples, or could.
    pub fn is_whole(&self) -> bool {
        let limit: u64 = self
            .core
            .files
            .dirs()
            .iter()
            .map(|dir| dir.budget.limit())
            .sum();
        let (total, samples) = (self.settings.total_bytes, self.core.subject.samples);
        let overhead = match self.kind {
            Kind::Packed => {
                self.core.subject.table_bytes() + u64::from(samples) * ENTRY as u64 + total / 100
            }
            // Half a block for each, and room for what is under way.
            Kind::Reorder => u64::from(samples) * BLOCK as u64 / 2 + total / 8,
        };
        total + overhead <= limit && self.settings.max_length <= self.longest
    }

    /// An epoch begins, in this order if it is known.
    pub fn begin(&self, order: Option<&Order>) {
        self.assume_role();
        let role = self.role.read().expect("the log's lock");
        role.layout.begin(order);
    }

    /// What follows after this epoch.
    pub fn foresee(&self, next: &Order) {
        let role = self.role.read().expect("the log's lock");
        role.layout.foresee(next);
    }

    /// The user has had these samples.
    pub fn consumed(&self, samples: &[u32]) {
        let role = self.role.read().expect("the log's lock");
        role.layout.consumed(samples);
    }

    /// Whether it is to be told of the orders of epochs.
    pub fn wants_orders(&self) -> bool {
        self.kind == Kind::Reorder
    }

    /// Whether samples are to be offered each time that they are used.
    pub fn rewrites(&self) -> bool {
        let role = self.role.read().expect("the log's lock");
        role.layout.rewrites()
    }

    pub(super) fn lost(&self, sample: u32, spot: &Spot) {
        let role = self.role.read().expect("the log's lock");
        role.layout.lost(sample, spot);
    }

    /// Writes out what waits to be written and lets another process write; what is there can
    /// still be read.
    pub fn close(&self) {
        let mut role = self.role.write().expect("the log's lock");
        role.layout = Arc::new(ReadOnly(None)); // ends the writer
        role.lease = None;
        role.layout = self.read_only();
    }

    fn read_only(&self) -> Arc<dyn Layout> {
        let map = self.home().join(MAP);
        let index = SampleIndex::open(&map, self.core.subject).ok().flatten();
        Arc::new(ReadOnly(index))
    }

    /// What is half full is written as it is; does not wait for it.
    pub fn seal(&self) {
        let role = self.role.read().expect("the log's lock");
        role.layout.seal();
    }

    /// Writes out what waits to be written; returns when it is on the disk.
    pub fn flush(&self) {
        let role = self.role.read().expect("the log's lock");
        role.layout.flush();
    }

    /// Figures so far.
    pub fn stats(&self) -> LogStats {
        let role = self.role.read().expect("the log's lock");
        let figures = &self.core.figures;
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let dirs = self.core.files.dirs();
        LogStats {
            layout: role.layout.name(),
            writes: role.lease.is_some(),
            direct: self.core.files.is_direct(),
            disk_bytes: dirs.iter().map(|dir| dir.budget.used()).sum(),
            disk_limit: dirs.iter().map(|dir| dir.budget.limit()).sum(),
            reads: get(&figures.reads),
            read_bytes: get(&figures.read_bytes),
            requests: get(&figures.requests),
            request_bytes: get(&figures.request_bytes),
            written: get(&figures.written),
            written_bytes: get(&figures.written_bytes),
            skipped: get(&figures.skipped),
            corrupt: get(&figures.corrupt),
            errors: get(&figures.errors),
            full: role.layout.is_full(),
        }
    }
}

/// The layout that a log has, decided when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Packed,
    Reorder,
}

impl Kind {
    /// What is asked for; else what is there already; else what the disk is better at.
    fn choose(settings: &LogSettings, home: &Dir) -> Self {
        match settings.layout {
            LayoutChoice::Packed => return Kind::Packed,
            LayoutChoice::Reorder => return Kind::Reorder,
            LayoutChoice::Auto => {}
        }
        let has = |kind: Kind| {
            let entries = fs::read_dir(&home.folder).ok();
            let mut paths = entries.into_iter().flatten().flatten();
            paths.any(|entry| kind.owns(&entry.path()))
        };
        if has(Kind::Packed) || settings.total_bytes < WORTH_MEASURING {
            return Kind::Packed;
        }
        if has(Kind::Reorder) {
            return Kind::Reorder;
        }
        let mean = settings.total_bytes / u64::from(settings.subject.samples.max(1));
        let root = home.folder.parent().unwrap_or(&home.folder);
        match home.budget.room() {
            room if room < WORTH_MEASURING * 2 => Kind::Packed,
            _ => match Speeds::of(root, mean, &settings.device) {
                Ok(speeds) if speeds.favour_reorder() => Kind::Reorder,
                _ => Kind::Packed,
            },
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Kind::Packed => "segment",
            Kind::Reorder => "ordered",
        }
    }

    fn owns(self, path: &Path) -> bool {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("");
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        match self {
            Kind::Packed => ends(&[".segment", MAP]),
            Kind::Reorder => ends(&[".ordered", ".order", RESERVED]),
        }
    }

    /// Deletes what a log of the other layout has left in a folder.
    fn delete_other(self, folder: &Path) {
        let other = match self {
            Kind::Packed => Kind::Reorder,
            Kind::Reorder => Kind::Packed,
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if other.owns(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// A log's folder, if there is room for what a log has at least.
fn make_folder(folder: &Path, budget: &Budget) -> io::Result<()> {
    if !folder.is_dir() && folder.parent().is_some_and(Path::is_dir) && budget.spare() < LEAST {
        return Err(io::ErrorKind::StorageFull.into());
    }
    fs::create_dir_all(folder)
}

fn pool(count: usize, slot: usize) -> Result<Pool, Error> {
    Pool::new(count, slot).map_err(|source| Error::Reserve {
        bytes: (count * slot) as u64,
        source,
    })
}

/// How a log's memory is cut up.
struct Sizes {
    /// Bytes of a chunk.
    chunk: u64,
    chunks: usize,
    /// Bytes of a request's buffer.
    request: usize,
    requests: usize,
    longest: u64,
}

impl Sizes {
    fn new(settings: &LogSettings) -> Self {
        let block = BLOCK as u64;
        let half = settings.memory / 2;
        let most_chunk = half / layout_packed::LEAST_BUFFERS;
        // A small log has smaller chunks, so that its last one wastes little of it and its first
        // one is soon written.
        let chunk = CHUNK
            .min(settings.disk / 128)
            .min(settings.total_bytes / 16)
            .max(64 << 10)
            .max(forebay_format::chunk::chunk_of_one(settings.max_length))
            .min(most_chunk)
            .next_multiple_of(block);
        // A sample may begin and end within a block.
        let edges = 2 * block + record::HEAD as u64;
        let request = REQUEST
            .max(settings.max_length.saturating_add(edges))
            .min(half / 4)
            .max(16 * block)
            .next_multiple_of(block);
        Self {
            chunk,
            chunks: (half / chunk).clamp(layout_packed::LEAST_BUFFERS, 64) as usize,
            request: request as usize,
            requests: (half / request).clamp(4, 128) as usize,
            longest: (chunk - (HEAD + ENTRY) as u64).min(request - edges),
        }
    }
}

/// A log that another process writes, or nobody.
#[derive(Debug)]
struct ReadOnly(Option<SampleIndex>);

impl Layout for ReadOnly {
    fn name(&self) -> &'static str {
        "packed"
    }

    fn find(&self, sample: u32) -> Option<Spot> {
        layout_packed::find(self.0.as_ref()?, sample)
    }

    fn offer(&self, _sample: &Sample, _parts: Parts<'_, '_>) -> bool {
        false
    }

    fn lost(&self, _sample: u32, _spot: &Spot) {}

    fn begin(&self, _order: Option<&Order>) {}

    fn seal(&self) {}

    fn flush(&self) {}

    fn is_full(&self) -> bool {
        false
    }
}
