//! One epoch's log: a place for every sample, in the order in which it will be read.
//!
//! ```text
//!   order     7  2  9 | 4  1  8 | 0 ...          chunk = batch, read by one request
//!   segment  [r7 r2 r9][r4 r1 r8][r0 ...         records at multiples of the block
//! ```
//!
//! Places are computed from the order and the samples' lengths; nothing of it is kept but the
//! order. Segments are sparse: what is not written yet, and what is consumed, takes no blocks.

use std::sync::atomic::{AtomicU32, Ordering};

use super::core::Core;
use super::index::Location;
use super::layout_packed::Bits;
use super::order_file::OrderFile;
use super::record;

/// Bytes of a segment, and the most of a chunk.
pub(super) const SEGMENT: u64 = 1 << 30;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) first: u32,
    batch: usize,
    /// Hash of the order, to know it again.
    pub(super) tag: u64,
    /// Position of each sample, [`NOWHERE`] if it has none.
    positions: Vec<u32>,
    /// Offset of each position in its segment.
    offsets: Vec<u32>,
    /// Segment of each chunk, counted from the first, and where it ends there.
    segments: Vec<u16>,
    ends: Vec<u32>,
    /// Positions whose record is there.
    there: Bits,
    /// Positions of each chunk that were consumed.
    consumed: Vec<AtomicU32>,
    dirs: u32,
}

const NOWHERE: u32 = u32::MAX;

/// A part of an epoch's log that is of no more use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Freed {
    pub(super) at: Location,
    pub(super) length: u64,
    /// Bytes of it that were written.
    pub(super) bytes: u64,
}

impl Ordered {
    /// Places for the samples of an order, as far as its reach.
    pub(super) fn new(order: &OrderFile, core: &Core) -> Self {
        let samples = core.subject.samples;
        let mut positions = vec![NOWHERE; samples as usize];
        let mut offsets = Vec::with_capacity(order.reach as usize);
        let (mut segments, mut chunk_ends) = (Vec::new(), Vec::new());
        let batch = order.batch as usize;
        let dirs = core.files.dirs().len() as u64;
        // Chunks go round the directories; each directory has segments of its own.
        let mut ends = vec![(0_u16, 0_u64); dirs as usize];
        for (chunk, ids) in order.ids[..order.reach as usize].chunks(batch).enumerate() {
            let rooms = ids.iter().map(|&id| record::room(length(core, id)));
            let total: u64 = rooms.clone().sum();
            let (segment, end) = &mut ends[chunk % dirs as usize];
            if *end > 0 && *end + total > SEGMENT {
                *segment += 1;
                *end = 0;
            }
            segments.push(*segment);
            for (slot, room) in rooms.enumerate() {
                offsets.push(*end as u32);
                *end += room;
                let id = ids[slot];
                // A sample that comes twice has its first place.
                if id < samples && positions[id as usize] == NOWHERE {
                    positions[id as usize] = (chunk * batch + slot) as u32;
                }
            }
            chunk_ends.push(*end as u32);
        }
        Self {
            first: order.first,
            batch,
            tag: tag(&order.ids),
            positions,
            consumed: segments.iter().map(|_| AtomicU32::new(0)).collect(),
            there: Bits::new(offsets.len() as u32),
            offsets,
            segments,
            ends: chunk_ends,
            dirs: dirs as u32,
        }
    }

    /// Numbers of its segments: all are below `first` plus this.
    pub(super) fn segment_count(&self) -> u32 {
        let most = self
            .segments
            .iter()
            .max()
            .map_or(0, |most| u32::from(*most));
        (most + 1) * self.dirs
    }

    fn position(&self, sample: u32) -> Option<u32> {
        let position = *self.positions.get(sample as usize)?;
        (position != NOWHERE).then_some(position)
    }

    /// Where a sample's place is, whether it is there or not.
    pub(super) fn place(&self, sample: u32) -> Option<Location> {
        Some(self.location(self.position(sample)?))
    }

