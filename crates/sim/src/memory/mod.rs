//! The memory tiers of all nodes, without their bytes.
//!
//! The rules are those of the cache's own tier (its `ledger` and `keep`): a sample is in transit
//! from its fill until its last holder lets go, then the policy keeps it or it is gone. A test
//! walks both at random and compares them step by step.
//!
//! | part | what it is |
//! |---|---|
//! | `table` | which sample is where: one dense table for all nodes |
//! | `tier` | the rules of one node's tier |

mod table;
mod tier;

pub use tier::{Found, Stats, Tiers};
