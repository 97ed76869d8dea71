//! Reorder: two logs, that of this epoch and that of the next, each in the order of its epoch.
//!
//! ```text
//!   this epoch's log   [#####][#####][     ][     ]    read from the front, chunk by chunk;
//!                                                      what was used gives its blocks back
//!   next epoch's log   [ #   ][  #  ][#    ][   # ]    each sample used is written to its place
//! ```
//!
//! At the epoch's end the two change roles. Reads are then one long read, whatever the shuffle;
//! the price is that the whole dataset is written again every epoch. Where the disk does not hold
//! it all, the samples that come first in the next epoch are kept (its *reach*).
//!
//! A writer that is behind holds up those who have read: the pace is then that of the writes.
//!
//! Fetching runs on into the next epoch before its own next one is known: what is read then is
//! carried over, from log to log, as soon as it is.
//!
//! Once the disk cannot be written to, both logs stay as they are and are read in any order.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};

use super::buffer::{Buffer, Pool};
use super::core::{Core, Figures};
use super::device::{Op, transfer};
use super::index::Location;
use super::kind::Kind;
use super::layout::{Check, Layout, Order, Parts, Sample, Spot};
use super::layout_packed::Bits;
use super::order_file::OrderFile;
use super::ordered::{Freed, Ordered, SEGMENT, length, tag};
use super::record;
use super::recover_ordered;
use super::writer::Writer;

/// How long a sample waits for the writer. What is not written is read from the origin in the
/// next epoch, which costs more than this; but a disk that hangs must not stop the training.
const PATIENCE: Duration = Duration::from_millis(250);
/// Most samples that are remembered to be carried over.
const MOST_CARRIED: usize = 1 << 20;
/// Chunks that may wait for their blocks to be given back while others are written.
const CHUNKS_IN_FLIGHT: u64 = 4;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Reorder {
    shared: Arc<Shared>,
    logs: RwLock<Logs>,
    carried: Mutex<Vec<u32>>,
    to_writer: Mutex<Option<Sender<Message>>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    pool: Pool,
    /// Samples that are on their way to the next log.
    pending: Bits,
    /// Bytes that both logs take.
    taken: AtomicU64,
    /// Bytes that they may.
    limit: AtomicU64,
    /// Parts that the writer is still to give back.
    freeing: AtomicU64,
}

#[derive(Debug, Default)]
struct Logs {
    current: Option<Arc<Ordered>>,
    /// Whether that is in the order of the epoch.
    in_order: bool,
    next: Option<Arc<Ordered>>,
    next_segment: u32,
}

#[derive(Debug)]
enum Message {
    Write(Arc<Ordered>, u32, Location, Buffer, usize),
    Carry(Arc<Ordered>, Arc<Ordered>, Vec<u32>),
    Free(Freed),
    Drop(Arc<Ordered>),
    Flush(Sender<()>),
}

