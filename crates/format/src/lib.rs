//! Every byte that is persisted or sent, and the kinds of error that cross the crates.

pub mod chunk;
mod column;
mod encode;
mod error;
mod head;
mod index;
pub mod kind;
mod names;
mod pages;
mod strings;

pub use encode::{Directory, IndexBuilder, Sample};
pub use error::Error;
pub use head::VERSION;
pub use index::Index;
pub use kind::Kind;

/// The hash behind validators and index keys: 64-bit XXH3.
pub fn hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}
