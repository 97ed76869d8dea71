//! From a spec to an index: found, or listed and kept.

use std::path::{Path, PathBuf};

use forebay_format::Index;

use crate::difference::Difference;
use crate::index_file::IndexFile;
use crate::listing::{self, Counter, Listing, Source};
use crate::place::Place;
use crate::{DatasetSpec, Error, Layout, Progress, Refresh, braces, shard_list};

/// What opening a dataset took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    /// There was no index: it was built.
    pub built: bool,
    /// There was an index and the dataset was listed again: how it differs.
    pub refreshed: Option<Difference>,
    /// There was an index of no use, for this reason: it was built anew.
    pub rebuilt_because_corrupt: Option<String>,
    /// The index could not be kept, for this reason: it is in memory only.
    pub warning: Option<String>,
    /// The index file, if it is kept.
    pub index_path: Option<PathBuf>,
}

impl Opened {
    pub(crate) fn listed(&self) -> bool {
        self.built || self.refreshed.is_some() || self.rebuilt_because_corrupt.is_some()
    }
}

/// Where a dataset is, as its spec says.
pub(crate) struct Address {
    pub(crate) place: Place,
    /// The root, without secrets.
    pub(crate) root: String,
    /// What the index is kept under.
    pub(crate) url: String,
    pub(crate) tag: String,
    /// The names of its shards, if the spec names them.
    pub(crate) shards: Option<Vec<String>>,
}

impl Address {
    pub(crate) fn new(spec: &DatasetSpec) -> Result<Self, Error> {
        let mut tag = spec.layout.tag();
        let (root, shards) = match spec.layout {
            Layout::Tar if !spec.more_shards.is_empty() => {
                let urls = std::iter::once(&spec.url).chain(&spec.more_shards);
                let (root, names) = shard_list::together(urls.map(String::as_str))?;
                tag = format!(
                    "{tag} list {:016x}",
                    forebay_format::hash(names.join("\n").as_bytes())
                );
                (root, Some(names))
            }
            Layout::Tar => braces::split(&spec.url)?,
            _ => (spec.url.clone(), None),
        };
        let place = Place::parse(&root)?;
        let root = place.show();
        let url = match &shards {
            Some(_) if spec.more_shards.is_empty() => crate::redact(&spec.url),
            _ => root.clone(),
        };
        Ok(Self {
            place,
            root,
            url,
            tag,
            shards,
        })
    }

    /// Its index file; `store` tells apart stores that have equal urls.
    pub(crate) fn file(&self, spec: &DatasetSpec, store: &str) -> IndexFile {
        // A pattern is kept as it was written, so the root joins the key beside the endpoint.
        let store = format!("{} {store}", self.root);
        IndexFile::new(spec.index_dir.clone(), &self.url, &self.tag, &store)
    }
}

/// The steps from a spec to an index.
pub(crate) struct Opening<'a> {
    pub(crate) spec: &'a DatasetSpec,
    pub(crate) file: &'a IndexFile,
    pub(crate) address: &'a Address,
    pub(crate) source: Source<'a>,
    pub(crate) progress: &'a dyn Progress,
}

impl Opening<'_> {
    pub(crate) fn index(self) -> Result<(Index, Opened), Error> {
        let path = self.file.path().map(Path::to_owned);
        let mut opened = Opened {
            index_path: path,
            ..Opened::default()
        };
        match self.file.load() {
            Ok(Some(index)) if self.is_good(&index) => return Ok((index, opened)),
            Ok(Some(_)) if self.spec.numbering.is_some() => {
                let previous = self.file.load_previous();
                let index = previous.filter(|index| self.is_good(index));
                return index
                    .map(|index| (index, opened))
                    .ok_or_else(|| self.renumbered());
            }
            _ => {}
        }
        let _lock = self.file.lock();
        // Whoever had the lock may have built what is wanted.
        let old = match self.file.load() {
            Ok(Some(index)) if self.is_good(&index) => return Ok((index, opened)),
            Ok(Some(index)) if index.verify().is_ok() => Some(index),
            Ok(None) => {
                opened.built = true;
                None
            }
            Ok(Some(index)) => {
                opened.rebuilt_because_corrupt =
                    index.verify().err().map(|error| error.to_string());
                None
            }
            Err(reason) => {
                opened.rebuilt_because_corrupt = Some(reason);
                None
            }
        };
        let listing = Listing {
            source: self.source,
            layout: &self.spec.layout,
            url: &self.address.url,
            tag: &self.address.tag,
            shards: self.address.shards.as_deref(),
            old: old.as_ref(),
            progress: &Counter::new(self.progress),
        };
        let builder = listing.run()?;
        let (index, warning) = self.file.save(builder, old.as_ref())?;
        let numbering = self.spec.numbering;
        if numbering.is_some_and(|expected| expected != index.numbering()) {
            return Err(self.renumbered());
        }
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
            opened.index_path = None;
            opened.warning = Some(warning);
        }
        if let Some(old) = &old {
            opened.refreshed = Some(Difference::between(old, &index)?);
        }
        Ok((index, opened))
    }

    fn renumbered(&self) -> Error {
        Error::Renumbered {
            url: self.address.url.clone(),
        }
    }

    /// Whether an index can be used as it is.
    fn is_good(&self, index: &Index) -> bool {
        if let Some(expected) = self.spec.numbering {
            return index.numbering() == expected;
        }
        match (self.spec.refresh, &self.source) {
            (Refresh::Never, _) | (Refresh::Auto, Source::Remote(_)) => true,
            (Refresh::Always, _) => false,
            (Refresh::Auto, Source::Local(root)) => {
                listing::is_stale(root.fd(), index).is_ok_and(|stale| !stale)
            }
        }
    }
}
