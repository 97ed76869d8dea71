//! Decode, resize, augment: from an encoded image to a finished sample in its batch.
//!
//! ```text
//!   encoded --header--> size --draw--> crop box --decode only that--> pixels --steps--> out
//! ```
//!
//! A [`Recipe`] is the user's transform, known and checked; it writes each sample straight into
//! its place in the batch. Random parameters come from (seed, epoch, position, step) alone, so a
//! sample is the same whichever thread makes it, and after a resume too.

mod decode;
mod error;
mod output;
mod random;
mod reading;
mod recipe;
mod scratch;
mod shape;
mod steps;

pub use decode::head;
pub use error::Error;
pub use recipe::Recipe;
pub use scratch::Scratch;
pub use shape::{Draw, Element, Order, Pixels, Shape};
