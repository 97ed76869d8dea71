//! Packed: every sample is written once, next to those that came with it.
//!
//! ```text
//!   offer -> chunk in memory --full--> writer thread -> segment
//!              |                                          |
//!              +-- no free buffer: skipped, never waits    +-> index: now it can be read
//! ```
//!
//! A sample stays where it is, so the log is whole for any order of any run, takes the dataset's
//! size once, and is written once. When the disk is full it stays as it is: as each epoch reads
//! each sample once, whatever stays saves just its own read, and nothing could save more.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use forebay_format::chunk::{ChunkBuilder, Entry, Home};

use super::buffer::{Buffer, Pool};
use super::core::{Core, Figures};
use super::files::Dir;
use super::index::{Location, MOST_SEGMENTS, SampleIndex};
use super::kind::Kind;
use super::layout::{Check, Layout, Order, Parts, Sample, Spot};
use super::reclaim;
use super::writer::Writer;

/// Chunks begun, waiting and being written: at least so many.
pub(super) const LEAST_BUFFERS: u64 = 4;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Packed {
    shared: Arc<Shared>,
    desk: Mutex<Desk>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    index: Arc<SampleIndex>,
    pool: Pool,
    /// Samples that are on their way to the disk.
    pending: Bits,
    /// There is no more room.
    full: AtomicBool,
}

/// The chunk that is being filled.
#[derive(Debug)]
struct Desk {
    chunk: Option<(ChunkBuilder, Buffer)>,
    to_writer: Option<Sender<Message>>,
}

#[derive(Debug)]
enum Message {
    Chunk(ChunkBuilder, Buffer),
    Flush(Sender<()>),
}

impl Packed {
    /// Goes on with a log whose index is complete. New segments have `segment_bytes`.
    pub(super) fn new(
        core: Arc<Core>,
        index: Arc<SampleIndex>,
        pool: Pool,
        segment_bytes: u64,
    ) -> std::io::Result<Self> {
        let (to_writer, inbox) = channel();
        let shared = Arc::new(Shared {
            pending: Bits::new(core.subject.samples),
            core: core.clone(),
            index,
            pool: pool.clone(),
            full: AtomicBool::new(false),
        });
        let dirs = core.files.dirs().len();
        let mut appender = Appender {
            writer: Writer::new(core, &pool)?,
            open: (0..dirs).map(|_| None).collect(),
            turn: 0,
            next_segment: shared.index.next_segment(),
            segment_bytes,
            may_reclaim: true,
            failed: false,
            shared: shared.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("forebay-log-write".into())
            .spawn(move || appender.run(&inbox))?;
        Ok(Self {
            shared,
            desk: Mutex::new(Desk {
                chunk: None,
                to_writer: Some(to_writer),
            }),
            thread: Some(thread),
        })
    }

    fn send(desk: &mut Desk, message: Message) {
        if let Some(to_writer) = &desk.to_writer {
            // It ends only when this end is dropped.
            let _ = to_writer.send(message);
        }
    }

    fn send_chunk(desk: &mut Desk) {
        if let Some((builder, buffer)) = desk.chunk.take() {
            Self::send(desk, Message::Chunk(builder, buffer));
        }
    }
}

impl Layout for Packed {
    fn name(&self) -> &'static str {
        Kind::Packed.name()
    }

    fn find(&self, sample: u32) -> Option<Spot> {
        find(&self.shared.index, sample)
    }

