//! One epoch of a plan: its order, dealt to ranks and cut into batches.
//!
//! An epoch is the order and a starting position; the rest is arithmetic. A resume
//! moves the start and deals what remains anew, to as many ranks as there now are:
//!
//! ```text
//!   order      a b c d e f g h i j        two ranks, batches of two:
//!              ^^^^^^^ 4 consumed          one batch each is the prefix a b c d
//!                      e f g h i j        dealt to three: 0: e h   1: f i   2: g j
//! ```
//!
//! So the state of a job is one number, the same on every rank. On as many ranks as
//! before, what follows is what torch would have dealt. Every query is O(1), and a
//! clone shares the order.

use std::sync::Arc;

use crate::{Deal, Error, Plan, Result, Uneven};

/// An epoch's order. A sequential one needs no memory.
#[derive(Debug, Clone)]
pub(crate) enum Ids {
    Sequential(u32),
    Listed(Arc<[u32]>),
}

/// One epoch, or what remains of it from some position on.
#[derive(Debug, Clone)]
pub struct Epoch {
    ids: Ids,
    samples: u32,
    start: u64,
    deal: Deal,
    world: u32,
    batch_size: u32,
    drop_last: bool,
}

impl Epoch {
    /// The plan holds at least one rank, a batch size above 0, and indices in range.
    pub(crate) fn new(plan: &Plan, ids: Ids) -> Self {
        Self {
            ids,
            samples: plan.samples(),
            start: 0,
            deal: plan.deal(),
            world: plan.world(),
            batch_size: plan.batch_size().unwrap_or(1),
            drop_last: plan.drop_last(),
        }
    }

    /// What remains of the order from position `consumed` on, dealt anew. Counted from
    /// the start of the epoch, so it does not matter where this one starts.
    pub fn from_position(&self, consumed: u64) -> Self {
        Self {
            start: consumed.min(self.total()),
            ..self.clone()
        }
    }

    /// The same positions, dealt to another number of ranks.
    pub fn with_world(&self, world: u32) -> Result<Self> {
        if world == 0 {
            return Err(Error::NoRanks);
        }
        Ok(Self {
            world,
            ..self.clone()
        })
    }

    /// The number of ranks that it is dealt to.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// The size of the dataset: every sample is below it.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// The first position of the order that is dealt.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The length of the order, consumed positions included, padding not.
    pub fn total(&self) -> u64 {
        match &self.ids {
            Ids::Sequential(samples) => u64::from(*samples),
            Ids::Listed(ids) => ids.len() as u64,
        }
    }

    /// The sample at a position of the order, whoever it is dealt to. Past the end the
    /// order starts again: that is how ranks are padded.
    ///
    /// # Panics
    /// If the order is empty.
    #[inline]
    pub fn at(&self, position: u64) -> u32 {
        let total = self.total();
        let position = if position < total {
            position
        } else {
            position % total
        };
        match &self.ids {
            Ids::Sequential(_) => position as u32,
            Ids::Listed(ids) => ids[position as usize],
        }
    }

