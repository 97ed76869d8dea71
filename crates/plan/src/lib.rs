//! Orders, shards and batches, known ahead: torch's order bit for bit.
//!
//! A training job's future is known: the seed fixes the order of every epoch, and
//! ranks, batch size and epochs are settings. Everything here is a function of
//! those numbers: no I/O, no threads, no clock.
//!
//! ```text
//!   Mt19937 --> randperm, randint, multinomial --> Sampler --> one epoch's indices
//!                                                                |
//!   Plan (samples, Order, Deal, world, batch size) --> Epoch: rank r, batch b --> samples
//!                                                                |
//!                                                             NextUse: when is a sample wanted again
//! ```

mod deal;
mod dialect;
mod draw;
mod epoch;
mod error;
mod mt19937;
mod next_use;
mod plan;
mod prefetch;
mod randperm;
mod sampler;

pub use deal::{Deal, Uneven};
pub use dialect::Dialect;
pub use draw::{multinomial, multinomial_f32, randint, randint_draws};
pub use epoch::Epoch;
pub use error::Error;
pub use mt19937::Mt19937;
pub use next_use::NextUse;
pub use plan::{Order, Plan};
pub use randperm::{randperm, randperm_as, randperm_draws, randperm_draws_as, randperm_into};
pub use sampler::{Sampler, Stage};

/// The result of this crate's fallible operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;
