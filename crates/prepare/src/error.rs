//! What can be wrong with an image or a recipe.

/// Why a sample could not be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The image is damaged, or of a kind that is not known.
    #[error("the image cannot be decoded: {0}")]
    Corrupt(String),
    /// The image is sound, but too small for a step.
    #[error("the image is too small for its transform: {0}")]
    TooSmall(String),
    /// The header tells of more pixels than are allowed; nothing was allocated for them.
    #[error("the image has {pixels} pixels, more than the limit of {limit}")]
    TooLarge {
        /// Width times height, as the header has it.
        pixels: u64,
        /// The setting.
        limit: u64,
    },
    /// The recipe cannot be followed, for any image.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Which setting to change, where one helps.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::TooLarge { .. } => Some("raise max_pixels="),
            Error::TooSmall(_) => Some("resize the images first"),
            Error::Corrupt(_) | Error::Invalid(_) => None,
        }
    }
}
