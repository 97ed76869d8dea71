//! One epoch's log: a place for every sample, in the order in which it will be read.
//!
//! ```text
//!   order      7  2  9 | 4  1  8 | 0 ...         chunk = batch, read by one request
//!   segment 0 [r7 r2 r9][r0 ...                  records at multiples of the block
//!   segment 1 [r4 r1 r8]                         chunks go round the directories
//! ```
//!
//! Places are computed from the order and the samples' lengths; nothing of it is kept but the
//! order. Segments are sparse: what is not written yet, and what was used, takes no blocks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::core::Core;
use super::index::{Location, MOST_SEGMENTS};
use super::layout::Extent;
use super::layout_packed::Bits;
use super::order_file::{Chunking, OrderFile, SEGMENT};
use super::record;

/// A chunk of less is not worth a request of its own: the next batch is added to it.
const LEAST_CHUNK: u64 = 64 << 10;
const NOWHERE: u32 = u32::MAX;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) first: u32,
    /// Hash of the order, to know it again.
    pub(super) tag: u64,
    /// Position of each sample, [`NOWHERE`] if it has none.
    positions: Vec<u32>,
    /// Offset of each position in its segment.
    offsets: Vec<u32>,
    chunks: Vec<Chunk>,
    /// Positions whose record is there, and how many those are.
    there: Bits,
    held: AtomicUsize,
    /// Directory of each stripe.
    dirs: Vec<u8>,
    /// Whether it is read from front to back, chunk by chunk.
    in_turn: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    /// Its first position.
    start: u32,
    /// Its segment, counted in its stripe from the first, and where it ends there.
    segment: u32,
    end: u32,
}

/// Where a sample comes to stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// Where in the order.
    pub(super) at: usize,
    sample: u32,
    /// Bytes that its record takes.
    pub(super) room: u64,
    pub(super) stripe: u32,
    begins_chunk: bool,
    segment: u32,
    offset: u64,
}

/// The places of samples in this order, one after the other. Those that are too long have none.
pub(super) fn slots<'a>(
    ids: &'a [u32],
    chunking: Chunking,
    stripes: u32,
    core: &'a Core,
) -> impl Iterator<Item = Slot> + 'a {
    let most = u64::from(chunking.bytes);
    let batch = u64::from(chunking.batch);
    // Of each stripe: the segment that is filled, and how far.
    let mut ends = vec![(0_u32, 0_u64); stripes as usize];
    let (mut chunk, mut bytes, mut count) = (0_u32, 0_u64, 0_u64);
    let mut begun = false;
    ids.iter().enumerate().filter_map(move |(at, &sample)| {
        let room = record::room(length(core, sample));
        let ends_batch = batch > 0 && count > 0 && count.is_multiple_of(batch);
        count += 1;
        if room > most {
            return None;
        }
        let begins_chunk = !begun || bytes + room > most || ends_batch && bytes >= LEAST_CHUNK;
        if begins_chunk {
            chunk = if begun { (chunk + 1) % stripes } else { 0 };
            (begun, bytes) = (true, 0);
            let (segment, end) = &mut ends[chunk as usize];
            if *end + most > SEGMENT {
                (*segment, *end) = (*segment + 1, 0);
            }
        }
        let (segment, end) = &mut ends[chunk as usize];
        let slot = Slot {
            at,
            sample,
            room,
            stripe: chunk,
            begins_chunk,
            segment: *segment,
            offset: *end,
        };
        *end += room;
        bytes += room;
        Some(slot)
    })
}

impl Ordered {
    /// Places for the samples of an order, as far as its reach; the directory of each stripe is one
    /// of `dirs`. `None` if there are not so many segments.
    pub(super) fn new(order: &OrderFile, core: &Core, dirs: Vec<u8>) -> Option<Self> {
        let mut positions = vec![NOWHERE; core.subject.samples as usize];
        let reach = &order.ids[..order.reach as usize];
        let mut offsets = Vec::with_capacity(reach.len());
        let mut chunks: Vec<Chunk> = Vec::new();
        for slot in slots(reach, order.chunking, order.stripes, core) {
            let position = offsets.len() as u32;
            if slot.begins_chunk {
                chunks.push(Chunk {
                    start: position,
                    segment: slot.segment,
                    end: 0,
                });
            }
            positions[slot.sample as usize] = position;
            offsets.push(slot.offset as u32);
            if let Some(chunk) = chunks.last_mut() {
                chunk.end = (slot.offset + slot.room) as u32;
            }
        }
        let log = Self {
            first: order.first,
            tag: tag(&order.ids),
            positions,
            there: Bits::new(offsets.len() as u32),
            held: AtomicUsize::new(0),
            offsets,
            chunks,
            dirs,
            in_turn: AtomicBool::new(false),
        };
        let end = u64::from(log.first) + u64::from(log.segment_count());
        (end <= u64::from(MOST_SEGMENTS)).then_some(log)
    }

    fn stripes(&self) -> u32 {
        self.dirs.len() as u32
    }

    /// Numbers of its segments: all are below `first` plus this.
    pub(super) fn segment_count(&self) -> u32 {
        let last = self.chunks.iter().map(|chunk| chunk.segment).max();
        last.map_or(1, |last| last + 1)
            .saturating_mul(self.stripes())
    }

