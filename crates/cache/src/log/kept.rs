//! Chunks that were read as a whole and not all delivered yet: they wait for those who come for
//! the rest, until others need the memory.
//!
//! Where most samples of a chunk are in memory already, nobody comes: then only what is asked for
//! is read, and now and again a whole chunk to see whether that has changed.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::buffer::Buffer;
use super::index::Location;

/// Samples after which it is judged whether whole chunks are worth it, and what is older counts
/// half.
const JUDGED: u64 = 1024;
/// One chunk in so many is read as a whole though it was not worth it.
const PROBE: u64 = 16;

/// A chunk in its buffer.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) dir: u8,
    pub(super) segment: u32,
    /// Where in the segment it was read from, and up to where.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) buffer: Arc<Buffer>,
    /// How many samples it has, and how many were delivered.
    pub(super) samples: usize,
    pub(super) delivered: usize,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Kept {
    /// The oldest first.
    chunks: VecDeque<Whole>,
    bytes: usize,
    most: usize,
    /// Samples of chunks that are gone, and how many of them were delivered.
    read: u64,
    used: u64,
    asked: u64,
}

impl Kept {
    /// With at most so many bytes of buffers.
    pub(super) fn new(most: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            bytes: 0,
            most,
            read: 0,
            used: 0,
            asked: 0,
        }
    }

    fn position(&self, at: Location) -> Option<usize> {
        self.chunks.iter().position(|whole| {
            (whole.dir, whole.segment) == (at.dir, at.segment)
                && (whole.start..whole.end).contains(&u64::from(at.offset))
        })
    }

    /// The chunk with this part of its segment.
    pub(super) fn find(&self, at: Location, range: &Range<u64>) -> Option<&Whole> {
        let whole = &self.chunks[self.position(at)?];
        (whole.start <= range.start && range.end <= whole.end).then_some(whole)
    }

    /// One more sample was delivered from the chunk that has this place.
    pub(super) fn delivered(&mut self, at: Location) {
        if let Some(position) = self.position(at) {
            let whole = &mut self.chunks[position];
            whole.delivered += 1;
            if whole.delivered >= whole.samples {
                self.remove(position);
            }
        }
    }

    /// Keeps a chunk unless all of it was delivered.
    pub(super) fn keep(&mut self, whole: Whole) {
        if whole.delivered >= whole.samples {
            self.judge(&whole);
            return;
        }
        self.bytes += whole.buffer.len();
        self.chunks.push_back(whole);
        while self.bytes > self.most && self.drop_oldest() {}
    }

    /// Lets a chunk go; false if there is none.
    pub(super) fn drop_oldest(&mut self) -> bool {
        if self.chunks.is_empty() {
            return false;
        }
        self.remove(0);
        true
    }

    fn remove(&mut self, position: usize) {
        if let Some(whole) = self.chunks.remove(position) {
            self.bytes -= whole.buffer.len();
            self.judge(&whole);
        }
    }

    fn judge(&mut self, whole: &Whole) {
        self.read += whole.samples as u64;
        self.used += whole.delivered.min(whole.samples) as u64;
        if self.read > 64 * JUDGED {
            self.read /= 2;
            self.used /= 2;
        }
    }

    /// Whether the next chunk is to be read as a whole.
    pub(super) fn is_worth_it(&mut self) -> bool {
        let is_worth_it = self.read < JUDGED || self.used * 2 >= self.read;
        self.asked += u64::from(!is_worth_it);
        is_worth_it || self.asked.is_multiple_of(PROBE)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::buffer::Pool;
    use super::*;

    fn at(offset: u32) -> Location {
        Location {
            dir: 1,
            segment: 2,
            offset,
        }
    }

    fn whole(pool: &Pool, start: u64, samples: usize) -> Whole {
        Whole {
            dir: 1,
            segment: 2,
            start,
            end: start + 8192,
            buffer: Arc::new(pool.take(Duration::ZERO).unwrap()),
            samples,
            delivered: 1,
        }
    }

    #[test]
    fn a_chunk_stays_until_all_of_it_was_delivered_or_the_memory_is_needed() {
        let pool = Pool::new(4, 8192).unwrap();
        let mut kept = Kept::new(3 * 8192);
        kept.keep(whole(&pool, 0, 1));
        assert!(kept.find(at(0), &(0..4096)).is_none(), "all was delivered");
        for start in [0, 8192, 16384] {
            kept.keep(whole(&pool, start, 3));
        }
        assert!(kept.find(at(4096), &(4096..8192)).is_some());
        assert!(
            kept.find(at(4096), &(4096..12288)).is_none(),
            "not all of it"
        );
        kept.delivered(at(8192));
        assert!(kept.find(at(8192), &(8192..12288)).is_some());
        kept.delivered(at(8192));
        assert!(kept.find(at(8192), &(8192..12288)).is_none());
        kept.keep(whole(&pool, 24576, 3));
        kept.keep(whole(&pool, 32768, 3));
        assert!(kept.find(at(0), &(0..4096)).is_none(), "the oldest goes");
        assert!(kept.find(at(16384), &(16384..20480)).is_some());
        while kept.drop_oldest() {}
        assert!(pool.take_run(4 * 8192, Duration::ZERO).is_some());
    }

    #[test]
    fn chunks_of_which_little_is_wanted_are_rarely_read_as_a_whole() {
        let pool = Pool::new(1, 8192).unwrap();
        let mut kept = Kept::new(8192);
        for _ in 0..200 {
            assert!(kept.read >= JUDGED || kept.is_worth_it());
            kept.keep(whole(&pool, 0, 10));
            kept.drop_oldest();
        }
        let probed = (0..160).filter(|_| kept.is_worth_it()).count();
        assert_eq!(probed, 160 / PROBE as usize);
        for _ in 0..20_000 {
            let mut all = whole(&pool, 0, 10);
            all.delivered = 10;
            kept.keep(all);
        }
        assert!((0..100).all(|_| kept.is_worth_it()), "it has changed");
    }
}
