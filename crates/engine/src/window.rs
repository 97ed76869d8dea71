//! A job's window on its sequence: the batches between the user and the fetch
//! cursor, and what is to be done next for them.
//!
//! ```text
//!   batch      4        5        6      |   7        8         9 ...
//!           complete  filling  filling  | fetched  fetching   not laid out
//!           ^ head    slab     slab     | no slab: samples wait in the tier
//!                                       ^ depth
//! ```
//!
//! The first `depth` batches have a slab; samples of later ones are fetched into the
//! memory tier and held there, at most `readahead` bytes of them: each by itself, or all of a
//! batch in a row, which then is its slab. All is under the
//! job's one lock and every step is short: no I/O, no copying of samples.
//!
//! Epochs follow each other as *legs*: the one being delivered and, if the next is
//! known or guessed, that one, so that fetching runs on across the edge.

mod opening;
mod readahead;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use forebay_cache::Held;
use forebay_origin::View;
use forebay_plan::NextUse;
use forebay_prepare::Shape;

use crate::Error;
use crate::batch::{Layout, StandIn};
use crate::building::Building;
use crate::leg::Leg;
use crate::rows::Rows;
use crate::sequence::{Draws, Sequence, Step};
use crate::slab::{SlabPool, SlabWriter};
use crate::task::{Fetch, Outcome, Place, Placing, Task, cost};

/// Most samples one thread takes at a time, so that the lock is taken once for many.
const RUN_SAMPLES: usize = 16;
/// The same where each takes milliseconds, so that threads end a batch together.
const RUN_IMAGES: usize = 4;
/// Most bytes one thread takes at a time, so that large samples spread over threads.
const RUN_BYTES: u64 = 1 << 20;
/// Most of them where they fill a fresh huge page, so that no two threads clear it.
const RUN_PAGE: usize = 128;
/// Most batches laid out ahead, whatever their size.
const MOST_BATCHES: usize = 1024;

/// An epoch is followed by the next within this, or its queue is left out of account: a loader
/// for evaluation need not have a share of everything while others train.
const STILL_USED: Duration = Duration::from_secs(2);

/// Next uses, once they are computed, and at which slot of them this rank stands.
pub(crate) type Uses = Arc<OnceLock<(NextUse, u32)>>;

/// A batch with every slot done.
#[derive(Debug)]
pub(crate) struct Complete {
    pub(crate) layout: Layout,
    pub(crate) slab: SlabWriter,
    pub(crate) stand_ins: Vec<StandIn>,
    pub(crate) lent: Vec<(usize, Held)>,
    /// The job's clock once this batch is used.
    pub(crate) tick: u64,
}

/// The head of the queue, as the consumer sees it.
#[derive(Debug)]
pub(crate) enum Head {
    Complete(Complete),
    Failed(Error),
    Wait,
    End,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Window {
    dataset: Arc<View>,
    pool: SlabPool,
    depth: usize,
    /// All that may be fetched ahead, and this window's part of it.
    most_ahead: u64,
    readahead: u64,
    /// What is made of each sample, if it does not stay as it is.
    shape: Option<Shape>,
    /// Samples arrive by themselves (remote): a fetch counts as held from its start.
    arrives: bool,
    /// Most samples one thread takes at a time.
    run: usize,
    /// Where batches may be laid in the tier itself.
    rows: Option<Rows>,
    /// Reads stand still: better many short runs than few long ones.
    slow: bool,
    was_slow: bool,
    generation: u64,
    /// Number of legs.front().
    current: u64,
    legs: VecDeque<Leg>,
    batches: VecDeque<Building>,
    /// Sequence number of batches.front().
    head: u64,
    held_bytes: u64,
    /// Ticks of all legs that are over: the job's clock never goes back.
    clock: u64,
    taken: u64,
    /// When the user came to the epoch's end.
    over: Option<Instant>,
    /// It is new, or an epoch is about to be begun.
    expects_epoch: bool,
}

impl Window {
    pub(crate) fn new(
        dataset: Arc<View>,
        pool: SlabPool,
        depth: usize,
        readahead: u64,
        shape: Option<Shape>,
        arrives: bool,
    ) -> Self {
        Self {
            dataset,
            pool,
            depth: depth.max(1),
            most_ahead: readahead,
            readahead,
            run: match shape {
                Some(_) => RUN_IMAGES,
                None => RUN_SAMPLES,
            },
            shape,
            arrives,
            rows: None,
            slow: false,
            was_slow: false,
            generation: 0,
            current: 0,
            legs: VecDeque::new(),
            batches: VecDeque::new(),
            head: 0,
            held_bytes: 0,
            clock: 0,
            taken: 0,
            over: None,
            expects_epoch: true,
        }
    }

