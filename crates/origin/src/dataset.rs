//! A dataset that is open: its index, and the way to its bytes.

use std::hash::{BuildHasher, RandomState};
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_format::Index;
use forebay_format::chunk::Identity;

use crate::group::{self, Group, Sink};
use crate::index_file::IndexFile;
use crate::listing::Source;
use crate::local::Local;
use crate::opening::{Address, Opened, Opening};
use crate::place::Place;
use crate::remote::{Remote, Want};
use crate::{DatasetSpec, Error, Progress};

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
    /// Stands for the version of objects whose version is unknown, if there are any: no other
    /// opening has the same.
    this_opening: Option<NonZeroU64>,
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

impl Dataset {
    /// Opens a dataset; lists it if it has no index or `spec.refresh` says so. Blocks,
    /// and must not be called from an async task.
    pub fn open(spec: &DatasetSpec, progress: &dyn Progress) -> Result<Self, Error> {
        let address = Address::new(spec)?;
        let reader = Reader::open(&address.place, spec)?;
        let file = address.file(spec, reader.identity());
        let source = match &reader {
            Reader::Local(local) => Source::Local(local),
            Reader::Remote(remote) => Source::Remote(remote),
        };
        let opening = Opening {
            spec,
            file: &file,
            address: &address,
            source,
            progress,
        };
        let (index, opened) = opening.index().map_err(Error::while_listing)?;
        let reader = if opened.listed() {
            // A listing has a runtime of its own, and pooled connections do not outlive it.
            Reader::open(&address.place, spec)?
        } else {
            reader
        };
        Ok(Self::new(
            spec,
            &address,
            &file,
            reader,
            Arc::new(index),
            opened,
        ))
    }

    /// Opens a dataset with the index that another opening of the same spec has: numbers then
    /// mean the same, whatever became of the dataset and of its index file. Reads nothing.
    pub fn open_with(spec: &DatasetSpec, index: Arc<Index>) -> Result<Self, Error> {
        let address = Address::new(spec)?;
        let reader = Reader::open(&address.place, spec)?;
        let file = address.file(spec, reader.identity());
        let opened = Opened::default();
        Ok(Self::new(spec, &address, &file, reader, index, opened))
    }

    fn new(
        spec: &DatasetSpec,
        address: &Address,
        file: &IndexFile,
        reader: Reader,
        index: Arc<Index>,
        opened: Opened,
    ) -> Self {
        let (name, key) = file.name();
        let number = next_number();
        Self {
            name: name.to_owned(),
            key,
            this_opening: index.lacks_validators().then(|| never_again(number)),
            index,
            reader,
            coalesce_gap: spec.read.coalesce_gap,
            requests_in_flight: spec.read.requests_in_flight.max(1),
            opened,
            root: address.root.clone(),
            number,
        }
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
        // Bytes of an object whose version is unknown may be other ones the next time: what is
        // kept of them must not be found by a later opening.
        let unknown = self.this_opening.map_or(0, NonZeroU64::get);
        Ok(Identity {
            key: forebay_format::hash(name.as_bytes()),
            validator: match self.index.validator(sample)? {
                0 => unknown,
                validator => validator,
            },
        })
    }

    /// Whether what is kept of it on disk is of use to later openings, whole: not if the version
    /// of any object is unknown.
    pub fn is_versioned(&self) -> bool {
        self.this_opening.is_none()
    }

    /// A hash of all samples' identities: another as soon as any of them changed, and another at
    /// each opening if the version of any object is unknown.
    pub fn digest(&self) -> u64 {
        let digest = self.index.digest();
        match self.this_opening {
            None => digest,
            Some(opening) => {
                forebay_format::hash([digest, opening.get()].map(u64::to_le_bytes).as_flattened())
            }
        }
    }

    /// A hash of what each sample's number stands for: see [`DatasetSpec::numbering`].
    pub fn numbering(&self) -> u64 {
        self.index.numbering()
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

/// A number that no other opening of any process has had, nor will have.
fn never_again(number: u32) -> NonZeroU64 {
    let random = RandomState::new().hash_one((std::process::id(), number));
    NonZeroU64::new(random).unwrap_or(NonZeroU64::MIN)
}

fn wrong_read() -> Error {
    Error::WrongRead {
        is: "remote",
        use_instead: "read_group",
    }
}
