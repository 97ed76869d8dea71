//! A rank's window on its sequence: the engine's own, without bytes.
//!
//! ```text
//!   batch      4        5        6      |   7        8         9 ...
//!           complete  filling  filling  | fetched  fetching   not laid out
//!           ^ head    open     open     | not open: samples wait in memory
//!                                       ^ depth
//! ```
//!
//! The first `depth` batches are open; samples of later ones are fetched into memory and held
//! there, at most `readahead` bytes of them. Which samples are fetched or placed next, and how
//! many at a time, is as in the engine's window, so that the tier sees the same calls.

use std::collections::VecDeque;

use forebay_plan::Epoch;

use crate::scenario::Loading;

/// Most batches laid out ahead, whatever their size.
const MOST_BATCHES: usize = 1024;

/// Where a held sample's bytes are.
pub(crate) const IN_LOG_BUFFER: u32 = u32::MAX;

/// A batch on its way.
#[derive(Debug, Default)]
pub(crate) struct Building {
    /// Number of its epoch, counted from the run's first.
    pub(crate) leg: u32,
    /// Position of its first sample in the rank's epoch.
    pub(crate) position: u64,
    /// Samples and their lengths.
    pub(crate) ids: Vec<(u32, u32)>,
    /// How many of them were asked for.
    pub(crate) fetched: usize,
    /// How many have come.
    pub(crate) arrived: usize,
    /// How many are not in their place yet.
    pub(crate) remaining: usize,
    pub(crate) open: bool,
    /// Those that have come and wait to be placed: index in the batch, slot in the tier.
    pub(crate) held: Vec<(u32, u32)>,
    /// Those for which there was no room.
    pub(crate) postponed: Vec<u32>,
}

/// How far an epoch is laid out.
#[derive(Debug, Clone, Copy)]
struct Leg {
    number: u32,
    batches: u64,
    position: u64,
    ended: bool,
}

/// Samples to fetch: indices in a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// Which batch.
    pub(crate) batch: u64,
    /// It is open: samples go straight to their place.
    pub(crate) open: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Window {
    loading: Loading,
    readahead: u64,
    block: u64,
    /// Samples arrive by themselves: they count as held from the start of their fetch.
    arrives: bool,
    rank: u32,
    legs: VecDeque<Leg>,
    batches: VecDeque<Building>,
    /// Number of batches.front().
    head: u64,
    /// No batch before this place has samples that were not asked for.
    cursor: usize,
    /// Open batches that have held samples, and those that have postponed ones.
    held_bytes: u64,
    waiting: usize,
    postponed: usize,
    spare: Vec<Building>,
}

impl Window {
    pub(crate) fn new(
        loading: &Loading,
        readahead: u64,
        block: u64,
        arrives: bool,
        rank: u32,
    ) -> Self {
        Self {
            loading: loading.clone(),
            readahead,
            block,
            arrives,
            rank,
            legs: VecDeque::new(),
            batches: VecDeque::new(),
            head: 0,
            cursor: 0,
            held_bytes: 0,
            waiting: 0,
            postponed: 0,
            spare: Vec::new(),
        }
    }

    /// The epoch `number` may be laid out from now on.
    pub(crate) fn foresee(&mut self, number: u32) {
        if self.legs.back().is_none_or(|leg| leg.number < number) {
            self.legs.push_back(Leg {
                number,
                batches: 0,
                position: 0,
                ended: false,
            });
        }
    }

    /// The epoch before `number` is over.
    pub(crate) fn begin(&mut self, number: u32) {
        while self.legs.front().is_some_and(|leg| leg.number < number) {
            self.legs.pop_front();
        }
    }

    pub(crate) fn cost(&self, len: u32) -> u64 {
        u64::from(len.max(1)).next_multiple_of(self.block)
    }

    pub(crate) fn batch(&mut self, number: u64) -> &mut Building {
        &mut self.batches[(number - self.head) as usize]
    }

    pub(crate) fn front(&self) -> Option<&Building> {
        self.batches.front()
    }

    /// Samples in memory that can be placed: their batch, and how many were put into `tasks`.
    pub(crate) fn take_placing(&mut self, tasks: &mut Vec<(u32, u32)>) -> Option<u64> {
        if self.waiting == 0 {
            return None;
        }
        let depth = self.loading.depth as usize;
        let mut open = self.batches.iter_mut().take(depth).enumerate();
        let (at, batch) = open.find(|(_, batch)| batch.open && !batch.held.is_empty())?;
        let (run, block) = (self.loading.run as usize, self.block);
        let mut bytes = 0;
        let mut keep = batch.held.len();
        while keep > 0 && batch.held.len() - keep < run && bytes < self.loading.run_bytes {
            keep -= 1;
            let len = batch.ids[batch.held[keep].0 as usize].1;
            bytes += u64::from(len.max(1)).next_multiple_of(block);
        }
        tasks.extend_from_slice(&batch.held[keep..]);
        self.waiting -= batch.held.len() - keep;
        batch.held.truncate(keep);
        self.held_bytes -= bytes;
        Some(self.head + at as u64)
    }

    /// The next samples to fetch, their indices put into `tasks`, if the budget allows more.
    /// `order` gives the orders of the epochs in sight, `lay` sees each new batch.
    pub(crate) fn take_fetch(
        &mut self,
        epochs: &VecDeque<Epoch>,
        first: u32,
        lay: &mut dyn FnMut(&mut Building),
        tasks: &mut Vec<u32>,
    ) -> Option<Run> {
        if self.postponed > 0
            && let Some(run) = self.take_postponed(tasks)
        {
            return Some(run);
        }
        loop {
            while self.cursor >= self.batches.len() {
                if !self.lay_out(epochs, first, lay) {
                    return None;
                }
            }
            let batch = &self.batches[self.cursor];
            if batch.fetched < batch.ids.len() {
                return self.take_run(tasks);
            }
            self.cursor += 1;
        }
    }

