//! What can go wrong between a dataset and its bytes, and what to do about it.

use std::io;
use std::time::Duration;

use forebay_format::{Error as IndexError, Kind};

/// An error of the origin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The index is damaged, or was asked for what it does not have.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// An address that cannot be one.
    #[error("{url}: {what}")]
    Url {
        /// The address, without secrets.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// A storage option that cannot be.
    #[error("storage option {option:?}: {what}")]
    StorageOption {
        /// Its name; its value is not told.
        option: String,
        /// What is wrong with it.
        what: String,
    },
    /// The dataset's root is not there.
    #[error("no such directory: {path}")]
    NoRoot {
        /// The root.
        path: String,
    },
    /// A bucket that has nothing beneath the root.
    #[error("{url}: no object has a name that begins so")]
    NoSuchPrefix {
        /// The dataset's root.
        url: String,
    },
    /// No class folder. The words are torchvision's.
    #[error("Couldn't find any class folder in {url}.")]
    NoClasses {
        /// The dataset's root.
        url: String,
    },
    /// Class folders without a file. The words are torchvision's.
    #[error(
        "Found no valid file for the classes {classes}.{}",
        supported(extensions)
    )]
    EmptyClasses {
        /// Which classes.
        classes: String,
        /// The endings that count; empty for any.
        extensions: String,
    },
    /// No sample at all.
    #[error("{url}: {what}")]
    NoSamples {
        /// The dataset's root.
        url: String,
        /// What was looked for.
        what: String,
    },
    /// A name that is not Unicode.
    #[error("{path:?}: file name is not UTF-8")]
    NotUtf8 {
        /// The name, with its odd bytes replaced.
        path: String,
    },
    /// A folder that contains itself.
    #[error("{path}: symbolic link leads back to a folder that it lies in")]
    Cycle {
        /// The link.
        path: String,
    },
    /// Something else than a file where a sample should be.
    #[error("{path}: not a regular file")]
    NotAFile {
        /// Its path.
        path: String,
    },
    /// A local file or folder could not be read.
    #[error("{path}")]
    Io {
        /// Which.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A file or object has another size than when it was indexed.
    #[error("{name}: file is {found} bytes, index says {expected}")]
    Size {
        /// The sample's file or object.
        name: String,
        /// Bytes it has.
        found: u64,
        /// Bytes the index says.
        expected: u64,
    },
    /// A file or object is not the one that was indexed.
    #[error("{name}: object changed since it was indexed")]
    Changed {
        /// The object.
        name: String,
    },
    /// A file or object is gone.
    #[error("{name}: no such object")]
    Missing {
        /// The object.
        name: String,
    },
    /// A file that the user named (a manifest, a shard) is not there.
    #[error("{name}: No such file or object")]
    NotThere {
        /// The path or url.
        name: String,
    },
    /// The store does not let us in.
    #[error("{name}: access denied: {cause}")]
    Denied {
        /// The object or bucket.
        name: String,
        /// The store's answer.
        cause: String,
    },
    /// There is nothing to sign requests with.
    #[error("{url}: no credentials were given")]
    NoCredentials {
        /// The dataset's root.
        url: String,
    },
    /// There is no such bucket.
    #[error("bucket of {url} does not exist")]
    NoBucket {
        /// The dataset's root.
        url: String,
    },
    /// The store does not do what was asked.
    #[error("{name}: {cause}")]
    Refused {
        /// The object or bucket.
        name: String,
        /// The store's answer.
        cause: String,
    },
    /// A server that cannot list.
    #[error("{url}: server cannot list files: {cause}")]
    CannotList {
        /// The dataset's root.
        url: String,
        /// The server's answer.
        cause: String,
    },
    /// The store did not answer in time.
    #[error("{name}: no answer within the deadline of {deadline:?} ({attempts} attempts): {cause}")]
    Unavailable {
        /// The object or bucket.
        name: String,
        /// The setting.
        deadline: Duration,
        /// Requests made.
        attempts: u32,
        /// What came of the last one.
        cause: String,
    },
    /// A manifest that cannot be read.
    #[error("{manifest}, line {line}: {what}")]
    Manifest {
        /// The manifest.
        manifest: String,
        /// Counted from 1.
        line: u64,
        /// What is wrong there.
        what: String,
    },
    /// A manifest that names a file outside of the dataset's root.
    #[error(
        "{manifest}, line {line}: {path} is absolute or has .. in it, so it may lie outside of the dataset"
    )]
    Outside {
        /// The manifest.
        manifest: String,
        /// Counted from 1.
        line: u64,
        /// What it names there.
        path: String,
    },
    /// The dataset's index was replaced by one that numbers samples otherwise.
    #[error("{url}: samples have other numbers than when the dataset was first opened")]
    Renumbered {
        /// The dataset's root.
        url: String,
    },
    /// An archive that cannot be read.
    #[error("{shard}, offset {offset}: {what}")]
    Tar {
        /// The archive.
        shard: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A buffer that does not fit its sample.
    #[error("sample {sample} has {length} bytes, room was given for {given}")]
    Room {
        /// The sample.
        sample: u32,
        /// Its bytes.
        length: u64,
        /// Bytes of the buffer.
        given: u64,
    },
    /// A read of the wrong sort.
    #[error("dataset is {is}: {use_instead} reads it")]
    WrongRead {
        /// Local or remote.
        is: &'static str,
        /// What to call.
        use_instead: &'static str,
    },
    /// Datasets that cannot be read as one.
    #[error("a view of datasets: {what}")]
    View {
        /// Why not.
        what: String,
    },
}

