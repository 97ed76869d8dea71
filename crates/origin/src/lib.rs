//! Where samples come from: directories, buckets, archives.
//!
//! ```text
//! DatasetSpec --open--> listing --> index file (read) ----> Dataset
//!                                                            | read_local: openat, readv
//!                                                            | read_group: ranged GETs, retried
//! ```
//!
//! A dataset is listed once; after that a sample is an id, and its name, place and
//! size come from the index.

mod braces;
mod dataset;
mod difference;
mod error;
mod group;
mod index_file;
mod listing;
mod local;
mod opening;
mod place;
mod remote;
mod shard_files;
mod shard_list;
mod spec;
pub mod tar;
mod view;

pub use dataset::Dataset;
pub use difference::Difference;
pub use error::Error;
pub use forebay_format::{Directory, Error as IndexError, Index, Kind};
pub use group::{Group, Sink};
pub use opening::Opened;
pub use place::redact;
pub use secrecy::SecretString;
pub use spec::{DatasetSpec, Layout, Progress, ReadSettings, Refresh};
pub use view::View;
