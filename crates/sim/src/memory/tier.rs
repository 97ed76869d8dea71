//! The rules of a node's memory tier; see the cache's `keep` for why they are so.

use forebay_policy::{Candidate, Key, Next, Policy, Slot, Verdict};

use super::table::Table;
use crate::room::Room;
use crate::sizes::Sizes;

/// How many of those who may have to go are looked at beforehand.
const LIKELY: usize = 32;

/// What a lookup came to: the slot of the sample in its tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It is there.
    Hit(u32),
    /// Somebody is reading it.
    Filling(u32),
    /// It is not there: whoever asked reads it.
    New(u32),
    /// There is no room for it now.
    Full,
}

/// A tier's figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Left for a newcomer.
    pub evictions: u64,
    /// Left because the clock went on.
    pub expired: u64,
    /// Not kept when they were let go.
    pub refused: u64,
    /// Lookups that found no room.
    pub full: u64,
    /// Blocks that are kept, held or not.
    pub kept: u64,
    /// Blocks that nobody has.
    pub free: u64,
    /// Samples.
    pub entries: u64,
}

#[derive(Debug)]
struct Tier {
    room: Room,
    policy: Box<dyn Policy>,
    free: u64,
    kept: u64,
    hand: u32,
    stats: Stats,
}

/// The tiers of all nodes.
#[derive(Debug)]
pub struct Tiers {
    table: Table,
    tiers: Vec<Tier>,
    keys: Keys,
    expired: Vec<Slot>,
}

/// Samples are numbered through all datasets; a policy's key has the dataset in its upper half.
#[derive(Debug)]
struct Keys {
    /// First sample of each dataset.
    first: Vec<u32>,
}

impl Keys {
    #[inline]
    fn key(&self, sample: u32) -> Key {
        if let [_] = *self.first {
            return Key::from(sample);
        }
        let dataset = self.first.partition_point(|&first| first <= sample) - 1;
        (dataset as Key) << 32 | Key::from(sample - self.first[dataset])
    }
}

impl Tiers {
    /// Tiers for datasets of so many samples each; every node has a room and a policy.
    pub fn new(datasets: &[(u32, Sizes)], nodes: Vec<(Room, Box<dyn Policy>)>) -> Self {
        let mut first = Vec::new();
        let mut samples = 0;
        for &(dataset, _) in datasets {
            first.push(samples);
            samples += dataset;
        }
        let lengths = datasets.iter().flat_map(|(dataset, sizes)| {
            let samples = 0..*dataset;
            samples.map(|sample| sizes.of(sample))
        });
        let tier = |(room, policy): (Room, Box<dyn Policy>)| Tier {
            room,
            policy,
            free: room.blocks(),
            kept: 0,
            hand: 0,
            stats: Stats::default(),
        };
        Self {
            table: Table::new(lengths, nodes.len()),
            tiers: nodes.into_iter().map(tier).collect(),
            keys: Keys { first },
            expired: Vec::new(),
        }
    }

    /// The number of a dataset's sample among those of all.
    pub fn sample(&self, dataset: usize, sample: u32) -> u32 {
        self.keys.first[dataset] + sample
    }

    /// The room of a node.
    pub fn room(&self, node: usize) -> Room {
        self.tiers[node].room
    }

    /// The length of a sample that will be looked up soon, and a number of no meaning that the
    /// caller must not let be optimised away: this is what brings the sample's place near.
    #[inline]
    pub(crate) fn expect(&self, sample: u32) -> (u32, u32) {
        self.table.expect(sample)
    }

    /// Brings near what is needed when the bytes of these come.
    pub(crate) fn expect_coming(&self, node: usize, slots: impl Iterator<Item = u32>) {
        std::hint::black_box(slots.fold(0, |near, slot| near ^ self.table.near(node, slot)));
    }

    /// Brings near what is needed to let these go, and who may have to go for them.
    pub(crate) fn expect_going(&self, node: usize, slots: impl Iterator<Item = u32>) {
        let mut touched = 0;
        let mut going = 0;
        for slot in slots {
            touched ^= self.table.touch(node, slot);
            going += 1;
        }
        let tier = &self.tiers[node];
        if tier.kept + going > tier.room.limit() {
            let mut touch = |slot| touched ^= self.table.touch(node, slot);
            tier.policy.likely(LIKELY, &mut touch);
        }
        std::hint::black_box(touched);
    }

