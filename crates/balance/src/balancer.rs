//! The models together, and when a new split is worth the move.

use crate::aged::Aged;
use crate::bottleneck::{self, Bottleneck};
use crate::preparing::Preparing;
use crate::search::search;
use crate::split::{Demand, Means, Split, Times, first_guess, proportional};
use crate::throughput::{TIERS, Throughput, Tier};

/// How a balancer is set up.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Cores that threads share.
    pub cores: usize,
    /// Threads there may be.
    pub threads: usize,
    /// Requests that may be in flight, all queues together.
    pub requests: usize,
    /// Whether only as many are used as are needed to be on time; else all but those that would
    /// crowd the cores.
    pub as_needed: bool,
}

/// Differences below this share of a step are on time.
const ON_TIME: f64 = 0.05;
/// A move must be predicted to gain this share of a batch's time.
const WORTH_A_MOVE: f64 = 0.05;
/// And be wanted this many edges in a row.
const PATIENCE: usize = 2;
/// Threads that are not needed are let go only after so many edges: they may be needed again in a
/// moment, and cost little meanwhile.
const PATIENCE_TO_LET_GO: usize = 6;
/// Reads that are on the processor for more than this share of their time gain nothing by more
/// threads than cores.
const ON_THE_PROCESSOR: f64 = 0.5;
/// Loading is given this much more than is needed on the average: batches differ.
const SLACK: f64 = 1.25;

/// Reading from one tier since the last edge.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flow {
    pub bytes: f64,
    /// Seconds, summed over those who read.
    pub busy: f64,
    /// Of these, by threads of the crew, and of those again, on the processor.
    pub by_threads: f64,
    pub on_processor: f64,
    /// How many read at a time.
    pub concurrency: f64,
}

/// Preparing since the last edge.
#[derive(Debug, Clone, Copy, Default)]
pub struct Work {
    pub samples: f64,
    pub bytes: f64,
    /// Seconds, summed over the threads.
    pub busy: f64,
    /// How many prepared at a time.
    pub threads: f64,
}

/// What happened since the last edge of a batch.
#[derive(Debug, Clone, Default)]
pub struct Edge {
    pub demands: Vec<Demand>,
    /// Seconds each queue's consumer waited for a batch.
    pub waits: Vec<f64>,
    /// Reading by tier, as [`TIERS`] has them.
    pub flows: [Flow; 4],
    pub work: Work,
}

/// How far the models were off lately, as shares.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Residuals {
    pub prepare: f64,
    /// By tier, as [`TIERS`] has them.
    pub tiers: [f64; 4],
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Balancer {
    settings: Settings,
    tiers: [Throughput; 4],
    preparing: Preparing,
    /// The share of reading that is on the processor.
    on_processor: Aged,
    split: Split,
    /// Those of the queues that the split is for.
    means: Vec<Means>,
    /// For how many edges in a row a move has been wanted, and how many it takes.
    wanted: usize,
    patience: usize,
}

impl Balancer {
    pub fn new(settings: Settings) -> Self {
        Self {
            tiers: Default::default(),
            preparing: Preparing::new(settings.cores),
            on_processor: Aged::new(8.0),
            split: Split::default(),
            means: Vec::new(),
            wanted: 0,
            patience: PATIENCE,
            settings: Settings {
                threads: settings.threads.max(1),
                requests: settings.requests.max(1),
                ..settings
            },
        }
    }

    /// As many requests may be in flight, all queues together.
    pub fn set_requests(&mut self, requests: usize) {
        self.settings.requests = requests.max(1);
    }

    /// The split that holds now.
    pub fn split(&self) -> &Split {
        &self.split
    }