    fn location(&self, position: u32) -> Location {
        let chunk = position as usize / self.batch;
        let dir = chunk as u32 % self.dirs;
        Location {
            dir: dir as u8,
            segment: self.first + u32::from(self.segments[chunk]) * self.dirs + dir,
            offset: self.offsets[position as usize],
        }
    }

    /// Where a sample can be read.
    pub(super) fn find(&self, sample: u32) -> Option<Location> {
        let position = self.position(sample)?;
        self.there.has(position).then(|| self.location(position))
    }

    /// The sample's record is there, or no more. True if that is news.
    pub(super) fn set(&self, sample: u32, there: bool) -> bool {
        let Some(position) = self.position(sample) else {
            return false;
        };
        let was = self.there.has(position);
        self.there.set(position, there);
        was != there
    }

    /// The sample's record is not there, if this is its place.
    pub(super) fn lose(&self, sample: u32, at: Location) {
        if self.place(sample) == Some(at) {
            self.set(sample, false);
        }
    }

    /// The sample was used: its chunk's place, once all of the chunk was.
    pub(super) fn consume(&self, sample: u32) -> Option<Freed> {
        let position = self.position(sample)?;
        let chunk = position as usize / self.batch;
        let start = chunk * self.batch;
        let end = (start + self.batch).min(self.offsets.len());
        let done = self.consumed[chunk].fetch_add(1, Ordering::AcqRel) + 1;
        (done as usize == end - start).then(|| self.free(start, end))
    }

    /// The sample was used and its record is of no more use: its place.
    pub(super) fn consume_alone(&self, sample: u32) -> Option<Freed> {
        let position = self.position(sample)? as usize;
        self.there
            .has(position as u32)
            .then(|| self.free(position, position + 1))
    }

    /// Gives up records of at least so many bytes, if there are so many: what comes last first.
    pub(super) fn give_up(&self, bytes: u64) -> Vec<Freed> {
        let mut given = 0;
        let there = (0..self.offsets.len())
            .rev()
            .filter(|&position| self.there.has(position as u32));
        there
            .take_while(|&position| {
                let wanted = given < bytes;
                given += self.room(position);
                wanted
            })
            .map(|position| self.free(position, position + 1))
            .collect()
    }

    fn free(&self, start: usize, end: usize) -> Freed {
        let mut bytes = 0;
        for position in start..end {
            if self.there.has(position as u32) {
                self.there.set(position as u32, false);
                bytes += self.room(position);
            }
        }
        let length = u64::from(self.offsets[end - 1] - self.offsets[start]) + self.room(end - 1);
        Freed {
            at: self.location(start as u32),
            length,
            bytes,
        }
    }

    /// Bytes of a position's place.
    fn room(&self, position: usize) -> u64 {
        let chunk = position / self.batch;
        let last = position + 1 == self.offsets.len() || (position + 1) / self.batch > chunk;
        let end = match last {
            true => self.ends[chunk],
            false => self.offsets[position + 1],
        };
        u64::from(end - self.offsets[position])
    }

    /// Samples that are there.
    pub(super) fn count(&self) -> usize {
        let positions = 0..self.offsets.len() as u32;
        positions
            .filter(|&position| self.there.has(position))
            .count()
    }

    /// Positions whose record lies in blocks that the file system has, by `has(location, bytes)`.
    pub(super) fn recover(&self, has: &mut dyn FnMut(Location, u64) -> bool) {
        for position in 0..self.offsets.len() {
            if has(self.location(position as u32), self.room(position)) {
                self.there.set(position as u32, true);
            }
        }
    }
}

/// A hash of an order.
pub(super) fn tag(ids: &[u32]) -> u64 {
    let mut bytes = Vec::with_capacity(ids.len() * 4);
    bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    forebay_format::hash(&bytes)
}

/// Bytes of a sample; nothing of one that the index does not know.
pub(super) fn length(core: &Core, sample: u32) -> u64 {
    (core.length)(sample).unwrap_or(0)
}
