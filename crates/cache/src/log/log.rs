//! The handle of one dataset's log: where it lies, who writes it, what it holds.
//!
//! ```text
//!   <cache dir>/log/book                     held while blocks are taken
//!                  /<dataset>/about          the dataset's address, for people
//!                            /lease, part    locked by the one process that writes
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

use forebay_format::chunk::{BLOCK, ENTRY};
use forebay_format::hash;

use super::budget::{Budget, LEAST, used};
use super::buffer::Pool;
use super::core::{Core, Figures, Traffic};
use super::files::{Dir, Files};
use super::index::SampleIndex;
use super::kind::Kind;
use super::layout::{Extent, Layout, Order, Sample, Spot};
use super::layout_packed::Packed;
use super::layout_reorder::{ChunkSize, Reorder};
use super::lease::Lease;
use super::read_only::{Left, ReadOnly};
use super::reclaim::{self, LEASE, PART};
use super::record;
use super::recover;
use super::settings::{LogSettings, Sizes};
use super::stats::LogStats;
use crate::Error;

/// The folder of all logs in a cache directory.
pub const FOLDER: &str = "log";
pub(super) const MAP: &str = "samples.map";
pub(super) const ABOUT: &str = "about";

/// See the module's text.
#[derive(Debug)]
pub struct Log {
    core: Arc<Core>,
    role: RwLock<Role>,
    read_pool: Pool,
    /// Longer samples are not kept here.
    longest: u64,
    longest_request: u64,
    kind: Kind,
    settings: LogSettings,
}

