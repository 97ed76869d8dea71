//! The samples of a memory tier: a slot each, found by key.
//!
//! ```text
//!   buckets  [ . 3 . 1 ]      a hash of the key gives a bucket, the bucket the first slot,
//!                             each slot the next one of the same bucket
//!   slots    [ . a . b ]      slots are never moved, so a slot's number is a name for its sample
//! ```
//!
//! Both are reserved for the most samples there can be and touched only as they come into use:
//! no growth, no rehash, no allocation. O(1) a call.

use forebay_policy::{Key, Next};

use super::arena::Reader;

/// The memory of the table for each block of the arena: a slot, its seal, and at most two buckets.
pub(super) const BYTES_PER_BLOCK: u64 =
    (size_of::<Entry>() + size_of::<u64>() + 2 * size_of::<u32>()) as u64;

/// A number that no slot has.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) enum State {
    /// The slot is nobody's.
    Vacant,
    /// A `Fill` has the bytes, so many of them.
    Filling(u64),
    /// They lie in a `Row`, so many of them, which somebody else may write to.
    Away(u64),
    /// The bytes are there; this is the table's own reader of them.
    Ready(Reader),
}

/// A cache line, so that a lookup waits for memory once here.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) state: State,
    pub(super) next: Next,
    /// Holders: the fill, its flights, and those who have the sample in hand.
    pub(super) holders: u32,
    /// Counts the samples this slot has had: a slot and a generation name one of them for ever.
    pub(super) generation: u32,
    /// The next slot of the bucket, or of the vacant ones.
    chain: u32,
    /// A lookup finds it. Not so when it was forgotten while held.
    pub(super) listed: bool,
    /// The policy has it.
    pub(super) kept: bool,
    /// There are flights that wait for the fill.
    pub(super) awaited: bool,
}

impl Entry {
    pub(super) fn len(&self) -> u64 {
        match &self.state {
            State::Vacant => 0,
            State::Filling(len) | State::Away(len) => *len,
            State::Ready(reader) => reader.len(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    /// For each slot the checksum that its bytes must have before they are used, or 0.
    seals: Vec<u64>,
    vacant: u32,
    live: u32,
    /// A slot's number plus one, so that untouched zeroes are empty.
    buckets: Vec<u32>,
    shift: u32,
}

impl Table {
    pub(super) fn new(most: u32) -> Table {
        let buckets = (most as usize).next_power_of_two().max(2);
        Table {
            entries: Vec::with_capacity(most as usize),
            seals: vec![0; most as usize],
            vacant: NONE,
            live: 0,
            buckets: vec![0; buckets],
            shift: 64 - buckets.trailing_zeros(),
        }
    }

    /// The number of samples.
    pub(super) fn len(&self) -> u32 {
        self.live
    }

    /// The number of slots ever used.
    pub(super) fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(super) fn entry(&self, slot: u32) -> &Entry {
        &self.entries[slot as usize]
    }

    pub(super) fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    pub(super) fn seal(&self, slot: u32) -> u64 {
        self.seals[slot as usize]
    }

    pub(super) fn set_seal(&mut self, slot: u32, seal: u64) {
        self.seals[slot as usize] = seal;
    }

    pub(super) fn find(&self, key: Key) -> Option<u32> {
        let mut at = self.buckets[self.bucket(key)];
        while at != 0 {
            let entry = &self.entries[at as usize - 1];
            if entry.key == key {
                return Some(at - 1);
            }
            at = entry.chain;
        }
        None
    }

    /// A new sample, being filled by its one holder. The key must not be listed.
    ///
    /// There are as many slots as blocks and each sample has a block: one is vacant.
    pub(super) fn insert(&mut self, key: Key, len: u64, next: Next) -> u32 {
        debug_assert!(self.find(key).is_none());
        let mut entry = Entry {
            key,
            state: State::Filling(len),
            next,
            holders: 1,
            generation: 0,
            chain: 0,
            listed: true,
            kept: false,
            awaited: false,
        };
        let bucket = self.bucket(key);
        entry.chain = self.buckets[bucket];
        let slot = match self.vacant {
            NONE => {
                assert!(
                    self.entries.len() < self.entries.capacity(),
                    "more samples than blocks"
                );
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
            slot => {
                let old = &mut self.entries[slot as usize];
                self.vacant = old.chain;
                entry.generation = old.generation;
                *old = entry;
                slot
            }
        };
        self.buckets[bucket] = slot + 1;
        self.live += 1;
        slot
    }

    /// No lookup finds it from now on.
    pub(super) fn unlist(&mut self, slot: u32) {
        let Entry { key, chain, .. } = self.entries[slot as usize];
        let bucket = self.bucket(key);
        let wanted = slot + 1;
        if self.buckets[bucket] == wanted {
            self.buckets[bucket] = chain;
        } else {
            let mut at = self.buckets[bucket];
            while self.entries[at as usize - 1].chain != wanted {
                at = self.entries[at as usize - 1].chain;
            }
            self.entries[at as usize - 1].chain = chain;
        }
        self.entries[slot as usize].listed = false;
    }

    /// The slot becomes vacant; what it was is returned.
    pub(super) fn vacate(&mut self, slot: u32) -> State {
        if self.entry(slot).listed {
            self.unlist(slot);
        }
        if self.seal(slot) != 0 {
            self.set_seal(slot, 0);
        }
        let vacant = self.vacant;
        let entry = self.entry_mut(slot);
        entry.chain = vacant;
        entry.generation = entry.generation.wrapping_add(1);
        let state = std::mem::replace(&mut entry.state, State::Vacant);
        self.vacant = slot;
        self.live -= 1;
        state
    }

    /// Ids are dense: the upper bits of one multiplication spread them well.
    fn bucket(&self, key: Key) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(size_of::<Entry>(), 64);
    }

    #[test]
    fn what_is_listed_is_found_and_what_is_not_is_not() {
        let mut table = Table::new(1000);
        let keys = || (0..1000).map(|id| id * 7 + ((id % 3) << 32));
        let slots: Vec<_> = keys().map(|key| table.insert(key, 1, None)).collect();
        assert_eq!(table.len(), 1000);
        for (key, &slot) in keys().zip(&slots) {
            assert_eq!(table.find(key), Some(slot));
        }
        for (key, &slot) in keys().zip(&slots).step_by(2) {
            table.unlist(slot);
            assert_eq!(table.find(key), None);
            table.vacate(slot);
        }
        for (key, &slot) in keys().zip(&slots).skip(1).step_by(2) {
            assert_eq!(table.find(key), Some(slot));
        }
        assert_eq!(table.len(), 500);
    }

    #[test]
    fn a_slot_used_again_has_another_generation() {
        let mut table = Table::new(1);
        let slot = table.insert(1, 1, None);
        let generation = table.entry(slot).generation;
        table.vacate(slot);
        assert_eq!(table.insert(2, 1, None), slot);
        assert_ne!(table.entry(slot).generation, generation);
    }
}
