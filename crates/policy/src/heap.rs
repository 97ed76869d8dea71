//! Kept samples by rank, the highest first: a lazy heap.
//!
//! A new rank pushes a fresh entry and leaves the old one where it is; an entry counts only
//! if it agrees with the table:
//!
//! ```text
//!   heap    (9, b)  (7, a)  (4, b)        table   a -> 7
//!            stale   ^top                         b -> 4
//! ```
//!
//! O(log n) a call. When more than half the entries are stale the heap is built anew from the
//! table, so there are at most two a sample; that costs O(n) once in n calls.

use std::collections::BinaryHeap;

use crate::Key;
use crate::hash::{KeyMap, MAP_BYTES};

/// Higher ranks go first.
pub(crate) type Rank = u64;

#[derive(Debug, Default)]
pub(crate) struct Heap {
    heap: BinaryHeap<(Rank, Key)>,
    ranks: KeyMap<Rank>,
}

/// Stale entries that are not worth a rebuild however few samples there are.
const SLACK: usize = 64;

impl Heap {
    /// The map, and two entries of 16 bytes with a growth of an eighth, old and new at once.
    pub(crate) const OVERHEAD: u64 = MAP_BYTES + 69;

    pub(crate) fn rank(&self, key: Key) -> Option<Rank> {
        self.ranks.get(&key).copied()
    }

    /// Inserts the sample or gives it another rank.
    pub(crate) fn set(&mut self, key: Key, rank: Rank) {
        self.ranks.insert(key, rank);
        if self.heap.len() >= 2 * self.ranks.len() + SLACK {
            self.rebuild();
            return;
        }
        if self.heap.len() == self.heap.capacity() {
            // By an eighth, not by doubling: the entries count against a byte budget.
            self.heap.reserve_exact(self.heap.len() / 8 + 16);
        }
        self.heap.push((rank, key));
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.ranks.remove(&key);
    }

    /// The sample of the highest rank; it stays.
    pub(crate) fn top(&mut self) -> Option<(Rank, Key)> {
        while let Some(&(rank, key)) = self.heap.peek() {
            if self.rank(key) == Some(rank) {
                return Some((rank, key));
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the top's entry out: [`Heap::top`] will not give it again before it is `set` again.
    pub(crate) fn set_aside(&mut self) {
        self.heap.pop();
    }

    /// The sample of the highest rank above `floor` that is not held.
    ///
    /// Held ones on the way are set aside; the hit that ends the holding brings them back.
    pub(crate) fn victim(
        &mut self,
        floor: Option<Rank>,
        held: &dyn Fn(Key) -> bool,
    ) -> Option<Key> {
        while let Some((rank, key)) = self.top() {
            if floor.is_some_and(|floor| rank <= floor) {
                return None;
            }
            if !held(key) {
                return Some(key);
            }
            self.set_aside();
        }
        None
    }

    fn rebuild(&mut self) {
        let mut entries = std::mem::take(&mut self.heap).into_vec();
        entries.clear();
        entries.extend(self.ranks.iter().map(|(&key, &rank)| (rank, key)));
        self.heap = entries.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_is_the_highest_current_rank() {
        let mut heap = Heap::default();
        heap.set(1, 10);
        heap.set(2, 20);
        heap.set(2, 5);
        assert_eq!(heap.top(), Some((10, 1)));
        heap.remove(1);
        assert_eq!(heap.top(), Some((5, 2)));
        heap.remove(2);
        assert_eq!(heap.top(), None);
    }

    #[test]
    fn entries_stay_within_two_a_sample_however_many_hits() {
        let mut heap = Heap::default();
        for tick in 0..100_000 {
            // Equal ranks now and then: they must not pile up as valid duplicates.
            heap.set(tick % 1000, tick / 7);
            assert!(heap.heap.len() <= 2 * heap.ranks.len() + SLACK);
        }
        assert!(heap.heap.capacity() <= 2 * 1000 * 9 / 8 + 2 * SLACK);
    }

    #[test]
    fn a_sample_set_aside_comes_back_with_its_hit() {
        let mut heap = Heap::default();
        heap.set(1, 10);
        heap.set(2, 20);
        assert_eq!(heap.victim(None, &|key| key == 2), Some(1));
        heap.set(2, 20);
        assert_eq!(heap.victim(None, &|_| false), Some(2));
    }
}
