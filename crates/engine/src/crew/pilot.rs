//! The pilot: measures at the edges of batches and changes roles as the balancer says.
//!
//! Whichever thread of the crew comes by first after an edge does it, so that no user's thread
//! does; the others go on meanwhile.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_balance::{
    Aged, Balancer, Bottleneck, Demand, Edge, Flow, Means, Settings, Split, Stage, Work,
    proportional,
};

use super::CrewSettings;
use super::board::Employer;
use super::nodes::Nodes;
use super::roles::{FixedSplit, Roles};
use crate::stats::{BottleneckStats, CrewStats, QueueStats};

/// Edges closer together than this are taken as one: what is measured between is mostly noise.
const LEAST: Duration = Duration::from_millis(20);
/// Batches whose demands are remembered.
const MEMORY: f64 = 8.0;

/// What a queue says of itself: everything since it began, so that two reports make a difference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    /// Of the job's ranks, if it has several.
    pub(crate) rank: Option<u32>,
    pub(crate) means: Means,
    /// The most requests that its origin is sent at a time.
    pub(crate) most_requests: usize,
    /// Whether its samples are prepared by a step of their own.
    pub(crate) prepared: bool,
    /// Samples that wait to be loaded.
    pub(crate) waiting: u64,
    pub(crate) totals: Totals,
}

/// Sums since a queue began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) batches: u64,
    pub(crate) samples: u64,
    /// By tier, the nearest first.
    pub(crate) bytes: [u64; 4],
    /// Nanoseconds of reading the origin, and of these on the processor.
    pub(crate) reading: u64,
    pub(crate) reading_on_processor: u64,
    /// Nanoseconds in which the log was read, for whichever queue.
    pub(crate) log_reading: u64,
    /// Samples prepared, their bytes, and nanoseconds.
    pub(crate) prepared: u64,
    pub(crate) prepared_bytes: u64,
    pub(crate) preparing: u64,
    /// Nanoseconds between a batch and the next demand, and of waiting for one.
    pub(crate) stepping: u64,
    pub(crate) steps: u64,
    pub(crate) waited: u64,
}

impl Totals {
    fn since(&self, before: &Self) -> Self {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            batches: less(self.batches, before.batches),
            samples: less(self.samples, before.samples),
            bytes: std::array::from_fn(|tier| less(self.bytes[tier], before.bytes[tier])),
            reading: less(self.reading, before.reading),
            reading_on_processor: less(self.reading_on_processor, before.reading_on_processor),
            log_reading: less(self.log_reading, before.log_reading),
            prepared: less(self.prepared, before.prepared),
            prepared_bytes: less(self.prepared_bytes, before.prepared_bytes),
            preparing: less(self.preparing, before.preparing),
            stepping: less(self.stepping, before.stepping),
            steps: less(self.steps, before.steps),
            waited: less(self.waited, before.waited),
        }
    }
}

/// What a queue may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Orders {
    /// Requests in flight at a time.
    pub(crate) requests: usize,
    /// Queues in use: each has that part of what is fetched ahead.
    pub(crate) queues: usize,
}

/// What is remembered of a queue between edges.
#[derive(Debug)]
struct Known {
    /// At the last edge, and at the last one by which it had given a batch since.
    last: Totals,
    given: Totals,
    rank: Option<u32>,
    step: Aged,
    wait: Aged,
    samples: Aged,
    bytes: [Aged; 4],
    load: usize,
}

impl Known {
    fn new(report: &Report) -> Self {
        let aged = Aged::new(MEMORY);
        Self {
            last: report.totals,
            given: report.totals,
            rank: report.rank,
            step: aged,
            wait: aged,
            samples: aged,
            bytes: [aged; 4],
            load: 0,
        }
    }

    /// Takes in what a batch took, whole: with several queues there are edges between.
    fn see(&mut self, totals: &Totals) {
        let new = totals.since(&self.given);
        if new.batches == 0 {
            return;
        }
        self.given = *totals;
        let batches = new.batches as f64;
        // Before the first batch of an epoch there was no step.
        if new.steps > 0 {
            self.step.see(new.stepping as f64 * 1e-9 / new.steps as f64);
        }
        self.wait.see(new.waited as f64 * 1e-9 / batches);
        self.samples.see(new.samples as f64 / batches);
        for (aged, &bytes) in self.bytes.iter_mut().zip(&new.bytes) {
            aged.see(bytes as f64 / batches);
        }
    }

    fn demand(&self, report: &Report) -> Demand {
        let mean = |aged: &Aged| aged.mean().unwrap_or(0.0);
        Demand {
            means: report.means,
            waiting: report.waiting as f64,
            samples: mean(&self.samples),
            bytes: std::array::from_fn(|tier| mean(&self.bytes[tier])),
            prepared: report.prepared,
            step: mean(&self.step),
        }
    }
}

