//! Fill once, never evict (CoorDL's MinIO).
//!
//! Each sample is used once an epoch, so any share c of the dataset gives c hits as long as it
//! stays: no eviction is needed, and no state. Hits are spread evenly over the epoch. O(1).

use crate::{Candidate, Key, Next, Policy, Verdict};

#[derive(Debug, Default, Clone, Copy)]
pub struct Minio;

impl Policy for Minio {
    fn name(&self) -> &'static str {
        "minio"
    }

    fn overhead(&self) -> u64 {
        0
    }

    fn insert(&mut self, _key: Key, _size: u64, _next: Next) {}

    fn hit(&mut self, _key: Key, _next: Next) {}

    fn remove(&mut self, _key: Key) {}

    fn decide(&mut self, _incoming: Candidate, _held: &dyn Fn(Key) -> bool) -> Verdict {
        Verdict::Refuse
    }
}
