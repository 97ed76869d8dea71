//! The plan of a job: which samples each rank needs, in every epoch.
//!
//! A plan is settings only and costs nothing; an [`Epoch`] of it holds the order. A
//! seeded epoch costs its permutation, a sequential one nothing, a given one nothing.

use std::sync::Arc;

use crate::{Deal, Dialect, Epoch, Error, Mt19937, Result, epoch::Ids, randperm_as};

/// Where an epoch's order comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// 0..samples.
    Sequential,
    /// `torch.randperm(samples)` under `manual_seed(seed + epoch)`: the order of
    /// `DistributedSampler` and of accelerate's seedable sampler.
    Seeded {
        /// The seed of epoch 0.
        seed: u64,
    },
    /// The indices of one epoch, from a sampler. The same for every epoch asked for.
    Given(Arc<[u32]>),
}

/// The settings that fix every batch of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    samples: u32,
    order: Order,
    deal: Deal,
    world: u32,
    batch_size: Option<u32>,
    drop_last: bool,
    dialect: Dialect,
}

impl Plan {
    /// A plan for a dataset of `samples` on `world` ranks. Without a batch size,
    /// batching is off: each sample is a batch of its own. With `drop_last` a rank's
    /// last batch is left out if it is short.
    pub fn new(
        samples: u32,
        order: Order,
        deal: Deal,
        world: u32,
        batch_size: Option<u32>,
        drop_last: bool,
    ) -> Result<Self> {
        if world == 0 {
            return Err(Error::NoRanks);
        }
        if batch_size == Some(0) {
            return Err(Error::EmptyBatch);
        }
        if let Order::Given(indices) = &order {
            let outside = indices.iter().position(|&index| index >= samples);
            if let Some(position) = outside {
                return Err(Error::Index {
                    index: indices[position],
                    position,
                    samples,
                });
            }
        }
        Ok(Self {
            samples,
            order,
            deal,
            world,
            batch_size,
            drop_last,
            dialect: Dialect::Current,
        })
    }

    /// The same plan in the order of an older torch.
    pub fn with_dialect(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }

    /// The size of the dataset.
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Where the order comes from.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// How the order is dealt to ranks.
    pub fn deal(&self) -> Deal {
        self.deal
    }

    /// The number of ranks.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Samples in a batch; none where batching is off.
    pub fn batch_size(&self) -> Option<u32> {
        self.batch_size
    }

    /// Whether a rank's last batch is left out if it is short.
    pub fn drop_last(&self) -> bool {
        self.drop_last
    }

    /// `rank`, if this plan has it.
    pub fn check_rank(&self, rank: u32) -> Result<u32> {
        if rank < self.world {
            Ok(rank)
        } else {
            Err(Error::Rank {
                rank,
                world: self.world,
            })
        }
    }

    /// Epoch `epoch`, from its start.
    pub fn epoch(&self, epoch: u64) -> Epoch {
        let ids = match &self.order {
            Order::Sequential => Ids::Sequential(self.samples),
            Order::Seeded { seed } => {
                let seed = seed.wrapping_add(epoch);
                Ids::Listed(permutation(self.dialect, seed, self.samples))
            }
            Order::Given(indices) => Ids::Listed(Arc::clone(indices)),
        };
        Epoch::new(self, ids)
    }

    /// An epoch whose order is handed over, dealt as this plan deals.
    pub fn epoch_of(&self, indices: Arc<[u32]>) -> Result<Epoch> {
        let given = Self::new(
            self.samples,
            Order::Given(indices),
            self.deal,
            self.world,
            self.batch_size,
            self.drop_last,
        )?;
        Ok(given.epoch(0))
    }
}

/// Permutes in the shared allocation itself: no copy of 4 bytes a sample.
fn permutation(dialect: Dialect, seed: u64, samples: u32) -> Arc<[u32]> {
    let mut ids: Arc<[u32]> = (0..samples).collect();
    if let Some(slots) = Arc::get_mut(&mut ids) {
        randperm_as(dialect, &mut Mt19937::new(seed), slots);
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Uneven, randperm};

    const PAD: Deal = Deal::Strided {
        uneven: Uneven::Pad,
    };

    #[test]
    fn a_plan_that_cannot_run_is_refused() {
        let plan = |order, world, size| Plan::new(3, order, PAD, world, size, false);
        assert_eq!(plan(Order::Sequential, 0, None), Err(Error::NoRanks));
        assert_eq!(plan(Order::Sequential, 1, Some(0)), Err(Error::EmptyBatch));
        let error = plan(Order::Given([0, 3].into()), 1, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "index 3 at position 1 of the order is outside a dataset of 3 samples"
        );
        let error = plan(Order::Sequential, 2, None).unwrap().check_rank(2);
        assert_eq!(
            error.unwrap_err().to_string(),
            "rank 2 is outside a world of 2"
        );
    }

    #[test]
    fn every_epoch_has_the_permutation_of_its_own_seed() {
        let order = Order::Seeded { seed: u64::MAX };
        let plan = Plan::new(50, order, PAD, 1, None, false).unwrap();
        for epoch in [0u64, 1, 2, 1000] {
            let seed = u64::MAX.wrapping_add(epoch);
            let expected = randperm(&mut Mt19937::new(seed), 50);
            let ours: Vec<u32> = (0..50).map(|i| plan.epoch(epoch).sample(0, i)).collect();
            assert_eq!(ours, expected);
        }
    }

    #[test]
    fn a_given_order_serves_its_own_length() {
        let plan = Plan::new(9, Order::Sequential, PAD, 2, Some(2), false).unwrap();
        let epoch = plan.epoch_of([8, 8, 0].into()).unwrap();
        assert_eq!((epoch.len(0), epoch.len(1)), (2, 2));
        assert_eq!(epoch.batch(1, 0).collect::<Vec<_>>(), [8, 8]);
        assert!(plan.epoch_of([9].into()).is_err());
    }
}
