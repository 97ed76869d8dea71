//! The ceiling: what the best policy of all could hit.
//!
//! Belady's MIN with the whole future known, on bytes: a sample may be kept in part. Each byte is
//! then a page of its own, all of a sample's are wanted at the same time, and MIN is optimal for
//! pages. So no policy that keeps whole samples, whatever it knows, has more bytes of hits on the
//! same accesses.
//!
//! The accesses of a node are taken row by row: one sample of every rank of every job, then the
//! next. O(log n) an access, 8 bytes for each and 12 for each sample.

use std::collections::BinaryHeap;

use crate::scenario::{Job, Scenario};

const NEVER: u32 = u32::MAX;

/// The accesses of one node, in order.
#[derive(Debug, Clone, Default)]
pub struct Walk {
    /// Sample, numbered through all datasets, and the epoch it is used in.
    uses: Vec<(u32, u32)>,
    lengths: Vec<u32>,
    epochs: u32,
}

/// Bytes hit, and bytes in all, of an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ceiling {
    /// The most that can be hit.
    pub hit_bytes: u64,
    /// All.
    pub bytes: u64,
}

impl Ceiling {
    /// The most that can be hit of all.
    pub fn ratio(&self) -> f64 {
        self.hit_bytes as f64 / self.bytes.max(1) as f64
    }

    /// Several epochs together.
    pub fn sum(epochs: &[Ceiling]) -> Ceiling {
        epochs
            .iter()
            .fold(Ceiling::default(), |sum, epoch| Ceiling {
                hit_bytes: sum.hit_bytes + epoch.hit_bytes,
                bytes: sum.bytes + epoch.bytes,
            })
    }
}

impl Walk {
    /// What the ranks of a node use in all epochs.
    ///
    /// # Panics
    /// If the scenario is not one that runs.
    pub fn new(scenario: &Scenario, node: u32) -> Self {
        let datasets = scenario.check().expect("a scenario that runs");
        let mut walk = Self::default();
        let mut first = Vec::new();
        for (dataset, &(samples, _)) in datasets.iter().enumerate() {
            first.push(walk.lengths.len() as u32);
            let job = scenario.jobs.iter().find(|job| job.dataset == dataset);
            let sizes = job.map(|job| &job.sizes);
            let length = |sample| sizes.map_or(0, |sizes| sizes.of(sample));
            walk.lengths.extend((0..samples).map(length));
        }
        let column = |job| Column::new(job, scenario.nodes, node, first[job.dataset]);
        let mut columns: Vec<Column<'_>> = scenario.jobs.iter().map(column).collect();
        while columns.iter().any(|column| !column.ended) {
            for column in &mut columns {
                column.row(&mut walk.uses);
            }
        }
        walk.epochs = scenario
            .jobs
            .iter()
            .map(|job| job.epochs)
            .max()
            .unwrap_or(0);
        walk
    }

    /// How many accesses there are.
    pub fn len(&self) -> usize {
        self.uses.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }
}

/// One job's ranks on a node.
struct Column<'a> {
    job: &'a Job,
    ranks: std::ops::Range<u32>,
    first: u32,
    epoch: forebay_plan::Epoch,
    number: u32,
    tick: u64,
    ended: bool,
}

impl<'a> Column<'a> {
    fn new(job: &'a Job, nodes: u32, node: u32, first: u32) -> Self {
        let each = job.plan.world() / nodes;
        Self {
            job,
            ranks: node * each..(node + 1) * each,
            first,
            epoch: job.plan.epoch(job.first_epoch),
            number: 0,
            tick: 0,
            ended: job.epochs == 0,
        }
    }

    fn row(&mut self, uses: &mut Vec<(u32, u32)>) {
        let before = uses.len();
        while !self.ended && uses.len() == before {
            for rank in self.ranks.clone() {
                if self.tick < self.epoch.len(rank) {
                    let id = self.epoch.at(self.epoch.global(rank, self.tick));
                    uses.push((self.first + id, self.number));
                }
            }
            self.tick += 1;
            if uses.len() == before {
                self.number += 1;
                self.tick = 0;
                self.ended = self.number == self.job.epochs;
                if !self.ended {
                    let number = self.job.first_epoch.wrapping_add(u64::from(self.number));
                    self.epoch = self.job.plan.epoch(number);
                }
            }
        }
    }
}

/// The most that a memory of `capacity` bytes can hit, by epoch.
pub fn optimum(walk: &Walk, capacity: u64) -> Vec<Ceiling> {
    let samples = walk.lengths.len();
    let mut next = vec![NEVER; samples];
    let mut links = vec![NEVER; walk.uses.len()];
    for (at, &(sample, _)) in walk.uses.iter().enumerate().rev() {
        links[at] = std::mem::replace(&mut next[sample as usize], at as u32);
    }
    let mut kept = vec![0u32; samples];
    let mut used = 0;
    let mut farthest = BinaryHeap::new();
    let mut epochs = vec![Ceiling::default(); walk.epochs as usize];
    for (&(sample, epoch), &link) in walk.uses.iter().zip(&links) {
        let at = sample as usize;
        let length = walk.lengths[at];
        let tally = &mut epochs[epoch as usize];
        tally.bytes += u64::from(length);
        tally.hit_bytes += u64::from(kept[at]);
        used -= u64::from(std::mem::take(&mut kept[at]));
        next[at] = link;
        if link == NEVER {
            continue;
        }
        kept[at] = length;
        used += u64::from(length);
        farthest.push((link, sample));
        while used > capacity {
            let Some((link, sample)) = farthest.pop() else {
                break;
            };
            let at = sample as usize;
            if next[at] != link {
                continue;
            }
            let over = (used - capacity).min(u64::from(kept[at]));
            kept[at] -= over as u32;
            used -= over;
            if kept[at] > 0 {
                farthest.push((link, sample));
            }
        }
    }
    epochs
}
