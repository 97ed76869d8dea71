//! Tiers and budgets: where samples wait between the origin and their use.
//!
//! [`memory`] is the tier that samples pass through, [`log`] the one on a local disk below it. A budget is in bytes and is never
//! passed; what stays within it is the policy's word (`forebay-policy`).

pub mod error;
pub mod log;
pub mod memory;

pub use error::Error;
pub use forebay_policy::{
    NAMES as POLICIES, Policy, Settings as PolicySettings, by_name as policy_by_name,
};
pub use memory::{
    Fill, Flight, FlightResult, Held, Lookup, MemoryTier, Row, Seal, Settings, Stats, Wanted,
};
