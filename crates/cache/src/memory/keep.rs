//! Which samples stay and which go: the policy's word, and the room that transit has.
//!
//! ```text
//!   |<------------------------ capacity ------------------------>|
//!   |   kept (held or not)            |  free  |    in transit    |
//!   |<------ at most capacity - reserve ----->|<---- reserve ---->|
//! ```
//!
//! Kept samples, and those in rows, which somebody may have for long, never take more than
//! capacity - reserve. So what is in transit has the reserve to itself and may use all that is
//! free beyond it. When that is not enough:
//! 1. The policy is asked, as for any newcomer: transit beyond its reserve displaces only what
//!    the policy would displace to keep it. `minio` and `none` displace nothing.
//! 2. A sample larger than the whole reserve could wait for ever: it takes the room it needs
//!    from the kept ones, first as one wanted at once, then from whoever nobody holds.
//! 3. Else the tier is full until somebody lets go. Somebody will: with nobody in transit the
//!    reserve is free, and 2 finds the rest, so a full tier has a holder.

use forebay_policy::{Candidate, Key, Next, Slot, Verdict};

use super::ledger::{Afterwards, Ledger};
use super::table::State;

impl Ledger {
    /// The last holder has let go.
    pub(super) fn settle(&mut self, slot: u32) {
        let entry = self.table.entry(slot);
        let (key, next) = (entry.key, entry.next);
        if !entry.listed {
            self.drop_slot(slot);
        } else if entry.kept {
            self.policy.hit(slot, next);
        } else {
            let blocks = self.arena.blocks_of(entry.len());
            let size = blocks * self.arena.block();
            if self.admit(Candidate { key, size, next }, blocks) {
                self.policy.insert(slot, size, next);
                self.table.entry_mut(slot).kept = true;
                self.kept += blocks;
            } else {
                self.stats.refused += 1;
                self.drop_slot(slot);
            }
        }
    }

    /// Whether the sample is to be kept; then there is room for it.
    fn admit(&mut self, candidate: Candidate, blocks: u64) -> bool {
        if self.closed || blocks > self.limit || !self.policy.admit(candidate) {
            return false;
        }
        while self.kept + self.away + blocks > self.limit {
            if !self.evict_for(candidate) {
                return false;
            }
        }
        true
    }

    pub(super) fn make_room(&mut self, candidate: Candidate) -> bool {
        let blocks = candidate.size / self.arena.block();
        let total = u64::from(self.arena.blocks());
        while self.arena.free_blocks(&self.free) < blocks {
            if self.evict_for(candidate) {
                continue;
            }
            let larger_than_the_reserve = blocks > total - self.limit;
            let must_shrink = self.kept > total - blocks;
            if !(larger_than_the_reserve && must_shrink && self.evict_by_force(candidate)) {
                return false;
            }
        }
        true
    }

    /// Whether a newcomer would be kept: there is room for it, or one that would go instead.
    pub(super) fn wants(&mut self, key: Key, len: u64, next: Next) -> bool {
        if self.table.find(key).is_some() {
            return false;
        }
        let blocks = self.arena.blocks_of(len);
        let candidate = Candidate {
            key,
            size: blocks * self.arena.block(),
            next,
        };
        if !self.policy.admit(candidate) {
            return false;
        }
        if self.kept + self.away + blocks <= self.limit {
            return true;
        }
        blocks <= self.limit && matches!(self.verdict(candidate), Verdict::Evict(_))
    }

    fn verdict(&mut self, candidate: Candidate) -> Verdict {
        let table = &self.table;
        let held = |slot| table.entry(slot).holders > 0;
        self.policy.decide(candidate, &held)
    }

    /// Evicts the one the policy names for this newcomer, if any.
    fn evict_for(&mut self, candidate: Candidate) -> bool {
        let Verdict::Evict(slot) = self.verdict(candidate) else {
            return false;
        };
        if !self.evictable(slot) {
            debug_assert!(
                false,
                "{} named slot {slot}, which is held or not kept",
                self.policy.name()
            );
            return false;
        }
        self.stats.evictions += 1;
        self.drop_slot(slot);
        true
    }

    fn evict_by_force(&mut self, candidate: Candidate) -> bool {
        if self.evict_for(Candidate {
            next: Some(0),
            ..candidate
        }) {
            return true;
        }
        let slots = self.table.slots();
        let around = (self.hand..slots).chain(0..self.hand.min(slots));
        let Some(slot) = around.into_iter().find(|&slot| self.evictable(slot)) else {
            return false;
        };
        self.hand = slot;
        self.stats.evictions += 1;
        self.drop_slot(slot);
        true
    }

    fn evictable(&self, slot: u32) -> bool {
        let entry = self.table.entry(slot);
        entry.kept && entry.holders == 0
    }

    /// The policy has it no longer; it is in transit again, or about to be dropped.
    fn unkeep(&mut self, slot: u32) {
        let entry = self.table.entry_mut(slot);
        if std::mem::take(&mut entry.kept) {
            self.kept -= self.arena.blocks_of(entry.len());
            self.policy.remove(slot);
        }
    }

    /// A sample that nobody holds leaves.
    fn drop_slot(&mut self, slot: u32) {
        self.unkeep(slot);
        if let State::Ready(reader) = self.table.vacate(slot) {
            match self.arena.reclaim(reader) {
                Ok(span) => self.arena.give(&mut self.free, span),
                // Blocks that somebody still reads are lost rather than handed out again.
                Err(_) => debug_assert!(false, "a sample without holders has a reader"),
            }
        }
    }

    /// No lookup finds it from now on; its holders keep what they have.
    pub(super) fn forget_slot(&mut self, slot: u32) {
        self.unkeep(slot);
        if self.table.entry(slot).holders > 0 {
            self.table.unlist(slot);
        } else {
            self.drop_slot(slot);
        }
    }

    pub(super) fn forget(&mut self, key: Key) -> (bool, Afterwards) {
        let Some(slot) = self.table.find(key) else {
            return (false, Afterwards::default());
        };
        self.forget_slot(slot);
        (true, self.room())
    }

    pub(super) fn clear(&mut self) -> Afterwards {
        for slot in 0..self.table.slots() {
            if self.table.entry(slot).listed {
                self.forget_slot(slot);
            }
        }
        self.room()
    }

    pub(super) fn advance(&mut self, now: u64) -> Afterwards {
        let mut any = false;
        let mut expired = std::mem::take(&mut self.expired);
        loop {
            self.policy.advance(now, &mut expired);
            if expired.is_empty() {
                break;
            }
            any = true;
            for slot in expired.drain(..) {
                self.expire(slot);
            }
        }
        self.expired = expired;
        if any {
            self.room()
        } else {
            Afterwards::default()
        }
    }

    fn expire(&mut self, slot: Slot) {
        self.unkeep(slot);
        self.stats.expired += 1;
        // A held one is in transit again: the policy is asked when it is let go.
        if self.table.entry(slot).holders == 0 {
            self.drop_slot(slot);
        }
    }
}