impl Reorder {
    /// Goes on with what is on the disk. `pool` has buffers for the longest record.
    pub(super) fn new(core: Arc<Core>, pool: Pool) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            pending: Bits::new(core.subject.samples),
            pool: pool.clone(),
            taken: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            freeing: AtomicU64::new(0),
            core: core.clone(),
        });
        let logs = recover(&core);
        let (to_writer, inbox) = channel();
        let mut scribe = Scribe {
            writer: Writer::new(core, &pool)?,
            spare: pool.take(Duration::ZERO),
            shared: shared.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("forebay-log-write".into())
            .spawn(move || scribe.run(&inbox))?;
        let reorder = Self {
            shared,
            logs: RwLock::new(logs),
            carried: Mutex::default(),
            to_writer: Mutex::new(Some(to_writer)),
            thread: Some(thread),
        };
        reorder.take_stock()?;
        reorder.shrink();
        Ok(reorder)
    }

    /// Keeps a budget that is smaller than it was, or a disk that never heard of what was given
    /// back before the power failed.
    fn shrink(&self) {
        let logs = self.logs.read().expect("the logs' lock");
        let (taken, limit) = (&self.shared.taken, &self.shared.limit);
        let mut over = taken
            .load(Ordering::Acquire)
            .saturating_sub(limit.load(Ordering::Acquire));
        for log in [&logs.current, &logs.next].into_iter().flatten() {
            for freed in log.give_up(over) {
                over = over.saturating_sub(freed.bytes);
                self.free(freed);
            }
        }
        drop(logs);
        self.flush();
    }

    fn free(&self, freed: Freed) {
        self.shared.freeing.fetch_add(1, Ordering::AcqRel);
        self.send(Message::Free(freed));
    }

    /// Whether nothing can be written any more.
    fn is_frozen(&self) -> bool {
        !self.shared.core.files.dirs()[0].is_writable()
    }

    fn send(&self, message: Message) {
        if let Some(to_writer) = &*self.to_writer.lock().expect("the writer's lock") {
            let _ = to_writer.send(message);
        }
    }

    /// Counts what is taken, and puts by what may be.
    fn take_stock(&self) -> io::Result<()> {
        let dirs = self.shared.core.files.dirs();
        let mut limit = u64::MAX;
        let mut taken = 0;
        for dir in dirs.iter().filter(|dir| dir.is_writable()) {
            limit = limit.min(dir.budget.reserve(&dir.folder)?);
            taken += super::budget::used(&dir.folder);
        }
        let live = dirs.iter().filter(|dir| dir.is_writable()).count() as u64;
        let limit = if live == 0 {
            0
        } else {
            limit.saturating_mul(live)
        };
        // The file system's own blocks for files in many pieces, and the orders' files.
        let orders = u64::from(self.shared.core.subject.samples) * 12;
        let limit = limit.saturating_sub(limit / 64 + orders + (128 << 10).min(limit / 32));
        self.shared.limit.store(limit, Ordering::Release);
        self.shared.taken.store(taken, Ordering::Release);
        Ok(())
    }

    /// The order's prefix that there is room for, with some to spare for what is under way.
    fn order_file(&self, order: &Order, first: u32) -> OrderFile {
        let core = &self.shared.core;
        let longest = record::room(self.shared.pool.slot() as u64).max(1);
        let batch = (order.batch as u64).min(SEGMENT / longest).max(1);
        let limit = self.shared.limit.load(Ordering::Acquire);
        let rooms = || order.ids.iter().map(|&id| record::room(length(core, id)));
        let chunk = rooms().take(batch as usize).sum::<u64>();
        let spare = (chunk * CHUNKS_IN_FLIGHT).min(limit / 32).max(chunk);
        let room = limit - spare.min(limit / 8);
        let mut sum = 0;
        let reach = rooms()
            .take_while(|room_of_one| {
                sum += room_of_one;
                sum <= room
            })
            .count();
        OrderFile {
            first,
            batch: batch as u32,
            reach: reach as u32,
            ids: order.ids.to_vec(),
        }
    }
}

