//! The parts of an engine that wait for each other, for `loom`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_cache::{Held, Lookup, MemoryTier, Settings};
use forebay_origin::View;
use loom::sync::{Condvar, Mutex, MutexGuard};

use super::bell::Bell;
use super::{Fixes, Scenario, Source};
use crate::Error;
use crate::preparation::Stock;
use crate::sequence::{Draws, Sequence};
use crate::slab::SlabPool;
use crate::task::{Fetch, Outcome, Place, Placing, Task};
use crate::window::{Head, Window};

/// The tier as a step sees it: one call under one lock, and the word that there is room comes after
/// that lock, as it does from `Inner::finish`.
pub(super) struct Tier {
    tier: Mutex<MemoryTier>,
    room: Arc<AtomicBool>,
}

impl Tier {
    /// With so many blocks, in which nothing is kept.
    pub(super) fn new(blocks: u64) -> Self {
        // A little for the tables of each block.
        let budget = (32 << 10) + blocks * (4096 + 256);
        let settings = Settings {
            budget,
            reserve: budget,
            policy: forebay_cache::policy_by_name("none", Default::default()).unwrap(),
            shared: false,
        };
        let tier = MemoryTier::new(settings).unwrap();
        assert_eq!(tier.stats().capacity, blocks * 4096);
        let room = Arc::new(AtomicBool::new(false));
        let told = room.clone();
        tier.set_on_room(Box::new(move || told.store(true, Ordering::Relaxed)));
        Self {
            tier: Mutex::new(tier),
            room,
        }
    }

    /// The result, and whether `on_room` is called after it.
    fn step<T>(&self, step: impl FnOnce(&MemoryTier) -> T) -> (T, bool) {
        let tier = self.tier.lock().unwrap();
        let done = step(&tier);
        (done, self.room.swap(false, Ordering::Relaxed))
    }
}

/// A job, as far as it is modelled.
struct Rank {
    batches: VecDeque<Vec<u32>>,
    window: Mutex<Window>,
    complete: Condvar,
}

/// A read on its way: `None` for bytes that go past the tier.
struct Read {
    rank: usize,
    place: Place,
    task: Task,
    into_slab: bool,
    fill: Option<forebay_cache::Fill>,
}

/// Everything that threads share.
pub(super) struct World {
    fixes: Fixes,
    source: Source,
    tier: Tier,
    ranks: Vec<Rank>,
    bell: Bell,
    reads: Mutex<(VecDeque<Read>, bool)>,
    asked: Condvar,
    broken: AtomicBool,
    over: AtomicBool,
    scenario: Scenario,
}

impl World {
    pub(super) fn new(
        scenario: Scenario,
        fixes: Fixes,
        dataset: &Arc<View>,
        pool: &SlabPool,
    ) -> Self {
        let mut first = 0;
        let ranks = scenario.ranks.iter().map(|batches| {
            let arrives = scenario.source != Source::Local;
            let readahead = scenario.readahead * 4096;
            let mut window =
                Window::new(dataset.clone(), pool.clone(), 1, readahead, None, arrives);
            window.expect_images();
            let ids = batches.iter().map(|&samples| {
                first += samples;
                (first - samples..first).collect()
            });
            Rank {
                batches: ids.collect(),
                window: Mutex::new(window),
                complete: Condvar::new(),
            }
        });
        Self {
            ranks: ranks.collect(),
            fixes,
            source: scenario.source,
            tier: Tier::new(scenario.blocks),
            bell: Bell::new(),
            reads: Mutex::default(),
            asked: Condvar::new(),
            broken: AtomicBool::new(false),
            over: AtomicBool::new(false),
            scenario,
        }
    }

