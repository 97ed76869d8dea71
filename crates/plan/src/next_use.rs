//! When is a sample wanted again?
//!
//! Ranks advance in lockstep: a tick serves one sample of each rank that is watched.
//! Ticks count on from this epoch into the coming one.
//!
//! ```text
//!   two ranks     this epoch        the coming one
//!   tick          0  1  2           3  4  5
//!   rank 0        a  c  e           d  a  b          a: wanted at 0, again at 4
//!   rank 1        b  d  f           f  c  e          b: wanted at 0, again at 5
//! ```
//!
//! The walk is row by row: (tick 0, rank 0), (tick 0, rank 1), (tick 1, rank 0), ...
//! One scan from its end links each use to the next use of the same sample:
//! 4 bytes for each sample of the dataset, 4 for each position of this epoch, and 8
//! for each repeat within the coming one (none to speak of in a permutation). O(n) to
//! build; `after` and `first` are O(1), `next` steps over the uses before `now`.

use std::mem;

use crate::{Epoch, prefetch::prefetch};

const NEVER: u32 = u32::MAX;
const BLOCK: usize = 64;

/// The uses of every sample in this epoch and the coming one.
#[derive(Debug, Clone)]
pub struct NextUse {
    /// Watched ranks: the length of a row.
    width: u32,
    /// Ticks of this epoch.
    ticks: u64,
    /// By sample: its first use.
    first: Vec<u32>,
    /// By use in this epoch: the next use of the same sample.
    after: Vec<u32>,
    /// Uses in the coming epoch that have a next one within it, ascending.
    repeats: Vec<(u32, u32)>,
}

impl NextUse {
    /// Scans `current` and `coming` for what `ranks` use: one rank, those of a node, or
    /// all. What lies 2^32 - 1 uses ahead or more counts as never.
    ///
    /// # Panics
    /// If an epoch lacks one of the ranks.
    pub fn new(current: &Epoch, coming: Option<&Epoch>, ranks: &[u32]) -> Self {
        Self::mapped(current, coming, ranks, None)
    }

    /// The same where the epochs are of a view: `map` has the sample that each of their numbers
    /// stands for. Two numbers may stand for one sample, which is then wanted whenever one of them
    /// is. [`NextUse::first`] and [`NextUse::next`] speak of the samples, not of the numbers.
    ///
    /// # Panics
    /// If an epoch lacks one of the ranks, or the map one of an epoch's numbers.
    pub fn mapped(
        current: &Epoch,
        coming: Option<&Epoch>,
        ranks: &[u32],
        map: Option<&[u32]>,
    ) -> Self {
        let samples = match map {
            Some(map) => map.iter().max().map_or(0, |&last| u64::from(last) + 1),
            None => u64::from(current.samples().max(coming.map_or(0, Epoch::samples))),
        };
        let mut first = vec![NEVER; samples as usize];
        let now = Walk::new(current, ranks, map);
        let mut repeats = Vec::new();
        if let Some(coming) = coming {
            Walk::new(coming, ranks, map).backward(now.end(), &mut first, |place, next| {
                if next != NEVER {
                    repeats.push((place, next));
                }
            });
            repeats.reverse();
            repeats.shrink_to_fit();
        }
        let mut after = vec![NEVER; now.end().min(u64::from(NEVER)) as usize];
        now.backward(0, &mut first, |place, next| after[place as usize] = next);
        Self {
            width: ranks.len() as u32,
            ticks: now.ticks,
            first,
            after,
            repeats,
        }
    }

    /// Without the first uses, which take 4 bytes for each sample of the dataset: [`NextUse::after`]
    /// answers as before, `first` and `next` find nothing.
    pub fn links_only(self) -> Self {
        Self {
            first: Vec::new(),
            ..self
        }
    }

    /// The ticks of this epoch: the coming one starts at that tick.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// The place in the walk of a tick and the rank that stands at `slot` of the
    /// watched ranks. With one rank watched, place and tick are the same.
    pub fn place(&self, tick: u64, slot: u32) -> u64 {
        tick * u64::from(self.width) + u64::from(slot)
    }

