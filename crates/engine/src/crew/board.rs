//! The board: the queues that want work done, and how threads find it.
//!
//! A thread does first what its role says, then, unless the split is fixed, whatever there is: a
//! queue whose user would have to wait comes before the others. When there is nothing at all it
//! sleeps until something happens.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use super::bell::Bell;
use super::nodes::Nodes;
use super::pilot::{Orders, Pilot, Report};
use super::roles::{Role, Roles};
use super::{CrewSettings, with_signals_blocked};
use crate::Error;
use crate::preparation::words;
use crate::stats::CrewStats;

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bringing samples into memory, no more.
    Load,
    /// Bringing them from there into their batch.
    Prepare,
    /// Whatever there is, as few steps as possible.
    Any,
}

/// Something the crew can work for: a job's queue.
pub(crate) trait Employer: Send + Sync {
    /// Does one piece of work; false if there is none.
    fn work(&self, kind: Kind) -> bool;

    /// Whether its user would have to wait now.
    fn is_short(&self) -> bool {
        true
    }

    /// What happened so far; `None` if nobody uses the queue.
    fn report(&self) -> Option<Report> {
        None
    }

    /// Whether it is to have a share of what is fetched ahead: it is used, or will be.
    fn is_sharer(&self) -> bool {
        false
    }

    /// There are so many who share what is fetched ahead.
    fn share(&self, _sharers: usize) {}

    /// Which rank it is of a plan on that dataset, if it is one of several.
    fn rank_on(&self, _dataset: u32) -> Option<u32> {
        None
    }

    /// What it may use from now on.
    fn obey(&self, _orders: Orders) {}
}

type Queue = (u64, Weak<dyn Employer>);

/// See the module's text.
pub(crate) struct Board {
    /// Itself, for the threads it starts.
    me: Weak<Board>,
    queues: RwLock<Vec<Queue>>,
    posted: AtomicU64,
    roles: Roles,
    strict: bool,
    nodes: Nodes,
    pilot: Pilot,
    /// Where threads without work sleep.
    bell: Bell,
    closing: AtomicBool,
    /// What the panic of a thread said: nothing goes on after it.
    broken: OnceLock<String>,
    /// Threads that have ended.
    ended: Mutex<usize>,
    gone: Condvar,
    /// For those who rest: they have another role, or it is over.
    relieved: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board")
            .field("closing", &self.closing)
            .finish_non_exhaustive()
    }
}