    /// Looks for a sample of `len` bytes whose next use after this one is `next`; the one who asks
    /// holds it from now on, unless there is no room.
    #[inline]
    pub fn lookup(&mut self, node: usize, sample: u32, len: u64, next: Next) -> Found {
        if let Some(slot) = self.table.find(node, sample) {
            return self.join(node, slot, next);
        }
        let blocks = self.tiers[node].room.blocks_of(len);
        let candidate = self.candidate(node, sample, blocks, next);
        if !self.make_room(node, candidate, blocks) {
            self.tiers[node].stats.full += 1;
            return Found::Full;
        }
        self.tiers[node].free -= blocks;
        Found::New(self.table.insert(node, sample, blocks as u32, next))
    }

    fn join(&mut self, node: usize, slot: u32, next: Next) -> Found {
        let entry = self.table.entry_mut(node, slot);
        entry.set_next(next);
        entry.holders += 1;
        if entry.ready {
            Found::Hit(slot)
        } else {
            entry.awaited = true;
            Found::Filling(slot)
        }
    }

    /// The sample's slot, held from now on, if its bytes are there.
    pub fn find(&mut self, node: usize, sample: u32, next: Next) -> Option<u32> {
        let slot = self.table.find(node, sample)?;
        if !self.table.entry(node, slot).ready {
            return None;
        }
        self.join(node, slot, next);
        Some(slot)
    }

    /// Whether the sample's bytes are there.
    pub fn contains(&self, node: usize, sample: u32) -> bool {
        let slot = self.table.find(node, sample);
        slot.is_some_and(|slot| self.table.entry(node, slot).ready)
    }

    /// Whether the sample's bytes are on another node.
    pub fn is_elsewhere(&self, node: usize, sample: u32) -> bool {
        self.table.is_elsewhere(node, sample)
    }

    /// The bytes of a new one have come; true if somebody else waits for them.
    pub fn commit(&mut self, node: usize, slot: u32) -> bool {
        let entry = self.table.entry_mut(node, slot);
        entry.ready = true;
        std::mem::take(&mut entry.awaited)
    }

    /// Changes when a held sample is wanted next.
    pub fn set_next(&mut self, node: usize, slot: u32, next: Next) {
        self.table.entry_mut(node, slot).set_next(next);
    }

    /// One holder less; the last one's going is when the policy is asked.
    #[inline]
    pub fn let_go(&mut self, node: usize, slot: u32) {
        let entry = self.table.entry_mut(node, slot);
        entry.holders -= 1;
        if entry.holders > 0 {
            return;
        }
        let (sample, blocks, next) = (entry.sample, u64::from(entry.blocks), entry.next());
        if entry.kept {
            self.tiers[node].policy.hit(slot, next);
            return;
        }
        let candidate = self.candidate(node, sample, blocks, next);
        if self.admit(node, candidate, blocks) {
            let tier = &mut self.tiers[node];
            tier.policy.insert(slot, candidate.size, next);
            tier.kept += blocks;
            self.table.entry_mut(node, slot).kept = true;
        } else {
            self.tiers[node].stats.refused += 1;
            self.drop_slot(node, slot);
        }
    }

    /// Whether a sample that is not there would be kept.
    pub fn wants(&mut self, node: usize, sample: u32, len: u64, next: Next) -> bool {
        if self.table.find(node, sample).is_some() {
            return false;
        }
        let blocks = self.tiers[node].room.blocks_of(len);
        let candidate = self.candidate(node, sample, blocks, next);
        let tier = &mut self.tiers[node];
        if blocks > tier.room.blocks() || !tier.policy.admit(candidate) {
            return false;
        }
        if tier.kept + blocks <= tier.room.limit() {
            return true;
        }
        blocks <= tier.room.limit() && matches!(self.verdict(node, candidate), Verdict::Evict(_))
    }

