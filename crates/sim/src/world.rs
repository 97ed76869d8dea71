//! The run itself: what happens, in the order of time.
//!
//! ```text
//!   Ask(job)       its ranks ask for a batch; those that have one take it, the others wait.
//!                  When all have theirs the step begins, and its end is the next Ask.
//!   Parcel(p)      samples have come, or are in their place: the batch may be complete by it,
//!                  and whoever did it can go on (`fetch`).
//! ```
//!
//! Samples are looked up one by one, but time passes for parcels of them: a run of up to 16 has
//! one event, so time costs little beside the policy.

use std::collections::{HashMap, VecDeque};

use forebay_plan::Epoch;

use crate::disk::Disk;
use crate::error::Error;
use crate::events::{Event, Events};
use crate::fetch::Task;
use crate::figures::{self, Figures, JobReport, Report};
use crate::future::Seat;
use crate::memory::Tiers;
use crate::parcel::{Parcels, SOURCES, Source};
use crate::room::Memory;
use crate::scenario::Scenario;
use crate::sizes::Sizes;
use crate::window::Window;

/// A rank of a job.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) job: usize,
    pub(crate) node: usize,
    pub(crate) rank: u32,
    /// Its place among the job's ranks on the node.
    pub(crate) slot: u32,
    pub(crate) window: Window,
    /// Threads that have nothing to do.
    pub(crate) idle: u32,
    /// Requests that may still be made, by source, and parcels that wait for that.
    pub(crate) free: [u32; SOURCES],
    pub(crate) queued: [VecDeque<u32>; SOURCES],
    /// It has asked for the head and not got it.
    asks: bool,
    /// Batches of this epoch that it has taken.
    taken: u64,
}

/// A rank that waits for another's read of a sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiter {
    pub(crate) rank: usize,
    pub(crate) batch: u64,
    pub(crate) index: u32,
}

#[derive(Debug)]
pub(crate) struct JobState {
    /// Its ranks among all.
    pub(crate) ranks: std::ops::Range<usize>,
    /// The epoch that runs, and how many there are.
    pub(crate) current: u32,
    /// That epoch and, if it is known, the coming one.
    pub(crate) epochs: VecDeque<Epoch>,
    /// By node.
    pub(crate) seats: Vec<Seat>,
    /// Next uses are worth computing.
    knows: bool,
    /// How long its tick is on the common clock.
    pub(crate) pace: f64,
    pub(crate) mean: u64,
    asked: f64,
    /// Ranks that have not got their batch yet.
    missing: u32,
    /// The shortest wait of this step.
    quickest: f64,
    done: bool,
}

