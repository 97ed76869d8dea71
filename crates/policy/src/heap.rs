//! Kept samples by rank, the highest first: a lazy heap in two parts.
//!
//! A new rank adds a fresh entry and leaves the old one where it is; an entry counts only if it
//! agrees with the table:
//!
//! ```text
//!   entries  (9, b)  (7, a)  (4, b)        table   a -> 7
//!             stale   ^top                         b -> 4
//! ```
//!
//! Most entries are far from the top and wait for long, so only the highest are in a heap, which
//! stays in the processor's cache; the others lie in a list without order, to which adding is free:
//!
//! ```text
//!   heap [ all above the floor ]   floor   list [ all others, as they came ]
//! ```
//!
//! When the heap is empty the highest sixteenth of the list makes the next one; when it gets too
//! large its lower half goes to the list. O(log n) a call, spread over many. When more than half
//! the entries are stale all are made anew from the table, so there are at most two a sample.

use std::collections::BinaryHeap;

use crate::table::SlotTable;
use crate::{Next, Slot};

/// Higher ranks go first. None is 0.
pub(crate) type Rank = u64;

/// The rank of what is never wanted again, or nobody knows when.
pub(crate) const NEVER: Rank = Rank::MAX;

/// The rank of a sample by its next use: later is higher.
pub(crate) fn distance(next: Next) -> Rank {
    next.map_or(NEVER, |tick| tick.saturating_add(1).min(NEVER - 1))
}

type Entry = (Rank, Slot);

#[derive(Debug)]
pub(crate) struct Heap {
    /// Entries above the floor, or the floor itself.
    heap: BinaryHeap<Entry>,
    /// The others.
    list: Vec<Entry>,
    floor: Entry,
    /// By slot; 0 where nothing is kept.
    ranks: SlotTable<Rank>,
    live: usize,
}

/// Stale entries that are not worth a rebuild however few samples there are.
const SLACK: usize = 64;
/// The part of the list that becomes the next heap.
const PART: usize = 16;
/// The least that it is.
const LEAST: usize = 64;

impl Default for Heap {
    fn default() -> Heap {
        Heap {
            heap: BinaryHeap::new(),
            list: Vec::new(),
            floor: (Rank::MAX, Slot::MAX),
            ranks: SlotTable::new(0),
            live: 0,
        }
    }
}

impl Heap {
    /// The table; two entries of 16 bytes with a growth of an eighth, old and new at once; and an
    /// eighth of an entry for what the heap has beyond its part of them, as it grows.
    pub(crate) const OVERHEAD: u64 = SlotTable::<Rank>::OVERHEAD + 69 + 5;

    pub(crate) fn rank(&self, slot: Slot) -> Option<Rank> {
        Some(self.ranks.get(slot)).filter(|&rank| rank > 0)
    }

    /// Inserts the sample or gives it another rank.
    pub(crate) fn set(&mut self, slot: Slot, rank: Rank) {
        debug_assert!(rank > 0);
        let before = self.ranks.set(slot, rank);
        self.live += usize::from(before == 0);
        if self.heap.len() + self.list.len() >= 2 * self.live + SLACK {
            self.rebuild();
        } else if (rank, slot) > self.floor {
            if self.heap.len() >= LEAST.max(self.live / (PART / 2)) {
                self.lower_half_to_the_list();
            }
            grow(&mut self.heap);
            self.heap.push((rank, slot));
        } else {
            self.add_to_list((rank, slot));
        }
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        if self.ranks.set(slot, 0) > 0 {
            self.live -= 1;
        }
    }

    /// The sample of the highest rank; it stays.
    pub(crate) fn top(&mut self) -> Option<Entry> {
        loop {
            while let Some(&(rank, slot)) = self.heap.peek() {
                if self.ranks.get(slot) == rank {
                    return Some((rank, slot));
                }
                self.heap.pop();
            }
            if self.list.is_empty() {
                self.floor = (Rank::MAX, Slot::MAX);
                return None;
            }
            self.refill();
        }
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
        held: &dyn Fn(Slot) -> bool,
    ) -> Option<Slot> {
        while let Some((rank, slot)) = self.top() {
            if floor.is_some_and(|floor| rank <= floor) {
                return None;
            }
            if !held(slot) {
                return Some(slot);
            }
            self.set_aside();
        }
        None
    }