    /// Takes in what happened; answers with a new split if one is worth the move.
    ///
    /// Where there are other queues than before there is always a new one.
    pub fn edge(&mut self, edge: &Edge) -> Option<&Split> {
        self.learn(edge);
        let demands = &edge.demands;
        let better = self.propose(demands);
        if !self
            .means
            .iter()
            .copied()
            .eq(demands.iter().map(|demand| demand.means))
        {
            self.means = demands.iter().map(|demand| demand.means).collect();
            self.wanted = 0;
            self.split = better;
            return Some(&self.split);
        }
        let patience = self.patience(demands, &better);
        let Some(patience) = patience.filter(|_| better != self.split) else {
            self.wanted = 0;
            return None;
        };
        if patience != self.patience {
            self.patience = patience;
            self.wanted = 0;
        }
        self.wanted += 1;
        if self.wanted < patience {
            return None;
        }
        self.wanted = 0;
        self.split = better;
        Some(&self.split)
    }

    fn learn(&mut self, edge: &Edge) {
        for (model, flow) in self.tiers.iter_mut().zip(&edge.flows) {
            model.see(flow.concurrency, flow.bytes, flow.busy);
        }
        let origin = edge.flows[3];
        if origin.by_threads > 0.0 {
            let share = origin.on_processor / origin.by_threads;
            self.on_processor.see(share);
        }
        let work = &edge.work;
        if work.samples > 0.0 {
            let size = work.bytes / work.samples;
            let seconds = work.busy / work.samples;
            self.preparing.see(size, work.threads, seconds);
        }
    }

    /// How many edges in a row a split must be wanted; `None` if it is not worth the move.
    fn patience(&self, demands: &[Demand], better: &Split) -> Option<usize> {
        let pace = |split: &Split| {
            let times = self.predict(demands, split);
            times.iter().map(Times::pace).fold(0.0, f64::max)
        };
        let (now, then) = (pace(&self.split), pace(better));
        if then < now * (1.0 - WORTH_A_MOVE) {
            return Some(PATIENCE);
        }
        // No slower, and threads are let go that only stood by.
        let fewer = better.prepare + better.load.iter().sum::<usize>()
            < self.split.prepare + self.split.load.iter().sum::<usize>();
        (fewer && then <= now).then_some(PATIENCE_TO_LET_GO)
    }

    /// What each queue's next batch is predicted to take.
    pub fn predict(&self, demands: &[Demand], split: &Split) -> Vec<Times> {
        let prepare = self.prepare_seconds(demands, split.prepare);
        demands
            .iter()
            .zip(&split.load)
            .map(|(demand, &load)| {
                let loaders = readers(demands, split, demand.means);
                let by_threads = demand.means == Means::Threads;
                // Where nobody loads, who prepares reads.
                let (load, loaders, nobody) = match by_threads && loaders == 0 {
                    true => (split.prepare.div_ceil(demands.len()), split.prepare, true),
                    false => (load, loaders, false),
                };
                Times {
                    load: self.load_seconds(demand, load, loaders).iter().sum(),
                    prepare: if demand.prepared { prepare } else { 0.0 },
                    step: demand.step,
                    in_turns: nobody || by_threads && self.reads_compute(),
                }
            })
            .collect()
    }

    /// Seconds to prepare a batch of every queue with so many threads.
    fn prepare_seconds(&self, demands: &[Demand], threads: usize) -> f64 {
        let threads = threads.max(1);
        demands
            .iter()
            .filter(|demand| demand.prepared)
            .map(|demand| {
                let each = self.preparing.seconds(demand.size(), threads);
                demand.samples * each.unwrap_or(0.0) / threads as f64
            })
            .sum()
    }

    /// Seconds to load a batch with `load` of the `all` that read at a time, by tier. Nobody reads
    /// from memory: a copy is part of what is done with it.
    fn load_seconds(&self, demand: &Demand, load: usize, all: usize) -> [f64; 4] {
        let mut seconds = [0.0; 4];
        let all = all.max(load).max(1) as f64;
        let cores = self.settings.cores.max(1) as f64;
        for (at, tier) in TIERS.into_iter().enumerate() {
            let readers = match tier {
                Tier::Log => 1.0, // it has one reader, whoever else reads
                // Beyond the cores they only take turns.
                _ if self.reads_compute() && demand.means == Means::Threads => all.min(cores),
                _ => all,
            };
            if tier != Tier::Memory
                && let Some(rate) = self.tiers[at].at(readers)
            {
                let ours = rate * load.max(1) as f64 / all;
                seconds[at] = demand.bytes[at] / ours.max(1e-9);
            }
        }
        seconds
    }