    /// The clock says `now`.
    pub fn advance(&mut self, node: usize, now: u64) {
        let mut expired = std::mem::take(&mut self.expired);
        loop {
            self.tiers[node].policy.advance(now, &mut expired);
            if expired.is_empty() {
                break;
            }
            for slot in expired.drain(..) {
                self.expire(node, slot);
            }
        }
        self.expired = expired;
    }

    /// Figures so far.
    pub fn stats(&self, node: usize) -> Stats {
        let tier = &self.tiers[node];
        Stats {
            kept: tier.kept,
            free: tier.free,
            entries: u64::from(self.table.len(node)),
            ..tier.stats
        }
    }

    #[inline]
    fn candidate(&self, node: usize, sample: u32, blocks: u64, next: Next) -> Candidate {
        Candidate {
            key: self.keys.key(sample),
            size: blocks * self.tiers[node].room.block(),
            next,
        }
    }

    fn admit(&mut self, node: usize, candidate: Candidate, blocks: u64) -> bool {
        let tier = &mut self.tiers[node];
        if blocks > tier.room.limit() || !tier.policy.admit(candidate) {
            return false;
        }
        while self.tiers[node].kept + blocks > self.tiers[node].room.limit() {
            if !self.evict_for(node, candidate) {
                return false;
            }
        }
        true
    }

    fn make_room(&mut self, node: usize, candidate: Candidate, blocks: u64) -> bool {
        while self.tiers[node].free < blocks {
            if self.evict_for(node, candidate) {
                continue;
            }
            let tier = &self.tiers[node];
            let total = tier.room.blocks();
            if blocks > total {
                return false;
            }
            let larger_than_the_reserve = blocks > total - tier.room.limit();
            let must_shrink = tier.kept > total - blocks;
            if !(larger_than_the_reserve && must_shrink && self.evict_by_force(node, candidate)) {
                return false;
            }
        }
        true
    }

    #[inline]
    fn verdict(&mut self, node: usize, candidate: Candidate) -> Verdict {
        let table = &self.table;
        let held = |slot| table.entry(node, slot).holders > 0;
        self.tiers[node].policy.decide(candidate, &held)
    }

    fn evict_for(&mut self, node: usize, candidate: Candidate) -> bool {
        let Verdict::Evict(slot) = self.verdict(node, candidate) else {
            return false;
        };
        if !self.evictable(node, slot) {
            debug_assert!(false, "slot {slot} is held or not kept");
            return false;
        }
        self.tiers[node].stats.evictions += 1;
        self.drop_slot(node, slot);
        true
    }

    fn evict_by_force(&mut self, node: usize, candidate: Candidate) -> bool {
        let at_once = Candidate {
            next: Some(0),
            ..candidate
        };
        if self.evict_for(node, at_once) {
            return true;
        }
        let (slots, hand) = (self.table.slots(node), self.tiers[node].hand);
        let mut around = (hand..slots).chain(0..hand.min(slots));
        let Some(slot) = around.find(|&slot| self.evictable(node, slot)) else {
            return false;
        };
        let tier = &mut self.tiers[node];
        tier.hand = slot;
        tier.stats.evictions += 1;
        self.drop_slot(node, slot);
        true
    }

    fn evictable(&self, node: usize, slot: u32) -> bool {
        let entry = self.table.entry(node, slot);
        entry.kept && entry.holders == 0
    }

    fn unkeep(&mut self, node: usize, slot: u32) {
        let entry = self.table.entry_mut(node, slot);
        if std::mem::take(&mut entry.kept) {
            let blocks = u64::from(entry.blocks);
            let tier = &mut self.tiers[node];
            tier.kept -= blocks;
            tier.policy.remove(slot);
        }
    }

    fn drop_slot(&mut self, node: usize, slot: u32) {
        self.unkeep(node, slot);
        self.tiers[node].free += u64::from(self.table.entry(node, slot).blocks);
        self.table.remove(node, slot);
    }

    fn expire(&mut self, node: usize, slot: Slot) {
        self.unkeep(node, slot);
        self.tiers[node].stats.expired += 1;
        // A held one is in transit again: the policy is asked when it is let go.
        if self.table.entry(node, slot).holders == 0 {
            self.drop_slot(node, slot);
        }
    }
}
