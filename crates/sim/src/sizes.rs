//! The lengths of a dataset's samples: all alike, those of an index, or drawn.

use std::sync::Arc;

/// Lengths in bytes. What is longer than 4 GiB counts as 4 GiB.
#[derive(Debug, Clone, PartialEq)]
pub enum Sizes {
    /// Every sample has this length.
    Equal(u32),
    /// By sample.
    Listed(Arc<[u32]>),
}

impl Sizes {
    /// The lengths of an index.
    pub fn listed(lengths: impl IntoIterator<Item = u64>) -> Self {
        let short = |length| u32::try_from(length).unwrap_or(u32::MAX);
        Self::Listed(lengths.into_iter().map(short).collect())
    }

    /// Log-normal lengths around `mean`, as photos have them: `sigma` is the deviation of the
    /// logarithm, 0.5 to 0.6 for JPEGs of one source. The same for the same seed.
    pub fn log_normal(samples: u32, mean: f64, sigma: f64, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut spare = None;
        let mut normal = || {
            spare.take().unwrap_or_else(|| {
                // Box and Muller: two at a time.
                let radius = (-2.0 * random.unit().ln()).sqrt();
                let angle = std::f64::consts::TAU * random.unit();
                spare = Some(radius * angle.sin());
                radius * angle.cos()
            })
        };
        let middle = mean.max(1.0).ln() - sigma * sigma / 2.0;
        let draw = |_| (middle + sigma * normal()).exp().clamp(1.0, 4e9) as u32;
        Self::Listed((0..samples).map(draw).collect())
    }

    /// The length of a sample.
    #[inline]
    pub fn of(&self, sample: u32) -> u32 {
        match self {
            Self::Equal(length) => *length,
            Self::Listed(lengths) => lengths[sample as usize],
        }
    }

    /// The sum for a dataset of `samples`.
    pub fn total(&self, samples: u32) -> u64 {
        match self {
            Self::Equal(length) => u64::from(*length) * u64::from(samples),
            Self::Listed(lengths) => {
                let counted = lengths.iter().take(samples as usize);
                counted.map(|&length| u64::from(length)).sum()
            }
        }
    }

    /// Whether there is a length for every sample of a dataset of `samples`.
    pub(crate) fn covers(&self, samples: u32) -> bool {
        match self {
            Self::Equal(_) => true,
            Self::Listed(lengths) => lengths.len() >= samples as usize,
        }
    }
}

/// Splitmix: good enough for lengths, and the same everywhere.
struct Random(u64);

impl Random {
    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64 + f64::EPSILON / 4.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_lengths_have_their_mean_and_come_again() {
        let sizes = Sizes::log_normal(100_000, 110_000.0, 0.6, 1);
        let mean = sizes.total(100_000) as f64 / 1e5;
        assert!((mean / 110_000.0 - 1.0).abs() < 0.01, "{mean}");
        assert_eq!(sizes, Sizes::log_normal(100_000, 110_000.0, 0.6, 1));
        assert_ne!(sizes, Sizes::log_normal(100_000, 110_000.0, 0.6, 2));
    }

    #[test]
    fn a_length_beyond_four_gibibytes_counts_as_that() {
        assert_eq!(Sizes::listed([5, 1 << 40]).of(1), u32::MAX);
    }
}