    /// The split that the models ask for.
    fn propose(&self, demands: &[Demand]) -> Split {
        let threads = self.threads(demands);
        let by_threads = demands.iter().any(|d| d.means == Means::Threads);
        let prepared = demands.iter().any(|demand| demand.prepared);
        let prepare = match (prepared, by_threads) {
            (true, true) if threads > 1 && self.reads_stand_still() => {
                self.prepare_threads(demands, threads)
            }
            // Who prepares reads as well, while the bytes are hot; and nobody else needs the
            // threads of a store's queues.
            (true, true) | (_, false) => threads,
            (false, true) => 0,
        };
        let loading = threads - prepare;
        let mut split = Split {
            prepare,
            load: vec![0; demands.len()],
        };
        for (means, total) in [
            (Means::Threads, loading),
            (Means::Requests, self.settings.requests),
        ] {
            let ours: Vec<usize> = (0..demands.len())
                .filter(|&at| demands[at].means == means)
                .collect();
            let dealt = self.deal(demands, &ours, prepare, total);
            for (&at, share) in ours.iter().zip(dealt) {
                split.load[at] = share;
            }
        }
        split
    }

    /// Reads are known to wait, for a disk or a network.
    fn reads_stand_still(&self) -> bool {
        let on_processor = self.on_processor.mean();
        on_processor.is_some_and(|share| share <= ON_THE_PROCESSOR)
    }

    /// Reads are known to be on the processor for the most part.
    fn reads_compute(&self) -> bool {
        let on_processor = self.on_processor.mean();
        on_processor.is_some_and(|share| share > ON_THE_PROCESSOR)
    }

    /// How many threads are of use: more than cores only where reads stand still.
    fn threads(&self, demands: &[Demand]) -> usize {
        let Settings {
            cores,
            threads,
            as_needed,
            ..
        } = self.settings;
        if threads <= cores {
            return threads;
        }
        let by_threads = || demands.iter().filter(|d| d.means == Means::Threads);
        // One for each queue at the least.
        let least = by_threads().count().min(threads);
        let crowd = match self.on_processor.mean() {
            _ if least == 0 => true,
            Some(share) => share > ON_THE_PROCESSOR,
            None => as_needed,
        };
        if crowd {
            return cores.max(least);
        }
        if !as_needed {
            return threads;
        }
        let prepare = self.prepare_seconds(demands, cores);
        let slowest_step = demands.iter().map(|d| d.step).fold(prepare, f64::max);
        let bytes: f64 = by_threads().map(|demand| demand.bytes[3]).sum();
        // The fewest that load all batches within a step.
        let enough = |loaders: usize| {
            let rate = self.tiers[3].at(loaders as f64).unwrap_or(f64::INFINITY);
            bytes * SLACK / rate.max(1e-9) <= slowest_step
        };
        // Not all at once: what many at a time reach is a guess until there are some.
        let now: usize = self.split.load.iter().sum();
        let most = (threads - cores).min((2 * now).max(2 * cores));
        let alone = self.tiers[3].at(1.0).map_or(0.0, |rate| bytes / rate);
        let mut loaders = match bytes > 0.0 {
            true => first_guess(alone, slowest_step, most),
            false => 1, // all of it is in memory
        };
        while loaders < most && !enough(loaders) {
            loaders += 1;
        }
        (cores + loaders).max(least)
    }

