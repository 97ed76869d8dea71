//! When samples are wanted next, as the loaders tell their tier.
//!
//! The tables are the plan's own [`NextUse`], one for each job and node: of the epoch that runs
//! and the coming one. A sample that is fetched for the coming epoch before that has begun is
//! wanted somewhere in the one after, for all samples alike: the engine does the same.
//!
//! Where several jobs share a tier, a sample's next use is the soonest of all of theirs, on one
//! clock: a tick is a sample of the first job's ranks, and others' ticks are as long as their
//! steps are.

use std::collections::VecDeque;

use forebay_plan::{Epoch, NextUse};

/// One job on one node.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The ranks that the job has here.
    pub(crate) ranks: Vec<u32>,
    /// The number of the epoch that runs.
    current: u32,
    /// Where each epoch in sight begins on the job's clock, and how many ticks it has.
    legs: VecDeque<(u64, u64)>,
    uses: Option<NextUse>,
    /// Up to where samples were asked for, in ticks of the current epoch.
    pub(crate) reached: u64,
}

impl Seat {
    pub(crate) fn new(ranks: Vec<u32>) -> Self {
        Self {
            ranks,
            current: 0,
            legs: VecDeque::new(),
            uses: None,
            reached: 0,
        }
    }

    /// Epoch `current` begins; `epochs` are that one and, if known, the coming one. With
    /// `alone`, nobody else's next uses are asked for.
    pub(crate) fn begin(
        &mut self,
        current: u32,
        epochs: &VecDeque<Epoch>,
        knows: bool,
        alone: bool,
    ) {
        let base = match self.legs.front() {
            Some(&(base, ticks)) if self.current < current => base + ticks,
            _ => 0,
        };
        self.current = current;
        self.reached = 0;
        self.legs.clear();
        let mut start = base;
        for epoch in epochs {
            let ticks = self.ranks.iter().map(|&rank| epoch.len(rank)).max();
            let ticks = ticks.unwrap_or(0);
            self.legs.push_back((start, ticks));
            start += ticks;
        }
        self.uses = None; // before the new one is made: each takes 4 bytes a sample
        if knows && let Some(epoch) = epochs.front() {
            let uses = NextUse::new(epoch, epochs.get(1), &self.ranks);
            self.uses = Some(if alone { uses.links_only() } else { uses });
        }
    }

    /// The tick of a position in an epoch.
    pub(crate) fn tick(&self, leg: u32, position: u64) -> u64 {
        self.legs[(leg - self.current) as usize].0 + position
    }

    /// When the sample at this position of the rank in `slot` is used next.
    #[inline]
    pub(crate) fn after(&self, leg: u32, position: u64, slot: u32) -> Option<u64> {
        match &self.uses {
            Some(uses) if leg == self.current => {
                let base = self.legs[0].0;
                uses.after(uses.place(position, slot))
                    .map(|tick| base + tick)
            }
            _ => {
                let (base, ticks) = self.legs[(leg - self.current) as usize];
                Some(base + ticks + ticks / 2)
            }
        }
    }

    /// When the job wants a sample that it has not asked for yet.
    pub(crate) fn next(&self, sample: u32) -> Option<u64> {
        let uses = self.uses.as_ref()?;
        let tick = uses.next(sample, self.reached)?;
        Some(self.legs[0].0 + tick)
    }
}
