//! What can go wrong between a sample and its batch.

use forebay_origin::Kind;

use crate::machine::Memory;

/// An error of the engine; `kind()` says what the caller can do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A sample could not be read.
    #[error("sample {sample} ({name})")]
    Sample {
        /// The sample's id in its dataset.
        sample: u32,
        /// The sample's object name.
        name: String,
        /// Why.
        source: forebay_origin::Error,
    },
    /// A sample could be read, but is not an image that can be used.
    #[error("sample {sample} ({name})")]
    Image {
        /// The sample's id in its dataset.
        sample: u32,
        /// The sample's object name.
        name: String,
        /// Why.
        source: forebay_prepare::Error,
    },
    /// The memory tier refused.
    #[error(transparent)]
    Cache(#[from] forebay_cache::Error),
    /// More samples were bad than the user allows.
    #[error("{count} samples could not be read, at most {limit} are allowed; the last: {last}")]
    TooManyBad {
        /// How many were bad.
        count: usize,
        /// The user's limit.
        limit: usize,
        /// The last one's name and reason.
        last: String,
    },
    /// No stand-in could be read either.
    #[error("sample {sample}: {tried} stand-ins were tried and none could be read")]
    NoStandIn {
        /// The bad sample.
        sample: u32,
        /// How many candidates were tried.
        tried: u32,
    },
    /// The dataset's index cannot be read.
    #[error(transparent)]
    Index(#[from] forebay_origin::IndexError),
    /// A sample id that the dataset does not have.
    #[error("sample {sample} is outside the dataset of {samples} samples")]
    OutOfRange {
        /// The id asked for.
        sample: u32,
        /// How many there are.
        samples: u32,
    },
    /// A budget that the process may not have.
    #[error(
        "a memory budget of {budget} bytes is more than the {}'s {} bytes",
        usable.limited_by, usable.bytes
    )]
    MoreThanThereIs {
        /// What was asked for.
        budget: u64,
        /// What there is.
        usable: Memory,
    },
    /// A sample that is asked for by itself and can be in no memory.
    #[error(
        "sample {sample} ({name}) has {length} bytes, more than the {}'s {} bytes of memory",
        usable.limited_by, usable.bytes
    )]
    LargerThanMemory {
        /// The sample's id in its dataset.
        sample: u32,
        /// The sample's object name.
        name: String,
        /// Its bytes.
        length: u64,
        /// What there is.
        usable: Memory,
    },
    /// The system refused a resource.
    #[error("{what}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        source: std::io::Error,
    },
    /// A thread of the crew panicked: a bug.
    #[error("a thread of the loader broke, which is a bug of forebay's: {why}")]
    Broken {
        /// What the panic said.
        why: String,
    },
    /// The engine or job is shut down.
    #[error("the loader is closed")]
    Closed,
}

impl Error {
    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Sample { source, .. } => source.kind(),
            Error::Image { source, .. } => match source {
                forebay_prepare::Error::TooLarge { .. } => Kind::Exhausted,
                forebay_prepare::Error::TooSmall(_) => Kind::Invalid,
                _ => Kind::Corrupt,
            },
            Error::Cache(error) => error.kind(),
            Error::Index(error) => error.kind(),
            Error::TooManyBad { .. } | Error::System { .. } | Error::LargerThanMemory { .. } => {
                Kind::Exhausted
            }
            Error::NoStandIn { .. } => Kind::Corrupt,
            Error::OutOfRange { .. } | Error::MoreThanThereIs { .. } => Kind::Invalid,
            Error::Broken { .. } | Error::Closed => Kind::Closed,
        }
    }

    /// Which setting to change, where one helps.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Sample { source, .. } => source.hint(),
            Error::Image { source, .. } => source.hint().map(String::from),
            Error::Cache(error) => Some(error.hint()),
            Error::TooManyBad { .. } => Some(
                "raise max_bad_samples= or mend the dataset; stats()[\"bad_samples\"] lists them"
                    .into(),
            ),
            Error::MoreThanThereIs { .. } => Some("lower memory=".into()),
            Error::NoStandIn { .. } => Some("check that the dataset can be read at all".into()),
            _ => None,
        }
    }
}
