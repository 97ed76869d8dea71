//! Bytes a second of a tier against concurrency.
//!
//! A tier that gets slower or faster is measured only at the concurrency that is in use. What was
//! measured at others is wrong from then on, and nobody would ever find out:
//!
//! ```text
//!   bytes/s
//!      |  o  o                 o  measured before the tier slowed down
//!      |                       x  measured now, by the readers that there are: one would not
//!      |        x                 read more than they do, so the others are forgotten
//!      +--1--2--4--8-- readers
//! ```
//!
//! More readers read no less in all, and each of them no more. So one measurement bounds what the
//! tier gives at any other concurrency. One that is out of bounds may be noise, and counts for as
//! much as the bounds allow; two in a row are a change, and all that came before is forgotten.
//!
//! A change within the bounds, or in small steps, does not show like that. So what was not measured
//! again for a while is forgotten too. What is forgotten is what a fresh run does not know: it is
//! tried again where data comes late, and not otherwise.

use std::cmp::Ordering;

use crate::aged::MOST;
use crate::curve::{Curve, Reading};

/// Where a sample's bytes can come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Memory of this node.
    Memory,
    /// The log on this node's disk.
    Log,
    /// Another node.
    Peer,
    /// Where the dataset lives.
    Origin,
}

/// All tiers, the nearest first.
pub const TIERS: [Tier; 4] = [Tier::Memory, Tier::Log, Tier::Peer, Tier::Origin];

/// A measurement is out of bounds if it misses them by this factor.
const MARGIN: f64 = 1.5;
/// What was measured so many measurements ago, and not since, is forgotten.
const AGE: u64 = 8;

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Throughput {
    curve: Curve,
    /// Whether the last measurement was below, or above, the bounds.
    odd: Ordering,
}

impl Default for Throughput {
    fn default() -> Self {
        Self {
            curve: Curve::new(),
            odd: Ordering::Equal,
        }
    }
}

impl Throughput {
    /// `bytes` came in `busy` seconds of reading, summed over those who read, `concurrency` of
    /// them at a time.
    pub fn see(&mut self, concurrency: f64, bytes: f64, busy: f64) {
        if bytes > 0.0 && busy > 0.0 && concurrency > 0.0 {
            // Counted for the nearest knot, at which each is taken to read as quickly.
            let concurrency = Curve::nearest(concurrency);
            self.take(concurrency, concurrency * bytes / busy);
        }
    }

    fn take(&mut self, concurrency: f64, rate: f64) {
        if rate.is_nan() || rate > MOST {
            return;
        }
        let (least, most) = self.bounds(concurrency);
        let odd = match rate {
            _ if rate < least => Ordering::Less,
            _ if rate > most => Ordering::Greater,
            _ => Ordering::Equal,
        };
        let is_change = odd.is_ne() && odd == self.odd;
        self.odd = odd;
        if is_change {
            self.curve = Curve::new();
            self.curve.see(concurrency, rate);
        } else {
            self.curve.see(concurrency, rate.clamp(least, most));
            self.curve.forget(AGE);
        }
    }

    /// The least and the most that earlier measurements allow at that concurrency.
    fn bounds(&self, concurrency: f64) -> (f64, f64) {
        let (mut least, mut most) = (0.0f64, f64::INFINITY);
        for (at, rate) in self.curve.measured() {
            let (low, high) = allowed(at, rate, concurrency);
            least = least.max(low);
            most = most.min(high);
        }
        // Noise may leave nothing between them.
        (least.min(most), most.max(least))
    }

    /// Bytes a second at that concurrency, all readers together; `None` if nothing was read yet.
    ///
    /// Outside of what was measured each reader is taken to read as quickly as at the nearest
    /// place: what is not known is worth a try.
    pub fn at(&self, concurrency: f64) -> Option<f64> {
        match self.curve.read(concurrency) {
            Reading::Nothing => None,
            Reading::Between(value) => Some(value),
            Reading::Outside(at, value) => Some(value * concurrency.max(1.0) / at),
        }
    }

    /// How far measurements were from the model, as a share.
    pub fn residual(&self) -> f64 {
        self.curve.residual()
    }
}

/// What `rate` at concurrency `at` allows at `other`, with a margin for noise.
fn allowed(at: f64, rate: f64, other: f64) -> (f64, f64) {
    let in_proportion = rate * other / at;
    (
        rate.min(in_proportion) / MARGIN,
        rate.max(in_proportion) * MARGIN,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_the_readers_read_twice_as_much_until_measured_otherwise() {
        let mut model = Throughput::default();
        assert_eq!(model.at(4.0), None);
        model.see(2.0, 100.0, 1.0); // each of two: 100 a second
        assert_eq!(model.at(2.0), Some(200.0));
        assert_eq!(model.at(4.0), Some(400.0));
        assert_eq!(model.at(1.0), Some(100.0));
        model.see(4.0, 50.0, 1.0); // the tier is at its limit
        assert_eq!(model.at(4.0), Some(200.0));
        assert_eq!(model.at(3.0), Some(200.0));
    }

    #[test]
    fn a_tier_that_got_slower_is_doubted_at_every_concurrency() {
        let mut model = Throughput::default();
        (0..20).for_each(|_| model.see(1.0, 1e9, 1.0));
        assert_eq!(model.at(1.0), Some(1e9));
        // Two readers wait for what one had at once.
        (0..2).for_each(|_| model.see(2.0, 1e6, 1.0));
        assert_eq!(model.at(1.0), Some(1e6));
        assert_eq!(model.at(8.0), Some(8e6));
    }

    #[test]
    fn a_single_odd_measurement_is_noise() {
        let mut model = Throughput::default();
        (0..20).for_each(|_| model.see(4.0, 100.0, 1.0));
        for odd in [1e-3, 1e6] {
            model.see(4.0, odd, 1.0);
            let rate = model.at(4.0).unwrap();
            assert!((350.0..470.0).contains(&rate), "{rate}");
            (0..20).for_each(|_| model.see(4.0, 100.0, 1.0));
        }
    }

    #[test]
    fn what_was_not_measured_for_a_while_is_not_relied_on() {
        let mut model = Throughput::default();
        // Eight read no more than four: the tier is at its limit, for the time being.
        (0..4).for_each(|_| model.see(8.0, 50.0, 1.0));
        (0..AGE).for_each(|_| model.see(4.0, 100.0, 1.0));
        assert_eq!(model.at(8.0), Some(400.0));
        model.see(4.0, 100.0, 1.0);
        assert_eq!(model.at(8.0), Some(800.0));
    }
}
