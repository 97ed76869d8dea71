//! A batch that is being filled.

use forebay_cache::Held;

use crate::Error;
use crate::batch::{Layout, StandIn};
use crate::preparation::Stock;
use crate::slab::{Slab, SlabWriter};
use crate::task::{Outcome, Task};

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Building {
    pub(crate) leg: u64,
    pub(crate) layout: Layout,
    /// The leg's position of slot 0.
    pub(crate) position: u64,
    pub(crate) slab: Option<SlabWriter>,
    /// Slots before this one were handed to a fetch.
    pub(crate) fetched: usize,
    pub(crate) postponed: Vec<Task>,
    pub(crate) held: Vec<(Task, Stock)>,
    /// Bytes that count as fetched ahead for it.
    pub(crate) counted: u64,
    /// Slots that are not in the slab yet.
    pub(crate) remaining: usize,
    pub(crate) failed: Option<(usize, Error)>,
    pub(crate) stand_ins: Vec<StandIn>,
    /// Samples that are not in the slab but lent, by slot.
    pub(crate) lent: Vec<(usize, Held)>,
}

impl Building {
    /// Gives it the memory that it is filled in.
    pub(crate) fn open(&mut self, slab: Slab) {
        let slab = SlabWriter::new(slab);
        if slab.row().is_none() {
            self.layout.write_columns(&slab);
        }
        self.slab = Some(slab);
    }

    /// A slot has come to its end.
    pub(crate) fn done(&mut self, task: &Task, outcome: Outcome) {
        match outcome {
            Outcome::StandIn(stand_in) => self.stand_ins.push(stand_in),
            Outcome::Lent(held) => self.lent.push((task.slot, held)),
            Outcome::Failed(error) => {
                // The first bad slot speaks for the batch, whichever thread was first.
                if self
                    .failed
                    .as_ref()
                    .is_none_or(|(slot, _)| *slot > task.slot)
                {
                    self.failed = Some((task.slot, error));
                }
            }
            Outcome::Placed | Outcome::Held(_) | Outcome::Postponed => {}
        }
    }
}
