//! Waiting for somebody else's fill: ten askers, one read.
//!
//! A flight is a holder of the sample already, so once the fill is committed the bytes are there
//! for it, however late it comes. If the fill is given up the slot goes on to another sample;
//! the flight sees that by the generation, and its owner looks up again.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::sample::Held;
use super::tier::Inner;

/// A sample that somebody else is filling.
pub struct Flight {
    inner: Arc<Inner>,
    slot: u32,
    generation: u32,
}

/// How a flight ended.
#[derive(Debug)]
#[must_use]
pub enum FlightResult {
    Ready(Held),
    /// The fill was given up: look up again, perhaps to fill it oneself.
    Failed,
    /// It goes on still.
    TimedOut,
}

impl Flight {
    pub(super) fn new(inner: Arc<Inner>, slot: u32, generation: u32) -> Flight {
        Flight {
            inner,
            slot,
            generation,
        }
    }

    /// Waits for the end of the fill; a timeout of zero just looks.
    pub fn wait(&self, timeout: Duration) -> FlightResult {
        let (slot, generation) = (self.slot, self.generation);
        let (mut ledger, _) = self
            .inner
            .fill_ended
            .wait_timeout_while(self.inner.lock(), timeout, |ledger| {
                ledger.is_filling(slot, generation)
            })
            .unwrap_or_else(PoisonError::into_inner);
        if ledger.is_filling(slot, generation) {
            return FlightResult::TimedOut;
        }
        if ledger.generation(slot) != generation {
            return FlightResult::Failed;
        }
        let reader = ledger.hold(slot).expect("a committed fill has bytes");
        drop(ledger);
        FlightResult::Ready(Held::new(Arc::clone(&self.inner), slot, reader, false))
    }

    /// Has `done` called when the fill ends, in the thread that ends it; at once if it has.
    /// `wait` then answers without waiting.
    pub fn on_done(&self, done: impl FnOnce() + Send + 'static) {
        let mut ledger = self.inner.lock();
        if ledger.is_filling(self.slot, self.generation) {
            ledger.when_filled(self.slot, Box::new(done));
        } else {
            drop(ledger);
            done();
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut ledger = self.inner.lock();
        if ledger.generation(self.slot) == self.generation {
            let after = ledger.let_go(self.slot);
            drop(ledger);
            self.inner.finish(after);
        }
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").finish_non_exhaustive()
    }
}