/// See the module's text.
pub(crate) struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) now: f64,
    pub(crate) events: Events,
    pub(crate) tiers: Tiers,
    pub(crate) disks: Vec<Disk>,
    pub(crate) jobs: Vec<JobState>,
    pub(crate) ranks: Vec<Rank>,
    pub(crate) parcels: Parcels,
    /// Requests in flight by source, of each node and of all.
    pub(crate) in_flight: [Vec<u32>; SOURCES],
    pub(crate) total: [u32; SOURCES],
    /// Who waits for a sample that somebody else reads: node and slot.
    pub(crate) waiters: HashMap<(usize, u32), Vec<Waiter>>,
    /// Ranks that found no room in memory, by node.
    pub(crate) starved: Vec<Vec<usize>>,
    /// Nothing else can happen: who finds no room goes past memory.
    pub(crate) squeezed: bool,
    pub(crate) report: Report,
    /// Room for lists that are made and emptied all the time.
    pub(crate) indices: Vec<u32>,
    pub(crate) todo: Vec<Task>,
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Result<Self, Error> {
        let datasets = scenario.check()?;
        let mut nodes = Vec::new();
        for node in 0..scenario.nodes {
            let policy = (scenario.policy)(node);
            nodes.push((scenario.room(&*policy)?, policy));
        }
        // Up to there all of it stays, whenever it is used next, and the engine does not ask.
        let small = match scenario.memory {
            Memory::Engine { .. } => nodes[0].0.capacity() / 2,
            Memory::Exact { kept, .. } => kept / 2,
        };
        let asks_the_log = scenario.log.as_ref().is_some_and(|log| !log.by_threads);
        let (block, arrives) = (nodes[0].0.block(), asks_the_log);
        let samples: usize = datasets.iter().map(|&(samples, _)| samples as usize).sum();
        let bytes = datasets.iter().map(|&(_, bytes)| bytes).sum();
        let mut known = Vec::new();
        for (dataset, &(samples, _)) in datasets.iter().enumerate() {
            let mut jobs = scenario.jobs.iter();
            let job = jobs.find(|job| job.dataset == dataset);
            known.push((
                samples,
                job.map_or(Sizes::Equal(0), |job| job.sizes.clone()),
            ));
        }
        let disk = |log| Disk::new(log, samples, bytes);
        let mut world = Self {
            scenario,
            now: 0.0,
            events: Events::default(),
            tiers: Tiers::new(&known, nodes),
            disks: (0..scenario.nodes)
                .filter_map(|_| scenario.log.as_ref().map(disk))
                .collect(),
            jobs: Vec::new(),
            ranks: Vec::new(),
            parcels: Parcels::default(),
            in_flight: std::array::from_fn(|_| vec![0; scenario.nodes as usize]),
            total: [0; SOURCES],
            waiters: HashMap::new(),
            starved: vec![Vec::new(); scenario.nodes as usize],
            squeezed: false,
            report: Report::default(),
            indices: Vec::new(),
            todo: Vec::new(),
        };
        for job in &scenario.jobs {
            let (samples, bytes) = datasets[job.dataset];
            let first = world.ranks.len();
            let each = job.plan.world() / scenario.nodes;
            let loading = &job.loading;
            let readahead = scenario.memory.readahead(loading.readahead);
            let arrives = arrives || loading.requests.is_some();
            for rank in 0..job.plan.world() {
                let mut free = [loading.requests.unwrap_or(1); SOURCES];
                free[Source::Log as usize] = scenario.log.as_ref().map_or(1, |log| log.requests);
                world.ranks.push(Rank {
                    job: world.jobs.len(),
                    node: (rank / each) as usize,
                    rank,
                    slot: rank % each,
                    window: Window::new(loading, readahead, block, arrives, rank),
                    idle: loading.threads,
                    free,
                    queued: Default::default(),
                    asks: false,
                    taken: 0,
                });
            }
            let seat = |node| Seat::new((node * each..(node + 1) * each).collect());
            world.jobs.push(JobState {
                ranks: first..world.ranks.len(),
                current: 0,
                epochs: VecDeque::new(),
                seats: (0..scenario.nodes).map(seat).collect(),
                knows: loading.foresight && bytes >= small,
                pace: pace(scenario, job),
                mean: bytes / u64::from(samples.max(1)),
                asked: 0.0,
                missing: 0,
                quickest: 0.0,
                done: false,
            });
            let beyond = u32::from(loading.across && loading.runs_on);
            let epoch = figures::Epoch {
                ranks: vec![Figures::default(); job.plan.world() as usize],
                ..figures::Epoch::default()
            };
            world.report.jobs.push(JobReport {
                epochs: vec![epoch; (job.epochs + beyond) as usize],
            });
        }
        Ok(world)
    }

    /// Runs to the end. `watch` is told, now and then, how many samples were fetched; if it says
    /// no, that is the end.
    pub(crate) fn run(mut self, watch: &mut dyn FnMut(u64) -> bool) -> Result<Report, Error> {
        for job in 0..self.jobs.len() {
            self.begin(job);
        }
        let mut watched = 0;
        while self.jobs.iter().any(|job| !job.done) {
            let Some((now, event)) = self.events.next() else {
                self.squeeze()?;
                continue;
            };
            self.now = now;
            match event {
                Event::Ask(job) => self.ask(job as usize),
                Event::Parcel(parcel) => self.end_parcel(parcel),
            }
            if self.report.events >= watched {
                watched = self.report.events + WATCHED;
                if !watch(self.report.events) {
                    return Err(Error::Stopped);
                }
            }
        }
        let nodes = 0..self.scenario.nodes as usize;
        self.report.tiers = nodes.map(|node| self.tiers.stats(node)).collect();
        Ok(self.report)
    }

    /// Ranks hold all memory for batches that are not open and wait for each other: those that
    /// found no room do without it.
    fn squeeze(&mut self) -> Result<(), Error> {
        let starved: Vec<usize> = self.starved.iter_mut().flat_map(std::mem::take).collect();
        if starved.is_empty() {
            return Err(Error::Stuck {
                seconds: self.now as u64,
            });
        }
        self.squeezed = true;
        for rank in starved {
            self.stir(rank);
        }
        self.squeezed = false;
        Ok(())
    }

    /// Something was let go on a node: those that found no room look again.
    pub(crate) fn room(&mut self, node: usize) {
        for rank in std::mem::take(&mut self.starved[node]) {
            self.stir(rank);
        }
    }

    /// The current epoch of a job begins, or it is done.
    fn begin(&mut self, number: usize) {
        let (settings, job) = (&self.scenario.jobs[number], &mut self.jobs[number]);
        let current = job.current;
        if current == settings.epochs {
            job.done = true;
            return;
        }
        if current > 0 {
            job.epochs.pop_front();
        }
        let loading = &settings.loading;
        let last = current + 1 == settings.epochs && !(loading.across && loading.runs_on);
        let sight = if last { 1 } else { 2 };
        while job.epochs.len() < sight {
            let next = u64::from(current) + job.epochs.len() as u64;
            let epoch = settings.plan.epoch(settings.first_epoch.wrapping_add(next));
            job.epochs.push_back(epoch);
        }
        let alone = self.scenario.jobs.len() == 1;
        for seat in &mut job.seats {
            seat.begin(current, &job.epochs, job.knows, alone);
        }
        let across = loading.across && !last;
        for rank in job.ranks.clone() {
            self.ranks[rank].taken = 0;
            let window = &mut self.ranks[rank].window;
            window.begin(current);
            window.foresee(current);
            if across {
                window.foresee(current + 1);
            }
        }
        self.report.jobs[number].epochs[current as usize].span = (self.now, self.now);
        for rank in self.jobs[number].ranks.clone() {
            self.stir(rank);
        }
        self.events.at(self.now, Event::Ask(number as u32));
    }

    /// The ranks of a job ask for their next batches.
    fn ask(&mut self, number: usize) {
        let ranks = self.jobs[number].ranks.clone();
        let job = &mut self.jobs[number];
        job.asked = self.now;
        job.quickest = f64::INFINITY;
        let leg = job.current;
        for at in ranks.clone() {
            let rank = &mut self.ranks[at];
            if rank.taken == self.jobs[number].epochs[0].batches(rank.rank) {
                continue; // it has no more batches in this epoch
            }
            rank.asks = true;
            self.jobs[number].missing += 1;
            let Some(head) = rank.window.front() else {
                continue; // nobody had the time to begin with it
            };
            let index = rank.rank as usize;
            let figures = &mut self.report.jobs[number].epochs[leg as usize].ranks[index];
            figures.ready += head.arrived as u64;
            if head.remaining == 0 {
                figures.ready_whole += head.ids.len() as u64;
            }
        }
        if self.jobs[number].missing == 0 {
            self.report.jobs[number].epochs[leg as usize].span.1 = self.now;
            self.jobs[number].current += 1;
            self.begin(number);
            return;
        }
        for rank in ranks {
            self.take_if_complete(rank);
        }
    }

    /// The rank takes the batch that it has asked for, if it is complete, and goes on.
    pub(crate) fn take_if_complete(&mut self, at: usize) -> bool {
        let rank = &mut self.ranks[at];
        let complete = rank.window.front().is_some_and(|head| head.remaining == 0);
        if !rank.asks || !complete {
            return false;
        }
        rank.asks = false;
        rank.taken += 1;
        let (leg, position, samples) = rank.window.deliver();
        let (number, node, index) = (rank.job, rank.node, rank.rank as usize);
        let job = &mut self.jobs[number];
        let waited = self.now - job.asked;
        let tick = job.seats[node].tick(leg, position + samples as u64);
        self.tiers.advance(node, common(tick, job.pace));
        job.missing -= 1;
        job.quickest = job.quickest.min(waited);
        let (missing, quickest) = (job.missing, job.quickest);
        let epoch = &mut self.report.jobs[number].epochs[leg as usize];
        epoch.ranks[index].waited += waited;
        epoch.ranks[index].batches += 1;
        if missing == 0 {
            // Nobody waited longer than the last one.
            let step = self.scenario.jobs[number].step;
            epoch.iterations += 1;
            epoch.stalled += u64::from(waited > step / 10.0);
            epoch.imbalanced += u64::from(waited - quickest > step / 10.0);
            let event = Event::Ask(number as u32);
            self.events.at(self.now + step, event);
        }
        self.stir(at);
        true
    }
}

/// How often whoever watches is asked, in samples.
const WATCHED: u64 = 1 << 16;

/// A job's tick on the clock that all jobs share.
pub(crate) fn common(tick: u64, pace: f64) -> u64 {
    if pace == 1.0 {
        tick
    } else {
        (tick as f64 * pace) as u64
    }
}

/// How long a tick of the job is, in ticks of the first job.
fn pace(scenario: &Scenario, job: &crate::scenario::Job) -> f64 {
    let tick =
        |job: &crate::scenario::Job| job.step / f64::from(job.plan.batch_size().unwrap_or(1));
    let (own, first) = (tick(job), tick(&scenario.jobs[0]));
    if own > 0.0 && first > 0.0 {
        own / first
    } else {
        1.0
    }
}
