//! Where threads and requests are needed.
//!
//! ```text
//!   what was measured         models                  what to do
//!   bytes, seconds   --->  Throughput, Preparing --->  Balancer --->  Split: how many prepare,
//!   at a batch's edge      (aged, piece-wise)          (search)       how many load for whom
//! ```
//!
//! Pure: no clock, no threads. The engine calls it at the edges of batches, tests with made-up
//! times; both get the same answers.
//!
//! | file | what it is |
//! |---|---|
//! | `aged` | a mean in which old values fade, and how far off it was |
//! | `curve` | a piece-wise linear line through aged values |
//! | `throughput` | bytes a second of a tier against concurrency |
//! | `preparing` | seconds a sample against threads, for each class of size |
//! | `search` | Lobster's Algorithm 1: the threads that bring a difference nearest to zero |
//! | `split` | who does what, and how good that is predicted to be |
//! | `balancer` | the models together; when a new split is worth the move |
//! | `bottleneck` | which stage of which queue holds everybody up |

#![forbid(unsafe_code)]

mod aged;
mod balancer;
mod bottleneck;
mod curve;
mod preparing;
mod search;
mod split;
mod throughput;

pub use aged::Aged;
pub use balancer::{Balancer, Edge, Flow, Residuals, Settings, Work};
pub use bottleneck::{Bottleneck, Stage};
pub use preparing::Preparing;
pub use search::{Found, search};
pub use split::{Demand, Means, Split, Times, first_guess, proportional};
pub use throughput::{TIERS, Throughput, Tier};
