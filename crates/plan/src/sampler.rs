//! The index streams of torch's samplers, and when they draw.
//!
//! torch's samplers are generators: they draw from the engine while indices are being
//! asked for. A loop that breaks off early leaves the engine where the last request
//! left it, so each sampler names its *stages*: at which index it draws, and how much.
//!
//! ```text
//!   RandomSampler of 5, num_samples 10, generator=g
//!   index asked for   0 . . . . 5 . . . . 10 = the request that finds the end
//!   draws of g        4         4         4    <- the trailing permutation
//! ```
//!
//! The trailing permutation is drawn and thrown away whenever num_samples is a
//! multiple of the dataset. `RandomSampler` without a generator draws one int64 seed
//! from the default engine and then streams from `Mt19937::new(seed)`.

use std::sync::Arc;

use crate::{
    Dialect, Error, Mt19937, Result, multinomial, randint, randint_draws, randperm_as,
    randperm_draws_as,
};

/// Draws with replacement come in chunks of this many indices.
const CHUNK: u64 = 32;

/// One of torch's samplers.
#[derive(Debug, Clone, PartialEq)]
pub enum Sampler {
    /// `SequentialSampler`: 0..samples.
    Sequential {
        /// The size of the dataset.
        samples: u32,
    },
    /// `RandomSampler`.
    Random {
        /// The size of the dataset.
        samples: u32,
        /// `num_samples`; the size of the dataset by default.
        count: u64,
        /// Whether an index may come again before all others came.
        replacement: bool,
        /// Which torch to agree with.
        dialect: Dialect,
    },
    /// `SubsetRandomSampler`: a permutation of these indices.
    Subset {
        /// What it is a permutation of.
        indices: Arc<[u32]>,
        /// Which torch to agree with.
        dialect: Dialect,
    },
    /// `WeightedRandomSampler(replacement=True)`.
    Weighted {
        /// A weight for each sample.
        weights: Arc<[f64]>,
        /// `num_samples`, at least 2.
        count: u64,
    },
}

/// A moment at which a sampler draws from its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// The index whose request makes it draw; the length of the stream where it is the
    /// request that finds the end.
    pub at: u64,
    /// How many 32-bit draws it makes.
    pub draws: u64,
}

impl Sampler {
    /// `RandomSampler(dataset)`: every sample once, in the order of today's torch.
    pub fn shuffled(samples: u32) -> Self {
        Self::Random {
            samples,
            count: u64::from(samples),
            replacement: false,
            dialect: Dialect::Current,
        }
    }

    /// The number of indices in the stream.
    pub fn len(&self) -> u64 {
        match self {
            Self::Sequential { samples } => u64::from(*samples),
            Self::Random { count, .. } | Self::Weighted { count, .. } => *count,
            Self::Subset { indices, .. } => indices.len() as u64,
        }
    }

    /// Whether the stream holds no index.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole stream. Leaves `engine` as torch does once the end was found; for a
    /// stream that is broken off, `skip` the `draws` of a clone instead.
    pub fn indices(&self, engine: &mut Mt19937) -> Result<Vec<u32>> {
        match self {
            Self::Sequential { samples } => Ok((0..*samples).collect()),
            Self::Random {
                samples,
                count,
                replacement,
                dialect,
            } => {
                if *samples == 0 {
                    return Err(Error::NothingToDraw { count: *count });
                }
                if *replacement {
                    let n = u64::from(*samples);
                    let index = |_| randint(engine, n, *dialect) as u32;
                    Ok((0..*count).map(index).collect())
                } else {
                    Ok(permutations(*dialect, engine, *samples, *count))
                }
            }
            Self::Subset { indices, dialect } => {
                let mut order = vec![0; indices.len()];
                randperm_as(*dialect, engine, &mut order);
                for index in &mut order {
                    *index = indices[*index as usize];
                }
                Ok(order)
            }
            Self::Weighted { weights, count } => multinomial(engine, weights, *count),
        }
    }