    /// When the sample that is used at this place is used next. The same tick, where
    /// another rank takes it in lockstep.
    pub fn after(&self, place: u64) -> Option<u64> {
        let place = u32::try_from(place).ok()?;
        self.tick(self.link(place))
    }

    /// When `sample` is first used, in this epoch or the coming one.
    pub fn first(&self, sample: u32) -> Option<u64> {
        self.tick(*self.first.get(sample as usize)?)
    }

    /// When `sample` is used at tick `now` or later.
    pub fn next(&self, sample: u32, now: u64) -> Option<u64> {
        let mut place = *self.first.get(sample as usize)?;
        loop {
            let tick = self.tick(place)?;
            if tick >= now {
                return Some(tick);
            }
            place = self.link(place);
        }
    }

    fn link(&self, place: u32) -> u32 {
        match self.after.get(place as usize) {
            Some(next) => *next,
            None => match self.repeats.binary_search_by_key(&place, |repeat| repeat.0) {
                Ok(found) => self.repeats[found].1,
                Err(_) => NEVER,
            },
        }
    }

    fn tick(&self, place: u32) -> Option<u64> {
        (place != NEVER).then(|| u64::from(place / self.width))
    }
}

/// The uses of an epoch by some ranks, row by row.
struct Walk<'a> {
    epoch: &'a Epoch,
    map: Option<&'a [u32]>,
    /// Each rank and its length; in the last row some may have ended.
    ranks: Vec<(u32, u64)>,
    ticks: u64,
}

impl<'a> Walk<'a> {
    fn new(epoch: &'a Epoch, ranks: &[u32], map: Option<&'a [u32]>) -> Self {
        let ranks: Vec<_> = ranks.iter().map(|&rank| (rank, epoch.len(rank))).collect();
        let ticks = ranks.iter().map(|rank| rank.1).max().unwrap_or(0);
        Self {
            epoch,
            map,
            ranks,
            ticks,
        }
    }

    fn end(&self) -> u64 {
        self.ticks * self.ranks.len() as u64
    }