    /// Samples are decoded, though they are handed over as they are.
    pub(crate) fn expect_images(&mut self) {
        self.run = RUN_IMAGES;
    }

    /// Where batches may be laid in the tier itself.
    pub(crate) fn set_rows(&mut self, rows: Option<Rows>) {
        self.rows = rows;
    }

    /// Whether reads stand still.
    pub(crate) fn set_slow(&mut self, slow: bool) {
        // Two runs in a row: one may be bad luck.
        self.slow = slow && self.was_slow;
        self.was_slow = slow;
    }

    /// Its clock begins where those of the others are, so that their ticks can be compared.
    pub(crate) fn set_clock(&mut self, clock: u64) {
        self.clock = self.clock.max(clock);
    }

    /// Whether an epoch was begun and neither given up nor over for long.
    pub(crate) fn is_used(&self) -> bool {
        let over = self.over.is_some_and(|over| over.elapsed() > STILL_USED);
        !self.legs.is_empty() && !over
    }

    /// An epoch is about to be begun.
    pub(crate) fn expect_epoch(&mut self) {
        self.expects_epoch = true;
    }

    /// Whether it is to have a share of what is fetched ahead: it is used, or is about to be.
    pub(crate) fn is_sharer(&self) -> bool {
        self.is_used() || self.expects_epoch
    }

    /// Samples of open batches that nobody has fetched or is fetching.
    pub(crate) fn waiting(&self) -> u64 {
        let open = self.batches.iter().take(self.depth);
        open.map(|batch| (batch.layout.ids.len() - batch.fetched + batch.postponed.len()) as u64)
            .sum()
    }

    /// Batches delivered since `begin`, failed ones included.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Drops every leg and batch. What is under way finishes for nobody.
    pub(crate) fn reset(&mut self) {
        self.generation += 1;
        self.head += self.batches.len() as u64;
        self.batches.clear();
        self.current += self.legs.len() as u64;
        let reached = self.legs.back().map_or(0, |leg| leg.base + leg.position);
        self.clock = self.clock.max(reached);
        self.legs.clear();
        self.held_bytes = 0;
        self.taken = 0;
        self.over = None;
        self.expects_epoch = false;
    }

    /// Makes `sequence` the one that is delivered. True if it was the one foreseen,
    /// so that what was fetched ahead is used.
    pub(crate) fn begin(&mut self, tag: &str, sequence: Sequence, draws: Draws) -> bool {
        self.expects_epoch = false;
        let delivered = self
            .batches
            .front()
            .is_none_or(|batch| batch.leg > self.current);
        if delivered
            && self.legs.front().is_some_and(|leg| leg.ended)
            && self.legs.get(1).is_some_and(|leg| leg.is(tag, draws))
        {
            self.legs.pop_front();
            self.current += 1;
            self.taken = 0;
            self.over = None;
            return true;
        }
        self.reset();
        self.legs
            .push_back(Leg::new(tag, sequence, draws, self.clock));
        false
    }

    /// Foresees the epoch after the current one.
    pub(crate) fn foresee(&mut self, tag: &str, sequence: Sequence, draws: Draws) {
        let Some(leg) = self.legs.front() else { return };
        if self.legs.len() > 1 {
            return;
        }
        if let Some(samples) = leg.sequence.samples() {
            let base = leg.base + samples;
            self.legs.push_back(Leg::new(tag, sequence, draws, base));
        }
    }

    /// The sequence being delivered and the one foreseen, to compute next uses from.
    pub(crate) fn horizon(&self) -> Option<(Sequence, Option<Sequence>, Uses)> {
        let leg = self.legs.front()?;
        Some((
            leg.sequence.clone(),
            self.legs.get(1).map(|leg| leg.sequence.clone()),
            leg.uses.clone(),
        ))
    }

    /// Hands a batch over to a listed sequence.
    pub(crate) fn push(&mut self, ids: Vec<u32>) {
        if let Some(Leg {
            sequence: Sequence::Listed { batches, .. },
            ..
        }) = self.legs.front_mut()
        {
            batches.push_back(ids);
        }
    }

    /// No more batches are handed over.
    pub(crate) fn close(&mut self) {
        if let Some(Leg {
            sequence: Sequence::Listed { closed, .. },
            ..
        }) = self.legs.front_mut()
        {
            *closed = true;
        }
    }

