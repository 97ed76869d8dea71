//! What can go wrong in a tier, and what to do about it.

use forebay_format::Kind;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("a memory budget of {budget} bytes holds no sample at all, the least is {least} bytes")]
    TooSmall { budget: u64, least: u64 },

    #[error(
        "a sample of {len} bytes does not fit a memory budget of {budget} bytes, it needs {least} bytes"
    )]
    TooLarge { len: u64, budget: u64, least: u64 },

    #[error("cache directory {} cannot be used", folder.display())]
    CacheDir {
        folder: std::path::PathBuf,
        source: std::io::Error,
    },

    #[error("cannot reserve {bytes} bytes of address space")]
    Reserve { bytes: u64, source: std::io::Error },
}

impl Error {
    pub fn kind(&self) -> Kind {
        match self {
            Error::TooSmall { .. } | Error::CacheDir { .. } => Kind::Invalid,
            Error::TooLarge { .. } | Error::Reserve { .. } => Kind::Exhausted,
        }
    }

    /// What the user can change.
    pub fn hint(&self) -> String {
        match self {
            Error::TooSmall { least, .. } | Error::TooLarge { least, .. } => {
                format!("raise memory= to at least {}", rounded_up(*least))
            }
            Error::CacheDir { .. } => {
                "set cache_dir= (or FOREBAY_CACHE) to a directory that can be written to".to_owned()
            }
            Error::Reserve { .. } => {
                "lower memory=, or raise the limit of address space (ulimit -v)".to_owned()
            }
        }
    }
}

/// A setting that is large enough and short enough to type.
fn rounded_up(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    if bytes <= MIB {
        format!("{}KiB", bytes.div_ceil(KIB))
    } else {
        format!("{}MiB", bytes.div_ceil(MIB))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_never_names_less_than_is_needed() {
        assert_eq!(rounded_up(1), "1KiB");
        assert_eq!(rounded_up((1 << 20) + 1), "2MiB");
        assert_eq!(rounded_up(5 << 30), "5120MiB");
    }
}