    /// From the peak of the model; while data comes too late and preparing is not what holds it
    /// up, one thread more is left to loading.
    fn prepare_threads(&self, demands: &[Demand], threads: usize) -> usize {
        let samples: f64 = demands.iter().map(|d| d.samples).sum();
        let bytes: f64 = demands.iter().flat_map(|d| d.bytes).sum();
        // Preparing is all on the processor: more than cores is never more.
        let most = self.settings.cores.clamp(1, threads - 1);
        let mut prepare = self.preparing.peak(bytes / samples.max(1.0), most);
        let loading = |prepare: usize| {
            let all = threads - prepare;
            let of = |d: &Demand| self.load_seconds(d, all, all).iter().sum::<f64>();
            let by_threads = demands.iter().filter(|d| d.means == Means::Threads);
            by_threads.map(of).sum::<f64>()
        };
        let step = demands.iter().map(|d| d.step).fold(f64::INFINITY, f64::min);
        while prepare > 1
            && loading(prepare) + self.prepare_seconds(demands, prepare) > step
            && self.prepare_seconds(demands, prepare - 1) < loading(prepare)
        {
            prepare -= 1;
        }
        prepare
    }

    /// Deals what loads to the queues `ours`: by their lengths where all are on time, else by
    /// what each needs to be.
    fn deal(&self, demands: &[Demand], ours: &[usize], prepare: usize, total: usize) -> Vec<usize> {
        let lengths: Vec<f64> = ours.iter().map(|&at| demands[at].waiting).collect();
        let even = proportional(&lengths, total);
        if ours.len() < 2 || total <= ours.len() {
            return even;
        }
        let preparing = self.prepare_seconds(demands, prepare);
        let difference = |at: usize, load: usize| {
            let demand = &demands[at];
            let times = Times {
                load: self.load_seconds(demand, load, total).iter().sum(),
                prepare: if demand.prepared { preparing } else { 0.0 },
                step: demand.step,
                in_turns: false,
            };
            times.difference()
        };
        let late = |(&at, &load): (&usize, &usize)| {
            difference(at, load) >= ON_TIME * demands[at].step.max(1e-6)
        };
        if !ours.iter().zip(&even).any(late) {
            return even;
        }
        let most = total - (ours.len() - 1);
        let needs: Vec<usize> = ours
            .iter()
            .zip(&even)
            .map(|(&at, &now)| {
                let tolerance = ON_TIME * demands[at].step.max(1e-6);
                search(now, most, tolerance, |load| difference(at, load)).threads
            })
            .collect();
        // There may not be enough: then the one that is latest gets the next, up to its need; and
        // what nobody needs goes by length.
        let mut dealt = vec![1; ours.len()];
        let mut left = total - ours.len();
        while left > 0 {
            let latest = (0..ours.len())
                .filter(|&q| dealt[q] < needs[q])
                .max_by(|&a, &b| {
                    let late = |q: usize| difference(ours[q], dealt[q]);
                    late(a).total_cmp(&late(b)).then(b.cmp(&a))
                });
            let Some(queue) = latest else { break };
            dealt[queue] += 1;
            left -= 1;
        }
        let spare = proportional(&lengths, total);
        while left > 0 {
            let short = |q: usize| spare[q] as f64 / dealt[q] as f64;
            let queue = (0..ours.len())
                .max_by(|&a, &b| short(a).total_cmp(&short(b)).then(b.cmp(&a)))
                .expect("there are queues");
            dealt[queue] += 1;
            left -= 1;
        }
        dealt
    }

    /// Which stage of which queue holds everybody up.
    pub fn bottleneck(&self, edge: &Edge, split: &Split) -> Bottleneck {
        let times = self.predict(&edge.demands, split);
        bottleneck::find(&edge.demands, &edge.waits, &times, |at| {
            let demand = &edge.demands[at];
            let all = readers(&edge.demands, split, demand.means);
            let seconds = self.load_seconds(demand, split.load[at], all);
            std::array::from_fn(|tier| (TIERS[tier], seconds[tier]))
        })
    }

    /// How far the models were off lately.
    pub fn residuals(&self) -> Residuals {
        Residuals {
            prepare: self.preparing.residual(),
            tiers: std::array::from_fn(|tier| self.tiers[tier].residual()),
        }
    }
}

/// How many read at a time, all queues of those means together.
fn readers(demands: &[Demand], split: &Split, means: Means) -> usize {
    demands
        .iter()
        .zip(&split.load)
        .filter(|(demand, _)| demand.means == means)
        .map(|(_, &load)| load)
        .sum()
}
