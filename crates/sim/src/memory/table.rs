//! Which sample is in which tier.
//!
//! ```text
//!   places   [ . 5 . 2 ]     by sample: its length, and its first entry, in whatever tier
//!   tier 0   [ b . ]         an entry's name is slot << shift | tier; each entry knows the
//!   tier 1   [ d b ]         next one of the same sample, in another tier
//! ```
//!
//! Eight bytes a sample however many tiers there are, no hashing, and whether another node has a
//! sample is seen on the way. Slots of a tier are used again last freed first, as in the cache.

use forebay_policy::Next;

/// A slot that there is not.
pub(crate) const NONE: u32 = u32::MAX;

/// A sample in a tier.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// The next entry of the same sample, plus one; for a vacant slot the next vacant one.
    chain: u32,
    pub(super) sample: u32,
    pub(super) blocks: u32,
    pub(super) holders: u32,
    next: u64,
    /// The bytes are there.
    pub(super) ready: bool,
    /// The policy has it.
    pub(super) kept: bool,
    /// Somebody waits for the fill.
    pub(super) awaited: bool,
}

impl Entry {
    pub(super) fn next(&self) -> Next {
        (self.next != u64::MAX).then_some(self.next)
    }

    pub(super) fn set_next(&mut self, next: Next) {
        self.next = next.unwrap_or(u64::MAX);
    }
}

/// What is known of a sample wherever it is; one line of memory for both.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Its first entry, plus one.
    head: u32,
    len: u32,
}

#[derive(Debug)]
struct Slots {
    entries: Vec<Entry>,
    vacant: u32,
    live: u32,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Table {
    places: Vec<Place>,
    tiers: Vec<Slots>,
    shift: u32,
}

impl Table {
    /// For samples of these lengths and so many tiers.
    pub(super) fn new(lengths: impl Iterator<Item = u32>, tiers: usize) -> Self {
        let slots = || Slots {
            entries: Vec::new(),
            vacant: NONE,
            live: 0,
        };
        Self {
            places: lengths.map(|len| Place { head: 0, len }).collect(),
            tiers: (0..tiers).map(|_| slots()).collect(),
            shift: tiers.next_power_of_two().trailing_zeros(),
        }
    }

    #[inline]
    pub(super) fn entry(&self, tier: usize, slot: u32) -> &Entry {
        &self.tiers[tier].entries[slot as usize]
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, tier: usize, slot: u32) -> &mut Entry {
        &mut self.tiers[tier].entries[slot as usize]
    }

    /// Slots ever used in a tier.
    pub(super) fn slots(&self, tier: usize) -> u32 {
        self.tiers[tier].entries.len() as u32
    }

    /// Samples in a tier.
    pub(super) fn len(&self, tier: usize) -> u32 {
        self.tiers[tier].live
    }

    #[inline]
    fn split(&self, name: u32) -> (usize, u32) {
        (
            (name & ((1 << self.shift) - 1)) as usize,
            name >> self.shift,
        )
    }

    /// All entries of a sample: tier and slot.
    fn all(&self, sample: u32) -> impl Iterator<Item = (usize, u32)> {
        let mut at = self.places[sample as usize].head;
        std::iter::from_fn(move || {
            let (tier, slot) = self.split(at.checked_sub(1)?);
            at = self.entry(tier, slot).chain;
            Some((tier, slot))
        })
    }

    #[inline]
    pub(super) fn find(&self, tier: usize, sample: u32) -> Option<u32> {
        let mut all = self.all(sample);
        all.find_map(|(at, slot)| (at == tier).then_some(slot))
    }

    /// Whether the bytes are in another tier.
    pub(super) fn is_elsewhere(&self, tier: usize, sample: u32) -> bool {
        let mut all = self.all(sample);
        all.any(|(at, slot)| at != tier && self.entry(at, slot).ready)
    }

    /// The length of a sample that will be looked up. Its place and its entry are touched, so
    /// that they are in the processor's cache then.
    #[inline]
    pub(super) fn expect(&self, sample: u32) -> (u32, u32) {
        let Place { head, len } = self.places[sample as usize];
        let holders = head.checked_sub(1).map_or(0, |name| {
            let (tier, slot) = self.split(name);
            self.entry(tier, slot).holders
        });
        (len, holders)
    }

    /// Touches an entry.
    #[inline]
    pub(super) fn near(&self, tier: usize, slot: u32) -> u32 {
        let entries = &self.tiers[tier].entries;
        entries.get(slot as usize).map_or(0, |entry| entry.holders)
    }

    /// Touches what will be needed to let a slot go.
    #[inline]
    pub(super) fn touch(&self, tier: usize, slot: u32) -> u32 {
        let entries = &self.tiers[tier].entries;
        let entry = entries.get(slot as usize);
        entry.map_or(0, |entry| self.places[entry.sample as usize].head)
    }

    /// A new entry with one holder; the sample is not in that tier.
    pub(super) fn insert(&mut self, tier: usize, sample: u32, blocks: u32, next: Next) -> u32 {
        let mut entry = Entry {
            chain: self.places[sample as usize].head,
            sample,
            blocks,
            holders: 1,
            next: 0,
            ready: false,
            kept: false,
            awaited: false,
        };
        entry.set_next(next);
        let slots = &mut self.tiers[tier];
        slots.live += 1;
        let slot = match slots.vacant {
            NONE => {
                slots.entries.push(entry);
                slots.entries.len() as u32 - 1
            }
            slot => {
                slots.vacant = slots.entries[slot as usize].chain;
                slots.entries[slot as usize] = entry;
                slot
            }
        };
        let name = u64::from(slot) << self.shift | tier as u64;
        assert!(name < u64::from(u32::MAX), "more entries than names");
        self.places[sample as usize].head = name as u32 + 1;
        slot
    }

    pub(super) fn remove(&mut self, tier: usize, slot: u32) {
        let Entry { sample, chain, .. } = *self.entry(tier, slot);
        let name = (slot << self.shift | tier as u32) + 1;
        if self.places[sample as usize].head == name {
            self.places[sample as usize].head = chain;
        } else {
            let mut at = self.places[sample as usize].head;
            loop {
                let (tier, slot) = self.split(at - 1);
                let entry = self.entry_mut(tier, slot);
                if entry.chain == name {
                    entry.chain = chain;
                    break;
                }
                at = entry.chain;
            }
        }
        let slots = &mut self.tiers[tier];
        let entry = &mut slots.entries[slot as usize];
        entry.kept = false;
        entry.ready = false;
        entry.chain = slots.vacant;
        slots.vacant = slot;
        slots.live -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_found_in_each_tier_that_has_it_and_in_no_other() {
        let mut table = Table::new([5; 10].into_iter(), 3);
        let a = table.insert(0, 7, 1, None);
        let b = table.insert(2, 7, 1, Some(3));
        assert_eq!(table.find(0, 7), Some(a));
        assert_eq!(table.find(1, 7), None);
        assert_eq!(table.find(2, 7), Some(b));
        assert!(!table.is_elsewhere(1, 7), "nothing has come yet");
        table.entry_mut(2, b).ready = true;
        assert!(table.is_elsewhere(1, 7) && table.is_elsewhere(0, 7));
        assert!(!table.is_elsewhere(2, 7), "its own does not count");
        table.remove(0, a);
        assert_eq!((table.find(0, 7), table.find(2, 7)), (None, Some(b)));
        table.remove(2, b);
        assert_eq!(table.find(2, 7), None);
        assert_eq!(table.insert(2, 9, 1, None), b, "slots are used again");
    }
}
