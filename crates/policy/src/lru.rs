//! Evict the sample used longest ago.
//!
//! A list through the slots, newest first:
//!
//! ```text
//!   newest -> d <-> a <-> c <- oldest      hit(c) moves it to the newest end
//! ```
//!
//! O(1) a call. On shuffled epochs it is the worst there is: what was used longest ago is what
//! is wanted soonest. Here to be compared with, and for orders that cluster.

use crate::table::SlotTable;
use crate::{Candidate, Next, Policy, Slot, Verdict};

const NONE: Slot = Slot::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    newer: Slot,
    older: Slot,
}

const ALONE: Node = Node {
    newer: NONE,
    older: NONE,
};

#[derive(Debug)]
pub struct Lru {
    nodes: SlotTable<Node>,
    newest: Slot,
    oldest: Slot,
    kept: usize,
}

impl Default for Lru {
    fn default() -> Lru {
        Lru {
            nodes: SlotTable::new(ALONE),
            newest: NONE,
            oldest: NONE,
            kept: 0,
        }
    }
}

impl Lru {
    pub fn new() -> Lru {
        Lru::default()
    }

    fn link_newest(&mut self, slot: Slot) {
        let node = Node {
            newer: NONE,
            older: self.newest,
        };
        self.nodes.set(slot, node);
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.set_newer(newest, slot),
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: Slot) {
        let Node { newer, older } = self.nodes.get(slot);
        match newer {
            NONE => self.newest = older,
            newer => {
                let node = self.nodes.get(newer);
                self.nodes.set(newer, Node { older, ..node });
            }
        }
        match older {
            NONE => self.oldest = newer,
            older => self.set_newer(older, newer),
        }
    }

    fn set_newer(&mut self, slot: Slot, newer: Slot) {
        let node = self.nodes.get(slot);
        self.nodes.set(slot, Node { newer, ..node });
    }

    fn touch(&mut self, slot: Slot) {
        self.unlink(slot);
        self.link_newest(slot);
    }
}

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn overhead(&self) -> u64 {
        SlotTable::<Node>::OVERHEAD
    }

    fn insert(&mut self, slot: Slot, _size: u64, _next: Next) {
        self.kept += 1;
        self.link_newest(slot);
    }

    fn hit(&mut self, slot: Slot, _next: Next) {
        self.touch(slot);
    }

    fn remove(&mut self, slot: Slot) {
        self.kept -= 1;
        self.unlink(slot);
    }

    fn decide(&mut self, _incoming: Candidate, held: &dyn Fn(Slot) -> bool) -> Verdict {
        for _ in 0..self.kept {
            let oldest = self.oldest;
            if !held(oldest) {
                return Verdict::Evict(oldest);
            }
            // Held is being used now; its hit would bring it here anyway, and a walk over all
            // held ones at every call would not be O(1).
            self.touch(oldest);
        }
        Verdict::Refuse
    }

    fn likely(&self, most: usize, name: &mut dyn FnMut(Slot)) {
        let mut slot = self.oldest;
        for _ in 0..most {
            if slot == NONE {
                return;
            }
            name(slot);
            slot = self.nodes.get(slot).newer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INCOMING: Candidate = Candidate {
        key: 99,
        size: 1,
        next: Some(0),
    };

    fn order(policy: &mut Lru) -> Vec<Slot> {
        let mut slots = Vec::new();
        while let Verdict::Evict(slot) = policy.decide(INCOMING, &|_| false) {
            policy.remove(slot);
            slots.push(slot);
        }
        slots
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let mut policy = Lru::new();
        for slot in 1..=4 {
            policy.insert(slot, 1, None);
        }
        policy.hit(1, None);
        policy.hit(3, None);
        policy.remove(4);
        policy.insert(5, 1, None);
        assert_eq!(order(&mut policy), [2, 1, 3, 5]);
    }

    #[test]
    fn a_held_sample_counts_as_just_used() {
        let mut policy = Lru::new();
        for slot in 1..=3 {
            policy.insert(slot, 1, None);
        }
        assert_eq!(
            policy.decide(INCOMING, &|slot| slot == 1),
            Verdict::Evict(2)
        );
        assert_eq!(order(&mut policy), [2, 3, 1]);
    }
}