    /// Samples in the tier whose slab is open, to be placed by one thread.
    pub(crate) fn take_placing(&mut self) -> Option<Placing> {
        let (generation, head, run) = (self.generation, self.head, self.run);
        let (at, batch) = self
            .batches
            .iter_mut()
            .take(self.depth)
            .enumerate()
            .find(|(_, batch)| batch.slab.is_some() && !batch.held.is_empty())?;
        let mut bytes = 0;
        let mut keep = batch.held.len();
        while keep > 0 && batch.held.len() - keep < run && bytes < RUN_BYTES {
            keep -= 1;
            let (task, stock) = &batch.held[keep];
            bytes += stock.cost(task);
        }
        let samples = batch.held.split_off(keep);
        let slab = batch.slab.clone().expect("checked above");
        self.release(at, bytes);
        Some(Placing {
            place: Place {
                generation,
                seq: head + at as u64,
            },
            samples,
            slab,
        })
    }

    /// Whether there is something that [`Self::take_placing`] would take.
    pub(crate) fn has_placing(&self) -> bool {
        let mut open = self.batches.iter().take(self.depth);
        open.any(|batch| batch.slab.is_some() && !batch.held.is_empty())
    }

    /// The next samples to fetch, if the budget allows more.
    pub(crate) fn take_fetch(&mut self) -> Option<Fetch> {
        let mut at = 0;
        loop {
            while at >= self.batches.len() {
                if !self.lay_out() {
                    return None;
                }
            }
            if at >= self.depth {
                self.open_ahead(at);
            }
            let open = self.batches[at].slab.is_some();
            if open && !self.batches[at].postponed.is_empty() {
                return Some(self.fetch_postponed(at));
            }
            if self.batches[at].fetched < self.batches[at].layout.ids.len() {
                return self.fetch_run(at);
            }
            at += 1;
        }
    }

    /// Whether a batch that is being filled waits for room in the tier.
    pub(crate) fn has_postponed(&self) -> bool {
        let mut open = self.batches.iter().take(self.depth);
        open.any(|batch| batch.slab.is_some() && !batch.postponed.is_empty())
    }

    fn fetch_postponed(&mut self, at: usize) -> Fetch {
        let run = self.run;
        let batch = &mut self.batches[at];
        let keep = batch.postponed.len().saturating_sub(run);
        let tasks = batch.postponed.split_off(keep);
        if self.arrives {
            self.charge(at, tasks.iter().map(Task::cost).sum());
        }
        self.fetch(at, tasks)
    }

    fn fetch_run(&mut self, at: usize) -> Option<Fetch> {
        let batch = &self.batches[at];
        let counts = self.arrives || batch.slab.is_none();
        let leg = &self.legs[(batch.leg - self.current) as usize];
        let fresh = batch.slab.as_ref().filter(|slab| slab.is_fresh());
        let pages = fresh.filter(|_| self.is_quick(batch));
        let page = |slot: usize| pages.map(|slab| slab.huge_page(batch.layout.offsets[slot]));
        let (run, most) = match pages {
            Some(_) => (RUN_PAGE, u64::MAX),
            None => (self.run, RUN_BYTES),
        };
        let ahead = self.ahead();
        let mut tasks = Vec::with_capacity(self.run);
        let mut bytes = 0;
        for slot in batch.fetched..batch.layout.ids.len() {
            let len = batch.layout.lengths[slot];
            let cost = cost(len);
            let over = counts && ahead + bytes + cost > self.readahead && ahead + bytes > 0;
            let full = tasks.len() == run || bytes + cost > most && !tasks.is_empty();
            if over || full || page(slot) != page(batch.fetched) {
                break;
            }
            bytes += cost;
            let position = batch.position + slot as u64;
            tasks.push(Task {
                slot,
                id: batch.layout.ids[slot],
                len,
                next: leg.next_use(position),
                offset: batch.layout.offsets[slot],
                room: batch.layout.room(slot),
                draw: leg.draws.at(position),
                past_log: false,
            });
        }
        if tasks.is_empty() {
            return None;
        }
        if counts {
            self.charge(at, bytes);
        }
        self.batches[at].fetched += tasks.len();
        Some(self.fetch(at, tasks))
    }

    fn fetch(&self, at: usize, tasks: Vec<Task>) -> Fetch {
        let place = Place {
            generation: self.generation,
            seq: self.head + at as u64,
        };
        Fetch {
            place,
            tasks,
            slab: self.batches[at].slab.clone(),
        }
    }

    /// Lays out one more batch; false if there is none or enough are laid out.
    fn lay_out(&mut self) -> bool {
        if self.batches.len() >= MOST_BATCHES.max(self.depth) {
            return false;
        }
        let mut ids = Vec::new();
        for (at, leg) in self.legs.iter_mut().enumerate() {
            if leg.ended {
                continue;
            }
            match leg.sequence.batch(leg.batches, &mut ids) {
                Step::End => leg.ended = true,
                Step::Later => return false,
                Step::Batch => {
                    let position = leg.position;
                    leg.batches += 1;
                    leg.position += ids.len() as u64;
                    let number = self.current + at as u64;
                    self.add_batch(number, position, ids);
                    return true;
                }
            }
        }
        false
    }

