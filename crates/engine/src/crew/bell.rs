//! How threads without work sleep, and how new work wakes them.
//!
//! ```text
//!   a thread                                 whoever makes work
//!   heard = bell.heard()                     makes it
//!   looks for work, finds none               bell.ring()
//!   bell.sleep(heard): returns at once if it rang since
//! ```
//!
//! No ring is lost, since a thread reads the count of rings before it looks. A ring costs two
//! atomic accesses while nobody sleeps. `model` compiles this very file against `loom` and goes
//! through all interleavings of it; hence `super::sync` and the explicit fences.

use super::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fence};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Bell {
    rings: AtomicU64,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    rung: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            rings: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            rung: Condvar::new(),
        }
    }

    /// How often it rang so far; read before looking for work.
    pub(crate) fn heard(&self) -> u64 {
        self.rings.load(Ordering::Acquire)
    }

    /// There may be new work.
    pub(crate) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::AcqRel);
        // Either this thread sees the sleeper, or the sleeper sees this ring.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            let _guard = self.lock.lock().expect("the bell's lock");
            self.rung.notify_all();
        }
    }

    /// Sleeps until it rings, or not at all if it rang since `heard` was read, or `is_over` says
    /// that there will be no more work; whoever changes that rings afterwards.
    pub(crate) fn sleep(&self, heard: u64, is_over: impl Fn() -> bool) {
        let mut guard = self.lock.lock().expect("the bell's lock");
        self.sleepers.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        while self.rings.load(Ordering::Acquire) == heard && !is_over() {
            guard = self.rung.wait(guard).expect("the bell's lock");
        }
        self.sleepers.fetch_sub(1, Ordering::AcqRel);
        drop(guard);
    }
}