fn supported(extensions: &str) -> String {
    if extensions.is_empty() {
        String::new()
    } else {
        format!(" Supported extensions are: {extensions}")
    }
}

impl Error {
    pub(crate) fn io(path: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io {
            path: path.into(),
            source: source.into(),
        }
    }

    pub(crate) fn url(url: &str, what: impl Into<String>) -> Self {
        Self::Url {
            url: crate::redact(url),
            what: what.into(),
        }
    }

    /// The same error while listing: what is missing then was named by the user, not
    /// by an index.
    pub(crate) fn while_listing(self) -> Self {
        match self {
            Self::Missing { name } => Self::NotThere { name },
            Self::Io { path, source } if source.kind() == io::ErrorKind::NotFound => {
                Self::NotThere { name: path }
            }
            other => other,
        }
    }

    /// Whether the sample is at fault rather than the road to it: another sample may
    /// well be read.
    pub fn blames_the_sample(&self) -> bool {
        match self {
            Self::Size { .. }
            | Self::Changed { .. }
            | Self::Missing { .. }
            | Self::Tar { .. }
            | Self::NotAFile { .. } => true,
            Self::Io { .. } => matches!(self.kind(), Kind::Corrupt | Kind::Invalid),
            _ => false,
        }
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Index(error) => error.kind(),
            Self::Size { .. }
            | Self::Changed { .. }
            | Self::Missing { .. }
            | Self::Renumbered { .. }
            | Self::Tar { .. } => Kind::Corrupt,
            Self::Unavailable { .. } => Kind::Unavailable,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Kind::Corrupt,
                io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => Kind::Invalid,
                _ => match source
                    .raw_os_error()
                    .map(rustix::io::Errno::from_raw_os_error)
                {
                    Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => Kind::Exhausted,
                    _ => Kind::Unavailable,
                },
            },
            _ => Kind::Invalid,
        }
    }

    /// What to do, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Size { .. } | Self::Changed { .. } | Self::Missing { .. } => {
                "run `forebay index` on the dataset to bring its index up to date"
            }
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => {
                    "run `forebay index` on the dataset to bring its index up to date"
                }
                io::ErrorKind::PermissionDenied => "give this user the right to read it",
                _ if self.kind() == Kind::Exhausted => "raise the limit of open files (ulimit -n)",
                _ => return None,
            },
            Self::NotThere { .. } => "check the manifest= or the pattern of shards",
            Self::NoRoot { .. } => "check the path; a bucket starts with s3://, gs:// or az://",
            Self::NoClasses { .. } => {
                "each class is a folder with its files; for other layouts use a manifest or tar shards"
            }
            Self::EmptyClasses { .. } => "remove the empty folders or pass allow_empty=True",
            Self::Denied { .. } => {
                "set storage_options= or the environment (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
                 or AWS_SKIP_SIGNATURE=true for a public bucket)"
            }
            Self::NoCredentials { .. } => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or pass them in storage_options= \
                 (profiles in ~/.aws are not read); for a public bucket AWS_SKIP_SIGNATURE=true; for the \
                 role of a machine AWS_METADATA_ENDPOINT=http://169.254.169.254"
            }
            Self::NoSuchPrefix { .. } => {
                "check what comes after the bucket's name: upper and lower case differ"
            }
            Self::Outside { .. } => "pass allow_outside=True if the manifest can be trusted",
            Self::Renumbered { .. } => {
                "the dataset has changed and was listed again: open it anew in every process"
            }
            Self::NoBucket { .. } => {
                "check the bucket's name, and the endpoint in storage_options= or AWS_ENDPOINT_URL"
            }
            Self::CannotList { .. } => "name the files in a manifest (CSV or JSON lines) instead",
            Self::Unavailable { .. } => {
                "check that the endpoint can be reached; raise deadline= if it is only slow"
            }
            Self::Cycle { .. } => "remove the link",
            Self::Tar { .. } => "the archive is damaged or still being written: make it again",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
