//! Ctrl-C that is answered: the work ends at the next good place.
//!
//! The first signal asks for that, the second ends the process at once, as without this.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether somebody wants the command to end; while it lives, signals wait for it.
pub(crate) struct Stop {
    /// True: a signal has its usual effect.
    usual: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// From now on signals are asked for with [`Stop::signal`].
    pub(crate) fn new() -> std::io::Result<Self> {
        let usual = Arc::new(AtomicBool::new(false));
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag down, and puts it up.
            flag::register_conditional_default(number, usual.clone())?;
            flag::register(number, usual.clone())?;
            flag::register_usize(number, signal.clone(), number as usize)?;
        }
        Ok(Self { usual, signal })
    }

    /// The signal that came.
    pub(crate) fn signal(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            number => Some(number as i32),
        }
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.usual.store(true, Ordering::Relaxed);
    }
}
