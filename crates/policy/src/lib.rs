//! Eviction policies: one file each, on ids and sizes.
//!
//! A tier asks its policy three things and tells it three:
//!
//! ```text
//!            insert, hit, remove  (what happened)
//!   tier  ------------------------------------------>  policy
//!         <------------------------------------------
//!            admit, decide, advance  (what should)
//! ```
//!
//! A kept sample is named by its slot: a small number that its tier gives it for as long as it
//! stays. So a policy's tables are plain arrays, and nothing is hashed under a tier's lock.
//!
//! A policy never sees bytes, clocks or threads, so the object that runs in a tier
//! is the object that [`replay()`] runs over a trace: a figure of the one is a figure
//! of the other. [`conformance`] is what every policy must pass.
//!
//! | name | keeps | a good choice when |
//! |---|---|---|
//! | `farthest` | what is wanted soonest (Belady's optimum) | the plan is known: the default |
//! | `reuse` | what is wanted before the end of the coming epoch | several nodes share a dataset |
//! | `lru` | what was used last | the future is unknown and uses cluster |
//! | `lfu` | what was used most | some samples are drawn far more often |
//! | `minio` | what came first | the future is unknown and epochs are shuffled |
//! | `none` | nothing | memory is for prefetching alone |

pub mod conformance;
mod farthest;
mod hash;
mod heap;
mod lfu;
mod lru;
mod minio;
mod none;
pub mod replay;
mod reuse;
mod table;

use std::fmt;

pub use farthest::Farthest;
pub use lfu::Lfu;
pub use lru::Lru;
pub use minio::Minio;
pub use none::Nothing;
pub use replay::{Replay, replay};
pub use reuse::Reuse;

/// A sample of a dataset: the dataset's tag in the upper 32 bits, the sample's id in the lower.
pub type Key = u64;

/// The place of a kept sample in its tier's table: from 0 on, as few as there are samples at one
/// time, and used again for another sample when this one has left.
pub type Slot = u32;

/// The tick of a sample's next use on the job's clock; `None` when unknown or never.
pub type Next = Option<u64>;

/// A sample that might be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    pub key: Key,
    /// In the units of the tier's capacity, usually bytes.
    pub size: u64,
    pub next: Next,
}

/// The answer to a candidate for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Let this one go first; ask again when that is not yet room enough.
    Evict(Slot),
    /// Keep what is there, not the candidate.
    Refuse,
}

/// Which of the kept samples stay, which go.
///
/// What a caller promises:
/// - `insert` names a slot in which nothing is kept; `hit` and `remove` one in which there is.
/// - Slots are small: at most as many as the samples that its budget can hold.
/// - Every sample that leaves is told by `remove`, those that `decide` or `advance` named too.
/// - What `advance` named is removed, held or not, before anything else is called.
/// - A held sample ends being held by a `hit` or a `remove`: a policy may set it aside until then.
pub trait Policy: Send + fmt::Debug {
    /// The name by which [`by_name`] knows it.
    fn name(&self) -> &'static str;

    /// An upper bound of the policy's own memory, in bytes, for each slot.
    ///
    /// Tiers subtract it from their budgets, so it counts the slack of growing tables.
    fn overhead(&self) -> u64;

    /// Whether the candidate is worth keeping when there is room.
    fn admit(&mut self, _candidate: Candidate) -> bool {
        true
    }

    /// A sample is kept in this slot from now on.
    fn insert(&mut self, slot: Slot, size: u64, next: Next);

    /// A kept sample was used; its next use is `next`.
    fn hit(&mut self, slot: Slot, next: Next);

    /// The slot's sample has left the tier.
    fn remove(&mut self, slot: Slot);

    /// Room is wanted for `incoming`: who goes, never one for which `held` is true.
    ///
    /// Changes nothing that is kept: the caller evicts and then calls `remove`.
    fn decide(&mut self, incoming: Candidate, held: &dyn Fn(Slot) -> bool) -> Verdict;

    /// Names slots that may be let go soon, at most `most` of them, so that whoever has much to
    /// let go can look at them beforehand. A hint: it may name any, or none.
    fn likely(&self, _most: usize, _name: &mut dyn FnMut(Slot)) {}

    /// The job's clock says `now`; appends samples that must go at once, a bounded number of
    /// them: it is called, and they are removed, until it adds none.
    fn advance(&mut self, _now: u64, _expired: &mut Vec<Slot>) {}
}

/// What some policies need to know beyond the samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// Ticks in an epoch, for `reuse`; `None` leaves its rule of distance out.
    pub epoch: Option<u64>,
    /// No other node holds what this one keeps, so `reuse` does not drop a sample
    /// merely because this node has no further use for it.
    pub sole_copy: bool,
}

/// The names that [`by_name`] knows, the default first.
pub const NAMES: [&str; 6] = ["farthest", "reuse", "lru", "lfu", "minio", "none"];

/// The policy of that name, empty; `None` when there is none.
pub fn by_name(name: &str, settings: Settings) -> Option<Box<dyn Policy>> {
    Some(match name {
        "farthest" => Box::new(Farthest::new()),
        "reuse" => Box::new(Reuse::new(settings)),
        "lru" => Box::new(Lru::new()),
        "lfu" => Box::new(Lfu::new()),
        "minio" => Box::new(Minio),
        "none" => Box::new(Nothing),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_gives_the_policy_of_that_name() {
        for name in NAMES {
            assert_eq!(by_name(name, Settings::default()).unwrap().name(), name);
        }
        assert!(by_name("clairvoyant", Settings::default()).is_none());
    }
}