    fn add_batch(&mut self, leg: u64, position: u64, ids: Vec<u32>) {
        let mut lengths = Vec::with_capacity(ids.len());
        let mut labels = Vec::with_capacity(ids.len());
        let mut failed = None;
        for (slot, &id) in ids.iter().enumerate() {
            match self
                .dataset
                .length(id)
                .and_then(|length| Ok((length, self.dataset.label(id)?)))
            {
                Ok((length, label)) => {
                    lengths.push(length);
                    labels.push(label);
                }
                Err(error) => {
                    lengths.push(0);
                    labels.push(-1);
                    failed.get_or_insert((slot, Error::Index(error)));
                }
            }
        }
        let layout = Layout::new(ids, labels, lengths, self.shape);
        // A batch that cannot be laid out is delivered, in its turn, as its error.
        let remaining = if failed.is_some() {
            0
        } else {
            layout.ids.len()
        };
        let fetched = layout.ids.len() - remaining;
        self.batches.push_back(Building {
            leg,
            layout,
            position,
            slab: None,
            fetched,
            postponed: Vec::new(),
            held: Vec::new(),
            counted: 0,
            remaining,
            failed,
            stand_ins: Vec::new(),
            lent: Vec::new(),
        });
        self.open_slabs();
    }

    /// Where the batch of some work is, unless it was given up meanwhile.
    fn find(&self, place: Place) -> Option<usize> {
        (place.generation == self.generation && place.seq >= self.head)
            .then(|| (place.seq - self.head) as usize)
    }

    /// Takes note of what became of a task. True if the batch is complete by it.
    pub(crate) fn finish(
        &mut self,
        place: Place,
        task: Task,
        fetched_into_slab: bool,
        outcome: Outcome,
    ) -> bool {
        let Some(at) = self.find(place) else {
            return false;
        };
        if self.arrives || !fetched_into_slab {
            self.release(at, task.cost());
        }
        match outcome {
            Outcome::Held(stock) => {
                // Its bytes stay counted, or begin to be, until they are placed.
                self.charge(at, stock.cost(&task));
                self.batches[at].held.push((task, stock));
                return false;
            }
            Outcome::Postponed => {
                self.batches[at].postponed.push(task);
                return false;
            }
            done => self.batches[at].done(&task, done),
        }
        self.batches[at].remaining -= 1;
        self.batches[at].remaining == 0
    }

    /// Takes note of what became of samples that were in the tier; their bytes were released
    /// by `take_placing`.
    pub(crate) fn placed(&mut self, place: Place, outcomes: Vec<(Task, Outcome)>) -> bool {
        let Some(at) = self.find(place) else {
            return false;
        };
        let batch = &mut self.batches[at];
        batch.remaining -= outcomes.len();
        for (task, outcome) in outcomes {
            batch.done(&task, outcome);
        }
        batch.remaining == 0
    }

    /// The head of the queue; a complete one leaves it.
    pub(crate) fn deliver(&mut self) -> Head {
        if self.batches.is_empty() {
            self.lay_out();
        }
        match self.batches.front() {
            Some(batch) if batch.leg == self.current => {
                // A batch that cannot get its slab fails though its slots are not done.
                if batch.remaining > 0 && (batch.slab.is_some() || batch.failed.is_none()) {
                    return Head::Wait;
                }
            }
            _ if self.legs.front().is_none_or(|leg| leg.ended) => {
                self.over.get_or_insert_with(Instant::now);
                return Head::End;
            }
            _ => return Head::Wait,
        }
        let batch = self.batches.pop_front().expect("matched above");
        // What is under way for a batch that fails without a slab finishes for nobody.
        self.held_bytes -= batch.counted;
        let base = self.legs.front().map_or(0, |leg| leg.base);
        let tick = base + batch.position + batch.layout.ids.len() as u64;
        self.head += 1;
        self.taken += 1;
        self.open_slabs();
        match (batch.failed, batch.slab) {
            (Some((_, error)), _) => Head::Failed(error),
            (None, Some(slab)) => Head::Complete(Complete {
                layout: batch.layout,
                slab,
                stand_ins: batch.stand_ins,
                lent: batch.lent,
                tick,
            }),
            (None, None) => Head::Failed(Error::Closed),
        }
    }

    /// True if the next batch can be delivered at once.
    pub(crate) fn is_ready(&self) -> bool {
        self.batches
            .front()
            .is_some_and(|batch| batch.leg == self.current && batch.remaining == 0)
    }
}
