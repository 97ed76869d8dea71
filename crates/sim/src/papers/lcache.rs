//! LCache, section IV: loading throughput with the dataset, or half of it, on local SSDs.
//!
//! Its set-up: ImageNet-1K (138 GB), eight GPUs, batches of 128, 16 workers; 70 GB of SSD in the
//! partial case. PyTorch and NoPFS read cached files one by one, LCache reads a chunk of a batch
//! with one request. What the SSDs give for either is the paper's own measurement (table IV) and
//! goes in here as it is: that full caching is 9 to 10 times as fast is no result of ours.
//!
//! What follows is the partial case. Two logs lie on the disk at once, so a quarter of the dataset
//! is in the current one and three quarters come from far, ahead of time; PyTorch's workers wait
//! for each file, half of them from far. What the remote storage gives is chosen so that LCache is
//! 1.45 times as fast as PyTorch there, as in the paper; NoPFS, and a log that is written once,
//! follow from it, and so does the share of I/O in an epoch.

use std::sync::Arc;

use forebay_plan::{Deal, Order, Plan, Uneven};
use forebay_policy::{Nothing, Policy};

use super::{Watch, scaled};
use crate::baselines;
use crate::curve::{Access, Curve};
use crate::error::Error;
use crate::room::Memory;
use crate::scenario::{Costs, Job, Layout, Loading, Log, Scenario};
use crate::sizes::Sizes;

/// ImageNet-1K.
pub const SAMPLES: u32 = 1_281_167;
/// Its bytes, as the paper has them.
pub const BYTES: f64 = 138e9;
/// GPUs.
pub const RANKS: u32 = 8;
/// Samples of a rank's batch, and of a chunk.
pub const BATCH: u32 = 128;
/// Workers of all ranks.
pub const WORKERS: u32 = 16;
/// The disk of the partial case.
pub const HALF: f64 = 70e9;
/// What the SSDs give 16 workers that read files: table IV, PyTorch.
pub const FILES: f64 = 0.65e9;
/// The same with NoPFS.
pub const FILES_OF_NOPFS: f64 = 0.78e9;
/// What they give for chunks: table IV, LCache.
pub const CHUNKS: f64 = 6.8e9;
/// What the remote storage gives 16 workers: chosen, see the module's text.
pub const ORIGIN: f64 = 0.764e9;
/// Seconds that eight GPUs compute in an epoch: chosen so that PyTorch's I/O is 45% of it.
pub const COMPUTE: f64 = 117.0;

/// Who loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// torch's DataLoader: a worker waits for each file.
    Torch,
    /// NoPFS: the same threads, ahead in the order of use.
    Nopfs,
    /// LCache: chunks in the order of use, written anew each epoch.
    Lcache,
    /// Forebay's packed log: written once, read with a deep queue.
    Packed,
}

/// All of them.
pub const SYSTEMS: [System; 4] = [System::Torch, System::Nopfs, System::Lcache, System::Packed];

impl System {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Torch => "torch",
            Self::Nopfs => "nopfs",
            Self::Lcache => "lcache",
            Self::Packed => "packed",
        }
    }
}

/// A line of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Who.
    pub system: System,
    /// With all of the dataset on the disk, or half.
    pub full: bool,
    /// The share of the samples that came from the disk.
    pub log_ratio: f64,
    /// Bytes a second, loading alone.
    pub throughput: f64,
    /// The share of an epoch that the GPUs wait, with [`COMPUTE`] of their own.
    pub waiting: f64,
    /// Bytes written to the disk in an epoch.
    pub written: f64,
    /// Loading throughput over PyTorch's, in the paper.
    pub paper: Option<f64>,
    /// The share of I/O in an epoch, in the paper.
    pub paper_waiting: Option<f64>,
}

/// Epochs, of which the first fills the disk.
const EPOCHS: u32 = 3;

/// The set-up at some scale.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Samples of the dataset.
    pub samples: u32,
    sizes: Sizes,
    bytes: u64,
}

impl Setup {
    /// With this part of the dataset, from 0 to 1; the disk goes along.
    pub fn new(scale: f64) -> Self {
        let samples = scaled(SAMPLES, scale, 16 * RANKS * BATCH);
        let sizes = Sizes::log_normal(samples, BYTES / f64::from(SAMPLES), 0.6, 1);
        Self {
            samples,
            bytes: sizes.total(samples),
            sizes,
        }
    }

    /// How many samples the table simulates.
    pub fn events(&self) -> u64 {
        4 * SYSTEMS.len() as u64 * u64::from(self.samples) * u64::from(EPOCHS)
    }

