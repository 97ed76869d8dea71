//! Random numbers by counting: Philox 4x64-10 (Salmon et al., SC'11, "Parallel random numbers: as
//! easy as 1, 2, 3").
//!
//! ```text
//!   key      (seed, epoch)                      ten rounds of multiply and mix
//!   counter  (position, step, draw, 0)   ---->  four numbers of 64 bits
//! ```
//!
//! There is no state to hand on: any thread computes any sample's numbers, in any order, and a
//! resumed run computes the same again. One block of four costs about 20 ns.

use crate::Draw;

const MULTIPLIERS: [u64; 2] = [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157];
const WEYL: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B];
const ROUNDS: usize = 10;

fn philox(counter: [u64; 4], mut key: [u64; 2]) -> [u64; 4] {
    let mut x = counter;
    for round in 0..ROUNDS {
        if round > 0 {
            key[0] = key[0].wrapping_add(WEYL[0]);
            key[1] = key[1].wrapping_add(WEYL[1]);
        }
        let (high0, low0) = wide(MULTIPLIERS[0], x[0]);
        let (high1, low1) = wide(MULTIPLIERS[1], x[2]);
        x = [high1 ^ x[1] ^ key[0], low1, high0 ^ x[3] ^ key[1], low0];
    }
    x
}

/// The product's high and low halves.
fn wide(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    ((product >> 64) as u64, product as u64)
}

/// The numbers of one step for one sample.
#[derive(Debug)]
pub(crate) struct Stream {
    key: [u64; 2],
    counter: [u64; 4],
    block: [u64; 4],
    used: usize,
    spare_normal: Option<f64>,
}

impl Stream {
    /// `step` is the step's number in the recipe.
    pub(crate) fn new(draw: Draw, step: usize) -> Stream {
        Stream {
            key: [draw.seed, draw.epoch],
            counter: [draw.position, step as u64, 0, 0],
            block: [0; 4],
            used: 4,
            spare_normal: None,
        }
    }

    fn next(&mut self) -> u64 {
        if self.used == 4 {
            self.block = philox(self.counter, self.key);
            self.counter[2] += 1;
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// In [0, 1), in steps of 2^-53.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Between `low` and `high`.
    pub(crate) fn uniform(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + (high - low) * self.unit()
    }

    /// True with probability `p`: never for 0, always for 1.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// In 0..n, each as likely (Lemire's way: the few products that would favour some are drawn
    /// again). `n` is not 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        let (mut high, mut low) = wide(self.next(), n);
        if low < n {
            let unfair = n.wrapping_neg() % n;
            while low < unfair {
                (high, low) = wide(self.next(), n);
            }
        }
        high
    }

    /// Of the standard normal distribution (Box-Muller, both of the pair are used).
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare_normal.take() {
            return spare;
        }
        // 1 - unit is in (0, 1]: its logarithm is finite.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * self.unit()).sin_cos();
        self.spare_normal = Some(radius * sine);
        radius * cosine
    }

    /// An order of 0..N, each as likely.
    pub(crate) fn order<const N: usize>(&mut self) -> [u8; N] {
        let mut order = std::array::from_fn(|at| at as u8);
        for last in (1..N).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(position: u64) -> Stream {
        Stream::new(
            Draw {
                seed: 1,
                epoch: 2,
                position,
            },
            3,
        )
    }

    #[test]
    fn blocks_are_those_of_the_authors_test_vectors() {
        assert_eq!(
            philox([0; 4], [0; 2]),
            [
                0x16554d9eca36314c,
                0xdb20fe9d672d0fdc,
                0xd7e772cee186176b,
                0x7e68b68aec7ba23b
            ]
        );
        assert_eq!(
            philox([u64::MAX; 4], [u64::MAX; 2]),
            [
                0x87b092c3013fe90b,
                0x438c3c67be8d0224,
                0x9cc7d7c69cd777b6,
                0xa09caebf594f0ba0
            ]
        );
        assert_eq!(
            philox(
                [
                    0x243f6a8885a308d3,
                    0x13198a2e03707344,
                    0xa4093822299f31d0,
                    0x082efa98ec4e6c89
                ],
                [0x452821e638d01377, 0xbe5466cf34e90c6c],
            ),
            [
                0xa528f45403e61d95,
                0x38c72dbd566e9788,
                0xa5a1610e72fd18b5,
                0x57bd43b5e52b7fe6
            ]
        );
    }

    #[test]
    fn every_part_of_the_key_matters() {
        let base = Draw {
            seed: 1,
            epoch: 1,
            position: 1,
        };
        let first = |draw, step| Stream::new(draw, step).next();
        let reference = first(base, 1);
        assert_eq!(reference, first(base, 1));
        assert_ne!(reference, first(Draw { seed: 2, ..base }, 1));
        assert_ne!(reference, first(Draw { epoch: 2, ..base }, 1));
        assert_ne!(
            reference,
            first(
                Draw {
                    position: 2,
                    ..base
                },
                1
            )
        );
        assert_ne!(reference, first(base, 2));
    }

    #[test]
    fn units_fill_the_interval_evenly() {
        let mut bins = [0u32; 16];
        for position in 0..4000 {
            let mut stream = stream(position);
            for _ in 0..10 {
                let unit = stream.unit();
                assert!((0.0..1.0).contains(&unit));
                bins[(unit * 16.0) as usize] += 1;
            }
        }
        let expected = 40_000.0 / 16.0;
        let chi2: f64 = bins
            .iter()
            .map(|&n| (f64::from(n) - expected).powi(2) / expected)
            .sum();
        // The 99.99% point of chi-squared with 15 degrees of freedom.
        assert!(chi2 < 44.3, "chi-squared is {chi2}");
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut stream = stream(0);
        let mut seen = [0u32; 5];
        for _ in 0..5000 {
            seen[stream.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        assert_eq!(stream.below(1), 0);
        assert!(stream.below(u64::MAX) < u64::MAX);
    }

    #[test]
    fn chances_of_none_and_all_are_certain() {
        let mut stream = stream(9);
        assert!((0..1000).all(|_| stream.chance(1.0)));
        assert!((0..1000).all(|_| !stream.chance(0.0)));
    }

    #[test]
    fn normals_have_mean_none_and_variance_one() {
        let mut stream = stream(5);
        let drawn: Vec<f64> = (0..40_000).map(|_| stream.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        // Four standard errors.
        assert!(mean.abs() < 0.02, "mean is {mean}");
        assert!((variance - 1.0).abs() < 0.03, "variance is {variance}");
    }

    #[test]
    fn all_orders_come_equally_often() {
        let mut counts = std::collections::BTreeMap::new();
        let mut stream = stream(7);
        for _ in 0..24_000 {
            *counts.entry(stream.order::<4>()).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        assert!(
            counts.values().all(|&n| (870..1130).contains(&n)),
            "{counts:?}"
        );
    }
}
