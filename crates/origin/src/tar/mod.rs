//! WebDataset archives: what lies where in a tar, and which members make a sample.
//!
//! ```text
//! | hdr a.jpg | data..pad | hdr a.cls | data..pad | hdr b.jpg | data..pad | ... | 0 0 |
//! |<------------- sample a ---------------------->|<------- sample b ----------->|
//! ```
//!
//! A sample is a run of members with the same key, kept in the index as one range of
//! the archive, headers included. One ranged read brings all its members, and
//! [`members`] finds them in those bytes.

mod header;
mod key;
mod scan;

pub use scan::{Member, members};

pub(crate) use scan::Scan;

/// What is wrong with an archive, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset}: {what}")]
pub struct TarError {
    /// From the start of the bytes that were read.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}
