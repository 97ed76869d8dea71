//! Keep nothing: memory is for samples on their way.
//!
//! For a dataset that is read once, or to see what the cache is worth. O(1), no state.

use crate::{Candidate, Next, Policy, Slot, Verdict};

#[derive(Debug, Default, Clone, Copy)]
pub struct Nothing;

impl Policy for Nothing {
    fn name(&self) -> &'static str {
        "none"
    }

    fn overhead(&self) -> u64 {
        0
    }

    fn admit(&mut self, _candidate: Candidate) -> bool {
        false
    }

    fn insert(&mut self, _slot: Slot, _size: u64, _next: Next) {}

    fn hit(&mut self, _slot: Slot, _next: Next) {}

    fn remove(&mut self, _slot: Slot) {}

    fn decide(&mut self, _incoming: Candidate, _held: &dyn Fn(Slot) -> bool) -> Verdict {
        Verdict::Refuse
    }
}
