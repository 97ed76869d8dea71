//! What can be wrong with a plan. Every case is a call to mend, none is worth a retry.

/// Why a plan, an order or a generator's state was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A plan for no rank at all.
    #[error("world size is 0")]
    NoRanks,
    /// A rank outside the world.
    #[error("rank {rank} is outside a world of {world}")]
    Rank {
        /// The rank asked for.
        rank: u32,
        /// The number of ranks there are.
        world: u32,
    },
    /// A batch of no samples.
    #[error("batch size is 0")]
    EmptyBatch,
    /// A given order names a sample that the dataset lacks.
    #[error(
        "index {index} at position {position} of the order is outside a dataset of {samples} samples"
    )]
    Index {
        /// The index found.
        index: u32,
        /// Where in the order it stands.
        position: usize,
        /// The size of the dataset.
        samples: u32,
    },
    /// Samples are to be drawn from an empty dataset.
    #[error("cannot draw {count} samples from none")]
    NothingToDraw {
        /// How many were asked for.
        count: u64,
    },
    /// A weight that is no weight.
    #[error("weight {position} is {value}")]
    Weight {
        /// Which weight.
        position: usize,
        /// Its value.
        value: f64,
    },
    /// All weights are zero, or there are none.
    #[error("{count} weights sum to zero")]
    NoWeight {
        /// How many weights there are.
        count: usize,
    },
    /// One weighted draw: torch takes another path there, which depends on its build.
    #[error("one weighted draw has no order that is the same in every build of torch")]
    SingleDraw,
    /// A generator's state that is too short.
    #[error("generator state is {found} bytes, expected at least {expected}")]
    StateLength {
        /// The length found.
        found: usize,
        /// The least length.
        expected: usize,
    },
    /// A generator's state that no mt19937 of torch can be in.
    #[error(
        "generator state holds left {left}, next {next}, seeded {seeded}: not an mt19937 of torch"
    )]
    State {
        /// Words left before the next refill, as stored.
        left: i32,
        /// The next word, as stored.
        next: u64,
        /// Whether it says that it was seeded.
        seeded: i32,
    },
}

impl Error {
    /// Advice for the user, where there is any.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoRanks => "pass a world size of at least 1",
            Self::Rank { .. } => "ranks count from 0 to world size - 1",
            Self::EmptyBatch => "pass a batch size of at least 1, or none to switch batching off",
            Self::Index { .. } => "the sampler was made for another dataset",
            Self::NothingToDraw { .. } => "the dataset is empty",
            Self::Weight { .. } => "weights are finite and not negative",
            Self::NoWeight { .. } => "at least one weight is above zero",
            Self::SingleDraw => "run torch's own sampler for a single draw",
            Self::StateLength { .. } | Self::State { .. } => {
                "pass the bytes of torch.Generator(\"cpu\").get_state()"
            }
        })
    }
}
