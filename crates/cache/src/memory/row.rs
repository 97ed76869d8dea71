//! A row: samples side by side in the tier, read into the very place where they will stay.
//!
//! ```text
//!   blocks   | a   a   a . | b   b . | c   c   c |      one piece of memory that was never
//!              ^ each sample begins at a block          used before
//! ```
//!
//! While the tier fills for the first time, a batch need not be copied: its samples are read into
//! a row, the user gets the row itself, and when the user is done the samples stay where they
//! are. The row is the one owner of its blocks, so the user may write to them. Therefore:
//! - a sample in a row is nobody else's; a lookup answers as if there were no room;
//! - when its bytes are complete it is *sealed* with their checksum, and the first lookup after
//!   the row is gone compares. One that was changed is forgotten and read again.
//!
//! One that was never sealed goes with the row.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crc_fast::{CrcAlgorithm, Digest};
use forebay_policy::{Candidate, Key, Next};

use super::arena::Span;
use super::ledger::{Afterwards, Ledger};
use super::sample::Held;
use super::table::State;
use super::tier::Inner;

/// A sample for a row.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub key: Key,
    pub len: u64,
    pub next: Next,
}

/// See the module's text.
pub struct Row {
    inner: Arc<Inner>,
    /// At least one, until it is dropped.
    samples: Vec<Place>,
    len: usize,
}

/// A sample's part of a row.
pub(super) struct Place {
    slot: u32,
    span: Span,
    /// 0 until its bytes are complete.
    seal: AtomicU64,
}

impl Row {
    pub(super) fn take(inner: &Arc<Inner>, samples: &[Wanted]) -> Option<Row> {
        let places = inner.lock().take_row(samples)?;
        let (first, last) = (places.first()?, places.last()?);
        let arena = &inner.arena;
        let len = arena.offset(&last.span) - arena.offset(&first.span) + last.span.len() as usize;
        Some(Row {
            inner: Arc::clone(inner),
            samples: places,
            len,
        })
    }

    /// Where its bytes begin. As long as the row lives they are its owner's alone to read and
    /// write; that no two threads of the owner touch the same bytes is the owner's care.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.arena.pointer(&self.samples[0].span)
    }

    /// From the first sample's first byte to the last one's last.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where each sample begins, counted from the first one.
    pub fn offsets(&self) -> impl Iterator<Item = usize> {
        let arena = &self.inner.arena;
        let base = arena.offset(&self.samples[0].span);
        let samples = self.samples.iter();
        samples.map(move |place| arena.offset(&place.span) - base)
    }

    /// The bytes of a sample are complete, and those of the seal: it can outlive the row.
    pub fn seal(&self, sample: usize, seal: Seal) {
        let place = &self.samples[sample];
        assert_eq!(seal.0.get_amount(), place.span.len(), "all of the sample");
        place.seal.store(seal.number(), Ordering::Release);
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        let samples = std::mem::take(&mut self.samples);
        let after = self.inner.lock().end_row(samples);
        self.inner.finish(after);
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("len", &self.len)
            .field("samples", &self.samples.len())
            .finish_non_exhaustive()
    }
}

/// The checksum of a sample's bytes, made as they come.
#[derive(Debug)]
pub struct Seal(Digest);

impl Default for Seal {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }
}

impl Seal {
    /// The bytes that follow those it has seen.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Never 0.
    fn number(&self) -> u64 {
        self.0.finalize().max(1)
    }
}

/// A sample that lay in a row, before anybody has looked whether it is still what it was.
#[derive(Debug)]
pub(super) struct Sealed {
    held: Held,
    seal: u64,
}

/// Small enough to be in the core's own cache when it is looked at a second time.
const PIECE: usize = 32 << 10;

impl Sealed {
    pub(super) fn new(held: Held, seal: u64) -> Self {
        Self { held, seal }
    }

    /// The sample, if it is what was read; else it is forgotten.
    pub(super) fn check(self) -> Option<Held> {
        let mut seal = Seal::default();
        self.held.slices().for_each(|slice| seal.add(slice));
        self.judge(&seal)
    }

