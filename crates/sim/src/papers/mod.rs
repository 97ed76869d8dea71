//! The set-ups of papers' tables, run on this simulator: their figures beside ours.
//!
//! What a paper does not say (what its storage gave, how long a step took) is chosen so that one
//! figure of the paper comes out, and said; all others follow from it.
pub mod lcache;
pub mod lobster;

use crate::error::Error;
use crate::figures::Report;
use crate::scenario::Scenario;

/// Runs scenarios one after the other and tells somebody how far it is.
pub struct Watch<'a> {
    done: u64,
    tell: &'a mut dyn FnMut(u64) -> bool,
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl<'a> Watch<'a> {
    /// `tell` hears how many samples were simulated so far, and ends it by saying no.
    pub fn new(tell: &'a mut dyn FnMut(u64) -> bool) -> Self {
        Self { done: 0, tell }
    }

    pub(crate) fn run(&mut self, scenario: &Scenario) -> Result<Report, Error> {
        let before = self.done;
        let tell = &mut self.tell;
        let report = scenario.run_watched(&mut |events| tell(before + events))?;
        self.done = before + report.events;
        Ok(report)
    }

    /// A look whether to go on, between scenarios.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        if (self.tell)(self.done) {
            Ok(())
        } else {
            Err(Error::Stopped)
        }
    }
}

/// `samples` scaled, but enough for every rank to have some batches.
pub(crate) fn scaled(samples: u32, scale: f64, least: u32) -> u32 {
    ((f64::from(samples) * scale).round() as u32).clamp(least.min(samples), samples)
}
