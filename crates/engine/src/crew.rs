//! The crew: the threads that fetch and copy, for whichever job has work.
//!
//! A thread goes round the jobs from where it stopped last time; when none has work
//! it sleeps until something happens. Crew threads never touch Python, block all
//! signals (so that Ctrl-C reaches the user's thread) and are joined for at most
//! [`PATIENCE`] at shutdown: a thread stuck in a dead file system is left behind
//! rather than hanging the exit.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Error;

/// How long a shutdown waits for the crew.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// Something the crew can work for.
pub(crate) trait Employer: Send + Sync {
    /// Does one piece of work; false if there is none.
    fn work(&self) -> bool;
}

/// What the crew and those who wake it share.
#[derive(Default)]
pub(crate) struct Board {
    employers: RwLock<Vec<Weak<dyn Employer>>>,
    /// Counts happenings: a thread sleeps only if none came since it last looked.
    happenings: AtomicU64,
    sleepers: AtomicUsize,
    closing: AtomicBool,
    lock: Mutex<usize>,
    changed: Condvar,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board")
            .field("closing", &self.closing)
            .finish_non_exhaustive()
    }
}

impl Board {
    /// Puts an employer on the board; it leaves when it is dropped.
    pub(crate) fn post(&self, employer: Weak<dyn Employer>) {
        let mut employers = self.employers.write().expect("the board's lock");
        employers.retain(|employer| employer.strong_count() > 0);
        employers.push(employer);
    }

    /// There may be new work.
    pub(crate) fn wake(&self) {
        self.happenings.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.lock.lock().expect("the board's lock");
            self.changed.notify_all();
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn sleep(&self, seen: u64) {
        let mut guard = self.lock.lock().expect("the board's lock");
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.happenings.load(Ordering::SeqCst) == seen && !self.is_closing() {
            guard = self.changed.wait(guard).expect("the board's lock");
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn run(&self, first: usize) {
        let mut turn = first;
        while !self.is_closing() {
            let seen = self.happenings.load(Ordering::SeqCst);
            let count = self.employers.read().expect("the board's lock").len();
            let worked = (0..count).any(|_| {
                turn = turn.wrapping_add(1);
                self.employer(turn).is_some_and(|employer| employer.work())
            });
            if !worked {
                self.sleep(seen);
            }
        }
    }

    fn employer(&self, turn: usize) -> Option<Arc<dyn Employer>> {
        let employers = self.employers.read().expect("the board's lock");
        employers.get(turn % employers.len().max(1))?.upgrade()
    }
}

/// The running threads.
#[derive(Debug)]
pub(crate) struct Crew {
    board: Arc<Board>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// Starts `threads` threads.
    pub(crate) fn start(threads: usize) -> Result<Self, Error> {
        let board = Arc::new(Board::default());
        let mut crew = Self {
            board: board.clone(),
            threads: Vec::with_capacity(threads),
        };
        for number in 0..threads {
            let board = board.clone();
            let thread = with_signals_blocked(|| {
                std::thread::Builder::new()
                    .name(format!("forebay-crew-{number}"))
                    .spawn(move || {
                        board.run(number);
                        // Counted under the lock, so that a shutdown need not poll.
                        *board.lock.lock().expect("the board's lock") += 1;
                        board.changed.notify_all();
                    })
            })
            .map_err(|source| Error::System {
                what: "starting a thread of the crew",
                source,
            })?;
            crew.threads.push(thread);
        }
        Ok(crew)
    }

    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.board.closing.store(true, Ordering::Release);
        self.board.wake();
        let until = Instant::now() + PATIENCE;
        let mut done = self.board.lock.lock().expect("the board's lock");
        self.board.changed.notify_all();
        while *done < self.threads.len() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return; // left behind: see the module's text
            }
            done = self
                .board
                .changed
                .wait_timeout(done, left)
                .expect("the board's lock")
                .0;
        }
        drop(done);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
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
mod tests {
    use super::*;

    struct Count(AtomicUsize, usize);

    impl Employer for Count {
        fn work(&self) -> bool {
            self.0.fetch_add(1, Ordering::SeqCst) < self.1
        }
    }

    #[test]
    fn sleeping_threads_wake_for_new_work() {
        let crew = Crew::start(2).unwrap();
        for _ in 0..100 {
            let count = Arc::new(Count(AtomicUsize::new(0), 10));
            let employer: Arc<dyn Employer> = count.clone();
            crew.board().post(Arc::downgrade(&employer));
            crew.board().wake();
            while count.0.load(Ordering::SeqCst) < 10 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_crew_without_work_ends_at_once() {
        let started = Instant::now();
        drop(Crew::start(8).unwrap());
        assert!(started.elapsed() < PATIENCE);
    }
}