    /// The same, copied on the way. Panics unless `target` has the sample's length.
    pub(super) fn copy_to(self, target: &mut [u8]) -> Option<Held> {
        assert_eq!(target.len() as u64, self.held.len(), "the sample's length");
        let mut seal = Seal::default();
        let mut rest = target;
        for piece in self.held.slices().flat_map(|slice| slice.chunks(PIECE)) {
            let (part, beyond) = rest.split_at_mut(piece.len());
            seal.add(piece);
            part.copy_from_slice(piece);
            rest = beyond;
        }
        self.judge(&seal)
    }

    fn judge(self, seal: &Seal) -> Option<Held> {
        let is_as_read = seal.number() == self.seal;
        self.held.judge(is_as_read);
        is_as_read.then_some(self.held)
    }
}

impl Ledger {
    fn take_row(&mut self, samples: &[Wanted]) -> Option<Vec<Place>> {
        let lens = samples.iter().map(|wanted| wanted.len);
        let blocks = lens.clone().map(|len| self.arena.blocks_of(len)).sum();
        if !self.has_row(blocks) {
            return None;
        }
        for &Wanted { key, len, next } in samples {
            let size = self.arena.blocks_of(len) * self.arena.block();
            let candidate = Candidate { key, size, next };
            if self.table.find(key).is_some() || !self.policy.admit(candidate) {
                return None;
            }
        }
        let mut slots = Vec::with_capacity(samples.len());
        for &Wanted { key, len, next } in samples {
            if self.table.find(key).is_some() {
                // The same sample two times in one row: it has one place only.
                for slot in slots {
                    self.table.vacate(slot);
                }
                return None;
            }
            let slot = self.table.insert(key, len, next);
            self.table.entry_mut(slot).state = State::Away(len);
            slots.push(slot);
        }
        let spans = self.arena.take_row(&mut self.free, lens.clone())?;
        self.held += blocks;
        self.away += blocks;
        self.stats.misses += samples.len() as u64;
        self.stats.miss_bytes += lens.sum::<u64>();
        self.stats.peak_used = self.stats.peak_used.max(self.used());
        let place = |(slot, span)| Place {
            slot,
            span,
            seal: AtomicU64::new(0),
        };
        Some(slots.into_iter().zip(spans).map(place).collect())
    }

    /// Whether so many blocks were never used, beside the reserve. In a file other processes map
    /// them, and their pages cost more than a copy: no rows there.
    pub(super) fn has_row(&self, blocks: u64) -> bool {
        let reserve = u64::from(self.arena.blocks()) - self.limit;
        !self.closed
            && self.arena.file().is_none()
            && blocks.saturating_add(reserve) <= self.arena.fresh_blocks(&self.free)
    }

    fn end_row(&mut self, samples: Vec<Place>) -> Afterwards {
        for Place { slot, span, seal } in samples {
            let blocks = self.arena.blocks_of(span.len());
            self.away -= blocks;
            match seal.into_inner() {
                0 => {
                    self.stats.aborted += 1;
                    self.held -= blocks;
                    self.table.vacate(slot);
                    self.arena.give(&mut self.free, span);
                }
                _ if self.closed => {
                    self.held -= blocks;
                    self.table.vacate(slot);
                    self.arena.discard(&span);
                    self.arena.give(&mut self.free, span);
                }
                seal => {
                    self.table.entry_mut(slot).state = State::Ready(self.arena.share(span));
                    self.table.set_seal(slot, seal);
                    self.release(slot);
                }
            }
        }
        self.room()
    }

