//! A mean in which old values fade.

/// Values beyond this are not believed: they come of clocks that jumped.
pub(crate) const MOST: f64 = 1e15;

/// See the module's text. A change shows after about as many values as its memory is long.
#[derive(Debug, Clone, Copy)]
pub struct Aged {
    mean: f64,
    off: f64,
    seen: f64,
    memory: f64,
}

impl Aged {
    /// `memory`: how many values count, roughly.
    pub fn new(memory: f64) -> Self {
        Self {
            mean: 0.0,
            off: 0.0,
            seen: 0.0,
            memory: if memory >= 1.0 { memory } else { 1.0 },
        }
    }

    /// Takes a value in; one that is no number, or negative, is left out.
    pub fn see(&mut self, value: f64) {
        if !(0.0..=MOST).contains(&value) {
            return;
        }
        let share = 1.0 / (self.seen + 1.0).min(self.memory);
        if self.seen > 0.0 {
            self.off += share * ((value - self.mean).abs() - self.off);
        }
        self.mean += share * (value - self.mean);
        self.seen = (self.seen + 1.0).min(self.memory);
    }

    /// The mean, once there was a value.
    pub fn mean(&self) -> Option<f64> {
        (self.seen > 0.0).then_some(self.mean)
    }

    /// How far values were from the mean before them, as a share of it.
    pub fn residual(&self) -> f64 {
        if self.mean > 0.0 {
            self.off / self.mean
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_shows_within_its_memory() {
        let mut aged = Aged::new(4.0);
        (0..100).for_each(|_| aged.see(1.0));
        (0..8).for_each(|_| aged.see(5.0));
        let mean = aged.mean().unwrap();
        assert!(mean > 4.5 && mean <= 5.0, "{mean}");
        assert!(aged.residual() > 0.0);
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        let mut aged = Aged::new(4.0);
        assert_eq!(aged.mean(), None);
        for value in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            aged.see(value);
        }
        assert_eq!(aged.mean(), None);
        aged.see(2.0);
        assert_eq!((aged.mean(), aged.residual()), (Some(2.0), 0.0));
    }
}
