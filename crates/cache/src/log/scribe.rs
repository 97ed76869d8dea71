//! The writing thread of a reordered log: writes records to their places, gives back the blocks of
//! those that are of no more use, and, when there is nothing else to do, brings records over that
//! would otherwise be left behind.
//!
//! What comes first is done first, so a record is written before the one that it replaces goes:
//! a kill at any moment leaves one of the two.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use rustix::fs::{FallocateFlags, fallocate};

use super::buffer::Buffer;
use super::core::Figures;
use super::device::{Op, transfer};
use super::files::Dir;
use super::index::Location;
use super::layout::{Check, Sample, Spot};
use super::layout_reorder::Shared;
use super::order_file::OrderFile;
use super::ordered::{Ordered, length};
use super::record;
use super::writer::Writer;

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Message {
    /// A record, for its place in a log.
    Write(Arc<Ordered>, u32, Location, Buffer, usize),
    /// Samples that were used.
    Free(Used),
    /// Samples that are to be brought over when there is time, instead of those told before.
    Carry(Vec<u32>),
    /// A log whose samples are to be brought over now; then it goes.
    Merge(Arc<Ordered>),
    /// A log that is of no more use.
    Drop(Arc<Ordered>),
    /// Somebody waits until all before this is done.
    Flush(Sender<()>),
}

/// Samples that need not be in some logs any more.
#[derive(Debug)]
pub(super) struct Used {
    pub(super) samples: Vec<u32>,
    pub(super) logs: Vec<Arc<Ordered>>,
    /// Those stay that have a place here and are not there.
    pub(super) next: Option<Arc<Ordered>>,
}

/// See the module's text.
pub(super) struct Scribe {
    pub(super) shared: Arc<Shared>,
    pub(super) writer: Writer,
    /// A buffer of its own, for what is brought over.
    pub(super) spare: Option<Buffer>,
    pub(super) carried: Vec<u32>,
}

impl Scribe {
    pub(super) fn run(&mut self, inbox: &Receiver<Message>) {
        loop {
            let message = match inbox.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => match self.carried.pop() {
                    Some(sample) => {
                        self.carry(sample);
                        continue;
                    }
                    None => match inbox.recv() {
                        Ok(message) => message,
                        Err(_) => return,
                    },
                },
            };
            match message {
                Message::Write(log, sample, at, buffer, bytes) => {
                    drop(self.write(&log, sample, at, buffer, bytes));
                }
                Message::Free(used) => {
                    self.free(&used);
                    self.shared.freeing.fetch_sub(1, Ordering::AcqRel);
                }
                Message::Carry(samples) => self.carried = samples,
                Message::Merge(log) => self.merge(&log),
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
                self.shared.behind.store(false, Ordering::Relaxed);
                log.set(sample, true);
                Figures::add(&core.figures.written, 1);
            }
            Err(error) => {
                self.shared.rooms.give(at.dir, bytes as u64);
                core.files.write_failed(at.dir, &error);
            }
        }
        self.shared.pending.set(sample, false);
        buffer
    }

    /// Brings a sample over from wherever it is to the next epoch's log.
    fn carry(&mut self, id: u32) {
        let logs = self.shared.logs.read().expect("the logs' lock");
        let (Some(next), sources) = (logs.next.clone(), logs.sources.clone()) else {
            return;
        };
        drop(logs);
        let found = sources.iter().find_map(|log| log.find(id));
        let (Some(source), Some(target)) = (found, next.place(id)) else {
            return;
        };
        if self.shared.pending.has(id) {
            return; // on its way
        }
        if next.find(id).is_none() && !self.copy(id, source, &next, target) {
            return;
        }
        self.free(&Used {
            samples: vec![id],
            logs: sources,
            next: Some(next),
        });
    }

    /// Brings all of a log over, and lets it go.
    fn merge(&mut self, log: &Arc<Ordered>) {
        for sample in log.latest_first().into_iter().rev() {
            self.carry(sample);
        }
        if !self.shared.core.files.dirs().iter().any(Dir::is_writable) {
            return; // nothing was: from now on all logs stay as they are
        }
        let mut logs = self.shared.logs.write().expect("the logs' lock");
        logs.sources.retain(|source| !Arc::ptr_eq(source, log));
        drop(logs);
        self.drop_log(log);
    }

    /// Whether a record is now at its place in `to`.
    fn copy(&mut self, id: u32, source: Location, to: &Ordered, target: Location) -> bool {
        let shared = self.shared.clone();
        let is_writable = shared.core.files.dirs()[usize::from(target.dir)].is_writable();
        let Some(identity) = (shared.core.identify)(id).filter(|_| is_writable) else {
            return false;
        };
        let sample = Sample {
            id,
            identity,
            length: length(&shared.core, id),
        };
        let room = record::room(sample.length);
        let Some(buffer) = self.spare.take() else {
            return false;
        };
        let (mut buffer, whole) = self.read(&sample, source, buffer, room as usize);
        if whole && shared.rooms.take(target.dir, room) {
            shared.pending.set(id, true);
            buffer = self.write(to, id, target, buffer, room as usize);
        }
        self.spare = Some(buffer);
        to.find(id).is_some()
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

    /// Gives the blocks of records back, neighbours together.
    fn free(&self, used: &Used) {
        let is_wanted = |sample: u32| {
            let next = used.next.as_ref();
            next.is_some_and(|next| next.place(sample).is_some() && next.find(sample).is_none())
        };
        let mut parts = Vec::with_capacity(used.samples.len());
        for &sample in used.samples.iter().filter(|&&sample| !is_wanted(sample)) {
            parts.extend(used.logs.iter().filter_map(|log| log.give(sample)));
        }
        parts.sort_unstable();
        let mut joined: Vec<(Location, u64)> = Vec::new();
        for (at, bytes) in parts {
            match joined.last_mut() {
                Some((last, length))
                    if (last.dir, last.segment) == (at.dir, at.segment)
                        && u64::from(last.offset) + *length == u64::from(at.offset) =>
                {
                    *length += bytes;
                }
                _ => joined.push((at, bytes)),
            }
        }
        for (at, bytes) in joined {
            self.punch(at, bytes);
        }
    }

    fn punch(&self, at: Location, bytes: u64) {
        let file = self.shared.core.files.segment(at.dir, at.segment);
        let punched = file.and_then(|file| {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file.as_fd(), how, u64::from(at.offset), bytes).map_err(io::Error::from)
        });
        if punched.is_ok() {
            self.shared.rooms.give(at.dir, bytes);
        }
    }

    fn drop_log(&self, log: &Ordered) {
        let files = &self.shared.core.files;
        for (dir, segment) in log.segments() {
            let _ = files.delete(dir, segment);
        }
        for dir in files.dirs() {
            OrderFile::delete(&dir.folder, log.first);
        }
    }
}
