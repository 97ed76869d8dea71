//! A dataset that is open: its index, and the way to its bytes.

use std::io::IoSliceMut;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_format::Index;
use forebay_format::chunk::Identity;

use crate::difference::Difference;
use crate::group::{self, Group, Sink};
use crate::index_file::IndexFile;
use crate::listing::{self, Counter, Listing, Source};
use crate::local::Local;
use crate::place::Place;
use crate::remote::{Remote, Want};
use crate::{DatasetSpec, Error, Layout, Progress, Refresh, braces};

/// An open dataset; shared by all who read it.
#[derive(Debug)]
pub struct Dataset {
    index: Arc<Index>,
    reader: Reader,
    coalesce_gap: u64,
    requests_in_flight: usize,
    opened: Opened,
    /// What the names in the index are relative to, without secrets.
    root: String,
    number: u32,
    name: String,
    key: u64,
}

/// How many datasets this process has opened, and views of them it has made.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// A number that no other dataset or view has.
pub(crate) fn next_number() -> u32 {
    OPENED.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug)]
enum Reader {
    Local(Local),
    Remote(Box<Remote>),
}

impl Reader {
    fn open(place: &Place, spec: &DatasetSpec) -> Result<Self, Error> {
        Ok(match place {
            Place::Local(root) => Self::Local(Local::open(root)?),
            Place::Remote(url) => Self::Remote(Box::new(Remote::new(url, spec)?)),
        })
    }

    fn identity(&self) -> &str {
        match self {
            Self::Local(_) => "",
            Self::Remote(remote) => &remote.identity,
        }
    }
}

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
    fn listed(&self) -> bool {
        self.built || self.refreshed.is_some() || self.rebuilt_because_corrupt.is_some()
    }
}

impl Dataset {
    /// Opens a dataset; lists it if it has no index or `spec.refresh` says so. Blocks,
    /// and must not be called from an async task.
    pub fn open(spec: &DatasetSpec, progress: &dyn Progress) -> Result<Self, Error> {
        let (root, shards) = match spec.layout {
            Layout::Tar => braces::split(&spec.url)?,
            _ => (spec.url.clone(), None),
        };
        let place = Place::parse(&root)?;
        let mut reader = Reader::open(&place, spec)?;
        let root_url = place.show();
        let url = match &shards {
            Some(_) => crate::redact(&spec.url),
            None => root_url.clone(),
        };
        // A pattern is kept as it was written, so the root joins the key beside the endpoint.
        let store = format!("{root_url} {}", reader.identity());
        let file = IndexFile::new(spec.index_dir.clone(), &url, &spec.layout.tag(), &store);
        let source = match &reader {
            Reader::Local(local) => Source::Local(local),
            Reader::Remote(remote) => Source::Remote(remote),
        };
        let opening = Opening {
            spec,
            file: &file,
            url: &url,
            shards,
            source,
            progress,
        };
        let (index, opened) = opening.index().map_err(Error::while_listing)?;
        if opened.listed() {
            // A listing has a runtime of its own, and pooled connections do not outlive it.
            reader = Reader::open(&place, spec)?;
        }
        let (name, key) = file.name();
        Ok(Self {
            name: name.to_owned(),
            key,
            index: Arc::new(index),
            reader,
            coalesce_gap: spec.read.coalesce_gap,
            requests_in_flight: spec.read.requests_in_flight.max(1),
            opened,
            root: root_url,
            number: next_number(),
        })
    }

    /// A number that no other open dataset of this process has: the same files opened
    /// again may hold other bytes.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// A name for files about this dataset: the same in every process, another for each dataset.
    pub fn cache_name(&self) -> &str {
        &self.name
    }

    /// The hash of its address that ends that name.
    pub fn cache_key(&self) -> u64 {
        self.key
    }

    /// Who a sample is, whatever its number.
    pub fn identity(&self, sample: u32) -> Result<Identity, forebay_format::Error> {
        let mut name = self.index.name(sample)?;
        if self.index.ranged() {
            name.push('\n');
            name.push_str(&self.index.offset(sample)?.to_string());
        }
        Ok(Identity {
            key: forebay_format::hash(name.as_bytes()),
            validator: self.index.validator(sample)?,
        })
    }

    /// Where a sample comes from: the path or url of its object.
    pub fn path(&self, sample: u32) -> Result<String, forebay_format::Error> {
        Ok(format!(
            "{}/{}",
            self.root.trim_end_matches('/'),
            self.index.name(sample)?
        ))
    }