    /// Slots near the top. Those that count are looked up, so that [`Heap::top`] will find their
    /// ranks in the processor's cache.
    pub(crate) fn likely(&self, most: usize, name: &mut dyn FnMut(Slot)) {
        for &(rank, slot) in self.heap.iter().take(most) {
            if self.ranks.get(slot) == rank {
                name(slot);
            }
        }
    }

    fn add_to_list(&mut self, entry: Entry) {
        if self.list.len() == self.list.capacity() {
            // By an eighth, not by doubling: the entries count against a byte budget.
            self.list.reserve_exact(self.list.len() / 8 + 16);
        }
        self.list.push(entry);
    }

    /// The heap is empty: the highest part of the list becomes the next one.
    fn refill(&mut self) {
        let part = (self.list.len() / PART).max(LEAST);
        let lower = self.list.len().saturating_sub(part);
        self.floor = (0, 0);
        if lower > 0 {
            self.floor = *self.list.select_nth_unstable(lower).1;
        }
        // A heap of new entries is made at once in the room of the old one.
        let mut entries = std::mem::take(&mut self.heap).into_vec();
        entries.clear();
        entries.reserve_exact(self.list.len() - lower);
        entries.extend(self.list.drain(lower..));
        self.heap = entries.into();
    }

    fn lower_half_to_the_list(&mut self) {
        let mut entries = std::mem::take(&mut self.heap).into_vec();
        let half = entries.len() / 2;
        entries.select_nth_unstable(half);
        self.floor = entries[half];
        for &entry in &entries[..=half] {
            self.add_to_list(entry);
        }
        entries.drain(..=half);
        self.heap = entries.into();
    }

    fn rebuild(&mut self) {
        self.heap.clear();
        self.list.clear();
        self.floor = (Rank::MAX, Slot::MAX);
        self.list.reserve_exact(self.live);
        let kept = self.ranks.iter().filter(|&(_, rank)| rank > 0);
        self.list.extend(kept.map(|(slot, rank)| (rank, slot)));
    }
}

fn grow(heap: &mut BinaryHeap<Entry>) {
    if heap.len() == heap.capacity() {
        heap.reserve_exact(heap.len() / 8 + 16);
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
        for tick in 0..100_000u64 {
            // Equal ranks now and then: they must not pile up as valid duplicates.
            heap.set((tick % 1000) as Slot, 1 + tick / 7);
            if tick % 3 == 0 {
                heap.top();
            }
            let entries = heap.heap.len() + heap.list.len();
            assert!(entries <= 2 * heap.live + SLACK);
        }
        let room = heap.heap.capacity() + heap.list.capacity();
        assert!(
            room <= 2 * 1000 * 9 / 8 + 1000 / 8 + 2 * SLACK + 2 * LEAST,
            "{room}"
        );
    }

    #[test]
    fn a_sample_set_aside_comes_back_with_its_hit() {
        let mut heap = Heap::default();
        heap.set(1, 10);
        heap.set(2, 20);
        assert_eq!(heap.victim(None, &|slot| slot == 2), Some(1));
        heap.set(2, 20);
        assert_eq!(heap.victim(None, &|_| false), Some(2));
    }

    #[test]
    fn it_sorts_as_a_plain_search_does_whatever_is_set_and_removed() {
        let mut heap = Heap::default();
        let mut plain = std::collections::BTreeMap::new();
        let mut random = 1u64;
        let mut below = |bound: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % bound
        };
        for step in 0..60_000 {
            let slot = below(3_000) as Slot;
            match below(10) {
                0..=5 => {
                    let rank = 1 + below(1_000_000);
                    heap.set(slot, rank);
                    plain.insert(slot, rank);
                }
                6 => {
                    heap.remove(slot);
                    plain.remove(&slot);
                }
                // In runs, so that the heap is emptied and made again.
                _ if step / 500 % 2 == 0 => {}
                _ => {
                    let best = plain.iter().map(|(&slot, &rank)| (rank, slot)).max();
                    assert_eq!(heap.top(), best);
                    if let Some((_, slot)) = best {
                        heap.remove(slot);
                        plain.remove(&slot);
                    }
                }
            }
        }
    }
}
