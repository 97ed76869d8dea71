//! Lobster (ICPP '22), section 5.5: hits of the memory cache, ResNet-50 on ImageNet-1K.
//!
//! Its set-up: nodes of eight GPUs, 32 samples a batch, 135 GB behind Lustre, 40 GB of memory a
//! node as cache. What one node got from Lustre, and how long a step took, it does not say: the
//! throughput here is the one that leaves the GPUs of PyTorch as busy as the paper has them.
//!
//! Each sample is used once an epoch, so on one node no policy hits more than fits: 40 of 135. The
//! paper's figures are beyond that because they count what was *fetched ahead* in time; so they
//! stand beside `ready` here, never beside hits.

use std::sync::Arc;

use forebay_plan::{Deal, Order, Plan, Uneven};
use forebay_policy::{Settings, by_name};

use super::{Watch, scaled};
use crate::baselines::{self, Placed};
use crate::curve::{Access, Curve};
use crate::error::Error;
use crate::figures::{Figures, JobReport};
use crate::optimum::{Ceiling, Walk, optimum};
use crate::room::Memory;
use crate::scenario::{Costs, Job, Loading, MakePolicy, Scenario};
use crate::sizes::Sizes;

/// ImageNet-1K.
pub const SAMPLES: u32 = 1_281_167;
/// Its bytes, as the paper has them.
pub const BYTES: f64 = 135e9;
/// The share of it that a node's memory holds.
pub const SHARE: f64 = 40.0 / 135.0;
/// GPUs of a node.
pub const RANKS: u32 = 8;
/// Samples of a rank's batch: 55,457 iterations of eight ranks are ImageNet-22K.
pub const BATCH: u32 = 32;
/// Seconds of a step: ResNet-50 on an A100 takes 32 images in about that time.
pub const STEP: f64 = 0.040;
/// What one request gets from the origin, in bytes a second: 4 ms for a sample.
pub const EACH: f64 = 25e6;
/// What a node gets at most: chosen so that PyTorch's GPUs are busy as in the paper.
pub const ORIGIN: f64 = 336e6;
/// What a node gets from its peers at most: two links of 200 Gbit/s.
pub const PEER: f64 = 50e9;
/// Batches that NoPFS and Forebay make ahead for a rank. They lie beside the memory, as the
/// buffers of all these loaders do.
pub const AHEAD: u32 = 8;
/// Batches that PyTorch makes ahead: two for each of four workers.
pub const AHEAD_OF_TORCH: u32 = 8;
/// Batches that DALI makes ahead: two in its pipeline, two in its reader.
pub const AHEAD_OF_DALI: u32 = 4;
/// Deviation of the logarithm of the lengths.
pub const SIGMA: f64 = 0.6;

/// A policy with the loader that it comes with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct System {
    /// The policy's name.
    pub policy: &'static str,
    /// Whose way of loading.
    pub loader: &'static str,
    /// The hit ratio of the paper, if it has this system.
    pub paper: Option<f64>,
    /// How busy the GPUs are in the paper.
    pub paper_busy: Option<f64>,
}

/// The systems of the table; `reuse` is Lobster's own rule.
pub const SYSTEMS: [System; 6] = [
    system("lru", "PyTorch", Some(0.245), Some(0.523)),
    system("dali", "DALI", Some(0.326), Some(0.575)),
    system("minio", "DALI", None, None),
    system("nopfs", "NoPFS", Some(0.489), Some(0.724)),
    system("reuse", "Forebay", Some(0.632), Some(0.761)),
    system("farthest", "Forebay", None, None),
];

const fn system(
    policy: &'static str,
    loader: &'static str,
    paper: Option<f64>,
    paper_busy: Option<f64>,
) -> System {
    System {
        policy,
        loader,
        paper,
        paper_busy,
    }
}

/// A line of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What ran.
    pub system: System,
    /// All its ranks, of the epochs that count.
    pub figures: Figures,
    /// The share of the time that a GPU computes.
    pub busy: f64,
    /// Seconds of an epoch.
    pub seconds: f64,
    /// Iterations in which the slowest rank waited a tenth of a step longer than the quickest.
    pub imbalanced: f64,
}

/// The table of one node.
#[derive(Debug, Clone, PartialEq)]
pub struct OneNode {
    /// By system.
    pub rows: Vec<Row>,
    /// The most that any policy can hit, in bytes.
    pub ceiling: f64,
}

