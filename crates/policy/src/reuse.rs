//! Lobster's two rules: reuse count and reuse distance.
//!
//! 1. A sample with no further use on this node goes at once, unless this node holds the sole
//!    copy ([`Settings::sole_copy`]).
//! 2. After iteration h of an epoch of I, a sample whose next use lies more than 2I - h ahead
//!    goes at once.
//!
//! h cancels out of the second: now + 2I - h is the end of the coming epoch, whatever h is.
//!
//! ```text
//!   epoch        e            e+1           e+2
//!          |------h------|-------------|-----------
//!                now                   ^ a next use beyond this line: goes
//! ```
//!
//! What stays is wanted before that line. When prefetching fills the cache the largest distance
//! goes first, and nothing wanted sooner goes for something wanted later: as in `farthest`, with
//! room made early. O(log n) a call.

use crate::heap::{Heap, Rank, distance};
use crate::{Candidate, Next, Policy, Settings, Slot, Verdict};

/// How many expired samples are named in one call: the list counts against no budget.
const AT_ONCE: usize = 1024;

#[derive(Debug)]
pub struct Reuse {
    settings: Settings,
    kept: Heap,
    /// The end of the coming epoch: ranks above it go at once.
    line: Rank,
}

impl Reuse {
    pub fn new(settings: Settings) -> Reuse {
        let mut reuse = Reuse {
            settings,
            kept: Heap::default(),
            line: 0,
        };
        reuse.set_clock(0);
        reuse
    }

    fn set_clock(&mut self, now: u64) {
        let end = match self.settings.epoch {
            Some(epoch) if epoch > 0 => (now / epoch).saturating_add(2).saturating_mul(epoch),
            _ => u64::MAX,
        };
        // Below the rank of "never", so that it too is beyond the line.
        self.line = distance(Some(end));
    }

    /// A sole copy without further use stands at the line: it stays, but goes first for room.
    fn distance(&self, next: Next) -> Rank {
        match next {
            None if self.settings.sole_copy => self.line,
            next => distance(next),
        }
    }
}

impl Policy for Reuse {
    fn name(&self) -> &'static str {
        "reuse"
    }

    fn overhead(&self) -> u64 {
        Heap::OVERHEAD
    }

    fn admit(&mut self, candidate: Candidate) -> bool {
        self.distance(candidate.next) <= self.line
    }

    fn insert(&mut self, slot: Slot, _size: u64, next: Next) {
        self.kept.set(slot, self.distance(next));
    }

    fn hit(&mut self, slot: Slot, next: Next) {
        self.kept.set(slot, self.distance(next));
    }

    fn remove(&mut self, slot: Slot) {
        self.kept.remove(slot);
    }

    fn decide(&mut self, incoming: Candidate, held: &dyn Fn(Slot) -> bool) -> Verdict {
        match self.kept.victim(Some(self.distance(incoming.next)), held) {
            Some(slot) => Verdict::Evict(slot),
            None => Verdict::Refuse,
        }
    }

    fn advance(&mut self, now: u64, expired: &mut Vec<Slot>) {
        self.set_clock(now);
        while let Some((rank, slot)) = self.kept.top() {
            if rank <= self.line || expired.len() >= AT_ONCE {
                return;
            }
            self.kept.set_aside();
            // An equal entry of the same sample may lie below: it is named once.
            self.kept.remove(slot);
            expired.push(slot);
        }
    }

    fn likely(&self, most: usize, name: &mut dyn FnMut(Slot)) {
        self.kept.likely(most, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expired(policy: &mut Reuse, now: u64) -> Vec<Slot> {
        let mut all = Vec::new();
        loop {
            let mut keys = Vec::new();
            policy.advance(now, &mut keys);
            if keys.is_empty() {
                all.sort_unstable();
                return all;
            }
            assert!(keys.len() <= AT_ONCE);
            for &key in &keys {
                policy.remove(key);
            }
            all.extend(keys);
        }
    }

    #[test]
    fn however_many_expire_at_once_all_go() {
        let mut policy = Reuse::new(Settings::default());
        let all: Vec<Slot> = (0..5_000).collect();
        for &key in &all {
            policy.insert(key, 1, None);
        }
        assert_eq!(expired(&mut policy, 0), all);
    }

    fn candidate(next: Next) -> Candidate {
        Candidate {
            key: 99,
            size: 1,
            next,
        }
    }

    #[test]
    fn a_sample_without_further_use_goes_at_once() {
        let mut policy = Reuse::new(Settings::default());
        policy.insert(1, 1, Some(10));
        policy.insert(2, 1, Some(11));
        assert_eq!(expired(&mut policy, 9), []);
        policy.hit(1, None);
        assert_eq!(expired(&mut policy, 10), [1]);
        assert_eq!(expired(&mut policy, 11), []);
        assert!(!policy.admit(candidate(None)));
    }

    #[test]
    fn a_sole_copy_without_further_use_stays_until_room_is_wanted() {
        let settings = Settings {
            sole_copy: true,
            epoch: Some(100),
        };
        let mut policy = Reuse::new(settings);
        policy.insert(1, 1, None);
        policy.insert(2, 1, Some(150));
        assert_eq!(expired(&mut policy, 50), []);
        assert_eq!(
            policy.decide(candidate(Some(60)), &|_| false),
            Verdict::Evict(1)
        );
    }

    #[test]
    fn a_next_use_beyond_two_epochs_less_h_goes_at_once() {
        let (epoch, h) = (100, 30);
        for (distance, goes) in [(2 * epoch - h, false), (2 * epoch - h + 1, true)] {
            let now = 5 * epoch + h;
            let mut policy = Reuse::new(Settings {
                epoch: Some(epoch),
                sole_copy: false,
            });
            expired(&mut policy, now);
            assert_eq!(policy.admit(candidate(Some(now + distance))), !goes);
            policy.insert(1, 1, Some(now + 1));
            policy.hit(1, Some(now + distance));
            assert_eq!(
                expired(&mut policy, now),
                if goes { vec![1] } else { vec![] }
            );
        }
    }

    #[test]
    fn the_largest_distance_goes_first_and_nothing_goes_for_something_later() {
        let mut policy = Reuse::new(Settings::default());
        policy.insert(1, 1, Some(10));
        policy.insert(2, 1, Some(20));
        assert_eq!(
            policy.decide(candidate(Some(15)), &|_| false),
            Verdict::Evict(2)
        );
        assert_eq!(
            policy.decide(candidate(Some(25)), &|_| false),
            Verdict::Refuse
        );
    }

    #[test]
    fn a_sample_hit_twice_without_further_use_is_named_once() {
        let mut policy = Reuse::new(Settings::default());
        policy.insert(1, 1, None);
        policy.hit(1, None);
        policy.hit(1, None);
        assert_eq!(expired(&mut policy, 1), [1]);
    }
}