impl Board {
    pub(super) fn new(most: usize, cores: usize, settings: CrewSettings) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            queues: RwLock::default(),
            posted: AtomicU64::new(0),
            roles: Roles::new(most),
            strict: settings.split.is_some(),
            nodes: Nodes::here(),
            pilot: Pilot::new(most, cores, settings),
            bell: Bell::new(),
            closing: AtomicBool::new(false),
            broken: OnceLock::new(),
            ended: Mutex::new(0),
            gone: Condvar::new(),
            relieved: Condvar::new(),
            threads: Mutex::default(),
        })
    }

    /// Puts a queue on the board; it leaves when it is dropped.
    pub(crate) fn post(&self, employer: Weak<dyn Employer>) {
        let number = self.posted.fetch_add(1, Ordering::Relaxed);
        let mut queues = self.queues.write().expect("the board's lock");
        queues.retain(|(_, employer)| employer.strong_count() > 0);
        queues.push((number, employer));
    }

    /// Whether there is more than one queue.
    pub(crate) fn is_shared(&self) -> bool {
        let queues = self.queues.read().expect("the board's lock");
        let alive = |(_, employer): &&Queue| employer.strong_count() > 0;
        queues.iter().filter(alive).nth(1).is_some()
    }

    /// The ranks of a plan on that dataset that are at home here, ascending.
    pub(crate) fn ranks_on(&self, dataset: u32) -> Vec<u32> {
        let employers = self.employers().into_iter();
        let mut ranks: Vec<u32> = employers
            .filter_map(|employer| employer.rank_on(dataset))
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// How many queues share what is fetched ahead; at least one, who asks.
    pub(crate) fn sharers(&self) -> usize {
        let sharers = self.employers().into_iter();
        sharers
            .filter(|employer| employer.is_sharer())
            .count()
            .max(1)
    }

    /// Divides what may be fetched ahead. At once, and not by the pilot's next look: a queue that
    /// begins with the whole of it could hold all of the tier's reserve.
    pub(crate) fn divide_readahead(&self) {
        let sharers = self.sharers();
        for employer in self.employers() {
            employer.share(sharers);
        }
    }

    fn employers(&self) -> Vec<Arc<dyn Employer>> {
        let queues = self.queues.read().expect("the board's lock");
        let alive = queues.iter().filter_map(|(_, employer)| employer.upgrade());
        alive.collect()
    }

    /// There may be new work.
    pub(crate) fn wake(&self) {
        self.bell.ring();
    }

    /// There may be new loading to do. Where roles are not fixed, who came to know it does it.
    pub(crate) fn wake_loaders(&self) {
        if self.strict {
            self.wake();
        }
    }

    /// A user took a batch: roles may be looked at again.
    pub(crate) fn edge(&self) {
        self.pilot.edge();
    }

    /// A queue is used from now on, or no longer.
    pub(crate) fn change(&self) {
        self.pilot.change();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Why there are no more batches: it is over, or a thread broke.
    pub(crate) fn ending(&self) -> Option<Error> {
        self.is_closing().then(|| match self.broken.get() {
            Some(why) => Error::Broken { why: why.clone() },
            None => Error::Closed,
        })
    }

    /// Starts threads until there are `count`, at most those there may be.
    pub(super) fn grow(&self, count: usize) -> Result<(), Error> {
        let mut threads = self.threads.lock().expect("the board's lock");
        while threads.len() < count.min(self.roles.len()) && !self.is_closing() {
            let number = threads.len();
            let Some(board) = self.me.upgrade() else {
                return Ok(());
            };
            let thread = with_signals_blocked(|| {
                std::thread::Builder::new()
                    .name(format!("forebay-crew-{number}"))
                    .spawn(move || {
                        board.nodes.stay(number);
                        board.guard(|| board.run(number));
                        // Counted under the lock, so that a shutdown need not poll.
                        *board.ended.lock().expect("the board's lock") += 1;
                        board.gone.notify_all();
                    })
            })
            .map_err(|source| Error::System {
                what: "starting a thread of the crew",
                source,
            })?;
            threads.push(thread);
        }
        Ok(())
    }

    /// Does `work`. A panic of it is a bug that may leave a batch which nobody fills, so all ends,
    /// and every user is told why.
    pub(crate) fn guard<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(work));
        done.map_err(|panic| self.broke(&*panic)).ok()
    }

    /// Something panicked that a batch may wait for.
    pub(crate) fn broke(&self, panic: &(dyn Any + Send)) {
        let _ = self.broken.set(words(panic).to_owned());
        self.close();
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wake();
        self.relieve();
    }

    fn relieve(&self) {
        let _guard = self.ended.lock().expect("the board's lock");
        self.relieved.notify_all();
    }

    /// Ends all threads, waiting for them at most `until` then.
    pub(super) fn end(&self, until: Instant) {
        self.close();
        let threads = std::mem::take(&mut *self.threads.lock().expect("the board's lock"));
        let mut ended = self.ended.lock().expect("the board's lock");
        while *ended < threads.len() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return; // left behind: see the crew's text
            }
            ended = self
                .gone
                .wait_timeout(ended, left)
                .expect("the board's lock")
                .0;
        }
        drop(ended);
        for thread in threads {
            let _ = thread.join();
        }
    }

    pub(super) fn stats(&self) -> CrewStats {
        CrewStats {
            threads: self.threads.lock().expect("the board's lock").len(),
            ..self.pilot.stats(&self.roles)
        }
    }

    /// See the pilot's.
    pub(crate) fn take_news(&self) -> Option<String> {
        self.pilot.take_news()
    }

    /// Work does not wake those who have no part in it.
    fn rest(&self, number: usize) {
        let mut guard = self.ended.lock().expect("the board's lock");
        while self.roles.of(number) == Role::Rest && !self.is_closing() {
            guard = self.relieved.wait(guard).expect("the board's lock");
        }
    }

    fn run(&self, number: usize) {
        let mut turn = number;
        let mut was_at_work = false;
        while !self.is_closing() {
            let heard = self.bell.heard();
            if self.pilot.is_due() {
                self.steer();
            }
            let worked = match (self.roles.of(number), self.strict) {
                (Role::Rest, _) => {
                    // It would have seen what became possible by its last piece of work.
                    if std::mem::take(&mut was_at_work) {
                        self.wake();
                    }
                    self.rest(number);
                    continue;
                }
                (Role::Prepare, true) => self.any(&mut turn, Kind::Prepare),
                (Role::Load(queue), true) => self.load(queue) || self.load_unserved(),
                (Role::Prepare, false) => self.any(&mut turn, Kind::Any),
                (Role::Load(queue), false) => self.load(queue) || self.any(&mut turn, Kind::Any),
            };
            was_at_work = worked;
            if !worked {
                self.bell.sleep(heard, || self.is_closing());
            }
        }
    }

    fn load(&self, queue: u64) -> bool {
        let queues = self.queues.read().expect("the board's lock");
        let found = queues.iter().find(|(number, _)| *number == queue);
        let employer = found.and_then(|(_, employer)| employer.upgrade());
        drop(queues);
        employer.is_some_and(|employer| employer.work(Kind::Load))
    }

    /// Loads for queues that have no thread of their own: there may be more of them than threads.
    fn load_unserved(&self) -> bool {
        let queues = self.queues.read().expect("the board's lock");
        let unserved = |(number, _): &&Queue| self.roles.count(Some(*number)).1 == 0;
        let employers = queues.iter().filter(unserved);
        let employers: Vec<_> = employers.filter_map(|(_, e)| e.upgrade()).collect();
        drop(queues);
        employers.iter().any(|employer| employer.work(Kind::Load))
    }

    /// Goes round the queues from where it stopped last time; those that are short first.
    fn any(&self, turn: &mut usize, kind: Kind) -> bool {
        let count = self.queues.read().expect("the board's lock").len();
        let mut round = |short_only: bool| {
            (0..count).any(|_| {
                *turn = turn.wrapping_add(1);
                self.queue(*turn)
                    .filter(|employer| !short_only || employer.is_short())
                    .is_some_and(|employer| employer.work(kind))
            })
        };
        count > 1 && round(true) || round(false)
    }

    fn queue(&self, turn: usize) -> Option<Arc<dyn Employer>> {
        let queues = self.queues.read().expect("the board's lock");
        queues.get(turn % queues.len().max(1))?.1.upgrade()
    }

    /// Looks at what happened since the last time and changes roles if that is worth it.
    fn steer(&self) {
        // Before it looks: a queue that comes meanwhile asks again.
        self.pilot.looking();
        let queues: Vec<_> = {
            let queues = self.queues.read().expect("the board's lock");
            let alive = |(number, employer): &Queue| Some((*number, employer.upgrade()?));
            queues.iter().filter_map(alive).collect()
        };
        if let Some(threads) = self.pilot.steer(&queues, &self.roles, &self.nodes) {
            // If there are no more to be had, those that there are do it.
            let _ = self.grow(threads);
            self.relieve();
            self.wake();
        }
    }
}