    fn offer(&self, sample: &Sample, parts: Parts<'_, '_>) -> bool {
        let shared = &self.shared;
        if self.is_full() || shared.index.get(sample.id).is_some() {
            return false;
        }
        let mut desk = self.desk.lock().expect("the writer's lock");
        if shared.pending.has(sample.id) {
            return false;
        }
        let room = shared.pool.slot();
        let fits = |desk: &Desk| {
            let chunk = desk.chunk.as_ref();
            chunk.is_some_and(|(builder, _)| builder.fits(room, sample.length))
        };
        if !fits(&desk) {
            Self::send_chunk(&mut desk);
            if !ChunkBuilder::default().fits(room, sample.length) {
                Figures::add(&shared.core.figures.skipped, 1);
                return false;
            }
            let Some(buffer) = shared.pool.take(shared.core.traffic.patience()) else {
                Figures::add(&shared.core.figures.skipped, 1);
                return false;
            };
            desk.chunk = Some((ChunkBuilder::default(), buffer));
        }
        let Some((builder, buffer)) = &mut desk.chunk else {
            return false;
        };
        builder.push(buffer.bytes_mut(), sample.id, sample.identity, parts);
        shared.pending.set(sample.id, true);
        true
    }

    fn lost(&self, sample: u32, spot: &Spot) {
        self.shared.index.remove(sample, spot.at);
    }

    fn begin(&self, _order: Option<&Order>) {
        // Somebody may have made room meanwhile.
        self.shared.full.store(false, Ordering::Relaxed);
        self.seal();
    }

    fn seal(&self) {
        Self::send_chunk(&mut self.desk.lock().expect("the writer's lock"));
    }

    fn flush(&self) {
        let (done, told) = channel();
        let mut desk = self.desk.lock().expect("the writer's lock");
        Self::send_chunk(&mut desk);
        Self::send(&mut desk, Message::Flush(done));
        drop(desk);
        let _ = told.recv();
    }

    fn is_full(&self) -> bool {
        self.shared.full.load(Ordering::Relaxed)
    }
}