    /// Names, places, sizes and labels of the samples.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// What opening took.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The most requests that its origin is sent at a time.
    pub fn requests_in_flight(&self) -> usize {
        self.requests_in_flight
    }

    /// Whether samples are local files: then [`Dataset::read_local`] reads them, else
    /// [`Dataset::read_group`] does.
    pub fn is_local(&self) -> bool {
        matches!(self.reader, Reader::Local(_))
    }

    /// A sample's name for people: its object, and where in it if it is a part.
    pub fn name(&self, sample: u32) -> String {
        let Ok(name) = self.index.name(sample) else {
            return format!("sample {sample}");
        };
        match self.index.offset(sample) {
            Ok(offset) if self.index.ranged() => format!("{name} at byte {offset}"),
            _ => name,
        }
    }

    /// Reads a sample of a local dataset into slices that together have its length. Blocks.
    pub fn read_local(&self, sample: u32, into: &mut [IoSliceMut<'_>]) -> Result<(), Error> {
        match &self.reader {
            Reader::Local(local) => local.read(&self.index, sample, into),
            Reader::Remote(_) => Err(wrong_read()),
        }
    }

    /// The same into one slice. `seen` gets all of its bytes, in order, piece by piece, while they
    /// are hot in the core's cache; what it got is void if the read fails.
    pub fn read_local_in_pieces(
        &self,
        sample: u32,
        into: &mut [u8],
        seen: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        match &self.reader {
            Reader::Local(local) => local.read_in_pieces(&self.index, sample, into, seen),
            Reader::Remote(_) => Err(wrong_read()),
        }
    }

    /// Puts samples that one request can fetch together; each is in exactly one group.
    pub fn groups(&self, samples: &[u32]) -> Vec<Group> {
        group::groups(&self.index, samples, self.coalesce_gap)
    }

    /// Reads the samples of a group of a remote dataset; sink k gets the bytes of member k.
    /// Within the requests and bytes in flight that all reads of this dataset share.
    pub async fn read_group<S: Sink>(&self, group: &Group, sinks: &mut [S]) -> Result<(), Error> {
        let Reader::Remote(remote) = &self.reader else {
            return Err(Error::WrongRead {
                is: "local",
                use_instead: "read_local",
            });
        };
        let Some(first) = group.samples().next() else {
            return Ok(());
        };
        if let Some(missing) = group.samples().nth(sinks.len()) {
            return Err(Error::Room {
                sample: missing,
                length: self.index.length(missing)?,
                given: 0,
            });
        }
        // What the index could not tell when grouping is an error now.
        for sample in group.samples() {
            self.index.offset(sample)?;
            self.index.length(sample)?;
        }
        let want = Want {
            name: self.index.name(first)?,
            range: group.range.clone(),
            whole: !self.index.ranged(),
            validator: self.index.validator(first)?,
        };
        remote
            .fetch(&want, |at, bytes| group.scatter(at, bytes, sinks))
            .await
    }
}

/// The steps from a spec to an index.
struct Opening<'a> {
    spec: &'a DatasetSpec,
    file: &'a IndexFile,
    url: &'a str,
    shards: Option<Vec<String>>,
    source: Source<'a>,
    progress: &'a dyn Progress,
}

impl Opening<'_> {
    fn index(self) -> Result<(Index, Opened), Error> {
        let path = self.file.path().map(Path::to_owned);
        let mut opened = Opened {
            index_path: path,
            ..Opened::default()
        };
        if let Ok(Some(index)) = self.file.load()
            && self.is_good(&index)
        {
            return Ok((index, opened));
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
        let tag = self.spec.layout.tag();
        let listing = Listing {
            source: self.source,
            layout: &self.spec.layout,
            url: self.url,
            tag: &tag,
            shards: self.shards,
            old: old.as_ref(),
            progress: &Counter::new(self.progress),
        };
        let builder = listing.run()?;
        let (index, warning) = self.file.save(builder)?;
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

    /// Whether an index can be used as it is.
    fn is_good(&self, index: &Index) -> bool {
        match (self.spec.refresh, &self.source) {
            (Refresh::Never, _) | (Refresh::Auto, Source::Remote(_)) => true,
            (Refresh::Always, _) => false,
            (Refresh::Auto, Source::Local(root)) => {
                listing::is_stale(root.fd(), index).is_ok_and(|stale| !stale)
            }
        }
    }
}

fn wrong_read() -> Error {
    Error::WrongRead {
        is: "remote",
        use_instead: "read_group",
    }
}
