//! One epoch on a job's way: its sequence, and how far it is laid out.

use std::sync::Arc;

use crate::sequence::{Draws, Sequence};
use crate::window::Uses;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Leg {
    pub(crate) tag: String,
    pub(crate) sequence: Sequence,
    pub(crate) draws: Draws,
    pub(crate) batches: u64,
    pub(crate) position: u64,
    /// Tick of the leg's position 0 on the job's clock.
    pub(crate) base: u64,
    /// When samples are used next, by any of the ranks at home here, and which of them this is.
    pub(crate) uses: Uses,
    pub(crate) ended: bool,
}

impl Leg {
    pub(crate) fn new(tag: &str, sequence: Sequence, draws: Draws, base: u64) -> Self {
        Self {
            tag: tag.to_owned(),
            sequence,
            draws,
            batches: 0,
            position: 0,
            base,
            uses: Arc::default(),
            ended: false,
        }
    }

    /// Whether it was foreseen as what is begun now: the same order, the same random draws.
    pub(crate) fn is(&self, tag: &str, draws: Draws) -> bool {
        self.tag == tag && self.draws == draws
    }

    pub(crate) fn next_use(&self, position: u64) -> Option<u64> {
        match self.uses.get() {
            Some((uses, slot)) => uses
                .after(uses.place(position, *slot))
                .map(|tick| self.base + tick),
            // The epoch after is not known (yet): somewhere in it, for all samples alike.
            None => self
                .sequence
                .samples()
                .map(|samples| self.base + samples + samples / 2),
        }
    }
}
