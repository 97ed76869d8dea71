//! Evict the sample used longest ago.
//!
//! A list through one vector, newest first:
//!
//! ```text
//!   newest -> d <-> a <-> c <- oldest      hit(c) moves it to the newest end
//! ```
//!
//! O(1) a call. On shuffled epochs it is the worst there is: what was used longest ago is what
//! is wanted soonest. Here to be compared with, and for orders that cluster.

use crate::hash::{KeyMap, MAP_BYTES};
use crate::{Candidate, Key, Next, Policy, Verdict};

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    key: Key,
    newer: u32,
    older: u32,
}

#[derive(Debug)]
pub struct Lru {
    nodes: Vec<Node>,
    places: KeyMap<u32>,
    newest: u32,
    oldest: u32,
    /// Nodes of removed samples, linked by `older`.
    free: u32,
}

impl Default for Lru {
    fn default() -> Lru {
        Lru {
            nodes: Vec::new(),
            places: KeyMap::default(),
            newest: NONE,
            oldest: NONE,
            free: NONE,
        }
    }
}

impl Lru {
    pub fn new() -> Lru {
        Lru::default()
    }

    fn link_newest(&mut self, at: u32) {
        self.nodes[at as usize].newer = NONE;
        self.nodes[at as usize].older = self.newest;
        match self.newest {
            NONE => self.oldest = at,
            newest => self.nodes[newest as usize].newer = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: u32) {
        let Node { newer, older, .. } = self.nodes[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }

    fn touch(&mut self, at: u32) {
        self.unlink(at);
        self.link_newest(at);
    }
}

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    /// The map, and a node of 16 bytes in a vector that doubles, old and new at once.
    fn overhead(&self) -> u64 {
        MAP_BYTES + 48
    }

    fn insert(&mut self, key: Key, _size: u64, _next: Next) {
        let node = Node {
            key,
            newer: NONE,
            older: NONE,
        };
        let at = match self.free {
            NONE => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
            at => {
                self.free = self.nodes[at as usize].older;
                self.nodes[at as usize] = node;
                at
            }
        };
        self.places.insert(key, at);
        self.link_newest(at);
    }

    fn hit(&mut self, key: Key, _next: Next) {
        if let Some(&at) = self.places.get(&key) {
            self.touch(at);
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some(at) = self.places.remove(&key) {
            self.unlink(at);
            self.nodes[at as usize].older = self.free;
            self.free = at;
        }
    }

    fn decide(&mut self, _incoming: Candidate, held: &dyn Fn(Key) -> bool) -> Verdict {
        for _ in 0..self.places.len() {
            let oldest = self.oldest;
            let key = self.nodes[oldest as usize].key;
            if !held(key) {
                return Verdict::Evict(key);
            }
            // Held is being used now; its hit would bring it here anyway, and a walk over all
            // held ones at every call would not be O(1).
            self.touch(oldest);
        }
        Verdict::Refuse
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

    fn order(policy: &mut Lru) -> Vec<Key> {
        let mut keys = Vec::new();
        while let Verdict::Evict(key) = policy.decide(INCOMING, &|_| false) {
            policy.remove(key);
            keys.push(key);
        }
        keys
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let mut policy = Lru::new();
        for key in 1..=4 {
            policy.insert(key, 1, None);
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
        for key in 1..=3 {
            policy.insert(key, 1, None);
        }
        assert_eq!(policy.decide(INCOMING, &|key| key == 1), Verdict::Evict(2));
        assert_eq!(order(&mut policy), [2, 3, 1]);
    }
}
