//! Every byte that is persisted or sent, and the kinds of error that cross the crates.

pub mod kind;

pub use kind::Kind;
