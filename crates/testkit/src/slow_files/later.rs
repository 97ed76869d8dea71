//! Answers that wait for their time.
//!
//! One thread sends them all: it sleeps until the earliest is due. So a thousand requests may
//! wait at once, at the cost of their bytes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

type Answer = Box<dyn FnOnce() + Send>;

/// The queue of answers, and the thread that sends them.
#[derive(Debug)]
pub(super) struct Later(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// By time, then in the order in which they came.
    dates: BinaryHeap<Reverse<(Instant, u64)>>,
    answers: HashMap<u64, Answer>,
    came: u64,
    closed: bool,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("dates", &self.dates)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Later {
    pub(super) fn start() -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let run = Arc::clone(&queue);
        let name = "slow-files".to_owned();
        thread::Builder::new()
            .name(name)
            .spawn(move || run.send())?;
        Ok(Self(queue))
    }

    /// Runs `answer` at its time, or now if that is `None`. After `close` it is dropped.
    pub(super) fn at(&self, due: Option<Instant>, answer: impl FnOnce() + Send + 'static) {
        let Some(due) = due else { return answer() };
        let mut waiting = self.0.lock();
        if waiting.closed {
            return;
        }
        let number = waiting.came;
        waiting.came += 1;
        waiting.dates.push(Reverse((due, number)));
        waiting.answers.insert(number, Box::new(answer));
        drop(waiting);
        self.0.changed.notify_one();
    }

    /// Ends the thread; what waits is dropped, which the kernel reports as an I/O error.
    pub(super) fn close(&self) {
        let mut waiting = self.0.lock();
        waiting.closed = true;
        let dropped = std::mem::take(&mut waiting.answers);
        drop(waiting);
        self.0.changed.notify_one();
        drop(dropped);
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no panic while queueing")
    }

    fn send(&self) {
        let mut waiting = self.lock();
        while !waiting.closed {
            let Some(&Reverse((due, number))) = waiting.dates.peek() else {
                waiting = self.changed.wait(waiting).expect("no panic while queueing");
                continue;
            };
            let left = due.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                let woken = self.changed.wait_timeout(waiting, left);
                waiting = woken.expect("no panic while queueing").0;
                continue;
            }
            waiting.dates.pop();
            let answer = waiting.answers.remove(&number);
            drop(waiting);
            if let Some(answer) = answer {
                answer();
            }
            waiting = self.lock();
        }
    }
}
