//! The crew: the threads that load and prepare, for whichever job has work.
//!
//! | part | what it is |
//! |---|---|
//! | `board` | the queues that want work done, and how threads find it |
//! | `bell` | how threads without work sleep, and how new work wakes them |
//! | `roles` | what each thread is to do first: prepare, load for one queue, rest |
//! | `pilot` | measures at the edges of batches and changes roles as the balancer says |
//! | `nodes` | which processors are near each other |
//!
//! Crew threads never touch Python, block all signals (so that Ctrl-C reaches the user's
//! thread) and are joined for at most [`PATIENCE`] at shutdown: a thread stuck in a dead
//! file system is left behind rather than hanging the exit.

#![allow(unsafe_code)]

mod bell;
mod board;
mod nodes;
mod pilot;
mod roles;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use board::{Board, Employer, Kind};
pub(crate) use pilot::{Orders, Report, Totals};
pub use roles::FixedSplit;

use crate::Error;
use crate::stats::CrewStats;

/// What [`bell`] is made of; the model of the tests gives it `loom`'s.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    pub(super) use std::sync::{Condvar, Mutex};
}

/// How long a shutdown waits for the crew.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// Threads beyond the cores that may read where reads stand still: each holds up to a megabyte of
/// samples while it does.
const MOST_LOADERS: usize = 32;

/// How a crew is set up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrewSettings {
    /// Threads; 0 for as many as turn out to be of use.
    pub(crate) threads: usize,
    /// Who does what, once and for all; `None` to find out.
    pub(crate) split: Option<FixedSplit>,
}

/// The running threads.
#[derive(Debug)]
pub(crate) struct Crew {
    board: Arc<Board>,
}

impl Crew {
    /// Starts as many threads as there are cores, or as many as are wanted.
    pub(crate) fn start(settings: CrewSettings) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (first, most) = match (settings.threads, settings.split) {
            (_, Some(split)) => (split.load + split.prepare, split.load + split.prepare),
            (0, None) => (cores, cores + MOST_LOADERS),
            (threads, None) => (threads, threads),
        };
        let board = Board::new(most, cores, settings);
        let crew = Self {
            board: board.clone(),
        };
        board.grow(first)?;
        Ok(crew)
    }

    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    pub(crate) fn stats(&self) -> CrewStats {
        self.board.stats()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.board.end(Instant::now() + PATIENCE);
    }
}

/// Runs `spawn` so that the new thread starts with every signal blocked.
pub(crate) fn with_signals_blocked<T>(spawn: impl FnOnce() -> T) -> T {
    // SAFETY: plain libc calls on local sets; the caller's mask is put back.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        let mut before = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = spawn();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

#[cfg(test)]
mod tests;
