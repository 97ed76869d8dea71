//! Evict the sample used least often; of those, the one used longest ago.
//!
//! Uses are counted while a sample is kept. Count and time of the last use share one rank, so
//! that one heap orders both:
//!
//! ```text
//!   rank = not [ uses: 24 bits | uses of all samples so far: 40 bits ]      the highest goes first
//! ```
//!
//! O(log n) a call.

use crate::heap::{Heap, Rank};
use crate::{Candidate, Next, Policy, Slot, Verdict};

const TIME_BITS: u32 = 40;
const MOST_USES: u64 = (1 << (64 - TIME_BITS)) - 1;

#[derive(Debug, Default)]
pub struct Lfu {
    kept: Heap,
    time: u64,
}

impl Lfu {
    pub fn new() -> Lfu {
        Lfu::default()
    }

    fn used(&mut self, slot: Slot, uses: u64) {
        self.time += 1;
        let rank = uses.min(MOST_USES) << TIME_BITS | self.time & ((1 << TIME_BITS) - 1);
        self.kept.set(slot, (!rank).max(1)); // 0 is no rank
    }
}

fn uses(rank: Rank) -> u64 {
    !rank >> TIME_BITS
}

impl Policy for Lfu {
    fn name(&self) -> &'static str {
        "lfu"
    }

    fn overhead(&self) -> u64 {
        Heap::OVERHEAD
    }

    fn insert(&mut self, slot: Slot, _size: u64, _next: Next) {
        self.used(slot, 1);
    }

    fn hit(&mut self, slot: Slot, _next: Next) {
        if let Some(rank) = self.kept.rank(slot) {
            self.used(slot, uses(rank) + 1);
        }
    }

    fn remove(&mut self, slot: Slot) {
        self.kept.remove(slot);
    }

    fn decide(&mut self, _incoming: Candidate, held: &dyn Fn(Slot) -> bool) -> Verdict {
        match self.kept.victim(None, held) {
            Some(slot) => Verdict::Evict(slot),
            None => Verdict::Refuse,
        }
    }

    fn likely(&self, most: usize, name: &mut dyn FnMut(Slot)) {
        self.kept.likely(most, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_used_goes_first_and_of_equals_the_older() {
        let mut policy = Lfu::new();
        for key in 1..=4 {
            policy.insert(key, 1, None);
        }
        for key in [1, 1, 2, 3] {
            policy.hit(key, None);
        }
        let mut order = Vec::new();
        let incoming = Candidate {
            key: 99,
            size: 1,
            next: None,
        };
        while let Verdict::Evict(key) = policy.decide(incoming, &|_| false) {
            policy.remove(key);
            order.push(key);
        }
        assert_eq!(order, [4, 2, 3, 1]);
    }

    #[test]
    fn a_count_at_its_limit_stays_there() {
        let mut policy = Lfu::new();
        policy.used(1, MOST_USES);
        policy.hit(1, None);
        assert_eq!(policy.kept.rank(1).map(uses), Some(MOST_USES));
    }
}