    /// The segments that it may have: directory and number.
    pub(super) fn segments(&self) -> impl Iterator<Item = (u8, u32)> {
        let count = self.segment_count();
        (0..count).map(|at| (self.dirs[(at % self.stripes()) as usize], self.first + at))
    }

    /// Says in which directories segments of it were found; the others' are where they were to be.
    pub(super) fn lies_in(&mut self, found: &[(u8, u32)]) {
        let own = self.first..self.first + self.segment_count();
        let stripes = self.stripes();
        for &(dir, segment) in found.iter().filter(|(_, segment)| own.contains(segment)) {
            self.dirs[((segment - own.start) % stripes) as usize] = dir;
        }
    }

    fn position(&self, sample: u32) -> Option<u32> {
        let position = *self.positions.get(sample as usize)?;
        (position != NOWHERE).then_some(position)
    }

    /// Where a sample's place is, whether it is there or not.
    pub(super) fn place(&self, sample: u32) -> Option<Location> {
        Some(self.location(self.position(sample)?))
    }

    /// The chunk of a position.
    fn chunk(&self, position: u32) -> usize {
        self.chunks.partition_point(|chunk| chunk.start <= position) - 1
    }

    /// The positions of a chunk.
    fn span(&self, chunk: usize) -> std::ops::Range<u32> {
        let end = self.chunks.get(chunk + 1);
        self.chunks[chunk].start..end.map_or(self.offsets.len() as u32, |next| next.start)
    }

    fn location(&self, position: u32) -> Location {
        let chunk = self.chunk(position);
        let stripe = chunk as u32 % self.stripes();
        Location {
            dir: self.dirs[stripe as usize],
            segment: self.first + self.chunks[chunk].segment * self.stripes() + stripe,
            offset: self.offsets[position as usize],
        }
    }

    /// Where a sample can be read.
    pub(super) fn find(&self, sample: u32) -> Option<Location> {
        let position = self.position(sample)?;
        self.there.has(position).then(|| self.location(position))
    }

    /// What is there of the sample's chunk.
    pub(super) fn extent(&self, sample: u32) -> Option<Extent> {
        let position = self.position(sample)?;
        let there = |position: &u32| self.there.has(*position);
        let mut span = self.span(self.chunk(position)).filter(there);
        let first = span.next()?;
        let (last, count) = span.fold((first, 1), |(_, count), at| (at, count + 1));
        Some(Extent {
            start: u64::from(self.offsets[first as usize]),
            end: u64::from(self.offsets[last as usize]) + self.room(last),
            samples: count,
        })
    }

    /// The sample's record is there, or no more. True if that is news.
    pub(super) fn set(&self, sample: u32, there: bool) -> bool {
        let position = self.position(sample);
        position.is_some_and(|position| self.set_position(position, there))
    }

    fn set_position(&self, position: u32, there: bool) -> bool {
        let news = self.there.set(position, there) != there;
        match (news, there) {
            (false, _) => 0,
            (true, true) => self.held.fetch_add(1, Ordering::AcqRel),
            (true, false) => self.held.fetch_sub(1, Ordering::AcqRel),
        };
        news
    }

    /// The sample's record is not there, if this is its place.
    pub(super) fn lose(&self, sample: u32, at: Location) {
        if self.place(sample) == Some(at) {
            self.set(sample, false);
        }
    }

    /// The sample's record is of no more use: where it was, and how many bytes, if it was there.
    pub(super) fn give(&self, sample: u32) -> Option<(Location, u64)> {
        let position = self.position(sample)?;
        let place = (self.location(position), self.room(position));
        self.set(sample, false).then_some(place)
    }

    /// Samples that are there, those first that come last.
    pub(super) fn latest_first(&self) -> Vec<u32> {
        let mut samples: Vec<u32> = (0..self.positions.len() as u32)
            .filter(|&sample| self.find(sample).is_some())
            .collect();
        samples.sort_unstable_by_key(|&sample| std::cmp::Reverse(self.positions[sample as usize]));
        samples
    }

    /// Bytes of a position's place.
    fn room(&self, position: u32) -> u64 {
        let chunk = self.chunk(position);
        let end = match position + 1 == self.span(chunk).end {
            true => self.chunks[chunk].end,
            false => self.offsets[position as usize + 1],
        };
        u64::from(end - self.offsets[position as usize])
    }

    /// Samples that are there.
    pub(super) fn count(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// Whether it is read from front to back.
    pub(super) fn is_in_turn(&self) -> bool {
        self.in_turn.load(Ordering::Acquire)
    }

    /// The epoch that begins wants these samples: it is read from front to back if it has some of
    /// them, and has them in this order.
    pub(super) fn expect(&self, ids: &[u32]) {
        let (mut last, mut rises, mut any) = (None, true, false);
        for &sample in ids {
            if let Some(position) = self.position(sample) {
                rises &= last < Some(position);
                last = Some(position);
                any |= self.there.has(position);
            }
        }
        self.in_turn.store(rises && any, Ordering::Release);
    }

    /// It is of the epoch that comes: it will be read from front to back.
    pub(super) fn expect_all(&self) {
        self.in_turn.store(true, Ordering::Release);
    }

    /// Records are there that lie in blocks that the file system has, by `has(location, bytes)`.
    pub(super) fn recover(&self, has: &mut dyn FnMut(Location, u64) -> bool) {
        for position in 0..self.offsets.len() as u32 {
            if has(self.location(position), self.room(position)) {
                self.set_position(position, true);
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