    fn window(&self, rank: usize) -> MutexGuard<'_, Window> {
        self.ranks[rank].window.lock().unwrap()
    }

    /// `Board::wake`.
    fn wake(&self) {
        self.bell.ring();
    }

    /// A step on the tier, and what follows from it.
    fn on_tier<T>(&self, step: impl FnOnce(&MemoryTier) -> T) -> T {
        let (done, room) = self.tier.step(step);
        if room {
            self.wake();
        }
        done
    }

    // -- network and crew -----------------------------------------------------------------

    /// `fetch::pump`, with `find` and `spawn_reads`.
    fn pump(&self, rank: usize) {
        loop {
            let fetch = self.window(rank).take_fetch();
            let Some(Fetch { place, tasks, slab }) = fetch else {
                return;
            };
            let into_slab = slab.is_some();
            drop(slab);
            let mut postponed = false;
            for task in tasks {
                let lookup = |tier: &MemoryTier| tier.lookup(task.id.into(), task.len, task.next);
                let fill = match self.on_tier(lookup).unwrap() {
                    Lookup::Fill(fill) => Some(fill),
                    Lookup::Full if into_slab && self.fixes.goes_past_a_full_tier => None,
                    Lookup::Full => {
                        postponed = true;
                        self.finish(rank, place, into_slab, task, Outcome::Postponed);
                        continue;
                    }
                    Lookup::Hit(_) | Lookup::Busy(_) => unreachable!("each sample is used once"),
                };
                self.reads.lock().unwrap().0.push_back(Read {
                    rank,
                    place,
                    task,
                    into_slab,
                    fill,
                });
                self.asked.notify_one();
            }
            if postponed {
                return;
            }
        }
    }

    /// `fetch::finish`.
    fn finish(&self, rank: usize, place: Place, into_slab: bool, task: Task, outcome: Outcome) {
        let held = matches!(outcome, Outcome::Held(_));
        let postponed = matches!(outcome, Outcome::Postponed);
        let mut window = self.window(rank);
        let complete = window.finish(place, task, into_slab, outcome);
        let placing = held && window.has_placing();
        let again = postponed && window.has_postponed() && self.fixes.wakes_for_what_is_postponed;
        drop(window);
        if complete {
            self.ranks[rank].complete.notify_all();
        }
        if placing || again {
            self.wake();
        }
    }

    /// The network, or the log's reader: one read, then `settle`. False once all is over.
    fn bring(&self, waits: bool) -> Option<bool> {
        let mut reads = self.reads.lock().unwrap();
        while waits && reads.0.is_empty() && !reads.1 {
            reads = self.asked.wait(reads).unwrap();
        }
        if reads.1 {
            return Some(false);
        }
        let read = reads.0.pop_front()?;
        drop(reads);
        let Read {
            rank,
            place,
            task,
            into_slab,
            fill,
        } = read;
        if self.scenario.breaks {
            // The task is gone. `spawn` catches it, and `Board::broke` ends the engine.
            if self.fixes.ends_on_a_panic {
                self.broken.store(true, Ordering::Relaxed);
                // The user looks every now and then, which is not modelled.
                let _window = self.window(rank);
                self.ranks[rank].complete.notify_all();
            }
            return Some(true);
        }
        let outcome = match fill {
            // The bytes beside the tier count elsewhere (`aside`); placed at once, for brevity.
            None => Outcome::Placed,
            Some(fill) => Outcome::Held(Stock::Encoded(self.on_tier(|_| fill.commit()))),
        };
        self.finish(rank, place, into_slab, task, outcome);
        self.wake();
        self.pump(rank);
        Some(true)
    }

    /// `Desk::work`: one piece, or none.
    fn work(&self, rank: usize) -> bool {
        let (placing, fetch) = {
            let mut window = self.window(rank);
            match window.take_placing() {
                Some(placing) => (Some(placing), None),
                None if self.source != Source::Remote => (None, window.take_fetch()),
                None => (None, None),
            }
        };
        match (placing, fetch) {
            (Some(placing), _) => self.place(rank, placing),
            (None, Some(fetch)) => self.fetch_local(rank, fetch),
            (None, None) => {
                // `Desk::pump_again`.
                let again = || self.window(rank).has_postponed();
                if self.source == Source::Remote && again() {
                    self.pump(rank);
                }
                return false;
            }
        }
        true
    }

    /// `fetch::place`.
    fn place(&self, rank: usize, placing: Placing) {
        let Placing {
            place,
            samples,
            slab,
        } = placing;
        let mut outcomes = Vec::new();
        for (task, stock) in samples {
            self.on_tier(|_| drop(stock));
            outcomes.push((task, Outcome::Placed));
        }
        drop(slab);
        if self.window(rank).placed(place, outcomes) {
            self.ranks[rank].complete.notify_all();
        }
        if self.source == Source::Remote {
            self.pump(rank);
        }
    }

    /// `fetch::local`: through the tier into the slab, or into the tier, or past it.
    fn fetch_local(&self, rank: usize, fetch: Fetch) {
        let Fetch { place, tasks, slab } = fetch;
        let into_slab = slab.is_some();
        drop(slab);
        for task in tasks {
            if Some(task.id) == self.scenario.bad {
                let failed = Outcome::Failed(Error::Closed);
                self.finish(rank, place, into_slab, task, failed);
                continue;
            }
            let lookup = |tier: &MemoryTier| tier.lookup(task.id.into(), task.len, task.next);
            let outcome = match self.on_tier(lookup).unwrap() {
                Lookup::Full if into_slab => Outcome::Placed,
                Lookup::Full => Outcome::Postponed,
                Lookup::Fill(fill) => {
                    let held: Held = self.on_tier(|_| fill.commit());
                    if into_slab {
                        self.on_tier(|_| drop(held));
                        Outcome::Placed
                    } else {
                        Outcome::Held(Stock::Encoded(held))
                    }
                }
                Lookup::Hit(_) | Lookup::Busy(_) => unreachable!("each sample is used once"),
            };
            self.finish(rank, place, into_slab, task, outcome);
        }
    }

    // -- threads --------------------------------------------------------------------------

    /// `Board::run`. One that `rests` does so after its first piece of work.
    pub(super) fn crew(&self, rests: bool) {
        while !self.is_over() {
            let heard = self.bell.heard();
            let worked = (0..self.ranks.len()).any(|rank| self.work(rank));
            if worked && rests {
                if self.fixes.wakes_before_it_rests {
                    self.wake();
                }
                return;
            }
            if !worked {
                self.bell.sleep(heard, || self.is_over());
            }
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(super) fn network(&self) {
        while self.bring(true) != Some(false) {}
    }

    /// Network and crew as one thread, where their order does not matter.
    pub(super) fn both(&self) {
        while !self.is_over() {
            let heard = self.bell.heard();
            let placed = (0..self.ranks.len()).any(|rank| self.work(rank));
            let brought = self.bring(false) == Some(true);
            if !placed && !brought {
                self.bell.sleep(heard, || self.is_over());
            }
        }
    }

    // -- the user -------------------------------------------------------------------------

    /// `Job::begin` up to its `stir`, with `Board::divide_readahead`.
    pub(super) fn begin(&self, rank: usize) {
        let ranks = 0..self.ranks.len();
        if self.fixes.divides_readahead {
            self.window(rank).expect_epoch();
            let is_sharer = |rank: &usize| self.window(*rank).is_sharer();
            let sharers = ranks.clone().filter(is_sharer).count();
            for rank in ranks {
                self.window(rank).share_readahead(sharers);
            }
        }
        let sequence = Sequence::Listed {
            batches: self.ranks[rank].batches.clone(),
            closed: true,
        };
        self.window(rank).begin("", sequence, Draws::default());
    }

    /// `Job::stir`.
    pub(super) fn stir(&self, rank: usize) {
        if self.source == Source::Remote {
            self.pump(rank);
        }
        self.wake();
    }

    /// `Job::next`. True if there was a batch.
    pub(super) fn next(&self, rank: usize) -> bool {
        let mut window = self.window(rank);
        let head = loop {
            if self.broken.load(Ordering::Relaxed) {
                return false;
            }
            let before = window.ahead();
            match window.deliver() {
                Head::Wait => window = self.ranks[rank].complete.wait(window).unwrap(),
                head => {
                    if !self.fixes.releases_with_the_batch {
                        let after = window.ahead();
                        window.leak(before - after);
                    }
                    break head;
                }
            }
        };
        drop(window);
        match head {
            Head::Complete(complete) => {
                drop(complete);
                self.stir(rank);
                true
            }
            Head::Failed(_) => {
                if self.fixes.stirs_after_a_failure {
                    self.stir(rank);
                }
                false
            }
            Head::Wait | Head::End => unreachable!("the batches are counted"),
        }
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.wake();
        self.reads.lock().unwrap().1 = true;
        self.asked.notify_all();
    }
}
