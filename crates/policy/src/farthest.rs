//! Evict the sample wanted farthest ahead (Belady's MIN), or refuse the newcomer if that is it.
//!
//! The plan says when each sample is wanted next, so the future is known:
//!
//! ```text
//!   plan      c  a  b  a      after serving position 0:
//!   position  0  1  2  3      a -> 1   b -> 2   c -> never   => c goes, or is not kept at all
//! ```
//!
//! With equal sizes no policy has more hits. On shuffled epochs it holds a full cache across
//! each edge, so a share c of the dataset in memory gives exactly c hits. Where nothing is
//! known ahead every sample is equally far, no newcomer is better, and it does as `minio` does.
//!
//! O(log n) a call, at most two heap entries a sample (see `heap`).

use crate::heap::{Heap, distance};
use crate::{Candidate, Next, Policy, Slot, Verdict};

#[derive(Debug, Default)]
pub struct Farthest {
    kept: Heap,
}

impl Farthest {
    pub fn new() -> Farthest {
        Farthest::default()
    }
}

impl Policy for Farthest {
    fn name(&self) -> &'static str {
        "farthest"
    }

    fn overhead(&self) -> u64 {
        Heap::OVERHEAD
    }

    fn insert(&mut self, slot: Slot, _size: u64, next: Next) {
        self.kept.set(slot, distance(next));
    }

    fn hit(&mut self, slot: Slot, next: Next) {
        self.kept.set(slot, distance(next));
    }

    fn remove(&mut self, slot: Slot) {
        self.kept.remove(slot);
    }

    fn decide(&mut self, incoming: Candidate, held: &dyn Fn(Slot) -> bool) -> Verdict {
        match self.kept.victim(Some(distance(incoming.next)), held) {
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

    fn wanted(next: Next) -> Candidate {
        Candidate {
            key: 99,
            size: 1,
            next,
        }
    }

    #[test]
    fn the_farthest_goes_first_and_never_is_farthest() {
        let mut policy = Farthest::new();
        policy.insert(1, 1, Some(10));
        policy.insert(2, 1, None);
        policy.insert(3, 1, Some(30));
        let free = |_| false;
        assert_eq!(policy.decide(wanted(Some(5)), &free), Verdict::Evict(2));
        policy.remove(2);
        assert_eq!(policy.decide(wanted(Some(5)), &free), Verdict::Evict(3));
        policy.hit(3, Some(7));
        assert_eq!(policy.decide(wanted(Some(5)), &free), Verdict::Evict(1));
    }

    #[test]
    fn a_newcomer_wanted_later_than_all_kept_is_refused() {
        let mut policy = Farthest::new();
        policy.insert(1, 1, Some(10));
        policy.insert(2, 1, Some(20));
        let free = |_| false;
        assert_eq!(policy.decide(wanted(Some(21)), &free), Verdict::Refuse);
        assert_eq!(policy.decide(wanted(None), &free), Verdict::Refuse);
        assert_eq!(
            policy.decide(wanted(Some(20)), &free),
            Verdict::Refuse,
            "equally far: no change"
        );
        assert_eq!(policy.decide(wanted(Some(19)), &free), Verdict::Evict(2));
    }

    #[test]
    fn a_held_sample_is_passed_over_only_for_one_wanted_later_than_the_newcomer() {
        let mut policy = Farthest::new();
        policy.insert(1, 1, Some(10));
        policy.insert(2, 1, Some(20));
        assert_eq!(
            policy.decide(wanted(Some(5)), &|slot| slot == 2),
            Verdict::Evict(1)
        );
        assert_eq!(
            policy.decide(wanted(Some(15)), &|slot| slot == 2),
            Verdict::Refuse
        );
    }
}
