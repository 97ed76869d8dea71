//! What all parts of a log share: files, figures, and who gives way to whom.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use forebay_format::chunk::Identity;

use super::device::DeviceChoice;
use super::files::Files;
use super::index::Subject;
use super::warnings::Warnings;

/// From a sample's number to who it is.
pub type Identify = Arc<dyn Fn(u32) -> Option<Identity> + Send + Sync>;

/// From a sample's number to its bytes.
pub type Length = Arc<dyn Fn(u32) -> Option<u64> + Send + Sync>;

/// See the module's text.
pub(super) struct Core {
    pub(super) subject: Subject,
    pub(super) files: Files,
    pub(super) figures: Figures,
    pub(super) traffic: Traffic,
    pub(super) device: DeviceChoice,
    pub(super) identify: Identify,
    pub(super) length: Length,
    pub(super) warnings: Arc<Warnings>,
}

impl Core {
    /// An epoch that has begun is not the one that was forecast. Counted, and said once.
    pub(super) fn wrong_forecast(&self) {
        if self.figures.wrong_forecasts.fetch_add(1, Ordering::Relaxed) == 0 {
            self.warnings.say(
                "the order of an epoch is not the one that was forecast, since somebody else drew \
                 from the generator in between: the disk cache is read at random places then; \
                 hint: pass seed=, or a generator= that nobody else draws from"
                    .to_owned(),
            );
        }
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}

/// Counters, written by many threads.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) request_bytes: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) corrupt: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) wrong_forecasts: AtomicU64,
    /// Nanoseconds in which reads were waited for.
    pub(super) busy: AtomicU64,
}

impl Figures {
    pub(super) fn add(counter: &AtomicU64, value: u64) {
        counter.fetch_add(value, Ordering::Relaxed);
    }
}

/// Reads go before writes: a writer waits while somebody waits for a read, but not for ever.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    reads: AtomicUsize,
    lock: Mutex<()>,
    quiet: Condvar,
    patience: AtomicU64,
}

impl Traffic {
    pub(super) fn add_reads(&self, count: usize) {
        self.reads.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn end_reads(&self, count: usize) {
        if self.reads.fetch_sub(count, Ordering::Relaxed) == count {
            let _guard = self.lock.lock().expect("the traffic's lock");
            self.quiet.notify_all();
        }
    }

    /// Nobody reads any more.
    pub(super) fn end_all_reads(&self) {
        self.reads.store(0, Ordering::Relaxed);
        let _guard = self.lock.lock().expect("the traffic's lock");
        self.quiet.notify_all();
    }

    /// How long those who offer samples wait for the writer: not at all unless it was said.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_millis(self.patience.load(Ordering::Relaxed))
    }

    pub(super) fn set_patience(&self, patience: Duration) {
        let milliseconds = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.patience.store(milliseconds, Ordering::Relaxed);
    }

    /// Called before a write: lets reads go first for at most `patience`.
    pub(super) fn give_way(&self, patience: Duration) {
        if self.reads.load(Ordering::Relaxed) > 0 {
            let guard = self.lock.lock().expect("the traffic's lock");
            let _ = self
                .quiet
                .wait_timeout_while(guard, patience, |()| self.reads.load(Ordering::Relaxed) > 0);
        }
    }
}
