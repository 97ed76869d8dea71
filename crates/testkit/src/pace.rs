//! A line of limited speed that all requests share.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// When the line is free again.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Option<Instant>>);

impl Pace {
    /// The line may be this far behind and catch up: timers are only good to a millisecond.
    const SLACK: Duration = Duration::from_millis(5);

    /// Puts bytes on the line; says when the last of them is through.
    pub(crate) fn through(&self, bytes: usize, mbps: f64) -> Instant {
        let time = Duration::from_secs_f64(bytes as f64 * 8.0 / (mbps.max(1e-3) * 1e6));
        let mut free = self.0.lock().expect("no panic while pacing");
        let earliest = Instant::now().checked_sub(Self::SLACK);
        let from = (*free).max(earliest).unwrap_or_else(Instant::now);
        *free.insert(from + time)
    }
}
