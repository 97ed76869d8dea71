//! A trace replayed against a policy: how many hits, without a byte.
//!
//! Samples are used one after the other, the tick of the clock is the position in the trace, and
//! what is not kept is read: the tier's rules without its threads. O(1) a use beyond the policy.

use crate::hash::KeyMap;
use crate::{Candidate, Key, Policy, Slot, Verdict};

/// A trace: the samples in the order of their use, each with its size and the position of its
/// next use. Keys alone become one here.
pub fn trace(keys: &[Key], size: impl Fn(Key) -> u64) -> Vec<Candidate> {
    let mut ahead = KeyMap::default();
    let mut trace: Vec<Candidate> = keys
        .iter()
        .enumerate()
        .rev()
        .map(|(position, &key)| {
            let next = ahead.insert(key, position as u64);
            Candidate {
                key,
                size: size(key),
                next,
            }
        })
        .collect();
    trace.reverse();
    trace
}

/// What came of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replay {
    pub hits: u64,
    pub misses: u64,
    pub hit_sizes: u64,
    pub miss_sizes: u64,
    /// Left for a newcomer.
    pub evictions: u64,
    /// Left because the clock went on.
    pub expired: u64,
    /// Misses that were not kept.
    pub refused: u64,
    /// The most that was kept at any time.
    pub peak: u64,
}

/// Replays a whole trace; the policy should be new.
pub fn replay(policy: &mut dyn Policy, capacity: u64, trace: &[Candidate]) -> Replay {
    let mut replayer = Replayer::new(policy, capacity);
    for &access in trace {
        replayer.step(access);
    }
    replayer.tally
}

/// A replay in steps, to look at it on the way.
#[derive(Debug)]
pub struct Replayer<'a> {
    policy: &'a mut dyn Policy,
    capacity: u64,
    /// Where each kept sample is.
    kept: KeyMap<Slot>,
    /// By slot: the sample and its size, if it is kept.
    slots: Vec<Option<(Key, u64)>>,
    vacant: Vec<Slot>,
    used: u64,
    now: u64,
    expired: Vec<Slot>,
    tally: Replay,
}

impl<'a> Replayer<'a> {
    pub fn new(policy: &'a mut dyn Policy, capacity: u64) -> Replayer<'a> {
        Replayer {
            policy,
            capacity,
            kept: KeyMap::default(),
            slots: Vec::new(),
            vacant: Vec::new(),
            used: 0,
            now: 0,
            expired: Vec::new(),
            tally: Replay::default(),
        }
    }

    pub fn tally(&self) -> Replay {
        self.tally
    }

    /// The sum of the sizes of what is kept.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Uses one sample; true if it was kept.
    pub fn step(&mut self, access: Candidate) -> bool {
        loop {
            self.policy.advance(self.now, &mut self.expired);
            if self.expired.is_empty() {
                break;
            }
            while let Some(slot) = self.expired.pop() {
                self.tally.expired += u64::from(self.remove(slot));
            }
        }
        self.now += 1;

        if let Some(&slot) = self.kept.get(&access.key) {
            self.tally.hits += 1;
            self.tally.hit_sizes += access.size;
            self.policy.hit(slot, access.next);
            return true;
        }
        self.tally.misses += 1;
        self.tally.miss_sizes += access.size;
        if self.make_room(access) {
            let slot = self.vacant.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() as Slot - 1
            });
            self.slots[slot as usize] = Some((access.key, access.size));
            self.policy.insert(slot, access.size, access.next);
            self.kept.insert(access.key, slot);
            self.used += access.size;
            self.tally.peak = self.tally.peak.max(self.used);
        } else {
            self.tally.refused += 1;
        }
        false
    }

    fn make_room(&mut self, incoming: Candidate) -> bool {
        if incoming.size > self.capacity || !self.policy.admit(incoming) {
            return false;
        }
        while self.used + incoming.size > self.capacity {
            match self.policy.decide(incoming, &|_| false) {
                Verdict::Evict(slot) if self.remove(slot) => self.tally.evictions += 1,
                _ => return false,
            }
        }
        true
    }

    fn remove(&mut self, slot: Slot) -> bool {
        let kept = self.slots.get_mut(slot as usize).and_then(Option::take);
        let Some((key, size)) = kept else {
            return false;
        };
        self.kept.remove(&key);
        self.vacant.push(slot);
        self.used -= size;
        self.policy.remove(slot);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Farthest;

    #[test]
    fn a_trace_knows_each_next_use() {
        let next: Vec<_> = trace(&[7, 8, 7, 9], |_| 1)
            .iter()
            .map(|access| access.next)
            .collect();
        assert_eq!(next, [Some(2), None, None, None]);
    }

    #[test]
    fn a_sample_larger_than_the_capacity_passes_through() {
        let uses = trace(&[1, 2, 1, 2], |key| if key == 1 { 100 } else { 1 });
        let tally = replay(&mut Farthest::new(), 10, &uses);
        assert_eq!((tally.hits, tally.misses, tally.refused), (1, 3, 2));
    }
}