    /// A held sample is not what it was.
    pub(super) fn spoil(&mut self, slot: u32) {
        let len = self.table.entry(slot).len();
        self.stats.hits -= 1;
        self.stats.hit_bytes -= len;
        // Another who looked at it at the same time may have done this.
        if self.table.entry(slot).listed {
            self.stats.spoiled += 1;
            self.forget_slot(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Lookup, MemoryTier, Settings};

    const LEN: usize = 5000;

    fn tier(samples: u64) -> MemoryTier {
        tier_with("lru", samples, 0)
    }

    fn tier_with(policy: &str, samples: u64, reserve: u64) -> MemoryTier {
        let policy = crate::policy_by_name(policy, crate::PolicySettings::default()).unwrap();
        MemoryTier::new(Settings {
            budget: (64 << 10) + samples * 2 * 4300,
            reserve,
            policy,
            shared: false,
        })
        .unwrap()
    }

    fn wanted(keys: impl IntoIterator<Item = Key>) -> Vec<Wanted> {
        let one = |key| Wanted {
            key,
            len: LEN as u64,
            next: Some(key),
        };
        keys.into_iter().map(one).collect()
    }

    #[allow(unsafe_code, clippy::mut_from_ref)]
    fn bytes(row: &Row, sample: usize) -> &mut [u8] {
        let offset = row.offsets().nth(sample).unwrap();
        // SAFETY: within the row, which lives, and each test has one part of it at a time.
        unsafe { std::slice::from_raw_parts_mut(row.as_ptr().add(offset), LEN) }
    }

    fn fill(row: &Row, sample: usize) {
        bytes(row, sample).fill(sample as u8 + 1);
        let mut seal = Seal::default();
        bytes(row, sample)
            .chunks(999)
            .for_each(|part| seal.add(part));
        row.seal(sample, seal);
    }

    fn found(tier: &MemoryTier, key: Key) -> Option<Vec<u8>> {
        match tier.lookup(key, LEN as u64, None).unwrap() {
            Lookup::Hit(held) => Some(held.slices().flatten().copied().collect()),
            _ => None,
        }
    }

    /// Blocks that were never used.
    fn fresh(tier: &MemoryTier) -> usize {
        (1..)
            .take_while(|blocks| tier.has_row(blocks * 4096))
            .count()
    }

    fn copied(tier: &MemoryTier, key: Key) -> Option<Vec<u8>> {
        let mut bytes = vec![0; LEN];
        let missing = tier.copy(key, None, &mut bytes).unwrap();
        missing.is_none().then_some(bytes)
    }

    #[test]
    fn what_was_sealed_stays_and_the_rest_goes_with_the_row() {
        let tier = tier(10);
        let row = tier.take_row(&wanted(0..3)).unwrap();
        assert_eq!(row.offsets().collect::<Vec<_>>(), [0, 8192, 16384]);
        assert_eq!(row.len(), 16384 + LEN);
        fill(&row, 0);
        fill(&row, 2);
        drop(row);
        assert_eq!(found(&tier, 0), Some(vec![1; LEN]));
        assert_eq!(found(&tier, 1), None);
        assert_eq!(found(&tier, 2), Some(vec![3; LEN]));
        let stats = tier.stats();
        assert_eq!((stats.entries, stats.aborted, stats.spoiled), (2, 2, 0));
    }

    #[test]
    fn what_the_user_changed_is_forgotten_and_what_was_not_is_found_again_and_again() {
        let tier = tier(10);
        let row = tier.take_row(&wanted(0..2)).unwrap();
        (0..2).for_each(|sample| fill(&row, sample));
        bytes(&row, 0)[LEN - 1] ^= 1;
        drop(row);
        assert!(tier.contains(0));
        assert_eq!(found(&tier, 0), None);
        assert!(!tier.contains(0));
        for _ in 0..2 {
            assert_eq!(found(&tier, 1), Some(vec![2; LEN]));
        }
        let stats = tier.stats();
        assert_eq!((stats.spoiled, stats.hits, stats.held_bytes), (1, 2, 0));
    }

    #[test]
    fn what_is_copied_out_is_compared_on_the_way() {
        let tier = tier(10);
        let row = tier.take_row(&wanted(0..2)).unwrap();
        (0..2).for_each(|sample| fill(&row, sample));
        bytes(&row, 0)[77] ^= 1;
        drop(row);
        assert_eq!(copied(&tier, 0), None);
        for _ in 0..2 {
            assert_eq!(copied(&tier, 1), Some(vec![2; LEN]));
        }
        let stats = tier.stats();
        assert_eq!((stats.spoiled, stats.hits, stats.held_bytes), (1, 2, 0));
    }

    #[test]
    fn a_sample_in_a_row_is_nobody_elses() {
        let tier = tier(10);
        let row = tier.take_row(&wanted(0..2)).unwrap();
        fill(&row, 0);
        assert!(!tier.contains(0));
        assert!(matches!(tier.lookup(0, LEN as u64, None), Ok(Lookup::Full)));
        assert!(tier.take_row(&wanted(1..3)).is_none());
        assert!(tier.forget(0));
        drop(row);
        assert!(!tier.contains(0), "it was forgotten meanwhile");
        assert_eq!(tier.stats().used, 0);
    }

    #[test]
    fn the_end_of_a_row_is_told_to_who_waits_for_room() {
        let tier = tier(4);
        let told = Arc::new(AtomicU64::new(0));
        tier.set_on_room(Box::new({
            let told = told.clone();
            move || {
                told.fetch_add(1, Ordering::Relaxed);
            }
        }));
        let row = tier.take_row(&wanted(0..4)).unwrap();
        (0..4).for_each(|sample| fill(&row, sample));
        let large = tier.stats().capacity / 2;
        assert!(matches!(tier.lookup(9, large, None), Ok(Lookup::Full)));
        drop(row);
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_kept_and_what_is_in_rows_leave_the_reserve_to_transit() {
        let reserve = 8 * 4096;
        let tier = tier_with("minio", 20, reserve);
        let capacity = tier.stats().capacity;
        let row = tier.take_row(&wanted(0..5)).unwrap();
        for key in 10.. {
            match tier.lookup(key, LEN as u64, Some(1)).unwrap() {
                Lookup::Fill(fill) => drop(fill.commit()),
                other => panic!("{other:?} of {key}"),
            }
            if tier.stats().refused > 0 {
                break;
            }
        }
        assert!(tier.stats().used + reserve <= capacity);
        drop(row);
    }

    #[test]
    fn a_row_that_outlives_its_engine_leaves_nothing_behind() {
        let tier = tier(10);
        let row = tier.take_row(&wanted(0..2)).unwrap();
        (0..2).for_each(|sample| fill(&row, sample));
        let Ok(Lookup::Fill(fill)) = tier.lookup(7, LEN as u64, Some(1)) else {
            panic!("there is room")
        };
        drop(fill.commit());
        tier.close();
        assert!(!tier.contains(7));
        assert_eq!(bytes(&row, 1), [2; LEN]);
        drop(row);
        assert_eq!((tier.stats().used, tier.stats().held_bytes), (0, 0));
        assert!(tier.take_row(&wanted(0..1)).is_none());
    }

    #[test]
    fn rows_end_where_memory_was_used_before_and_leave_the_reserve() {
        for reserve in [0, 10 * 4096] {
            let tier = tier_with("lru", 20, reserve);
            let blocks = (tier.stats().capacity - reserve) / 4096;
            let rows: Vec<_> = (0..)
                .map_while(|at| tier.take_row(&wanted(2 * at..2 * at + 2)))
                .collect();
            assert_eq!(rows.len() as u64, blocks / 4, "two samples each");
            drop(rows);
            assert_eq!(tier.stats().used, 0);
            assert!(tier.take_row(&wanted(100..103)).is_none());
        }
    }

    #[test]
    fn a_sample_that_is_there_or_comes_twice_or_will_not_stay_makes_no_row() {
        let tier = tier(10);
        tier.take_row(&wanted([1])).inspect(|row| fill(row, 0));
        assert!(tier.take_row(&wanted([0, 1])).is_none());
        let (used, rooms) = (tier.stats().used, fresh(&tier));
        assert!(tier.take_row(&wanted([5, 6, 5])).is_none());
        let after = tier.stats();
        assert_eq!((after.used, after.entries, after.held_bytes), (used, 1, 0));
        assert_eq!(fresh(&tier), rooms, "no memory was used up");
        assert!(!tier.contains(6));
        let keeps_nothing = tier_with("none", 10, 0);
        assert!(keeps_nothing.take_row(&wanted([1])).is_none());
    }
}