#[derive(Debug)]
struct State {
    balancer: Balancer,
    looked: Instant,
    queues: HashMap<u64, Known>,
    /// Who was in use at the last edge, in the order of the split.
    order: Vec<u64>,
    split: Split,
    bottleneck: Option<(Stage, Option<u32>)>,
    suspected: Option<(Stage, Option<u32>)>,
    changes: u64,
    moves: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Pilot {
    fixed: Option<FixedSplit>,
    started: Instant,
    is_edge: AtomicBool,
    /// Queues came or went.
    is_urgent: AtomicBool,
    /// Nanoseconds since it started, before which no edge is looked at.
    due: AtomicU64,
    has_news: AtomicBool,
    state: Mutex<State>,
}

impl Pilot {
    pub(super) fn new(most: usize, cores: usize, crew: CrewSettings) -> Self {
        let settings = Settings {
            cores,
            threads: most,
            requests: 1,
            as_needed: crew.threads == 0,
        };
        Self {
            fixed: crew.split,
            started: Instant::now(),
            is_edge: AtomicBool::new(false),
            is_urgent: AtomicBool::new(false),
            due: AtomicU64::new(0),
            has_news: AtomicBool::new(false),
            state: Mutex::new(State {
                balancer: Balancer::new(settings),
                looked: Instant::now(),
                queues: HashMap::new(),
                order: Vec::new(),
                split: Split::default(),
                bottleneck: None,
                suspected: None,
                changes: 0,
                moves: 0,
            }),
        }
    }

    /// A user took a batch.
    pub(super) fn edge(&self) {
        self.is_edge.store(true, Ordering::Release);
    }

    /// Queues came or went.
    pub(super) fn change(&self) {
        self.is_urgent.store(true, Ordering::Release);
    }

    /// Whether there is something to look at.
    pub(super) fn is_due(&self) -> bool {
        let nanos = || self.started.elapsed().as_nanos() as u64;
        self.is_urgent.load(Ordering::Acquire)
            || self.is_edge.load(Ordering::Acquire) && nanos() >= self.due.load(Ordering::Relaxed)
    }

    /// What is said from now on is seen by the next look, or asks for another.
    pub(super) fn looking(&self) {
        self.is_urgent.store(false, Ordering::Release);
        self.is_edge.store(false, Ordering::Release);
    }

    /// Looks at what happened since the last time. Answers with the number of threads that there
    /// should be if roles were changed.
    pub(super) fn steer(
        &self,
        queues: &[(u64, Arc<dyn Employer>)],
        roles: &Roles,
        nodes: &Nodes,
    ) -> Option<usize> {
        let Ok(mut state) = self.state.try_lock() else {
            self.change(); // another looks at the figures just now: soon again
            return None;
        };
        let due = self.started.elapsed() + LEAST;
        self.due.store(due.as_nanos() as u64, Ordering::Relaxed);
        let reports: Vec<(u64, &Arc<dyn Employer>, Report)> = queues
            .iter()
            .filter_map(|(number, employer)| Some((*number, employer, employer.report()?)))
            .collect();
        let order: Vec<u64> = reports.iter().map(|(number, ..)| *number).collect();
        let same = order == state.order;
        let passed = state.looked.elapsed();
        state.looked = Instant::now();
        state.order = order;
        state
            .queues
            .retain(|number, _| reports.iter().any(|(known, ..)| known == number));
        let edge = state.measure(&reports, passed);
        if state.watch(&reports, &edge) {
            self.has_news.store(true, Ordering::Release);
        }
        let requests = reports.iter().map(|(.., report)| report.most_requests);
        let split = self.split(&mut state, &edge, requests.max().unwrap_or(1), same)?;
        state.moves += u64::from(same);
        state.split = split.clone();
        let kinds: Vec<_> = reports
            .iter()
            .map(|(number, _, report)| (*number, report.means))
            .collect();
        roles.assign(&split, &kinds, nodes);
        for ((number, employer, _), &load) in reports.iter().zip(&split.load) {
            state.queues.get_mut(number)?.load = load;
            employer.obey(Orders {
                requests: load,
                queues: reports.len(),
            });
        }
        Some(roles.in_use())
    }

    fn split(&self, state: &mut State, edge: &Edge, requests: usize, same: bool) -> Option<Split> {
        if let Some(fixed) = self.fixed {
            return (!same).then(|| equal(fixed, &edge.demands, requests));
        }
        state.balancer.set_requests(requests);
        match state.balancer.edge(edge) {
            Some(split) => Some(split.clone()),
            // Another queue in the place of one that went: it has to be told.
            None if !same => Some(state.balancer.split().clone()),
            None => None,
        }
    }

