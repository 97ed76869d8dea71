//! What a tier gives, against how much is asked of it at once.
//!
//! ```text
//!   bytes/s        ______ flat beyond the last point
//!          |     /
//!          |   /          straight between points,
//!          | /            and from nothing to the first
//!          +------------- requests in flight
//! ```

use crate::Error;

/// Throughput against concurrency.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Requests in flight and bytes a second of all of them together, ascending.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// Through these points: requests in flight, bytes a second.
    pub fn new(points: Vec<(f64, f64)>) -> Result<Self, Error> {
        let ascending = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let positive = points
            .iter()
            .all(|&(at, rate)| at > 0.0 && rate > 0.0 && at.is_finite() && rate.is_finite());
        if points.is_empty() || !ascending || !positive {
            return Err(Error::Curve);
        }
        Ok(Self { points })
    }

    /// So many bytes a second, however many ask.
    pub fn flat(rate: f64) -> Self {
        Self {
            points: vec![(f64::MIN_POSITIVE, rate.max(f64::MIN_POSITIVE))],
        }
    }

    /// Each request gets `each` bytes a second, until all together get `most`.
    pub fn up_to(each: f64, most: f64) -> Self {
        let each = each.max(f64::MIN_POSITIVE);
        Self {
            points: vec![(
                (most / each).max(f64::MIN_POSITIVE),
                most.max(f64::MIN_POSITIVE),
            )],
        }
    }

    /// Bytes a second of `concurrency` requests together.
    pub fn at(&self, concurrency: f64) -> f64 {
        let mut before = (0.0, 0.0);
        for &point in &self.points {
            if concurrency <= point.0 {
                let part = (concurrency - before.0) / (point.0 - before.0);
                return before.1 + part * (point.1 - before.1);
            }
            before = point;
        }
        before.1
    }
}

/// What reading from a tier costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Access {
    /// Seconds that a request takes beside its bytes; it holds its place in flight meanwhile.
    pub latency: f64,
    /// What one node gets.
    pub node: Curve,
    /// What all nodes get together, if that is less.
    pub total: Option<Curve>,
}

impl Access {
    /// No latency, and so many bytes a second for each node.
    pub fn flat(rate: f64) -> Self {
        Self {
            latency: 0.0,
            node: Curve::flat(rate),
            total: None,
        }
    }

    /// Seconds for `requests` that bring `bytes`, `width` of them at a time, while so many are in
    /// flight on the node and in total, these included.
    pub(crate) fn seconds(&self, load: Load, in_flight: (u32, u32)) -> f64 {
        let width = f64::from(load.width.max(1));
        let share = |curve: &Curve, all: u32| {
            let all = f64::from(all).max(width);
            curve.at(all) * width / all
        };
        let mut rate = share(&self.node, in_flight.0);
        if let Some(total) = &self.total {
            rate = rate.min(share(total, in_flight.1));
        }
        self.latency * f64::from(load.requests) / width + load.bytes as f64 / rate
    }
}

/// What is asked of a tier at one time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    pub(crate) requests: u32,
    pub(crate) bytes: u64,
    pub(crate) width: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_straight_between_its_points_and_flat_beyond() {
        let curve = Curve::new(vec![(2.0, 100.0), (4.0, 300.0)]).unwrap();
        let rates = [1.0, 2.0, 3.0, 4.0, 400.0].map(|at| curve.at(at));
        assert_eq!(rates, [50.0, 100.0, 200.0, 300.0, 300.0]);
        assert_eq!(Curve::flat(7.0).at(1.0), 7.0);
        assert_eq!(Curve::up_to(10.0, 35.0).at(2.0), 20.0);
        assert_eq!(Curve::up_to(10.0, 35.0).at(9.0), 35.0);
    }

    #[test]
    fn a_curve_that_goes_back_or_gives_nothing_is_refused() {
        for points in [
            vec![],
            vec![(2.0, 1.0), (1.0, 2.0)],
            vec![(1.0, 0.0)],
            vec![(0.0, 1.0)],
            vec![(1.0, f64::NAN)],
        ] {
            assert!(Curve::new(points).is_err());
        }
    }

    #[test]
    fn those_who_ask_together_share_what_there_is() {
        let access = Access {
            latency: 0.5,
            node: Curve::flat(100.0),
            total: Some(Curve::flat(120.0)),
        };
        let load = Load {
            requests: 4,
            bytes: 100,
            width: 2,
        };
        // Alone on the node: all of it. Two latencies one after the other.
        assert_eq!(access.seconds(load, (2, 2)), 2.0);
        // A quarter of the node's, which is less than a twelfth of 120.
        assert_eq!(access.seconds(load, (8, 8)), 1.0 + 100.0 / 25.0);
        assert_eq!(access.seconds(load, (2, 24)), 1.0 + 100.0 / 10.0);
    }
}