    /// When the stream draws, in order.
    pub fn stages(&self) -> impl Iterator<Item = Stage> + '_ {
        (0..self.stage_count()).map(|stage| self.stage(stage))
    }

    /// The draws made once `requests` indices were asked for; asking once more than
    /// there are indices finds the end. O(1).
    pub fn draws(&self, requests: u64) -> u64 {
        // All stages but the last are alike and evenly spaced.
        let Some(last) = self.stage_count().checked_sub(1) else {
            return 0;
        };
        let before_last = if last == 0 {
            0
        } else {
            requests.div_ceil(self.stage(1).at).min(last)
        };
        let tail = self.stage(last);
        let alike = if last == 0 { 0 } else { self.stage(0).draws };
        before_last * alike + if tail.at < requests { tail.draws } else { 0 }
    }

    /// The requests that a `BatchSampler` makes for its first `batches` batches, asked
    /// for or refused: a batch that comes out short has found the end. Without a batch
    /// size, each request is one index.
    pub fn requests(&self, batches: u64, batch_size: Option<u32>) -> u64 {
        let size = u64::from(batch_size.unwrap_or(1));
        batches.saturating_mul(size).min(self.len() + 1)
    }

    fn stage_count(&self) -> u64 {
        match self {
            Self::Sequential { .. } => 0,
            Self::Random { samples: 0, .. } => 0,
            Self::Random {
                count, replacement, ..
            } if *replacement => count / CHUNK + 1,
            Self::Random { samples, count, .. } => count / u64::from(*samples) + 1,
            Self::Subset { .. } | Self::Weighted { .. } => 1,
        }
    }

    fn stage(&self, stage: u64) -> Stage {
        let (at, draws) = match self {
            Self::Sequential { .. } => (0, 0),
            Self::Random {
                samples,
                count,
                replacement,
                dialect,
            } => {
                if *replacement {
                    let at = stage * CHUNK;
                    let indices = CHUNK.min(count - at);
                    (at, indices * randint_draws(u64::from(*samples), *dialect))
                } else {
                    (
                        stage * u64::from(*samples),
                        randperm_draws_as(*dialect, *samples),
                    )
                }
            }
            Self::Subset { indices, dialect } => {
                (0, randperm_draws_as(*dialect, indices.len() as u32))
            }
            Self::Weighted { count, .. } => (0, 2 * count),
        };
        Stage { at, draws }
    }
}

/// `count` indices of one permutation after another; the last one is drawn in full
/// even where nothing, or only a part, of it is wanted.
fn permutations(dialect: Dialect, engine: &mut Mt19937, samples: u32, count: u64) -> Vec<u32> {
    let mut order = vec![0; count as usize];
    let mut whole = order.chunks_exact_mut(samples as usize);
    for permutation in &mut whole {
        randperm_as(dialect, engine, permutation);
    }
    let rest = whole.into_remainder();
    if rest.is_empty() {
        engine.skip(randperm_draws_as(dialect, samples));
    } else {
        let mut last = vec![0; samples as usize];
        randperm_as(dialect, engine, &mut last);
        rest.copy_from_slice(&last[..rest.len()]);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(samples: u32, count: u64, replacement: bool) -> Sampler {
        Sampler::Random {
            samples,
            count,
            replacement,
            dialect: Dialect::Current,
        }
    }

    fn samplers() -> Vec<Sampler> {
        let mut all = vec![
            Sampler::Sequential { samples: 7 },
            Sampler::Subset {
                indices: [5, 3, 9].into(),
                dialect: Dialect::Current,
            },
            Sampler::Subset {
                indices: [].into(),
                dialect: Dialect::Before2_6,
            },
            Sampler::Weighted {
                weights: [1.0, 2.0].into(),
                count: 9,
            },
        ];
        for count in [1, 4, 5, 6, 10, 31, 32, 33, 64, 70] {
            all.push(random(5, count, false));
            all.push(random(5, count, true));
        }
        all.push(random(1, 3, false));
        all.push(random(1 << 29, 40, true));
        all
    }

    #[test]
    fn the_stages_add_up_to_what_the_whole_stream_draws() {
        for sampler in samplers() {
            let mut engine = Mt19937::new(2);
            let indices = sampler.indices(&mut engine).unwrap();
            assert_eq!(indices.len() as u64, sampler.len());
            let mut skipped = Mt19937::new(2);
            skipped.skip(sampler.stages().map(|stage| stage.draws).sum());
            assert_eq!(engine, skipped, "{sampler:?}");
        }
    }

    #[test]
    fn the_draws_after_some_requests_are_those_of_the_stages_reached() {
        for sampler in samplers() {
            for requests in 0..=sampler.len() + 1 {
                let reached = sampler.stages().filter(|stage| stage.at < requests);
                let sum: u64 = reached.map(|stage| stage.draws).sum();
                assert_eq!(sampler.draws(requests), sum, "{sampler:?} {requests}");
            }
        }
    }

    #[test]
    fn the_trailing_permutation_is_drawn_when_the_end_is_found() {
        let sampler = Sampler::shuffled(10);
        let trailing = Stage { at: 10, draws: 9 };
        assert_eq!(sampler.stages().last(), Some(trailing));
        // 10 in batches of 5: two batches do not find the end, the third request does.
        assert_eq!(sampler.draws(sampler.requests(2, Some(5))), 9);
        assert_eq!(sampler.draws(sampler.requests(3, Some(5))), 18);
        // In batches of 4 the third batch is short, so it has found the end.
        assert_eq!(sampler.draws(sampler.requests(2, Some(4))), 9);
        assert_eq!(sampler.draws(sampler.requests(3, Some(4))), 18);
        assert_eq!(sampler.draws(sampler.requests(10, None)), 9);
        assert_eq!(sampler.draws(sampler.requests(11, None)), 18);
    }

    #[test]
    fn nothing_can_be_drawn_from_an_empty_dataset() {
        let error = random(0, 3, true).indices(&mut Mt19937::new(0));
        assert_eq!(error, Err(Error::NothingToDraw { count: 3 }));
        assert!(Sampler::shuffled(0).is_empty());
    }
}
