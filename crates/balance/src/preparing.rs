//! Seconds a sample against threads, for each class of size.

use crate::curve::{Curve, Reading};

/// Classes of size: each is twice the one before; the first ends at 1 KiB.
const CLASSES: usize = 24;

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Preparing {
    classes: Vec<Curve>,
    cores: f64,
}

impl Preparing {
    /// `cores`: beyond them, until measured otherwise, threads only take turns.
    pub fn new(cores: usize) -> Self {
        Self {
            classes: vec![Curve::new(); CLASSES],
            cores: cores.max(1) as f64,
        }
    }

    /// Samples of `size` bytes took `seconds` each, with `threads` at it.
    pub fn see(&mut self, size: f64, threads: f64, seconds: f64) {
        if size >= 0.0 && threads > 0.0 {
            self.classes[class(size)].see(threads.max(1.0), seconds);
        }
    }

    /// Seconds that one thread takes for a sample of `size` bytes when `threads` are at it; a size
    /// that was never seen is served by the nearest class. `None` before the first measurement.
    pub fn seconds(&self, size: f64, threads: usize) -> Option<f64> {
        let wanted = class(size);
        let near = |away: usize| [wanted.checked_sub(away), wanted.checked_add(away)];
        (0..CLASSES)
            .flat_map(near)
            .flatten()
            .filter_map(|class| self.classes.get(class))
            .find_map(|curve| self.read(curve, threads.max(1) as f64))
    }

    fn read(&self, curve: &Curve, threads: f64) -> Option<f64> {
        match curve.read(threads) {
            Reading::Nothing => None,
            Reading::Between(value) => Some(value),
            Reading::Outside(at, value) => {
                let turns = |threads: f64| (threads / self.cores).max(1.0);
                Some(value * turns(threads) / turns(at))
            }
        }
    }

    /// The threads, at most `most`, at which samples of `size` are finished fastest; of equals the
    /// fewest. All cores before the first measurement.
    pub fn peak(&self, size: f64, most: usize) -> usize {
        let rate = |threads: usize| match self.seconds(size, threads) {
            Some(seconds) => threads as f64 / seconds.max(1e-12),
            None => (threads as f64).min(self.cores),
        };
        let mut best = 1;
        for threads in 2..=most {
            // Hardly more for one thread more is noise.
            if rate(threads) > rate(best) * 1.02 {
                best = threads;
            }
        }
        best
    }

    /// How far measurements were from the model, as a share; the worst of the classes.
    pub fn residual(&self) -> f64 {
        self.classes.iter().map(Curve::residual).fold(0.0, f64::max)
    }
}

fn class(size: f64) -> usize {
    let mut class = 0;
    let mut end = 1024.0;
    while size > end && class < CLASSES - 1 {
        class += 1;
        end *= 2.0;
    }
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_class_serves_an_unknown_size() {
        let mut model = Preparing::new(4);
        assert_eq!(model.seconds(1e5, 1), None);
        model.see(1e5, 1.0, 0.002);
        model.see(1e7, 1.0, 0.2);
        assert_eq!(model.seconds(2e5, 1), Some(0.002));
        assert_eq!(model.seconds(4e6, 1), Some(0.2));
    }

    #[test]
    fn more_threads_than_cores_only_take_turns() {
        let mut model = Preparing::new(2);
        assert_eq!(model.peak(1e5, 8), 2);
        model.see(1e5, 1.0, 0.002);
        assert_eq!(model.seconds(1e5, 8), Some(0.008));
        assert_eq!(model.peak(1e5, 8), 2);
    }

    #[test]
    fn the_peak_is_where_it_was_measured_to_be() {
        let mut model = Preparing::new(8);
        // Four threads finish more than eight: memory is the limit.
        model.see(1e5, 4.0, 0.004);
        model.see(1e5, 8.0, 0.010);
        assert_eq!(model.peak(1e5, 8), 4);
    }
}
