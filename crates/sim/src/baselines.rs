//! What others do, as far as it bears on hits and waiting: loaders, and NoPFS's placement.
//!
//! | name | loads | keeps |
//! |---|---|---|
//! | torch | workers, each a whole batch; nothing ahead across epochs | page cache: LRU |
//! | DALI | a few reader threads with a read-ahead of their own | page cache: LRU |
//! | CoorDL | as DALI | MinIO |
//! | NoPFS | threads into a staging buffer, in the order of use | by frequency of use, fixed |

use std::sync::Arc;

use forebay_policy::{Candidate, Next, Policy, Slot, Verdict};

use crate::scenario::{Job, Loading};

/// torch's DataLoader: each of `workers` makes a whole batch, `prefetch` of them ahead each.
pub fn torch(workers: u32, prefetch: u32) -> Loading {
    Loading {
        depth: workers * prefetch,
        run: u32::MAX,
        run_bytes: u64::MAX,
        readahead: 0,
        across: false,
        foresight: false,
        ..Loading::local(workers)
    }
}

/// DALI: `threads` read ahead, across epochs too, as far as `batches`.
pub fn dali(threads: u32, batches: u32) -> Loading {
    Loading {
        foresight: false,
        ..ahead(threads, batches)
    }
}

/// NoPFS: `threads` fill a staging buffer of so many batches in the order of use.
pub fn nopfs(threads: u32, batches: u32) -> Loading {
    dali(threads, batches)
}

/// The engine with its look-ahead in batches that are made, none in memory: what is kept and what
/// is fetched ahead are then apart, as papers count.
pub fn ahead(threads: u32, batches: u32) -> Loading {
    Loading {
        depth: batches,
        readahead: 0,
        ..Loading::local(threads)
    }
}

/// NoPFS's placement: the samples that a node uses most in all epochs, as many as fit; they are
/// kept once they come, and nothing else is.
#[derive(Debug, Clone)]
pub struct Placed {
    /// By sample, a bit.
    chosen: Arc<[u64]>,
}

impl Placed {
    /// The placement of a node with `capacity` bytes, for one job.
    pub fn new(job: &Job, nodes: u32, node: u32, capacity: u64) -> Self {
        let samples = job.plan.samples();
        let mut uses = vec![0u16; samples as usize];
        // Of samples that are used as often, those that come first.
        let mut first = Vec::with_capacity(samples as usize);
        let each = job.plan.world() / nodes.max(1);
        for epoch in 0..u64::from(job.epochs) {
            let epoch = job.plan.epoch(job.first_epoch.wrapping_add(epoch));
            for tick in 0..epoch.len(0) {
                for rank in node * each..(node + 1) * each {
                    if tick >= epoch.len(rank) {
                        continue;
                    }
                    let sample = epoch.at(epoch.global(rank, tick));
                    let count = &mut uses[sample as usize];
                    if *count == 0 {
                        first.push(sample);
                    }
                    *count = count.saturating_add(1);
                }
            }
        }
        first.sort_by_key(|&sample| std::cmp::Reverse(uses[sample as usize]));
        let mut chosen = vec![0u64; samples.div_ceil(64) as usize];
        let mut room = capacity;
        for sample in first {
            let length = u64::from(job.sizes.of(sample)).max(1);
            if length <= room {
                room -= length;
                chosen[sample as usize / 64] |= 1 << (sample % 64);
            }
        }
        Self {
            chosen: chosen.into(),
        }
    }
}

impl Policy for Placed {
    fn name(&self) -> &'static str {
        "nopfs"
    }

    fn overhead(&self) -> u64 {
        0
    }

    fn admit(&mut self, candidate: Candidate) -> bool {
        let sample = candidate.key as u32;
        let word = self.chosen.get(sample as usize / 64);
        word.is_some_and(|word| word >> (sample % 64) & 1 == 1)
    }

    fn insert(&mut self, _slot: Slot, _size: u64, _next: Next) {}

    fn hit(&mut self, _slot: Slot, _next: Next) {}

    fn remove(&mut self, _slot: Slot) {}

    fn decide(&mut self, _incoming: Candidate, _held: &dyn Fn(Slot) -> bool) -> Verdict {
        Verdict::Refuse
    }
}