    /// All systems, with all of the dataset on the disk and with half.
    pub fn rows(&self, watch: &mut Watch<'_>) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        for full in [true, false] {
            for system in SYSTEMS {
                rows.push(self.row(system, full, watch)?);
            }
        }
        Ok(rows)
    }

    fn row(&self, system: System, full: bool, watch: &mut Watch<'_>) -> Result<Row, Error> {
        let mut scenario = self.scenario(system, full, 0.0);
        let report = watch.run(&scenario)?;
        let last = &report.jobs[0].epochs[EPOCHS as usize - 1];
        let all = last.all();
        let iterations = last.iterations.max(1) as f64;
        let scale = self.bytes as f64 / BYTES;
        scenario.jobs[0].step = COMPUTE * scale / iterations;
        let step = scenario.jobs[0].step;
        let training = watch.run(&scenario)?;
        let training = &training.jobs[0].epochs[EPOCHS as usize - 1];
        let (paper, paper_waiting) = paper(system, full);
        Ok(Row {
            system,
            full,
            log_ratio: all.log_reads as f64 / all.samples.max(1) as f64,
            throughput: all.bytes as f64 / last.seconds(),
            waiting: training.waiting(step),
            written: match system {
                System::Lcache => all.log_bytes as f64 / scale,
                _ => 0.0,
            },
            paper,
            paper_waiting,
        })
    }

    fn scenario(&self, system: System, full: bool, step: f64) -> Scenario {
        let uneven = Uneven::Drop;
        let order = Order::Seeded { seed: 1 };
        let plan = Plan::new(
            self.samples,
            order,
            Deal::Strided { uneven },
            RANKS,
            Some(BATCH),
            true,
        );
        let each = WORKERS / RANKS;
        let loading = match system {
            System::Torch => baselines::torch(each, 2),
            System::Nopfs => baselines::nopfs(each, 8),
            System::Lcache | System::Packed => Loading {
                // It is small beside the dataset at every scale.
                readahead: (self.bytes / 512).clamp(16 << 20, 256 << 20),
                foresight: false,
                ..Loading::remote(each, each)
            },
        };
        // In the full case even two logs fit, as on the paper's 32 TB.
        let capacity = if full {
            self.bytes * 3
        } else {
            (self.bytes as f64 / BYTES * HALF) as u64
        };
        let layout = match system {
            System::Lcache => Layout::Reorder,
            _ => Layout::Packed,
        };
        let disk = match system {
            System::Torch => FILES,
            System::Nopfs => FILES_OF_NOPFS,
            System::Lcache | System::Packed => CHUNKS,
        };
        let chunks = matches!(system, System::Lcache | System::Packed);
        Scenario {
            jobs: vec![Job {
                plan: plan.expect("a plan with ranks and batches"),
                dataset: 0,
                sizes: self.sizes.clone(),
                first_epoch: 0,
                epochs: EPOCHS,
                step,
                loading,
            }],
            nodes: 1,
            // Nothing is kept in memory: the paper is about disks.
            memory: Memory::Exact {
                kept: 0,
                transit: 16 << 30,
            },
            policy: Arc::new(|_| Box::new(Nothing) as Box<dyn Policy>),
            log: Some(Log {
                capacity,
                layout,
                together: if chunks { BATCH } else { 1 },
                requests: if chunks { 8 } else { 1 },
                by_threads: !chunks,
            }),
            peers: false,
            costs: Costs {
                log: Access {
                    latency: 0.0,
                    node: shared(disk),
                    total: None,
                },
                ..Costs::origin_only(Access {
                    latency: 0.0,
                    node: shared(ORIGIN),
                    total: None,
                })
            },
        }
    }
}

/// What 16 workers get together, each a sixteenth.
fn shared(rate: f64) -> Curve {
    Curve::up_to(rate / f64::from(WORKERS), rate)
}

fn paper(system: System, full: bool) -> (Option<f64>, Option<f64>) {
    match (system, full) {
        (System::Torch, true) => (Some(1.0), Some(0.45)),
        (System::Torch, false) => (Some(1.0), None),
        (System::Nopfs, true) => (Some(9.4 / 8.6), None),
        (System::Nopfs, false) => (Some(1.45 / 1.08), None),
        (System::Lcache, true) => (Some(9.4), Some(0.06)),
        (System::Lcache, false) => (Some(1.45), None),
        (System::Packed, _) => (None, None),
    }
}
