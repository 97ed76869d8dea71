//! Knowing that the process was forked.
//!
//! A forked child has none of the parent's threads, and any lock may have been held
//! at the fork. So what belongs to the parent is never used or dropped in the child:
//! it is left where it is. A counter, raised in each child, tells the two apart
//! without a system call.

#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

use crate::errors::ClosedError;

static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Begins to count; called when the module is loaded.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is allowed after a fork.
        unsafe { libc::pthread_atfork(None, None, Some(count_in_child)) };
    });
}

/// How many forks lie between this process and the one that loaded the module.
#[pyfunction]
pub(crate) fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// A value that only the process that made it may use or drop.
pub(crate) struct Native<T> {
    value: Option<T>,
    forks: u64,
}

impl<T> Native<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            value: Some(value),
            forks: forks(),
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.forks == forks()
    }

    /// The value, or a clear error in a forked child or after `close`.
    pub(crate) fn get(&self) -> PyResult<&T> {
        if !self.is_ours() {
            return Err(ClosedError::new_err(
                "this loader was made before the process forked and cannot be used in the child; \
                 hint: iterate over the loader anew in the child, or make it there",
            ));
        }
        self.value
            .as_ref()
            .ok_or_else(|| ClosedError::new_err("the loader is closed"))
    }

    pub(crate) fn close(&mut self) {
        if self.is_ours() {
            self.value = None;
        }
    }
}

impl<T> Drop for Native<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.value.take());
        }
    }
}
