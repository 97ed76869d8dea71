//! What a job is to read: one epoch's batches, known ahead or handed over.
//!
//! A planned sequence answers "which samples are in batch k" by arithmetic on the
//! plan's epoch; a listed one holds what a Python sampler gave, batch by batch.

use std::collections::VecDeque;

use forebay_plan::Epoch;
use forebay_prepare::Draw;

/// One epoch of one rank.
#[derive(Debug, Clone)]
pub enum Sequence {
    /// Batches of a plan's epoch for one rank.
    Planned {
        /// The epoch, already cut to where it starts.
        epoch: Epoch,
        /// Whose batches.
        rank: u32,
    },
    /// Batches handed over so far; `closed` once no more come.
    Listed {
        /// Batches not laid out yet.
        batches: VecDeque<Vec<u32>>,
        /// No more batches come.
        closed: bool,
    },
}

/// What the random parameters of an epoch's samples are drawn from.
///
/// `first` and `stride` turn positions of one rank, counted from where it began or resumed, into
/// places in the whole epoch, so that a sample is augmented alike before and after a resume and
/// no two ranks draw the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Draws {
    /// The user's seed, or one drawn for the loader.
    pub seed: u64,
    /// Which epoch.
    pub epoch: u64,
    /// Place in the epoch of this rank's first sample.
    pub first: u64,
    /// Places between two samples of this rank: how many ranks there are.
    pub stride: u64,
}

impl Draws {
    pub(crate) fn at(&self, position: u64) -> Draw {
        Draw {
            seed: self.seed,
            epoch: self.epoch,
            position: self.first + position * self.stride,
        }
    }
}

/// The answer to "what is the next batch".
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The ids were written.
    Batch,
    /// Not handed over yet.
    Later,
    /// The sequence is over.
    End,
}

impl Sequence {
    /// An empty sequence that batches are handed over to.
    pub fn listed() -> Self {
        Sequence::Listed {
            batches: VecDeque::new(),
            closed: false,
        }
    }

    /// Writes the ids of batch `index` into `ids`. Batches are asked for in order.
    pub(crate) fn batch(&mut self, index: u64, ids: &mut Vec<u32>) -> Step {
        ids.clear();
        match self {
            Sequence::Planned { epoch, rank } => {
                if index >= epoch.batches(*rank) {
                    return Step::End;
                }
                ids.extend(epoch.batch(*rank, index));
                Step::Batch
            }
            Sequence::Listed { batches, closed } => match batches.pop_front() {
                Some(batch) => {
                    *ids = batch;
                    Step::Batch
                }
                None if *closed => Step::End,
                None => Step::Later,
            },
        }
    }

    /// How many samples it has in all, where that is known.
    pub(crate) fn samples(&self) -> Option<u64> {
        match self {
            Sequence::Planned { epoch, rank } => Some(epoch.len(*rank)),
            Sequence::Listed { .. } => None,
        }
    }
}