/// What this process is to the log. The layout goes before the lease.
#[derive(Debug)]
struct Role {
    layout: Arc<dyn Layout>,
    /// Of the log and of each directory; none if this process only reads.
    leases: Vec<Lease>,
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
            match budget.make_folder(&folder) {
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
        let sizes = Sizes::new(&settings, kind);
        if let Some(chunk) = settings.chunk.filter(|&chunk| chunk > sizes.most_chunk()) {
            warnings.say(format!(
                "chunk= of {chunk} bytes does not fit the disk cache's buffers; its chunks have at \
                 most {}; hint: raise memory=",
                sizes.most_chunk()
            ));
        }
        let read_pool = pool(sizes.requests, sizes.request)?;
        let core = Arc::new(Core {
            subject: settings.subject,
            files: Files::new(dirs, kind.extension(), warnings.clone()),
            figures: Figures::default(),
            traffic: Traffic::default(),
            device: settings.device.clone(),
            identify: settings.identify.clone(),
            length: settings.length.clone(),
            warnings,
        });
        let log = Self {
            role: RwLock::new(Role {
                layout: Arc::new(ReadOnly::Nothing(kind)),
                leases: Vec::new(),
            }),
            core,
            read_pool,
            longest: sizes.longest,
            longest_request: sizes.longest_request,
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

    /// Bytes of the longest request.
    pub(super) fn longest_request(&self) -> u64 {
        self.longest_request
    }

    /// The chunk that is best read as a whole when a sample of it is read at this spot.
    pub(super) fn extent(&self, sample: u32, spot: &Spot) -> Option<Extent> {
        let role = self.role.read().expect("the log's lock");
        role.layout.extent(sample, spot)
    }

    /// Waits for a moment if a sample that was found is still on its way to the disk.
    pub(super) fn await_written(&self, sample: u32) {
        if self.kind == Kind::Packed {
            return; // finds only what is there
        }
        let role = self.role.read().expect("the log's lock");
        role.layout.await_written(sample);
    }

    fn home(&self) -> &Path {
        &self.core.files.dirs()[0].folder
    }

    /// Becomes the writer if there is none, else looks for what a writer has made.
    fn assume_role(&self) {
        let mut role = self.role.write().expect("the log's lock");
        if !role.leases.is_empty() {
            return;
        }
        self.core.files.forget();
        let led = match self.take_leases() {
            Ok(Some(leases)) => self.lead().map(|layout| (layout, leases)),
            Ok(None) => {
                role.layout = Arc::new(self.read_along());
                return;
            }
            Err(error) => Err(error),
        };
        match led {
            Ok((layout, leases)) => {
                role.layout = layout;
                role.leases = leases;
            }
            Err(error) => {
                self.core.files.write_failed(0, &error);
                role.layout = Arc::new(self.read_only());
            }
        }
    }

    /// The right to write, in each directory; `None` if somebody has it in the first. Another one
    /// that somebody writes, with other directories beside it, is only read.
    fn take_leases(&self) -> io::Result<Option<Vec<Lease>>> {
        let home = &self.core.files.dirs()[0];
        let lease = match Lease::take(&home.folder.join(LEASE)) {
            // The folder may have been given up since it was made.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                home.budget.make_folder(&home.folder)?;
                Lease::take(&home.folder.join(LEASE))?
            }
            taken => taken?,
        };
        let (Some(lease), Some(part)) = (lease, Lease::lock(&home.folder.join(PART))?) else {
            return Ok(None);
        };
        let mut leases = vec![lease, part];
        for (at, dir) in self.core.files.dirs().iter().enumerate().skip(1) {
            match Lease::lock(&dir.folder.join(PART)) {
                Ok(Some(part)) => leases.push(part),
                Ok(None) => {
                    let error = io::Error::other("another process writes it");
                    self.core.files.write_failed(at as u8, &error);
                }
                Err(error) => self.core.files.write_failed(at as u8, &error),
            }
        }
        Ok(Some(leases))
    }

    /// The layout of a writer: the index is made complete first.
    fn lead(&self) -> io::Result<Arc<dyn Layout>> {
        let about = self.home().join(ABOUT);
        if fs::read_to_string(&about).ok().as_deref() != Some(&self.settings.about) {
            fs::write(about, &self.settings.about)?;
        }
        for dir in self
            .core
            .files
            .dirs()
            .iter()
            .filter(|dir| dir.is_writable())
        {
            self.kind.delete_other(&dir.folder);
        }
        self.check_budget()?;
        reclaim::shrink_others(&self.core);
        match self.kind {
            Kind::Packed => self.lead_packed(),
            Kind::Reorder => {
                let slot = record::room(self.longest.min(self.settings.max_length));
                let count = (self.settings.memory / 2 / slot).clamp(4, 256);
                let pool = Pool::new(count as usize, slot as usize)?;
                let chunk = ChunkSize {
                    bytes: self.longest_request,
                    is_batch: self.settings.chunk.is_none(),
                };
                Ok(Arc::new(Reorder::new(self.core.clone(), pool, chunk)?))
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
        let next = self.core.files.next_segment();
        index.remember_segment(index.next_segment().max(next));
        if !index.is_clean() {
            recover::recover(&self.core, &index)?;
        }
        index.set_clean(false);
        reclaim::shrink(&self.core, &index);
        let sizes = Sizes::new(&self.settings, self.kind);
        let pool = Pool::new(sizes.chunks, sizes.chunk as usize)?;
        Ok(Arc::new(Packed::new(
            self.core.clone(),
            Arc::new(index),
            pool,
            sizes.segment,
        )?))
    }

    fn make_index(&self, map: &Path) -> io::Result<SampleIndex> {
        let home = &self.core.files.dirs()[0];
        let table = self.core.subject.table_bytes();
        let bytes = table.next_multiple_of(BLOCK as u64);
        // In place of the old one, which is in the way and has the room.
        let more = match used(map) {
            old if old >= table => 0,
            old => (bytes + BLOCK as u64).saturating_sub(old),
        };
        let make = || SampleIndex::create(map, self.core.subject);
        loop {
            if let Some(index) = home.budget.take(more, make)? {
                return Ok(index);
            }
            if !reclaim::evict_stranger(&home.folder) {
                return Err(io::Error::other(format!(
                    "its table alone takes {bytes} bytes of disk"
                )));
            }
        }
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
    /// for the disk, unless [`Log::set_patience`] says so; a reordered one does so for a moment at
    /// the least.
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
        !self.role.read().expect("the log's lock").leases.is_empty()
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
        self.core.files.look();
        let role = self.role.read().expect("the log's lock");
        role.layout.begin(order);
    }

    /// What follows after this epoch.
    pub fn foresee(&self, next: &Order) {
        let role = self.role.read().expect("the log's lock");
        role.layout.foresee(next, false);
    }

    /// What follows unless somebody draws from the generator that the order comes from. If it
    /// turns out otherwise, samples are read from where they were written: that costs longer reads
    /// of the disk and none of the origin, is counted, and said once.
    pub fn forecast(&self, next: &Order) {
        let role = self.role.read().expect("the log's lock");
        role.layout.foresee(next, true);
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
        role.layout = Arc::new(ReadOnly::Nothing(self.kind)); // ends the writer
        role.leases.clear();
        role.layout = Arc::new(self.read_only());
    }

    /// The layout of a log that nobody writes.
    fn read_only(&self) -> ReadOnly {
        match self.kind {
            Kind::Packed => self.read_along(),
            Kind::Reorder => ReadOnly::Reorder(Left::new(self.core.clone())),
        }
    }

    /// The layout of a log that another process writes. What a reordered one has is gone by the
    /// time that it would be read.
    fn read_along(&self) -> ReadOnly {
        let index = match self.kind {
            Kind::Packed => SampleIndex::open(&self.home().join(MAP), self.core.subject),
            Kind::Reorder => Ok(None),
        };
        let index = index.ok().flatten();
        index.map_or(ReadOnly::Nothing(self.kind), ReadOnly::Packed)
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

    /// Nanoseconds in which reads of it were waited for, however many at a time.
    pub fn busy(&self) -> u64 {
        self.core.figures.busy.load(Ordering::Relaxed)
    }

    /// Figures so far.
    pub fn stats(&self) -> LogStats {
        let role = self.role.read().expect("the log's lock");
        let figures = &self.core.figures;
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let dirs = self.core.files.dirs();
        LogStats {
            layout: role.layout.name(),
            writes: !role.leases.is_empty(),
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
            wrong_forecasts: get(&figures.wrong_forecasts),
            full: role.layout.is_full(),
        }
    }
}

fn pool(count: usize, slot: usize) -> Result<Pool, Error> {
    Pool::new(count, slot).map_err(|source| Error::Reserve {
        bytes: (count * slot) as u64,
        source,
    })
}
