//! What can be wrong with an index: the file, or the call.

use crate::Kind;

/// Why an index could not be made or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are not an index, or are damaged.
    #[error("index is corrupt: {0}")]
    Corrupt(String),
    /// The index was written by another version of the format.
    #[error("index has format version {found}, this build reads version {expected}")]
    Version {
        /// The version the file claims.
        found: u32,
        /// The version this crate reads and writes.
        expected: u32,
    },
    /// A page's bytes do not hash to what the head says.
    #[error("index page {page}: checksum is {found:#018x}, head says {expected:#018x}")]
    Checksum {
        /// Which 64 KiB page of the body.
        page: usize,
        /// Hash of the bytes.
        found: u64,
        /// Hash in the head.
        expected: u64,
    },
    /// There is no such sample.
    #[error("sample {sample} is not in the index, which has {len}")]
    NoSuchSample {
        /// The sample asked for.
        sample: u32,
        /// Samples in the index.
        len: u32,
    },
    /// A sample id is 32 bits wide.
    #[error("an index holds at most {} samples", u32::MAX)]
    TooMany,
    /// A label below -1.
    #[error("label {0} is below -1 (which means no label)")]
    Label(i64),
}

impl Error {
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Corrupt(_) | Self::Version { .. } | Self::Checksum { .. } => Kind::Corrupt,
            Self::NoSuchSample { .. } | Self::Label(_) => Kind::Invalid,
            Self::TooMany => Kind::Exhausted,
        }
    }
}