impl Layout for Reorder {
    fn name(&self) -> &'static str {
        Kind::Reorder.name()
    }

    fn find(&self, sample: u32) -> Option<Spot> {
        let logs = self.logs.read().expect("the logs' lock");
        let here = |log: &Option<Arc<Ordered>>| log.as_ref()?.find(sample);
        let at = here(&logs.current).or_else(|| here(&logs.next))?;
        Some(Spot {
            at,
            check: Check::Record,
        })
    }

    fn offer(&self, sample: &Sample, parts: Parts<'_, '_>) -> bool {
        let shared = &self.shared;
        let logs = self.logs.read().expect("the logs' lock");
        let there =
            |next: &Arc<Ordered>| next.find(sample.id).is_some() || shared.pending.has(sample.id);
        let Some(next) = logs.next.as_ref().filter(|next| !there(next)) else {
            // Read for the epoch after: its own next one is not known yet.
            let mut carried = self.carried.lock().expect("the carried samples' lock");
            if carried.len() < MOST_CARRIED {
                carried.push(sample.id);
            }
            return false;
        };
        let dirs = shared.core.files.dirs();
        let writable = |at: &Location| dirs[usize::from(at.dir)].is_writable();
        let Some(at) = next.place(sample.id).filter(writable) else {
            return false; // beyond the reach
        };
        if !shared.take_soon(record::room(sample.length)) {
            return false;
        }
        let Some(mut buffer) = shared.pool.take(shared.patience()) else {
            shared.give(record::room(sample.length));
            Figures::add(&shared.core.figures.skipped, 1);
            return false;
        };
        shared.pending.set(sample.id, true);
        let bytes = record::write(sample, parts, buffer.bytes_mut());
        self.send(Message::Write(next.clone(), sample.id, at, buffer, bytes));
        true
    }

    fn lost(&self, sample: u32, spot: &Spot) {
        let logs = self.logs.read().expect("the logs' lock");
        for log in [&logs.current, &logs.next].into_iter().flatten() {
            log.lose(sample, spot.at);
        }
    }

    fn begin(&self, order: Option<&Order>) {
        if self.is_frozen() {
            return;
        }
        let mut logs = self.logs.write().expect("the logs' lock");
        let wanted = order.map(|order| tag(&order.ids));
        let is_it =
            |log: &Option<Arc<Ordered>>| log.as_ref().is_some_and(|log| Some(log.tag) == wanted);
        let (current, next) = (logs.current.take(), logs.next.take());
        let count = |log: &Option<Arc<Ordered>>| log.as_ref().map_or(0, |log| log.count());
        let (kept, dropped) = if is_it(&next) || !is_it(&current) && count(&next) > count(&current)
        {
            (next, current)
        } else {
            (current, next)
        };
        logs.in_order = is_it(&kept);
        logs.current = kept;
        drop(logs);
        if let Some(dropped) = dropped {
            self.send(Message::Drop(dropped));
        }
        self.flush();
        if let Err(error) = self.take_stock() {
            self.shared.core.files.write_failed(0, &error);
        }
    }

    fn foresee(&self, next: &Order) {
        if self.is_frozen() {
            return;
        }
        let mut logs = self.logs.write().expect("the logs' lock");
        let known = logs.next.as_ref().map(|log| log.tag);
        if known == Some(tag(&next.ids)) {
            return;
        }
        if let Some(dropped) = logs.next.take() {
            self.send(Message::Drop(dropped));
        }
        let core = &self.shared.core;
        let file = self.order_file(next, logs.next_segment);
        if let Err(error) = file.save(&core.files.dirs()[0].folder, core.subject) {
            core.files.write_failed(0, &error);
            return;
        }
        let log = Arc::new(Ordered::new(&file, core));
        logs.next_segment += log.segment_count();
        logs.next = Some(log.clone());
        let carried = std::mem::take(&mut *self.carried.lock().expect("the carried samples' lock"));
        if let Some(current) = &logs.current {
            self.send(Message::Carry(current.clone(), log, carried));
        }
    }

    fn consumed(&self, samples: &[u32]) {
        let logs = self.logs.read().expect("the logs' lock");
        let Some(current) = logs.current.as_ref().filter(|_| !self.is_frozen()) else {
            return;
        };
        for &sample in samples {
            let freed = match logs.in_order {
                true => current.consume(sample),
                false => current.consume_alone(sample),
            };
            if let Some(freed) = freed {
                self.free(freed);
            }
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
        let limit = self.shared.limit.load(Ordering::Relaxed);
        self.shared.taken.load(Ordering::Relaxed) + self.shared.pool.slot() as u64 > limit
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
    /// Bytes of the budget, if there are so many.
    fn take(&self, bytes: u64) -> bool {
        let limit = self.limit.load(Ordering::Acquire);
        let more = |taken: u64| (taken + bytes <= limit).then_some(taken + bytes);
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }

    fn patience(&self) -> Duration {
        PATIENCE.max(self.core.traffic.patience())
    }

    /// The same, waiting for a moment for what is about to be given back.
    fn take_soon(&self, bytes: u64) -> bool {
        let until = Instant::now() + self.patience();
        loop {
            let coming = self.freeing.load(Ordering::Acquire) > 0;
            if self.take(bytes) {
                return true;
            }
            if !coming || Instant::now() > until {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn give(&self, bytes: u64) {
        let less = |taken: u64| Some(taken.saturating_sub(bytes));
        let _ = self
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

/// The writer thread's side.
struct Scribe {
    shared: Arc<Shared>,
    writer: Writer,
    /// A buffer of its own, for what is carried over.
    spare: Option<Buffer>,
}

impl Scribe {
    fn run(&mut self, inbox: &Receiver<Message>) {
        while let Ok(message) = inbox.recv() {
            match message {
                Message::Write(log, sample, at, buffer, bytes) => {
                    drop(self.write(&log, sample, at, buffer, bytes));
                }
                Message::Carry(from, to, samples) => self.carry(&from, &to, &samples),
                Message::Free(freed) => {
                    self.free(&freed);
                    self.shared.freeing.fetch_sub(1, Ordering::AcqRel);
                }
                Message::Drop(log) => self.drop_log(&log),
                Message::Flush(done) => {
                    let _ = done.send(());
                }
            }
        }
    }

    fn write(
        &mut self,
        log: &Ordered,
        sample: u32,
        at: Location,
        buffer: Buffer,
        bytes: usize,
    ) -> Buffer {
        let core = &self.shared.core;
        let (buffer, written) = match core.files.sparse(at.dir, at.segment) {
            Ok(file) => {
                let offset = u64::from(at.offset);
                self.writer.write(&file, buffer, 0..bytes, offset)
            }
            Err(error) => (buffer, Err(error)),
        };
        match written {
            Ok(()) => {
                log.set(sample, true);
                Figures::add(&core.figures.written, 1);
            }
            Err(error) => {
                self.shared.give(bytes as u64);
                core.files.write_failed(at.dir, &error);
            }
        }
        self.shared.pending.set(sample, false);
        buffer
    }

    /// From this epoch's log to the next one's.
    fn carry(&mut self, from: &Ordered, to: &Ordered, samples: &[u32]) {
        for &id in samples {
            // Whether or not the user had it meanwhile: its blocks are given back after this.
            let (Some(source), Some(target)) = (from.place(id), to.place(id)) else {
                continue;
            };
            if to.find(id).is_some() || self.shared.pending.has(id) {
                continue;
            }
            let Some(identity) = (self.shared.core.identify)(id) else {
                continue;
            };
            let sample = Sample {
                id,
                identity,
                length: length(&self.shared.core, id),
            };
            let room = record::room(sample.length) as usize;
            let Some(buffer) = self.spare.take() else {
                return;
            };
            let (mut buffer, whole) = self.read(&sample, source, buffer, room);
            if whole && self.shared.take(room as u64) {
                buffer = self.write(to, id, target, buffer, room);
            }
            self.spare = Some(buffer);
        }
    }

    /// Reads a record; whether it is whole.
    fn read(&self, sample: &Sample, at: Location, buffer: Buffer, room: usize) -> (Buffer, bool) {
        let Ok(file) = self.shared.core.files.segment(at.dir, at.segment) else {
            return (buffer, false);
        };
        let mut op = Op {
            token: 0,
            write: false,
            file,
            offset: u64::from(at.offset),
            buffer,
            range: 0..room,
        };
        let spot = Spot {
            at,
            check: Check::Record,
        };
        let span = spot.span(sample.length) as usize;
        let whole = transfer(&mut op).is_ok() && spot.verify(sample, &op.buffer[..span]).is_some();
        (op.buffer, whole)
    }

    /// Gives blocks back.
    fn free(&self, freed: &Freed) {
        let files = &self.shared.core.files;
        let punched = files
            .segment(freed.at.dir, freed.at.segment)
            .and_then(|file| {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let offset = u64::from(freed.at.offset);
                fallocate(file.as_fd(), how, offset, freed.length).map_err(io::Error::from)
            });
        if punched.is_ok() {
            self.shared.give(freed.bytes);
        }
    }

    fn drop_log(&self, log: &Ordered) {
        let files = &self.shared.core.files;
        let dirs = files.dirs().len() as u32;
        for segment in log.first..log.first + log.segment_count() {
            let _ = files.delete(((segment - log.first) % dirs) as u8, segment);
        }
        OrderFile::delete(&files.dirs()[0].folder, log.first);
    }
}

/// The logs on the disk. Whatever belongs to none of them is deleted.
fn recover(core: &Core) -> Logs {
    let home = &core.files.dirs()[0].folder;
    let mut logs: Vec<_> = recover_ordered::logs(core)
        .into_iter()
        .map(Arc::new)
        .collect();
    let orders = OrderFile::numbers(home);
    // Above all that was there, of use or not.
    let ends = logs.iter().map(|log| log.first + log.segment_count());
    let begun = orders.iter().map(|first| first + 1);
    let next_segment = ends.chain(begun).chain([core.files.next_segment()]).max();
    for first in orders {
        if logs.iter().all(|log| log.first != first) {
            OrderFile::delete(home, first);
        }
    }
    for (dir, segment) in core.files.list() {
        let known =
            |log: &Arc<Ordered>| (log.first..log.first + log.segment_count()).contains(&segment);
        if !logs.iter().any(known) {
            let _ = core.files.delete(dir, segment);
        }
    }
    let next = logs.pop();
    Logs {
        next_segment: next_segment.unwrap_or(0),
        current: logs.pop(),
        in_order: false,
        next,
    }
}