impl Drop for Packed {
    fn drop(&mut self) {
        let mut desk = self.desk.lock().expect("the writer's lock");
        Self::send_chunk(&mut desk);
        desk.to_writer = None;
        drop(desk);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A sample's spot by the index.
pub(super) fn find(index: &SampleIndex, sample: u32) -> Option<Spot> {
    let (at, sum) = index.get(sample)?;
    Some(Spot {
        at,
        check: Check::Sum(sum),
    })
}

/// A segment that chunks are added to.
#[derive(Debug)]
struct Open {
    segment: u32,
    at: u64,
    size: u64,
}

/// The writer thread's side.
struct Appender {
    shared: Arc<Shared>,
    writer: Writer,
    /// A segment a directory.
    open: Vec<Option<Open>>,
    /// The directory of the next chunk: chunks go round.
    turn: usize,
    next_segment: u32,
    segment_bytes: u64,
    /// Space of changed samples was not looked for yet.
    may_reclaim: bool,
    /// Something could not be written.
    failed: bool,
}

impl Appender {
    fn run(&mut self, inbox: &Receiver<Message>) {
        while let Ok(message) = inbox.recv() {
            match message {
                Message::Chunk(builder, buffer) => self.append(builder, buffer),
                Message::Flush(done) => {
                    let _ = done.send(());
                }
            }
        }
        for dir in 0..self.open.len() {
            self.close(dir);
        }
        // After a failure the next one looks for itself what is there.
        self.shared.index.set_clean(!self.failed);
    }

    fn append(&mut self, mut builder: ChunkBuilder, mut buffer: Buffer) {
        let length = builder.length();
        let ids: Vec<u32> = builder.entries().iter().map(|entry| entry.id).collect();
        if let Some((dir, segment, offset)) = self.place(length as u64) {
            let subject = self.shared.core.subject;
            let home = Home {
                dataset: subject.dataset,
                index: subject.index,
                number: u64::from(segment) << 32 | offset,
                segment,
                offset: offset as u32,
            };
            let entries = builder.seal(buffer.bytes_mut(), home);
            match self.write(dir, segment, offset, buffer, length) {
                Ok(()) => self.publish(dir, segment, offset as u32, &entries),
                Err(error) => {
                    self.shared.core.files.write_failed(dir, &error);
                    // Nothing more is written there: what it has left over is given back.
                    if let Some(open) = &mut self.open[usize::from(dir)] {
                        open.at = offset;
                    }
                    self.close(usize::from(dir));
                    self.failed = true;
                }
            }
        }
        for id in ids {
            self.shared.pending.set(id, false);
        }
    }

    fn write(
        &mut self,
        dir: u8,
        segment: u32,
        offset: u64,
        buffer: Buffer,
        length: usize,
    ) -> std::io::Result<()> {
        let file = self.shared.core.files.segment(dir, segment)?;
        self.writer.write(&file, buffer, 0..length, offset).1
    }

    /// The samples can be read from now on.
    fn publish(&self, dir: u8, segment: u32, offset: u32, entries: &[Entry]) {
        for entry in entries {
            let at = Location {
                dir,
                segment,
                offset: offset + entry.offset,
            };
            self.shared.index.set(entry.id, at, entry.check);
        }
        Figures::add(&self.shared.core.figures.written, entries.len() as u64);
    }

    /// Where a chunk of `length` bytes goes; `None` if there is no room anywhere.
    fn place(&mut self, length: u64) -> Option<(u8, u32, u64)> {
        loop {
            for _ in 0..self.open.len() {
                self.turn = (self.turn + 1) % self.open.len();
                if let Some((segment, offset)) = self.place_in(self.turn, length) {
                    return Some((self.turn as u8, segment, offset));
                }
            }
            let core = &self.shared.core;
            // Only where room is what is wanting.
            let reclaimed = core.files.dirs().iter().any(Dir::is_writable)
                && (reclaim::evict_strangers(core)
                    || std::mem::take(&mut self.may_reclaim)
                        && reclaim::drop_stale(core, &self.shared.index));
            if !reclaimed {
                self.shared.full.store(true, Ordering::Relaxed);
                return None;
            }
        }
    }

    fn place_in(&mut self, dir: usize, length: u64) -> Option<(u32, u64)> {
        let files = &self.shared.core.files;
        if !files.dirs()[dir].is_writable() {
            return None;
        }
        let fits = |open: &Open| open.at + length <= open.size;
        if !self.open[dir].as_ref().is_some_and(fits) {
            self.close(dir);
            let most = self.segment_bytes.max(length);
            let files = &self.shared.core.files;
            let segment = self.next_segment;
            if segment >= MOST_SEGMENTS {
                return None;
            }
            self.shared.index.remember_segment(segment + 1);
            let size = match files.create(dir as u8, segment, length, most) {
                Ok(size) => size?,
                Err(error) => {
                    files.write_failed(dir as u8, &error);
                    return None;
                }
            };
            self.next_segment += 1;
            self.open[dir] = Some(Open {
                segment,
                at: 0,
                size,
            });
        }
        let open = self.open[dir].as_mut()?;
        let offset = open.at;
        open.at += length;
        Some((open.segment, offset))
    }

    /// Nothing more goes into a directory's segment: what it has left over is given back.
    fn close(&mut self, dir: usize) {
        if let Some(open) = self.open[dir].take() {
            let files = &self.shared.core.files;
            if let Err(error) = files.trim(dir as u8, open.segment, open.at) {
                files.write_failed(dir as u8, &error);
            }
        }
    }
}

/// A set of sample numbers.
#[derive(Debug)]
pub(super) struct Bits(Vec<AtomicU64>);

impl Bits {
    pub(super) fn new(samples: u32) -> Self {
        Self(
            (0..samples.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
        )
    }

    pub(super) fn has(&self, id: u32) -> bool {
        let word = self.0.get(id as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Acquire) & 1 << (id % 64) != 0)
    }

    /// Whether it was there before.
    pub(super) fn set(&self, id: u32, there: bool) -> bool {
        let Some(word) = self.0.get(id as usize / 64) else {
            return false;
        };
        let bit = 1 << (id % 64);
        let before = if there {
            word.fetch_or(bit, Ordering::AcqRel)
        } else {
            word.fetch_and(!bit, Ordering::AcqRel)
        };
        before & bit != 0
    }
}
