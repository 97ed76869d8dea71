//! Pieces of work between a job's window and those who do it.

use forebay_cache::Held;
use forebay_prepare::Draw;

use crate::Error;
use crate::batch::StandIn;
use crate::preparation::Stock;
use crate::slab::SlabWriter;

/// One sample to bring into one slot of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) slot: usize,
    pub(crate) id: u32,
    pub(crate) len: u64,
    /// Tick of the sample's next use after this one.
    pub(crate) next: Option<u64>,
    /// Where it goes in the slab.
    pub(crate) offset: usize,
    /// How many bytes it has there.
    pub(crate) room: usize,
    pub(crate) draw: Draw,
    /// The log has failed on it: it is read from the origin.
    pub(crate) past_log: bool,
}

impl Task {
    /// What it takes of the readahead: the tier holds samples in whole blocks.
    pub(crate) fn cost(&self) -> u64 {
        cost(self.len)
    }
}

/// Bytes that a sample of `len` takes in the tier.
pub(crate) fn cost(len: u64) -> u64 {
    const BLOCK: u64 = 4096;
    len.max(1).next_multiple_of(BLOCK)
}

/// Which batch of which life of the window some work belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) generation: u64,
    pub(crate) seq: u64,
}

/// Tasks to fetch; they go straight into the slab if there is one.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) place: Place,
    pub(crate) tasks: Vec<Task>,
    pub(crate) slab: Option<SlabWriter>,
}

/// Samples in the tier, to be brought into the slab.
#[derive(Debug)]
pub(crate) struct Placing {
    pub(crate) place: Place,
    pub(crate) samples: Vec<(Task, Stock)>,
    pub(crate) slab: SlabWriter,
}

/// What became of a task.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is in the slab.
    Placed,
    /// Its bytes are in the tier, waiting for the slab or a thread to place them.
    Held(Stock),
    /// It stays in the tier, as an image, until the user gives it back.
    Lent(Held),
    /// There was no room; to be fetched again once the slab is open.
    Postponed,
    /// It was bad and another sample takes its place.
    StandIn(StandIn),
    /// It was bad and the batch fails.
    Failed(Error),
}