    /// What holds everybody up, if that has changed since it was last said.
    pub(super) fn take_news(&self) -> Option<String> {
        if !self.has_news.load(Ordering::Relaxed) || !self.has_news.swap(false, Ordering::AcqRel) {
            return None;
        }
        let state = self.state.lock().expect("the pilot's lock");
        let (stage, rank) = state.bottleneck?;
        let whose = rank.map_or(String::new(), |rank| format!(" of rank {rank}"));
        Some(match stage {
            Stage::Training => "batches are ready when they are asked for".to_owned(),
            stage => format!(
                "batches come late: the bottleneck is {}{whose}",
                stage.name()
            ),
        })
    }

    pub(super) fn stats(&self, roles: &Roles) -> CrewStats {
        let state = self.state.lock().expect("the pilot's lock");
        let residuals = state.balancer.residuals();
        CrewStats {
            threads: 0,
            prepare: roles.count(None).0,
            moves: state.moves,
            prepare_residual: residuals.prepare,
            tier_residuals: residuals.tiers,
            bottleneck: state.bottleneck.map(|(stage, rank)| BottleneckStats {
                stage: stage.name(),
                rank,
                changes: state.changes,
            }),
            queues: state.queues.values().map(Known::stats).collect(),
        }
    }
}

impl Known {
    fn stats(&self) -> QueueStats {
        QueueStats {
            rank: self.rank,
            load: self.load,
            step_seconds: self.step.mean().unwrap_or(0.0),
            wait_seconds: self.wait.mean().unwrap_or(0.0),
        }
    }
}

/// A fixed split, an equal share for each queue.
fn equal(fixed: FixedSplit, demands: &[Demand], requests: usize) -> Split {
    let mut load = vec![0; demands.len()];
    for (means, total) in [(Means::Threads, fixed.load), (Means::Requests, requests)] {
        let ours = || (0..demands.len()).filter(|&at| demands[at].means == means);
        let shares = proportional(&vec![1.0; ours().count()], total);
        for (at, share) in ours().zip(shares) {
            load[at] = share;
        }
    }
    Split {
        prepare: fixed.prepare,
        load,
    }
}

impl State {
    /// The differences to the last reports, as the balancer wants them.
    fn measure(&mut self, reports: &[(u64, &Arc<dyn Employer>, Report)], passed: Duration) -> Edge {
        let mut edge = Edge::default();
        let passed = passed.as_secs_f64().max(1e-6);
        let mut all = Totals::default();
        let mut by_threads = 0;
        for (number, _, report) in reports {
            let known = self
                .queues
                .entry(*number)
                .or_insert_with(|| Known::new(report));
            let new = report.totals.since(&known.last);
            known.last = report.totals;
            known.see(&report.totals);
            edge.demands.push(known.demand(report));
            edge.waits.push(known.wait.mean().unwrap_or(0.0));
            for (sum, bytes) in all.bytes.iter_mut().zip(new.bytes) {
                *sum += bytes;
            }
            all.reading += new.reading;
            if report.means == Means::Threads {
                by_threads += new.reading;
            }
            all.reading_on_processor += new.reading_on_processor;
            all.log_reading = all.log_reading.max(new.log_reading);
            all.prepared += new.prepared;
            all.prepared_bytes += new.prepared_bytes;
            all.preparing += new.preparing;
        }
        let seconds = |nanos: u64| nanos as f64 * 1e-9;
        edge.flows[3] = Flow {
            bytes: all.bytes[3] as f64,
            busy: seconds(all.reading),
            by_threads: seconds(by_threads),
            on_processor: seconds(all.reading_on_processor),
            concurrency: seconds(all.reading) / passed,
        };
        // The log has one reader of its own, with a deep queue.
        edge.flows[1] = Flow {
            bytes: all.bytes[1] as f64,
            busy: seconds(all.log_reading),
            concurrency: 1.0,
            ..Flow::default()
        };
        edge.work = Work {
            samples: all.prepared as f64,
            bytes: all.prepared_bytes as f64,
            busy: seconds(all.preparing),
            threads: seconds(all.preparing) / passed,
        };
        edge
    }

    /// Takes note of what holds everybody up; true if it is something else than before.
    fn watch(&mut self, reports: &[(u64, &Arc<dyn Employer>, Report)], edge: &Edge) -> bool {
        if self.split.load.len() != edge.demands.len() {
            return false; // nothing is known of these queues yet
        }
        let Bottleneck { stage, queue } = self.balancer.bottleneck(edge, &self.split);
        let found = (stage, queue.and_then(|at| reports[at].2.rank));
        // Twice in a row: the first batch of all is always waited for.
        let is_new = self.bottleneck != Some(found) && self.suspected == Some(found);
        self.suspected = Some(found);
        if is_new {
            self.bottleneck = Some(found);
            self.changes += 1;
        }
        is_new
    }
}
