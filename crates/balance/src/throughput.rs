//! Bytes a second of a tier against concurrency.

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

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Throughput {
    curve: Curve,
}

impl Default for Throughput {
    fn default() -> Self {
        Self {
            curve: Curve::new(),
        }
    }
}

impl Throughput {
    /// `bytes` came in `busy` seconds of reading, summed over those who read, `concurrency` of
    /// them at a time.
    pub fn see(&mut self, concurrency: f64, bytes: f64, busy: f64) {
        if bytes > 0.0 && busy > 0.0 && concurrency > 0.0 {
            let concurrency = concurrency.max(1.0);
            self.curve.see(concurrency, concurrency * bytes / busy);
        }
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
}
