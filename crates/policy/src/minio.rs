//! Fill once, never evict (CoorDL's MinIO).
//!
//! Each sample is used once an epoch, so any share c of the dataset gives c hits as long as it
//! stays: no eviction is needed, and no state. Hits are spread evenly over the epoch. O(1).

use crate::{Candidate, Next, Policy, Slot, Verdict};

#[derive(Debug, Default, Clone, Copy)]
pub struct Minio;

impl Policy for Minio {
    fn name(&self) -> &'static str {
        "minio"
    }

    fn overhead(&self) -> u64 {
        0
    }

    fn insert(&mut self, _slot: Slot, _size: u64, _next: Next) {}

    fn hit(&mut self, _slot: Slot, _next: Next) {}

    fn remove(&mut self, _slot: Slot) {}

    fn decide(&mut self, _incoming: Candidate, _held: &dyn Fn(Slot) -> bool) -> Verdict {
        Verdict::Refuse
    }
}