    fn take_postponed(&mut self, tasks: &mut Vec<u32>) -> Option<Run> {
        let depth = self.loading.depth as usize;
        let mut open = self.batches.iter_mut().take(depth).enumerate();
        let (at, batch) = open.find(|(_, batch)| batch.open && !batch.postponed.is_empty())?;
        let keep = batch
            .postponed
            .len()
            .saturating_sub(self.loading.run as usize);
        tasks.extend_from_slice(&batch.postponed[keep..]);
        batch.postponed.truncate(keep);
        self.postponed -= tasks.len();
        if self.arrives {
            let (block, ids) = (self.block, &batch.ids);
            let cost = |&slot: &u32| u64::from(ids[slot as usize].1.max(1)).next_multiple_of(block);
            self.held_bytes += tasks.iter().map(cost).sum::<u64>();
        }
        Some(Run {
            batch: self.head + at as u64,
            open: true,
        })
    }

    fn take_run(&mut self, tasks: &mut Vec<u32>) -> Option<Run> {
        let batch = &self.batches[self.cursor];
        let counts = self.arrives || !batch.open;
        let (run, most) = (self.loading.run as usize, self.loading.run_bytes);
        let mut bytes = 0;
        for (slot, &(_, len)) in batch.ids.iter().enumerate().skip(batch.fetched) {
            let cost = self.cost(len);
            let held = self.held_bytes + bytes;
            let over = counts && held + cost > self.readahead && held > 0;
            let full = tasks.len() == run || bytes + cost > most && !tasks.is_empty();
            if over || full {
                break;
            }
            bytes += cost;
            tasks.push(slot as u32);
        }
        if tasks.is_empty() {
            return None;
        }
        if counts {
            self.held_bytes += bytes;
        }
        let batch = &mut self.batches[self.cursor];
        batch.fetched += tasks.len();
        Some(Run {
            batch: self.head + self.cursor as u64,
            open: batch.open,
        })
    }

    fn lay_out(
        &mut self,
        epochs: &VecDeque<Epoch>,
        first: u32,
        lay: &mut dyn FnMut(&mut Building),
    ) -> bool {
        let depth = self.loading.depth as usize;
        if self.batches.len() >= MOST_BATCHES.max(depth) {
            return false;
        }
        for leg in &mut self.legs {
            if leg.ended {
                continue;
            }
            let epoch = &epochs[(leg.number - first) as usize];
            if leg.batches >= epoch.batches(self.rank) {
                leg.ended = true;
                continue;
            }
            let mut batch = self.spare.pop().unwrap_or_default();
            let ids = epoch.batch(self.rank, leg.batches);
            batch.ids.extend(ids.map(|id| (id, 0)));
            batch.leg = leg.number;
            batch.position = leg.position;
            batch.remaining = batch.ids.len();
            batch.open = self.batches.len() < depth;
            leg.batches += 1;
            leg.position += batch.ids.len() as u64;
            lay(&mut batch);
            self.batches.push_back(batch);
            return true;
        }
        false
    }

    /// A sample has come and is held in memory until it is placed.
    pub(crate) fn hold(&mut self, batch: u64, task: u32, slot: u32) {
        let building = self.batch(batch);
        building.held.push((task, slot));
        building.arrived += 1;
        self.waiting += 1;
    }

    /// A sample could not be fetched; it counted as held if `open` was not so or it arrives.
    pub(crate) fn postpone(&mut self, batch: u64, task: u32, open: bool) {
        let len = self.batch(batch).ids[task as usize].1;
        if self.arrives || !open {
            self.held_bytes -= self.cost(len);
        }
        self.batch(batch).postponed.push(task);
        self.postponed += 1;
    }

    /// A sample went straight to its place.
    pub(crate) fn place_at_once(&mut self, batch: u64, task: u32, open: bool) -> bool {
        let len = self.batch(batch).ids[task as usize].1;
        if self.arrives || !open {
            self.held_bytes -= self.cost(len);
        }
        self.batch(batch).arrived += 1;
        self.placed(batch, 1)
    }

    /// So many samples are in their place; true if the batch is complete by it.
    pub(crate) fn placed(&mut self, batch: u64, count: usize) -> bool {
        let batch = self.batch(batch);
        batch.remaining -= count;
        batch.remaining == 0
    }

    /// Takes the head, which is complete, and opens the next.
    pub(crate) fn deliver(&mut self) -> (u32, u64, usize) {
        let mut batch = self.batches.pop_front().expect("a complete batch is there");
        let taken = (batch.leg, batch.position, batch.ids.len());
        self.head += 1;
        self.cursor = self.cursor.saturating_sub(1);
        let last = self.loading.depth as usize - 1;
        if let Some(next) = self.batches.get_mut(last) {
            next.open = true;
        }
        batch.ids.clear();
        batch.held.clear();
        batch.postponed.clear();
        (batch.fetched, batch.arrived) = (0, 0);
        self.spare.push(batch);
        taken
    }

    /// How far the rank has asked for samples: an epoch and a position in it.
    pub(crate) fn reached(&self) -> Option<(u32, u64)> {
        match self.batches.get(self.cursor) {
            Some(batch) => Some((batch.leg, batch.position + batch.fetched as u64)),
            None => {
                let leg = self.legs.iter().find(|leg| !leg.ended);
                leg.map(|leg| (leg.number, leg.position))
            }
        }
    }
}
