//! The memory tier: one arena, one table, one short lock.
//!
//! ```text
//!   lookup --+-- there -------------> Held  --drop--> kept or gone, as the policy says
//!            +-- not there ---------> Fill  --commit--> Held
//!            |                          \---drop--> gone, the waiters may try
//!            +-- somebody fills it -> Flight --wait--> Held
//!            +-- no room now -------> Full; `on_room` tells when to look again
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | `arena` | the bytes: blocks of one mapping, and who may touch them |
//! | `table` | the samples: a slot each, found by key |
//! | `ledger` | the book: who holds what; all of it under the lock |
//! | `keep` | the rules: what stays and what goes, and the room that transit has |
//! | `tier` | the handle that users have |
//! | `sample` | `Held` and `Fill`: a sample in the hands of a reader or a writer |
//! | `flight` | `Flight`: waiting for somebody else's fill |
//! | `row` | `Row`: samples side by side, filled and used where they will stay |
//! | `stats` | the figures |
//!
//! Bytes are read and written outside of the lock; it covers only table and policy.

mod arena;
mod flight;
mod keep;
mod ledger;
mod row;
mod sample;
mod stats;
mod table;
mod tier;

pub use flight::{Flight, FlightResult};
pub use row::{Row, Seal, Wanted};
pub use sample::{Fill, Held};
pub use stats::Stats;
pub use tier::{Lookup, MemoryTier, Settings};
