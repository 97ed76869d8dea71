//! What happens when a parcel's work ends: samples have come, or are in their place.

use forebay_policy::Next;

use crate::memory::Found;
use crate::parcel::{Kind, PAST, Parcel, Which};
use crate::window::IN_LOG_BUFFER;
use crate::world::{Waiter, World, common};

impl World<'_> {
    /// A parcel's work has ended.
    pub(crate) fn end_parcel(&mut self, number: u32) {
        let parcel = self.parcels.take(number);
        let at = parcel.rank as usize;
        let node = self.ranks[at].node;
        for (source, &width) in parcel.width.iter().enumerate() {
            self.in_flight[source][node] -= width;
            self.total[source] -= width;
            if matches!(parcel.kind, Kind::Read(_)) {
                self.ranks[at].free[source] += width;
            }
        }
        match parcel.kind {
            Kind::Placing => self.end_placing(at, &parcel),
            Kind::Local => self.end_local(at, &parcel),
            Kind::Read(which) => self.end_read(at, which, &parcel),
        }
        self.parcels.give(number, parcel);
        if !self.take_if_complete(at) {
            self.stir(at);
        }
        if !self.starved[node].is_empty() {
            self.room(node);
        }
    }

    fn end_placing(&mut self, at: usize, parcel: &Parcel) {
        let node = self.ranks[at].node;
        let slots = parcel.tasks.iter().map(|&(_, slot)| slot);
        self.tiers.expect_going(node, slots);
        for &(index, slot) in &parcel.tasks {
            if slot == IN_LOG_BUFFER {
                self.keep_copy(at, parcel.batch, index);
            } else {
                self.tiers.let_go(node, slot);
            }
        }
        let rank = &mut self.ranks[at];
        rank.window.placed(parcel.batch, parcel.tasks.len());
        rank.idle += 1;
    }

    fn end_local(&mut self, at: usize, parcel: &Parcel) {
        let rank = &mut self.ranks[at];
        rank.idle += 1;
        for &(index, slot) in &parcel.tasks {
            if slot == PAST {
                rank.window.place_at_once(parcel.batch, index, parcel.open);
            } else {
                rank.window.hold(parcel.batch, index, slot);
            }
        }
    }

    fn end_read(&mut self, at: usize, which: Which, parcel: &Parcel) {
        let node = self.ranks[at].node;
        let slots = parcel.tasks.iter().map(|&(_, slot)| slot);
        self.tiers.expect_coming(node, slots);
        for &(index, slot) in &parcel.tasks {
            match (which, slot) {
                (Which::Log, _) => self.arrived_from_log(at, parcel, index),
                (_, PAST) => {
                    self.offer_task(at, parcel.batch, index);
                    let window = &mut self.ranks[at].window;
                    window.place_at_once(parcel.batch, index, parcel.open);
                }
                _ => {
                    if self.offer_task(at, parcel.batch, index) {
                        self.tiers.set_next(node, slot, None);
                    }
                    self.ranks[at].window.hold(parcel.batch, index, slot);
                    if self.tiers.commit(node, slot) {
                        self.tell_waiters(at, node, slot);
                    }
                }
            }
        }
    }

    /// Somebody else reads the sample: the rank has it when that is done.
    pub(crate) fn wait(&mut self, at: usize, slot: u32, batch: u64, index: u32) {
        let place = (self.ranks[at].node, slot);
        self.waiters.entry(place).or_default().push(Waiter {
            rank: at,
            batch,
            index,
        });
    }

    fn tell_waiters(&mut self, at: usize, node: usize, slot: u32) {
        for waiter in self.waiters.remove(&(node, slot)).unwrap_or_default() {
            let window = &mut self.ranks[waiter.rank].window;
            window.hold(waiter.batch, waiter.index, slot);
            if waiter.rank != at {
                self.stir(waiter.rank);
            }
        }
    }

    /// A sample that the log has brought: it goes to its place if that is open, else to memory.
    fn arrived_from_log(&mut self, at: usize, parcel: &Parcel, index: u32) {
        let node = self.ranks[at].node;
        let batch = parcel.batch;
        if parcel.open {
            self.ranks[at].window.hold(batch, index, IN_LOG_BUFFER);
            return;
        }
        let (sample, len, next) = self.task(at, batch, index);
        match self.tiers.lookup(node, sample, u64::from(len), next) {
            Found::Hit(slot) => self.ranks[at].window.hold(batch, index, slot),
            Found::New(slot) => {
                self.tiers.commit(node, slot);
                if !self.disks[node].is_whole() {
                    self.tiers.set_next(node, slot, None);
                }
                self.ranks[at].window.hold(batch, index, slot);
            }
            Found::Filling(slot) => {
                self.wait(at, slot, batch, index);
            }
            Found::Full => {
                let leg = self.ranks[at].window.batch(batch).leg;
                let figures = self.figures(at, leg);
                figures.samples -= 1; // it is fetched again
                figures.bytes -= u64::from(len);
                figures.log_reads -= 1;
                figures.log_bytes -= u64::from(len);
                self.report.events -= 1;
                self.ranks[at].window.postpone(batch, index, parcel.open);
            }
        }
    }

    /// Keeps a sample of a log that has everything in memory as well, if that is worth it.
    fn keep_copy(&mut self, at: usize, batch: u64, index: u32) {
        let node = self.ranks[at].node;
        if !self.disks[node].is_whole() {
            return;
        }
        let (sample, len, next) = self.task(at, batch, index);
        let len = u64::from(len);
        if self.tiers.wants(node, sample, len, next)
            && let Found::New(slot) = self.tiers.lookup(node, sample, len, next)
        {
            self.tiers.commit(node, slot);
            self.tiers.let_go(node, slot);
        }
    }

    /// A sample of a batch: its number, length and next use of this job's.
    pub(crate) fn task(&mut self, at: usize, batch: u64, index: u32) -> (u32, u32, Next) {
        let rank = &mut self.ranks[at];
        let building = rank.window.batch(batch);
        let (id, len) = building.ids[index as usize];
        let (leg, position) = (building.leg, building.position + u64::from(index));
        let (node, slot) = (rank.node, rank.slot);
        let (job, settings) = (&self.jobs[rank.job], &self.scenario.jobs[rank.job]);
        let mut next = None;
        if settings.loading.foresight && leg >= job.current {
            let tick = job.seats[node].after(leg, position, slot);
            next = tick.map(|tick| common(tick, job.pace));
        }
        (self.tiers.sample(settings.dataset, id), len, next)
    }
}
