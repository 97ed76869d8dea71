//! What a user says about a dataset: where it is, how it is laid out, how to read it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;

use crate::place::redact;

/// A dataset to open.
#[derive(Clone)]
pub struct DatasetSpec {
    /// A path, or a `file://`, `s3://`, `gs://`, `az://`, `http://` or `https://` url.
    pub url: String,
    /// More shards after those of `url`, in this order; for [`Layout::Tar`].
    pub more_shards: Vec<String>,
    /// How samples lie in it.
    pub layout: Layout,
    /// Settings of the object store, named as `object_store` names them; they win
    /// over the environment (`AWS_*` and the like).
    pub storage_options: BTreeMap<String, SecretString>,
    /// Where index files live. By default the folder `index` in `FOREBAY_CACHE`, else
    /// in `XDG_CACHE_HOME/forebay`, else in `~/.cache/forebay`.
    pub index_dir: Option<PathBuf>,
    /// When to list again.
    pub refresh: Refresh,
    /// What [`Dataset::numbering`](crate::Dataset::numbering) must be: opening a dataset whose
    /// samples have other numbers by now is an error.
    pub numbering: Option<u64>,
    /// How to read objects.
    pub read: ReadSettings,
}

impl DatasetSpec {
    /// A dataset with the default settings.
    pub fn new(url: impl Into<String>, layout: Layout) -> Self {
        Self {
            url: url.into(),
            more_shards: Vec::new(),
            layout,
            storage_options: BTreeMap::new(),
            index_dir: None,
            refresh: Refresh::Auto,
            numbering: None,
            read: ReadSettings::default(),
        }
    }
}

impl fmt::Debug for DatasetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetSpec")
            .field("url", &redact(&self.url))
            .field("more_shards", &self.more_shards.len())
            .field("layout", &self.layout)
            .field(
                "storage_options",
                &self.storage_options.keys().collect::<Vec<_>>(),
            )
            .field("index_dir", &self.index_dir)
            .field("refresh", &self.refresh)
            .field("numbering", &self.numbering)
            .field("read", &self.read)
            .finish()
    }
}

/// How samples lie in a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// One folder a class, as torchvision's `ImageFolder` has it.
    ClassFolders {
        /// Endings that count, compared without case; `None` takes any file.
        extensions: Option<Vec<String>>,
        /// Whether a class may be without files.
        allow_empty: bool,
    },
    /// Files named by a CSV file (with a header) or a JSON lines file: `path`, and
    /// optionally `label`, `offset`, `length`.
    Manifest {
        /// A path or url; a relative path is looked for in the dataset, then in the
        /// working directory.
        manifest: String,
        /// Whether it may name files outside of the dataset's root, by `..` or an absolute path.
        allow_outside: bool,
    },
    /// WebDataset tar shards: the url of one, a pattern with `{0000..0146}` or
    /// `{a,b}`, or a folder of `*.tar`; with [`DatasetSpec::more_shards`] a list of these.
    Tar,
}

impl Layout {
    /// The layout in one line: what an index was built for.
    pub(crate) fn tag(&self) -> String {
        match self {
            Self::ClassFolders {
                extensions: None,
                allow_empty,
            } => format!("class-folders any {allow_empty}"),
            Self::ClassFolders {
                extensions: Some(extensions),
                allow_empty,
            } => {
                format!("class-folders {} {allow_empty}", extensions.join(","))
            }
            // An index that was built without the check must not stand in for one with it.
            Self::Manifest {
                manifest,
                allow_outside,
            } => {
                let tag = if *allow_outside {
                    "manifest"
                } else {
                    "manifest-inside"
                };
                format!("{tag} {}", redact(manifest))
            }
            Self::Tar => "tar".to_owned(),
        }
    }
}

/// When to list a dataset that has an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refresh {
    /// When a local directory (or archive, or manifest) has changed; never for buckets.
    #[default]
    Auto,
    /// At each open.
    Always,
    /// Only if there is no index.
    Never,
}

/// How objects are read.
#[derive(Debug, Clone)]
pub struct ReadSettings {
    /// Requests at a time.
    pub requests_in_flight: usize,
    /// Bytes asked for at a time.
    pub bytes_in_flight: u64,
    /// How long a read may go without progress, retries and waits included.
    pub deadline: Duration,
    /// The wait before the first retry; doubled for each further one, with jitter.
    pub backoff: Duration,
    /// The longest such wait.
    pub backoff_limit: Duration,
    /// When to send a second request for a read that is not done; `None` for never.
    pub hedge_after: Option<Duration>,
    /// Bytes that may be read for nothing to save a request.
    pub coalesce_gap: u64,
}

impl Default for ReadSettings {
    fn default() -> Self {
        Self {
            requests_in_flight: 64,
            bytes_in_flight: 64 << 20,
            deadline: Duration::from_secs(60),
            backoff: Duration::from_millis(100),
            backoff_limit: Duration::from_secs(10),
            hedge_after: None,
            coalesce_gap: 64 << 10,
        }
    }
}

/// Told how a listing goes.
pub trait Progress: Sync {
    /// So many objects were found until now.
    fn listed(&self, objects: u64) {
        let _ = objects;
    }

    /// The listing is over.
    fn done(&self) {}
}

/// Nobody watches.
impl Progress for () {}