/// The table of eight nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct EightNodes {
    /// Without peers, then with: the same policies.
    pub rows: [Vec<Row>; 2],
    /// The most that a node can hit in its own memory, in bytes.
    pub ceiling: f64,
    /// What the memory of all nodes together holds of the dataset.
    pub together: f64,
}

/// The table of two jobs that share a node's memory and a dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct TwoJobs {
    /// By system, both jobs together.
    pub rows: Vec<Row>,
    /// The most that any policy can hit, in bytes.
    pub ceiling: f64,
}

/// The set-up at some scale.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Samples of the dataset.
    pub samples: u32,
    sizes: Sizes,
    /// Bytes of the dataset.
    pub bytes: u64,
    /// Bytes of a node's memory.
    pub memory: u64,
}

/// Epochs of one node, and the first that counts: after the first all are alike.
const EPOCHS: (u32, usize) = (4, 1);
/// Of eight nodes: a sample comes back to a node every eight epochs on average.
const EPOCHS_OF_NODES: (u32, usize) = (12, 6);
/// Of two jobs.
const EPOCHS_OF_JOBS: (u32, usize) = (5, 2);
const NODES: u32 = 8;

impl Setup {
    /// With this part of the dataset, from 0 to 1; memory goes along.
    pub fn new(scale: f64) -> Self {
        let samples = scaled(SAMPLES, scale, 8 * RANKS * NODES * BATCH);
        let mean = BYTES / f64::from(SAMPLES);
        let sizes = Sizes::log_normal(samples, mean, SIGMA, 1);
        let bytes = sizes.total(samples);
        Self {
            samples,
            sizes,
            bytes,
            memory: (bytes as f64 * SHARE) as u64,
        }
    }

    /// How many samples all tables simulate.
    pub fn events(&self) -> u64 {
        let first = SYSTEMS.len() as u32 * EPOCHS.0;
        let others = 2 * OF_NODES.len() as u32 * EPOCHS_OF_NODES.0
            + 2 * OF_JOBS.len() as u32 * EPOCHS_OF_JOBS.0;
        u64::from(self.samples) * u64::from(first)
            + u64::from(self.part().samples) * u64::from(others)
    }

    /// The set-up of the tables of nodes and of jobs: a quarter of the samples. They take ten
    /// times as many epochs, and their ratios do not depend on it.
    pub fn part(&self) -> Setup {
        Setup::new(f64::from(self.samples) / f64::from(SAMPLES) / 4.0)
    }

    fn loading(loader: &str) -> Loading {
        match loader {
            "PyTorch" => baselines::torch(4, AHEAD_OF_TORCH / 4),
            // Three reading threads are its default.
            "DALI" => baselines::dali(3, AHEAD_OF_DALI),
            "NoPFS" => baselines::nopfs(4, AHEAD),
            _ => baselines::ahead(4, AHEAD),
        }
    }

    fn job(&self, loader: &str, nodes: u32, epochs: u32, seed: u64) -> Job {
        // Every sample once an epoch, none left out: the ceiling is exact then.
        let deal = Deal::Strided {
            uneven: Uneven::Keep,
        };
        let order = Order::Seeded { seed };
        let ranks = RANKS * nodes;
        let plan = Plan::new(self.samples, order, deal, ranks, Some(BATCH), false);
        Job {
            plan: plan.expect("a plan with ranks and batches"),
            dataset: 0,
            sizes: self.sizes.clone(),
            first_epoch: 0,
            epochs,
            step: STEP,
            loading: Loading {
                // No epoch begins before the last one has ended on all ranks: else the ceiling
                // would not be sharp.
                across: false,
                ..Self::loading(loader)
            },
        }
    }

    fn scenario(&self, system: System, nodes: u32, jobs: Vec<Job>) -> Scenario {
        Scenario {
            policy: self.policy(system.policy, nodes, &jobs),
            jobs,
            nodes,
            memory: Memory::Exact {
                kept: self.memory,
                // A sample of each thread.
                transit: 1 << 30,
            },
            log: None,
            peers: false,
            costs: Costs {
                peer: Access::flat(PEER),
                ..Costs::origin_only(Access {
                    latency: 0.0,
                    node: Curve::up_to(EACH, ORIGIN),
                    total: None,
                })
            },
        }
    }

