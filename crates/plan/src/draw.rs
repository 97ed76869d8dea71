//! Draws with replacement: `torch.randint` and `torch.multinomial`.
//!
//! ```text
//!   randint      random() % n, or random64() % n for a large n
//!   multinomial  weights 1 3 4 -> running sums / total .125 .5 1 -> the first sum >= u
//! ```
//!
//! The running sums are rounded as torch rounds them: one after another, in the type
//! of the weights. O(1) a draw of randint, O(log n) of multinomial after O(n).

use crate::{Dialect, Error, Mt19937, Result};

/// One number of `torch.randint(n, ...)`.
///
/// # Panics
/// If `n` is 0.
#[inline]
pub fn randint(engine: &mut Mt19937, n: u64, dialect: Dialect) -> u64 {
    if dialect.wide(n) {
        engine.random64() % n
    } else {
        u64::from(engine.random()) % n
    }
}

/// How many 32-bit draws one `randint` takes.
pub fn randint_draws(n: u64, dialect: Dialect) -> u64 {
    if dialect.wide(n) { 2 } else { 1 }
}

/// `torch.multinomial(weights, count, replacement=True)` of float64 weights, as
/// `WeightedRandomSampler` has them. Takes two 32-bit draws a number.
///
/// A single draw is refused: torch computes it in another way, which differs from
/// build to build. torch itself stops at 2^24 weights; this does not.
pub fn multinomial(engine: &mut Mt19937, weights: &[f64], count: u64) -> Result<Vec<u32>> {
    check(weights.iter().copied(), count)?;
    let mut sum = 0.0;
    let mut sums: Vec<f64> = weights
        .iter()
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    check_sum(sum, weights.len())?;
    for value in &mut sums {
        *value /= sum;
    }
    Ok(pick(engine, &sums, count))
}

/// The same of float32 weights, whose sums torch rounds to float32.
pub fn multinomial_f32(engine: &mut Mt19937, weights: &[f32], count: u64) -> Result<Vec<u32>> {
    check(weights.iter().copied().map(f64::from), count)?;
    let mut sum = 0.0f32;
    let sums: Vec<f32> = weights
        .iter()
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    check_sum(f64::from(sum), weights.len())?;
    let sums: Vec<f64> = sums.iter().map(|value| f64::from(value / sum)).collect();
    Ok(pick(engine, &sums, count))
}

fn check(weights: impl Iterator<Item = f64>, count: u64) -> Result<()> {
    if count == 1 {
        return Err(Error::SingleDraw);
    }
    for (position, value) in weights.enumerate() {
        if !value.is_finite() || value < 0.0 {
            return Err(Error::Weight { position, value });
        }
    }
    Ok(())
}

/// A sum that overflowed to infinity is refused by torch, too.
fn check_sum(sum: f64, count: usize) -> Result<()> {
    if !sum.is_finite() {
        return Err(Error::Weight {
            position: count - 1,
            value: sum,
        });
    }
    if sum <= 0.0 {
        return Err(Error::NoWeight { count });
    }
    Ok(())
}

/// The last of `sums` is 1, the total by itself, so every number below 1 finds a place.
fn pick(engine: &mut Mt19937, sums: &[f64], count: u64) -> Vec<u32> {
    (0..count)
        .map(|_| {
            let uniform = unit(engine);
            sums.partition_point(|&sum| sum < uniform) as u32
        })
        .collect()
}

/// A number in 0..1 of 53 random bits.
fn unit(engine: &mut Mt19937) -> f64 {
    const BITS: u64 = (1 << 53) - 1;
    (engine.random64() & BITS) as f64 / (BITS + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_range_takes_two_draws_and_older_torches_start_later() {
        for (n, now, before) in [(1 << 27, 1, 1), (1 << 28, 2, 1), (1 << 32, 2, 2)] {
            for (dialect, draws) in [(Dialect::Current, now), (Dialect::V2_6, before)] {
                assert_eq!(randint_draws(n, dialect), draws);
                let (mut drawn, mut skipped) = (Mt19937::new(4), Mt19937::new(4));
                assert!(randint(&mut drawn, n, dialect) < n);
                skipped.skip(draws);
                assert_eq!(drawn, skipped);
            }
        }
    }

    #[test]
    fn weights_that_are_none_are_refused() {
        let engine = &mut Mt19937::new(0);
        let fails = |engine: &mut Mt19937, weights: &[f64], count| {
            multinomial(engine, weights, count).unwrap_err().to_string()
        };
        assert_eq!(fails(engine, &[1.0, -2.0], 2), "weight 1 is -2");
        assert_eq!(fails(engine, &[f64::NAN], 2), "weight 0 is NaN");
        assert_eq!(fails(engine, &[1.0, f64::INFINITY], 2), "weight 1 is inf");
        assert_eq!(fails(engine, &[f64::MAX, f64::MAX], 2), "weight 1 is inf");
        assert_eq!(fails(engine, &[0.0, 0.0], 2), "2 weights sum to zero");
        assert_eq!(fails(engine, &[], 2), "0 weights sum to zero");
        assert_eq!(multinomial(engine, &[1.0], 1), Err(Error::SingleDraw));
        assert!(multinomial_f32(engine, &[1.0, f32::NAN], 2).is_err());
        assert_eq!(*engine, Mt19937::new(0), "a refusal draws nothing");
    }

    #[test]
    fn a_weight_of_zero_is_not_drawn() {
        let mut engine = Mt19937::new(1);
        let drawn = multinomial(&mut engine, &[0.0, 1.0, 0.0, 3.0], 1000).unwrap();
        assert!(drawn.iter().all(|&id| id == 1 || id == 3));
        let threes = drawn.iter().filter(|&&id| id == 3).count();
        assert!((700..800).contains(&threes), "{threes}");
    }
}