    /// Names each place, counted on from `offset`, and the use that follows it, from the
    /// last place to the first. `first` holds the uses found so far. In small blocks, so
    /// that the random touches of `first` overlap.
    fn backward(&self, offset: u64, first: &mut [u32], mut link: impl FnMut(u32, u32)) {
        let mut block = Vec::with_capacity(BLOCK);
        let mut drain = |block: &mut Vec<(u32, u32)>, first: &mut [u32]| {
            for (place, sample) in block.drain(..) {
                link(place, mem::replace(&mut first[sample as usize], place));
            }
        };
        for tick in (0..self.ticks).rev() {
            let row = offset + tick * self.ranks.len() as u64;
            for (slot, &(rank, len)) in self.ranks.iter().enumerate().rev() {
                let place = row + slot as u64;
                if tick >= len || place >= u64::from(NEVER) {
                    continue;
                }
                let sample = self.epoch.at(self.epoch.global(rank, tick));
                let sample = self.map.map_or(sample, |map| map[sample as usize]);
                prefetch(first, sample as usize);
                block.push((place as u32, sample));
                if block.len() == BLOCK {
                    drain(&mut block, first);
                }
            }
        }
        drain(&mut block, first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Deal, Order, Plan, Uneven};
    use proptest::prelude::*;

    fn plan(samples: u32, order: Order, deal: Deal, world: u32) -> Plan {
        Plan::new(samples, order, deal, world, Some(2), false).unwrap()
    }

    fn given(samples: u32, ids: &[u32], world: u32) -> Epoch {
        let deal = Deal::Strided {
            uneven: Uneven::Keep,
        };
        plan(samples, Order::Given(ids.into()), deal, world).epoch(0)
    }

    #[test]
    fn the_picture_is_true() {
        let current = given(6, &[0, 1, 2, 3, 4, 5], 2);
        let coming = given(6, &[3, 5, 0, 2, 1, 4], 2);
        let uses = NextUse::new(&current, Some(&coming), &[0, 1]);
        assert_eq!(uses.ticks(), 3);
        assert_eq!((uses.first(0), uses.after(0)), (Some(0), Some(4)));
        assert_eq!((uses.next(1, 0), uses.next(1, 1)), (Some(0), Some(5)));
        assert_eq!(uses.after(uses.place(1, 1)), Some(3));
        assert_eq!(uses.next(3, 4), None);
        let alone = NextUse::new(&current, None, &[1]);
        assert_eq!((alone.first(0), alone.first(5)), (None, Some(2)));
        assert_eq!((alone.after(0), alone.first(99)), (None, None));
        let links = uses.links_only();
        assert_eq!((links.after(0), links.first(0)), (Some(4), None));
    }

    #[test]
    fn watching_no_rank_finds_no_use() {
        let uses = NextUse::new(&given(2, &[0, 1], 1), None, &[]);
        assert_eq!(
            (uses.ticks(), uses.first(0), uses.after(0)),
            (0, None, None)
        );
    }

    #[test]
    fn two_numbers_of_one_sample_are_wanted_as_that_sample() {
        let current = given(4, &[0, 1, 2, 3], 1);
        let coming = given(4, &[3, 2, 1, 0], 1);
        // Numbers 0 and 2 are sample 9, 1 is sample 4, 3 is sample 5.
        let uses = NextUse::mapped(&current, Some(&coming), &[0], Some(&[9, 4, 9, 5]));
        let after = |place| uses.after(place);
        assert_eq!((after(0), after(1), after(2)), (Some(2), Some(6), Some(5)));
        assert_eq!((uses.after(3), uses.after(5)), (Some(4), Some(7)));
        assert_eq!((uses.first(9), uses.next(9, 3)), (Some(0), Some(5)));
        assert_eq!(uses.first(0), None);
    }

    proptest! {
        /// Orders with repeats, uneven ranks, resumed epochs: against a plain search.
        #[test]
        fn every_answer_is_that_of_a_search(
            current in proptest::collection::vec(0u32..12, 0..30),
            coming in proptest::option::of(proptest::collection::vec(0u32..12, 0..30)),
            world in 1u32..5,
            watched in 1u32..5,
            start in 0u64..10,
            kind in 0..4,
        ) {
            let deal = match kind {
                0 => Deal::Strided { uneven: Uneven::Pad },
                1 => Deal::Strided { uneven: Uneven::Drop },
                2 => Deal::Strided { uneven: Uneven::Keep },
                _ => Deal::Batches,
            };
            let epoch = |ids: &Vec<u32>| {
                plan(12, Order::Given(ids.as_slice().into()), deal, world).epoch(0)
            };
            let current = epoch(&current).from_position(start);
            let coming = coming.as_ref().map(epoch);
            let ranks: Vec<u32> = (0..watched.min(world)).rev().collect();
            let uses = NextUse::new(&current, coming.as_ref(), &ranks);

            let mut walk: Vec<(u64, u64, u32)> = Vec::new();
            let mut base = 0;
            for epoch in std::iter::once(&current).chain(&coming) {
                let ticks = ranks.iter().map(|&rank| epoch.len(rank)).max().unwrap();
                for tick in 0..ticks {
                    for (slot, &rank) in ranks.iter().enumerate() {
                        if tick < epoch.len(rank) {
                            let place = uses.place(base + tick, slot as u32);
                            walk.push((place, base + tick, epoch.sample(rank, tick)));
                        }
                    }
                }
                base += ticks;
            }
            for (i, &(place, _, sample)) in walk.iter().enumerate() {
                let later = walk[i + 1..].iter().find(|use_| use_.2 == sample);
                prop_assert_eq!(uses.after(place), later.map(|use_| use_.1));
            }
            for sample in 0..12 {
                for now in 0..base + 2 {
                    let later = walk.iter().find(|use_| use_.2 == sample && use_.1 >= now);
                    prop_assert_eq!(uses.next(sample, now), later.map(|use_| use_.1));
                }
                prop_assert_eq!(uses.first(sample), uses.next(sample, 0));
            }
        }
    }
}