    fn policy(&self, name: &'static str, nodes: u32, jobs: &[Job]) -> MakePolicy {
        if name == "nopfs" {
            let (job, memory) = (jobs[0].clone(), self.memory);
            return Arc::new(move |node| Box::new(Placed::new(&job, nodes, node, memory)));
        }
        let settings = Settings {
            epoch: Some(u64::from(self.samples / (RANKS * nodes))),
            sole_copy: true,
        };
        let name = if name == "dali" { "lru" } else { name };
        Arc::new(move |_| by_name(name, settings).expect("a policy's name"))
    }

    /// One node, eight ranks.
    pub fn one_node(&self, watch: &mut Watch<'_>) -> Result<OneNode, Error> {
        let mut rows = Vec::new();
        for system in SYSTEMS {
            let jobs = vec![self.job(system.loader, 1, EPOCHS.0, 1)];
            let report = watch.run(&self.scenario(system, 1, jobs))?;
            rows.push(row(system, &report.jobs, EPOCHS.1));
        }
        Ok(OneNode {
            rows,
            // Each sample once an epoch: only what crosses the edge can be hit.
            ceiling: self.memory as f64 / self.bytes as f64,
        })
    }

    /// Eight nodes of eight ranks, without peers and with.
    pub fn eight_nodes(&self, watch: &mut Watch<'_>) -> Result<EightNodes, Error> {
        let mut rows = [Vec::new(), Vec::new()];
        let mut ceiling = 0.0;
        for system in OF_NODES {
            let jobs = vec![self.job(system.loader, NODES, EPOCHS_OF_NODES.0, 1)];
            let mut scenario = self.scenario(system, NODES, jobs);
            for (peers, rows) in [false, true].into_iter().zip(&mut rows) {
                scenario.peers = peers;
                let report = watch.run(&scenario)?;
                rows.push(row(system, &report.jobs, EPOCHS_OF_NODES.1));
            }
            if system.policy == "farthest" {
                watch.look()?;
                let best = optimum(&Walk::new(&scenario, 0), self.memory);
                ceiling = Ceiling::sum(&best[EPOCHS_OF_NODES.1..]).ratio();
            }
        }
        Ok(EightNodes {
            rows,
            ceiling,
            together: f64::from(NODES) * SHARE,
        })
    }

    /// Two jobs of eight ranks on one node, each with an order of its own.
    pub fn two_jobs(&self, watch: &mut Watch<'_>) -> Result<TwoJobs, Error> {
        let mut rows = Vec::new();
        let mut ceiling = 0.0;
        for system in OF_JOBS {
            let job = |seed| self.job(system.loader, 1, EPOCHS_OF_JOBS.0, seed);
            let scenario = self.scenario(system, 1, vec![job(1), job(1_000)]);
            let report = watch.run(&scenario)?;
            rows.push(row(system, &report.jobs, EPOCHS_OF_JOBS.1));
            if system.policy == "farthest" {
                watch.look()?;
                let best = optimum(&Walk::new(&scenario, 0), self.memory);
                ceiling = Ceiling::sum(&best[EPOCHS_OF_JOBS.1..]).ratio();
            }
        }
        Ok(TwoJobs { rows, ceiling })
    }
}

/// All with the same loader: what differs is what they keep.
const OF_NODES: [System; 5] = [
    system("lru", "Forebay", None, None),
    system("minio", "Forebay", None, None),
    system("nopfs", "Forebay", None, None),
    system("reuse", "Forebay", None, None),
    system("farthest", "Forebay", None, None),
];

const OF_JOBS: [System; 4] = [
    system("lru", "Forebay", None, None),
    system("minio", "Forebay", None, None),
    system("reuse", "Forebay", None, None),
    system("farthest", "Forebay", None, None),
];

fn row(system: System, jobs: &[JobReport], first: usize) -> Row {
    let mut row = Row {
        system,
        figures: Figures::default(),
        busy: 0.0,
        seconds: 0.0,
        imbalanced: 0.0,
    };
    let mut epochs = 0.0;
    for job in jobs {
        row.figures += job.from(first);
        for epoch in &job.epochs[first..] {
            epochs += 1.0;
            row.seconds += epoch.seconds();
            row.busy += 1.0 - epoch.waiting(STEP);
            row.imbalanced += epoch.imbalanced as f64 / epoch.iterations.max(1) as f64;
        }
    }
    row.seconds /= epochs;
    row.busy /= epochs;
    row.imbalanced /= epochs;
    row
}
