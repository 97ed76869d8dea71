//! A piece-wise linear line through aged values.

use crate::aged::Aged;

/// Knots lie at 1, 2, 3, 4, 6, 8, 12, 16, ...: half-octaves are as fine as noise allows.
const KNOTS: usize = 24;
/// How many values a knot remembers: about as many edges of batches as a change may take to show.
const MEMORY: f64 = 4.0;

/// See the module's text. Between knots it is linear; outside of them its owner decides.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    knots: [Aged; KNOTS],
    /// How many values there were, and how many by a knot's last.
    values: u64,
    last: [u64; KNOTS],
}

/// Where a line is asked for, relative to what was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Reading {
    /// Nothing was measured.
    Nothing,
    /// Below or above all that was measured: the nearest knot and its value.
    Outside(f64, f64),
    /// Between two knots, or on one.
    Between(f64),
}

fn place(knot: usize) -> f64 {
    let octave = (1u64 << (knot / 2)) as f64;
    if knot.is_multiple_of(2) {
        octave
    } else {
        octave * 1.5
    }
}

/// The knot that a value at `x` counts for.
fn nearest(x: f64) -> usize {
    let away = |knot: usize| (place(knot) / x.clamp(1.0, place(KNOTS - 1))).ln().abs();
    (0..KNOTS)
        .min_by(|&a, &b| away(a).total_cmp(&away(b)))
        .expect("there are knots")
}

impl Curve {
    pub(crate) fn new() -> Self {
        Self {
            knots: [Aged::new(MEMORY); KNOTS],
            values: 0,
            last: [0; KNOTS],
        }
    }

    /// The knot that a value at `x` counts for.
    pub(crate) fn nearest(x: f64) -> f64 {
        place(nearest(x))
    }

    /// A value at `x`; it counts for the nearest knot.
    pub(crate) fn see(&mut self, x: f64, value: f64) {
        if !x.is_nan() {
            let knot = nearest(x);
            self.knots[knot].see(value);
            self.values += 1;
            self.last[knot] = self.values;
        }
    }

    pub(crate) fn read(&self, x: f64) -> Reading {
        let x = x.max(1.0);
        let mut below: Option<(f64, f64)> = None;
        for (knot, aged) in self.knots.iter().enumerate() {
            let Some(value) = aged.mean() else { continue };
            let at = place(knot);
            if at >= x {
                return match below {
                    _ if at == x => Reading::Between(value),
                    Some((before, low)) => {
                        Reading::Between(low + (value - low) * (x - before) / (at - before))
                    }
                    None => Reading::Outside(at, value),
                };
            }
            below = Some((at, value));
        }
        below.map_or(Reading::Nothing, |(at, value)| Reading::Outside(at, value))
    }

    /// Where something was measured, and what; the lowest first.
    pub(crate) fn measured(&self) -> impl Iterator<Item = (f64, f64)> {
        let knots = self.knots.iter().enumerate();
        knots.filter_map(|(knot, aged)| Some((place(knot), aged.mean()?)))
    }

    /// Forgets what was measured more than so many values ago.
    pub(crate) fn forget(&mut self, age: u64) {
        for (aged, last) in self.knots.iter_mut().zip(self.last) {
            if self.values - last > age {
                *aged = Aged::new(MEMORY);
            }
        }
    }

    /// The largest residual of its knots.
    pub(crate) fn residual(&self) -> f64 {
        self.knots.iter().map(Aged::residual).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_linear_between_knots() {
        let mut curve = Curve::new();
        assert_eq!(curve.read(3.0), Reading::Nothing);
        curve.see(2.0, 10.0);
        curve.see(8.0, 40.0);
        assert_eq!(curve.read(5.0), Reading::Between(25.0));
        assert_eq!(curve.read(8.0), Reading::Between(40.0));
        assert_eq!(curve.read(1.0), Reading::Outside(2.0, 10.0));
        assert_eq!(curve.read(100.0), Reading::Outside(8.0, 40.0));
    }
}