    /// The samples in the batches of `rank`, padding included.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn len(&self, rank: u32) -> u64 {
        self.check_rank(rank);
        let remaining = self.total() - self.start;
        let world = u64::from(self.world);
        let size = u64::from(self.batch_size);
        let dealt = match self.deal {
            Deal::Strided { uneven } => match uneven {
                Uneven::Pad => remaining.div_ceil(world),
                Uneven::Drop => remaining / world,
                Uneven::Keep => remaining / world + u64::from(u64::from(rank) < remaining % world),
            },
            // accelerate leaves the batches of a single process alone.
            Deal::Batches if self.world == 1 => remaining,
            Deal::Batches if self.drop_last => remaining / (world * size) * size,
            Deal::Batches => remaining.div_ceil(world * size) * size,
        };
        if self.drop_last {
            dealt / size * size
        } else {
            dealt
        }
    }

    /// Whether no rank gets a sample.
    pub fn is_empty(&self) -> bool {
        self.len(0) == 0
    }

    /// The number of batches of `rank`.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn batches(&self, rank: u32) -> u64 {
        self.len(rank).div_ceil(u64::from(self.batch_size))
    }

    /// Where in the order the sample at `position` of `rank` stands. It is the same
    /// whatever the resumes before it; in padding it passes `total`.
    #[inline]
    pub fn global(&self, rank: u32, position: u64) -> u64 {
        let (rank, world) = (u64::from(rank), u64::from(self.world));
        match self.deal {
            Deal::Strided { .. } => self.start + position * world + rank,
            Deal::Batches => {
                let size = u64::from(self.batch_size);
                let (batch, offset) = (position / size, position % size);
                self.start + (batch * world + rank) * size + offset
            }
        }
    }

    /// The sample at `position` of `rank`.
    ///
    /// # Panics
    /// If there is no such rank, or its samples end before.
    pub fn sample(&self, rank: u32, position: u64) -> u32 {
        let len = self.len(rank);
        assert!(
            position < len,
            "position {position} of a rank of {len} samples"
        );
        self.at(self.global(rank, position))
    }

    /// All samples of `rank`, in order.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn rank(&self, rank: u32) -> impl ExactSizeIterator<Item = u32> + Clone + use<'_> {
        self.span(rank, 0, self.len(rank))
    }

    /// The samples of batch `index` of `rank`.
    ///
    /// # Panics
    /// If there is no such rank, or its batches end before.
    pub fn batch(
        &self,
        rank: u32,
        index: u64,
    ) -> impl ExactSizeIterator<Item = u32> + Clone + use<'_> {
        let (len, size) = (self.len(rank), u64::from(self.batch_size));
        let batches = len.div_ceil(size);
        assert!(
            index < batches,
            "batch {index} of a rank of {batches} batches"
        );
        self.span(rank, index * size, len.min((index + 1) * size))
    }

    /// The position in the order that is reached once every rank has taken `batches`
    /// batches, or all it has: what a resume needs to know. After the last batch the
    /// whole order is consumed, whatever was padded or dropped.
    pub fn consumed(&self, batches: u64) -> u64 {
        if batches == 0 {
            return self.start;
        }
        // No rank has more batches than the first.
        if batches >= self.batches(0) {
            return self.total();
        }
        self.start + batches * u64::from(self.batch_size) * u64::from(self.world)
    }

    fn span(
        &self,
        rank: u32,
        from: u64,
        to: u64,
    ) -> impl ExactSizeIterator<Item = u32> + Clone + use<'_> {
        // A rank's samples are a part of an order that is in memory, or a u32 counts it
        // (padding adds less than one round of batches): usize holds it.
        let (from, count) = (from, (to - from) as usize);
        (0..count).map(move |i| self.at(self.global(rank, from + i as u64)))
    }

    fn check_rank(&self, rank: u32) {
        let world = self.world;
        assert!(rank < world, "rank {rank} of a world of {world}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Order;

    fn letters(deal: Deal, drop_last: bool) -> Epoch {
        let plan = Plan::new(7, Order::Sequential, deal, 2, Some(2), drop_last);
        plan.unwrap().epoch(0)
    }

    fn batches(epoch: &Epoch, rank: u32) -> Vec<Vec<u32>> {
        (0..epoch.batches(rank))
            .map(|index| epoch.batch(rank, index).collect())
            .collect()
    }

    #[test]
    fn the_four_deals_are_those_of_the_picture() {
        let strided = |uneven| letters(Deal::Strided { uneven }, false);
        let pad = strided(Uneven::Pad);
        assert_eq!(batches(&pad, 0), [[0, 2], [4, 6]]);
        assert_eq!(batches(&pad, 1), [[1, 3], [5, 0]]);
        let drop = strided(Uneven::Drop);
        assert_eq!(batches(&drop, 0), [vec![0, 2], vec![4]]);
        assert_eq!(batches(&drop, 1), [vec![1, 3], vec![5]]);
        let keep = strided(Uneven::Keep);
        assert_eq!(batches(&keep, 0), [vec![0, 2], vec![4, 6]]);
        assert_eq!(batches(&keep, 1), [vec![1, 3], vec![5]]);
        let dealt = letters(Deal::Batches, false);
        assert_eq!(batches(&dealt, 0), [[0, 1], [4, 5]]);
        assert_eq!(batches(&dealt, 1), [[2, 3], [6, 0]]);
    }

    #[test]
    fn a_short_last_batch_can_be_left_out() {
        let drop = letters(
            Deal::Strided {
                uneven: Uneven::Drop,
            },
            true,
        );
        assert_eq!((drop.len(0), drop.batches(0)), (2, 1));
        assert_eq!(batches(&letters(Deal::Batches, true), 1), [[2, 3]]);
    }

    #[test]
    fn more_ranks_than_samples_are_padded_round_and_round() {
        let deal = Deal::Strided {
            uneven: Uneven::Pad,
        };
        let plan = Plan::new(2, Order::Sequential, deal, 5, None, false).unwrap();
        let epoch = plan.epoch(0);
        let first: Vec<u32> = (0..5).map(|rank| epoch.sample(rank, 0)).collect();
        assert_eq!(first, [0, 1, 0, 1, 0]);
    }

    #[test]
    fn an_empty_order_has_no_batches() {
        for uneven in [Uneven::Pad, Uneven::Drop, Uneven::Keep] {
            let deal = Deal::Strided { uneven };
            let plan = Plan::new(0, Order::Sequential, deal, 3, Some(4), false).unwrap();
            let epoch = plan.epoch(0);
            assert!(epoch.is_empty());
            assert_eq!((epoch.batches(2), epoch.consumed(1)), (0, 0));
        }
    }

    #[test]
    fn consumed_is_absolute_and_ends_with_the_order() {
        let epoch = letters(
            Deal::Strided {
                uneven: Uneven::Pad,
            },
            false,
        );
        assert_eq!([0, 1, 2, 9].map(|k| epoch.consumed(k)), [0, 4, 7, 7]);
        let rest = epoch.from_position(4).with_world(1).unwrap();
        assert_eq!([0, 1, 2].map(|k| rest.consumed(k)), [4, 6, 7]);
        assert!(rest.from_position(99).is_empty());
        assert!(rest.with_world(0).is_err());
    }

    #[test]
    #[should_panic(expected = "rank 2 of a world of 2")]
    fn a_rank_outside_the_world_is_a_bug_of_the_caller() {
        letters(Deal::Batches, false).len(2);
    }

    #[test]
    #[should_panic(expected = "position 4 of a rank of 4 samples")]
    fn a_position_outside_the_rank_is_a_bug_of_the_caller() {
        letters(Deal::Batches, false).sample(0, 4);
    }
}
