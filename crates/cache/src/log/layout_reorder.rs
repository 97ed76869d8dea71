//! Reorder: each epoch has a log in its order, written while the epoch before it is read.
//!
//! ```text
//!   this epoch's log   [     ][     ][#####][#####]    read from the front, chunk by chunk;
//!                                                      what was used gives its blocks back
//!   next epoch's log   [ #   ][  #  ][#    ][   # ]    each sample used is written to its place
//! ```
//!
//! At the epoch's end the two change roles. Reads are then one long read, whatever the shuffle;
//! the price is that the whole dataset is written again every epoch. Where the disk does not hold
//! it all, the samples that come first in the next epoch are kept (its *reach*).
//!
//! Whatever is on the disk is used. An epoch that is left early leaves two logs with a part each:
//! both are *sources* of the next one, and so are those of a run that was killed. A record goes
//! only once the next log has its sample, or has no place for it; what an epoch does not use is
//! brought over in the background. If the next log turns out to be of another order, it is read in
//! whatever order there is: records check themselves.
//!
//! A writer that is behind holds up those who have read: the pace is then that of the writes. One
//! that hangs is waited for once.
//!
//! Once no directory can be written to, all logs stay as they are and are read in any order.
//!
//! Only the process that writes has the tables, 8 bytes a sample and log, on its heap: others could
//! not use them, since a record may be gone by the time that they read it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::buffer::Pool;
use super::core::{Core, Figures};
use super::files::Dir;
use super::index::Location;
use super::kind::Kind;
use super::layout::{Check, Extent, Layout, Order, Parts, Sample, Spot};
use super::layout_packed::Bits;
use super::order_file::{Chunking, OrderFile, distinct};
use super::ordered::{Ordered, length, slots, tag};
use super::record;
use super::recover_ordered::{self, MOST_LOGS};
use super::rooms::Rooms;
use super::scribe::{Message, Scribe, Used};
use super::writer::Writer;

/// How long a sample waits for the writer, unless it has kept one waiting in vain already. What is
/// not written may have to be read from the origin in the next epoch.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most samples that are remembered to be carried over.
const MOST_CARRIED: usize = 1 << 20;
/// Chunks that may wait for their blocks to be given back while others are written.
const CHUNKS_IN_FLIGHT: u64 = 4;
/// With more sources, the smallest are brought over into the next log.
const ENOUGH_SOURCES: usize = 2;

/// How long chunks are.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkSize {
    /// At most so many bytes.
    pub(super) bytes: u64,
    /// And no more than a batch.
    pub(super) is_batch: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Reorder {
    shared: Arc<Shared>,
    chunk: ChunkSize,
    carried: Mutex<Vec<u32>>,
    to_writer: Mutex<Option<Sender<Message>>>,
    thread: Option<JoinHandle<()>>,
}

/// What the writing thread knows too.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) core: Arc<Core>,
    pool: Pool,
    pub(super) logs: RwLock<Logs>,
    /// Samples that are on their way to the next log.
    pub(super) pending: Bits,
    pub(super) rooms: Rooms,
    /// Messages of used samples that the writer has not come to yet.
    pub(super) freeing: AtomicU64,
    /// It was waited for in vain, and has written nothing since.
    pub(super) behind: AtomicBool,
}

/// The logs that there are.
#[derive(Debug, Default)]
pub(super) struct Logs {
    /// Those that are read, first those in the order of this epoch.
    pub(super) sources: Vec<Arc<Ordered>>,
    /// The one that is written.
    pub(super) next: Option<Arc<Ordered>>,
    /// Its order may turn out otherwise.
    is_forecast: bool,
    epoch: Option<Epoch>,
    next_segment: u32,
}

/// The epoch that is under way.
#[derive(Debug)]
struct Epoch {
    /// Its samples, and how many.
    wanted: Bits,
    count: usize,
    /// How many the user has not had yet.
    left: AtomicU64,
}

impl Logs {
    fn find(&self, sample: u32) -> Option<Location> {
        let mut logs = self.sources.iter().chain(&self.next);
        logs.find_map(|log| log.find(sample))
    }

    /// The log that was last written to.
    fn latest(&self) -> Option<&Arc<Ordered>> {
        let newest = || self.sources.iter().max_by_key(|log| log.first);
        self.next.as_ref().or_else(newest)
    }

    fn is_over(&self) -> bool {
        let epoch = self.epoch.as_ref();
        epoch.is_some_and(|epoch| epoch.left.load(Ordering::Acquire) == 0)
    }
}

impl Reorder {
    /// Goes on with what is on the disk. `pool` has buffers for the longest record.
    pub(super) fn new(core: Arc<Core>, pool: Pool, chunk: ChunkSize) -> io::Result<Self> {
        let (sources, next_segment) = recover_ordered::take_over(&core);
        let shared = Arc::new(Shared {
            pending: Bits::new(core.subject.samples),
            pool: pool.clone(),
            logs: RwLock::new(Logs {
                sources,
                next_segment,
                ..Logs::default()
            }),
            rooms: Rooms::new(core.files.dirs().len()),
            freeing: AtomicU64::new(0),
            behind: AtomicBool::new(false),
            core: core.clone(),
        });
        let (to_writer, inbox) = channel();
        let mut scribe = Scribe {
            writer: Writer::new(core, &pool)?,
            spare: pool.take(Duration::ZERO),
            shared: shared.clone(),
            carried: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("forebay-log-write".into())
            .spawn(move || scribe.run(&inbox))?;
        let reorder = Self {
            shared,
            chunk,
            carried: Mutex::default(),
            to_writer: Mutex::new(Some(to_writer)),
            thread: Some(thread),
        };
        reorder.take_stock()?;
        reorder.shrink();
        Ok(reorder)
    }

    fn dirs(&self) -> &[Dir] {
        self.shared.core.files.dirs()
    }

    /// Keeps a budget that is smaller than it was, or a disk that never heard of what was given
    /// back before the power failed: the oldest log gives up first, and of it what comes last.
    fn shrink(&self) {
        let mut over: Vec<u64> = (0..self.dirs().len())
            .map(|dir| self.shared.rooms.over(dir as u8))
            .collect();
        let sources = &self.shared.logs.read().expect("the logs' lock").sources;
        for log in sources {
            if over.iter().all(|&over| over == 0) {
                break;
            }
            let mut samples = log.latest_first();
            samples.retain(|&sample| {
                let room = record::room(length(&self.shared.core, sample));
                let over = log.place(sample).map(|at| &mut over[usize::from(at.dir)]);
                over.is_some_and(|over| {
                    let wanted = *over > 0;
                    *over = over.saturating_sub(room);
                    wanted
                })
            });
            self.free(Used {
                samples,
                logs: vec![log.clone()],
                next: None,
            });
        }
        self.flush();
    }

    fn free(&self, used: Used) {
        self.shared.freeing.fetch_add(1, Ordering::AcqRel);
        self.send(Message::Free(used));
    }

    /// Whether nothing can be written any more.
    fn is_frozen(&self) -> bool {
        !self.dirs().iter().any(Dir::is_writable)
    }

    fn send(&self, message: Message) {
        if let Some(to_writer) = &*self.to_writer.lock().expect("the writer's lock") {
            let _ = to_writer.send(message);
        }
    }

    /// Counts what is taken, and puts by what may be. An error if that is nothing anywhere.
    fn take_stock(&self) -> io::Result<()> {
        let mut failure = None;
        for (at, dir) in self.dirs().iter().enumerate() {
            self.shared.rooms.set(at, 0, 0);
            if !dir.is_writable() {
                continue;
            }
            match dir.budget.reserve(&dir.folder) {
                Ok(limit) => {
                    // The file system's own blocks for files in many pieces, and the orders' files.
                    let orders = u64::from(self.shared.core.subject.samples) * 12;
                    let own = limit / 64 + orders + (128 << 10).min(limit / 32);
                    let taken = super::budget::used(&dir.folder);
                    self.shared.rooms.set(at, taken, limit.saturating_sub(own));
                }
                Err(error) => {
                    self.shared.core.files.write_failed(at as u8, &error);
                    failure = Some(error);
                }
            }
        }
        match failure.filter(|_| self.is_frozen()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn chunking(&self, order: &Order) -> Chunking {
        let batch = if self.chunk.is_batch { order.batch } else { 0 };
        Chunking {
            batch: batch as u32,
            bytes: self.chunk.bytes as u32,
        }
    }

    /// How many samples there is room for, with some to spare for what is under way.
    fn reach(&self, ids: &[u32], chunking: Chunking, dirs: &[u8]) -> usize {
        let core = &self.shared.core;
        let batch = ids.iter().take(chunking.batch.max(1) as usize);
        let batch: u64 = batch.map(|&id| record::room(length(core, id))).sum();
        let chunk = match chunking.batch {
            0 => u64::from(chunking.bytes),
            _ => batch.min(u64::from(chunking.bytes)),
        };
        let mut left: Vec<u64> = dirs
            .iter()
            .map(|&dir| {
                let limit = self.shared.rooms.limit(dir);
                let spare = (chunk * CHUNKS_IN_FLIGHT).min(limit / 32).max(chunk);
                limit - spare.min(limit / 8)
            })
            .collect();
        let mut slots = slots(ids, chunking, dirs.len() as u32, core);
        let beyond = slots.find(|slot| {
            let left = &mut left[slot.stripe as usize];
            let fits = *left >= slot.room;
            *left = left.saturating_sub(slot.room);
            !fits
        });
        beyond.map_or(ids.len(), |slot| slot.at)
    }

    /// A log in this order, over all directories that can be written to.
    fn make(&self, ids: &[u32], chunking: Chunking, first: u32) -> Option<Ordered> {
        let core = &self.shared.core;
        loop {
            let dirs: Vec<u8> = (0..self.dirs().len() as u8)
                .filter(|&dir| self.dirs()[usize::from(dir)].is_writable())
                .collect();
            if dirs.is_empty() {
                return None;
            }
            let file = OrderFile {
                first,
                chunking,
                stripes: dirs.len() as u32,
                reach: self.reach(ids, chunking, &dirs) as u32,
                ids: ids.to_vec(),
            };
            let log = Ordered::new(&file, core, dirs.clone())?;
            let mut saved = true;
            for dir in dirs {
                if let Err(error) = file.save(&self.dirs()[usize::from(dir)].folder, core.subject) {
                    core.files.write_failed(dir, &error);
                    saved = false;
                }
            }
            if saved {
                return Some(log);
            }
        }
    }

    /// Samples in sources that this epoch will not bring into the next log by itself.
    fn left_behind(&self, logs: &Logs) -> Vec<u32> {
        let samples = self.shared.core.subject.samples;
        let mut left =
            std::mem::take(&mut *self.carried.lock().expect("the carried samples' lock"));
        if let Some(epoch) = logs.epoch.as_ref().filter(|e| e.count < samples as usize) {
            left.extend((0..samples).filter(|&sample| !epoch.wanted.has(sample)));
        }
        let mut by_size: Vec<_> = logs.sources.iter().collect();
        by_size.sort_by_key(|log| std::cmp::Reverse((log.is_in_turn(), log.count())));
        for small in by_size.into_iter().skip(ENOUGH_SOURCES) {
            left.extend(small.latest_first());
        }
        left.retain(|&sample| logs.sources.iter().any(|log| log.find(sample).is_some()));
        left
    }

    /// Lets logs go that have nothing any more.
    fn drop_empty(&self) {
        let mut logs = self.shared.logs.write().expect("the logs' lock");
        let (empty, others) = logs.sources.drain(..).partition(|log| log.count() == 0);
        logs.sources = others;
        let empty: Vec<_> = empty;
        for log in empty {
            self.send(Message::Drop(log));
        }
    }

    /// The smallest of too many logs are brought over into the next one, as a whole.
    fn merge_some(&self, logs: &Logs) {
        let mut by_size = logs.sources.clone();
        by_size.sort_by_key(|log| std::cmp::Reverse((log.is_in_turn(), log.count())));
        for log in by_size.into_iter().skip(MOST_LOGS - 1) {
            self.send(Message::Merge(log));
        }
    }
}

impl Layout for Reorder {
    fn name(&self) -> &'static str {
        Kind::Reorder.name()
    }

    fn find(&self, sample: u32) -> Option<Spot> {
        let logs = self.shared.logs.read().expect("the logs' lock");
        let check = Check::Record;
        let found = logs.find(sample);
        // What is on its way to the disk is there by the time that it is read.
        let found = found.or_else(|| match self.shared.pending.has(sample) {
            true => logs.latest()?.place(sample),
            false => None,
        });
        found.map(|at| Spot { at, check })
    }

    fn await_written(&self, sample: u32) {
        if !self.shared.pending.has(sample) {
            return;
        }
        let until = Instant::now() + self.shared.patience();
        while self.shared.pending.has(sample) {
            if Instant::now() > until {
                self.shared.behind.store(true, Ordering::Relaxed);
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn extent(&self, sample: u32, spot: &Spot) -> Option<Extent> {
        let logs = self.shared.logs.read().expect("the logs' lock");
        let mut logs = logs.sources.iter().chain(&logs.next);
        let log = logs.find(|log| log.find(sample) == Some(spot.at))?;
        log.is_in_turn().then(|| log.extent(sample))?
    }

    fn offer(&self, sample: &Sample, parts: Parts<'_, '_>) -> bool {
        let shared = &self.shared;
        let logs = shared.logs.read().expect("the logs' lock");
        let is_there =
            |next: &Arc<Ordered>| shared.pending.has(sample.id) || next.find(sample.id).is_some();
        let Some(next) = logs.next.as_ref().filter(|next| !is_there(next)).cloned() else {
            // Read for the epoch after: its own next one is not known yet.
            let mut carried = self.carried.lock().expect("the carried samples' lock");
            if carried.len() < MOST_CARRIED {
                carried.push(sample.id);
            }
            return false;
        };
        drop(logs);
        let writable = |at: &Location| self.dirs()[usize::from(at.dir)].is_writable();
        let Some(at) = next.place(sample.id).filter(writable) else {
            return false; // beyond the reach
        };
        let room = record::room(sample.length);
        if !shared.take_soon(at.dir, room) {
            return false;
        }
        let Some(mut buffer) = shared.pool.take(shared.patience()) else {
            shared.behind.store(true, Ordering::Relaxed);
            shared.rooms.give(at.dir, room);
            Figures::add(&shared.core.figures.skipped, 1);
            return false;
        };
        shared.pending.set(sample.id, true);
        let bytes = record::write(sample, parts, buffer.bytes_mut());
        self.send(Message::Write(next, sample.id, at, buffer, bytes));
        true
    }

    fn lost(&self, sample: u32, spot: &Spot) {
        let logs = self.shared.logs.read().expect("the logs' lock");
        for log in logs.sources.iter().chain(&logs.next) {
            log.lose(sample, spot.at);
        }
    }

    fn begin(&self, order: Option<&Order>) {
        if self.is_frozen() {
            return;
        }
        let core = &self.shared.core;
        let samples = core.subject.samples;
        let ids = order.map(|order| distinct(&order.ids, samples));
        // What was not brought over stays where it is.
        self.send(Message::Carry(Vec::new()));
        let mut logs = self.shared.logs.write().expect("the logs' lock");
        let was_forecast = std::mem::take(&mut logs.is_forecast);
        if let Some(next) = logs.next.take() {
            let is_other = ids.as_ref().is_some_and(|ids| tag(ids) != next.tag);
            if is_other && was_forecast && logs.is_over() {
                core.wrong_forecast();
            }
            logs.sources.push(next);
        }
        for log in &logs.sources {
            log.expect(ids.as_deref().unwrap_or(&[]));
        }
        logs.sources.sort_by_key(|log| !log.is_in_turn());
        logs.epoch = ids.map(|ids| {
            let wanted = Bits::new(samples);
            for &id in &ids {
                wanted.set(id, true);
            }
            Epoch {
                wanted,
                count: ids.len(),
                left: AtomicU64::new(order.map_or(0, |order| order.ids.len() as u64)),
            }
        });
        drop(logs);
        self.flush();
        self.drop_empty();
        self.flush();
        // Where this fails the directories say so.
        let _ = self.take_stock();
    }

    fn foresee(&self, next: &Order, forecast: bool) {
        if self.is_frozen() {
            return;
        }
        let ids = distinct(&next.ids, self.shared.core.subject.samples);
        let wanted = tag(&ids);
        let mut logs = self.shared.logs.write().expect("the logs' lock");
        if logs.next.as_ref().is_some_and(|log| log.tag == wanted) {
            return;
        }
        if let Some(other) = logs.next.take() {
            other.expect(&[]);
            logs.sources.push(other);
        }
        // A log of this order may have been begun already, by an epoch that was left early.
        let begun = logs.sources.iter().filter(|log| log.tag == wanted);
        let begun = begun.filter(|log| !log.is_in_turn());
        let log = match begun.max_by_key(|log| log.first).cloned() {
            Some(log) => {
                logs.sources.retain(|source| !Arc::ptr_eq(source, &log));
                log
            }
            None => {
                let first = logs.next_segment;
                let Some(log) = self.make(&ids, self.chunking(next), first) else {
                    return;
                };
                logs.next_segment += log.segment_count();
                Arc::new(log)
            }
        };
        log.expect_all();
        logs.next = Some(log);
        // An order that was forecast stays one though it is told again, nearer to its epoch.
        logs.is_forecast |= forecast;
        let left = self.left_behind(&logs);
        self.merge_some(&logs);
        drop(logs);
        self.send(Message::Carry(left));
    }

    fn consumed(&self, samples: &[u32]) {
        let logs = self.shared.logs.read().expect("the logs' lock");
        if let Some(epoch) = &logs.epoch {
            let count = samples.len() as u64;
            let less = |left: u64| Some(left.saturating_sub(count));
            let _ = epoch
                .left
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
        // Without a next log there is nothing that they are replaced by.
        if logs.next.is_some() && !logs.sources.is_empty() && !self.is_frozen() {
            self.free(Used {
                samples: samples.to_vec(),
                logs: logs.sources.clone(),
                next: logs.next.clone(),
            });
        }
    }

    fn rewrites(&self) -> bool {
        true
    }

    fn seal(&self) {}

    fn flush(&self) {
        let (done, told) = channel();
        self.send(Message::Flush(done));
        let _ = told.recv();
    }

    fn is_full(&self) -> bool {
        self.shared.rooms.is_full(self.shared.pool.slot() as u64)
    }
}

impl Drop for Reorder {
    fn drop(&mut self) {
        *self.to_writer.lock().expect("the writer's lock") = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn patience(&self) -> Duration {
        let own = match self.behind.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => PATIENCE,
        };
        own.max(self.core.traffic.patience())
    }

    /// Takes bytes of a directory, waiting for a moment for what is about to be given back.
    fn take_soon(&self, dir: u8, bytes: u64) -> bool {
        let until = Instant::now() + self.patience();
        loop {
            let coming = self.freeing.load(Ordering::Acquire) > 0;
            if self.rooms.take(dir, bytes) {
                return true;
            }
            if !coming {
                return false;
            }
            if Instant::now() > until {
                self.behind.store(true, Ordering::Relaxed);
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
