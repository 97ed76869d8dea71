//! A view: the samples that a job reads, numbered as the user's dataset numbers them.
//!
//! The user's dataset may be a part of one that is open, or several of them in a row:
//!
//! ```text
//!   ConcatDataset([Subset(a, [4, 0]), b])       a has 5 samples, b has 2
//!
//!   position     0  1  2  3       what the user, the plan and every error speak of
//!   map          4  0  5  6       numbers the samples of all parts one after another
//!   sample      a4 a0 b0 b1       what caches and reads go by
//! ```
//!
//! A sample that stands at several positions is one sample to the caches. 4 bytes a position, and
//! none for a view of whole datasets; every query is O(1) but for a search among the parts.

use std::io::IoSliceMut;
use std::sync::Arc;

use forebay_format::Error as IndexError;
use forebay_format::chunk::Identity;

use crate::dataset::next_number;
use crate::group::{Group, Sink};
use crate::{Dataset, Error};

/// See the module's text.
#[derive(Debug)]
pub struct View {
    parts: Vec<Part>,
    map: Option<Arc<[u32]>>,
    /// By position, in place of the datasets' own.
    labels: Option<Arc<[i64]>>,
    len: u32,
    total_bytes: u64,
    max_length: u64,
    number: u32,
}

#[derive(Debug)]
struct Part {
    dataset: Arc<Dataset>,
    /// The number of its sample 0 among those of all parts.
    first: u32,
}

impl From<Arc<Dataset>> for View {
    fn from(dataset: Arc<Dataset>) -> Self {
        let index = dataset.index();
        Self {
            map: None,
            labels: None,
            len: index.len(),
            total_bytes: index.total_bytes(),
            max_length: index.max_length(),
            number: dataset.number(),
            parts: vec![Part { dataset, first: 0 }],
        }
    }
}

impl View {
    /// The samples of `datasets` that `map` names, or all of them one after another. `labels`, if
    /// given, are those of the positions.
    pub fn new(
        datasets: Vec<Arc<Dataset>>,
        map: Option<Arc<[u32]>>,
        labels: Option<Arc<[i64]>>,
    ) -> Result<Self, Error> {
        let mut samples = 0u32;
        let mut parts = Vec::with_capacity(datasets.len());
        for dataset in datasets {
            let first = samples;
            samples = samples
                .checked_add(dataset.index().len())
                .ok_or(IndexError::TooMany)?;
            parts.push(Part { dataset, first });
        }
        let Some(head) = parts.first() else {
            return Err(wrong("it has no dataset"));
        };
        let is_local = head.dataset.is_local();
        if parts.iter().any(|part| part.dataset.is_local() != is_local) {
            return Err(wrong("some of its datasets are local and some are remote"));
        }
        let len = match &map {
            Some(map) => u32::try_from(map.len()).map_err(|_| IndexError::TooMany)?,
            None => samples,
        };
        if let Some(labels) = &labels
            && labels.len() != len as usize
        {
            let count = labels.len();
            return Err(wrong(&format!("it has {len} samples and {count} labels")));
        }
        let whole = parts.len() == 1 && map.is_none() && labels.is_none();
        let mut view = Self {
            len,
            total_bytes: parts.iter().map(|part| part.bytes().0).sum(),
            max_length: parts.iter().map(|part| part.bytes().1).max().unwrap_or(0),
            number: if whole {
                head.dataset.number()
            } else {
                next_number()
            },
            parts,
            map: None,
            labels,
        };
        if let Some(map) = map {
            view.measure(&map, samples)?;
            view.map = Some(map);
        }
        Ok(view)
    }

    /// Checks a map, and takes the bytes of the samples that it names, each once.
    fn measure(&mut self, map: &[u32], samples: u32) -> Result<(), Error> {
        let mut seen = vec![false; samples as usize];
        (self.total_bytes, self.max_length) = (0, 0);
        for &number in map {
            let Some(seen) = seen.get_mut(number as usize) else {
                return Err(IndexError::NoSuchSample {
                    sample: number,
                    len: samples,
                }
                .into());
            };
            if !std::mem::replace(seen, true) {
                let (dataset, sample) = self.split(number);
                let length = dataset.index().length(sample)?;
                self.total_bytes += length;
                self.max_length = self.max_length.max(length);
            }
        }
        Ok(())
    }

    /// Positions.
    #[allow(clippy::len_without_is_empty)] // clippy wants usize; is_empty is below
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no position.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of all samples, each once.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Bytes of the longest sample.
    pub fn max_length(&self) -> u64 {
        self.max_length
    }

    /// A number that no other dataset or view of this process has, but for the view of one whole
    /// dataset: that has its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The datasets, in order.
    pub fn datasets(&self) -> impl ExactSizeIterator<Item = &Arc<Dataset>> {
        self.parts.iter().map(|part| &part.dataset)
    }

    /// By position, the number of its sample among those of all datasets; `None` if the two are
    /// the same.
    pub fn map(&self) -> Option<&Arc<[u32]>> {
        self.map.as_ref()
    }

    /// Changes when the samples, their order or their labels do.
    pub fn fingerprint(&self) -> u64 {
        if let [part] = &self.parts[..]
            && self.map.is_none()
            && self.labels.is_none()
        {
            return part.dataset.index().fingerprint();
        }
        let mut bytes = Vec::new();
        for part in &self.parts {
            bytes.extend(part.dataset.index().fingerprint().to_le_bytes());
        }
        let map = self.map.iter().flat_map(|map| map.iter());
        let map: Vec<u8> = map.flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend(forebay_format::hash(&map).to_le_bytes());
        let labels = self.labels.iter().flat_map(|labels| labels.iter());
        let labels: Vec<u8> = labels.flat_map(|label| label.to_le_bytes()).collect();
        bytes.extend(forebay_format::hash(&labels).to_le_bytes());
        forebay_format::hash(&bytes)
    }

    /// Which dataset has the sample at a position, and its id there.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn sample(&self, position: u32) -> (&Arc<Dataset>, u32) {
        self.split(self.mapped(position))
    }

    /// The place of that dataset among [`View::datasets`], and the sample's id there.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn part(&self, position: u32) -> (usize, u32) {
        let number = self.mapped(position);
        let part = self.part_of(number);
        (part, number - self.parts[part].first)
    }

    fn mapped(&self, position: u32) -> u32 {
        self.map
            .as_ref()
            .map_or(position, |map| map[position as usize])
    }

    fn part_of(&self, number: u32) -> usize {
        // An empty dataset begins where the next one does: the last that begins there has it.
        self.parts.partition_point(|part| part.first <= number) - 1
    }

    fn split(&self, number: u32) -> (&Arc<Dataset>, u32) {
        let part = &self.parts[self.part_of(number)];
        (&part.dataset, number - part.first)
    }

    fn checked(&self, position: u32) -> Result<(&Arc<Dataset>, u32), IndexError> {
        if position >= self.len {
            return Err(IndexError::NoSuchSample {
                sample: position,
                len: self.len,
            });
        }
        Ok(self.sample(position))
    }

    /// A sample's bytes.
    pub fn length(&self, position: u32) -> Result<u64, IndexError> {
        let (dataset, sample) = self.checked(position)?;
        dataset.index().length(sample)
    }

    /// A sample's class, or -1 for none.
    pub fn label(&self, position: u32) -> Result<i64, IndexError> {
        let (dataset, sample) = self.checked(position)?;
        match &self.labels {
            Some(labels) => Ok(labels[position as usize]),
            None => dataset.index().label(sample),
        }
    }

    /// Who a sample is, whatever its number.
    pub fn identity(&self, position: u32) -> Result<Identity, IndexError> {
        let (dataset, sample) = self.checked(position)?;
        dataset.identity(sample)
    }

    /// A sample's name for people.
    pub fn name(&self, position: u32) -> String {
        match self.checked(position) {
            Ok((dataset, sample)) => dataset.name(sample),
            Err(_) => format!("sample {position}"),
        }
    }

    /// Whether samples are local files; all are, or none.
    pub fn is_local(&self) -> bool {
        self.parts[0].dataset.is_local()
    }

    /// The most requests that its origins are sent at a time, together.
    pub fn requests_in_flight(&self) -> usize {
        self.datasets()
            .map(|dataset| dataset.requests_in_flight())
            .sum()
    }

    /// As [`Dataset::read_local`].
    pub fn read_local(&self, position: u32, into: &mut [IoSliceMut<'_>]) -> Result<(), Error> {
        let (dataset, sample) = self.checked(position)?;
        dataset.read_local(sample, into)
    }

    /// As [`Dataset::read_local_in_pieces`].
    pub fn read_local_in_pieces(
        &self,
        position: u32,
        into: &mut [u8],
        seen: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let (dataset, sample) = self.checked(position)?;
        dataset.read_local_in_pieces(sample, into, seen)
    }

    /// As [`Dataset::groups`]: a group is of one dataset.
    pub fn groups(&self, positions: &[u32]) -> Vec<Group> {
        if self.parts.len() == 1 && self.map.is_none() {
            return self.parts[0].dataset.groups(positions);
        }
        let mut groups = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            let (places, samples): (Vec<_>, Vec<_>) = positions
                .iter()
                .enumerate()
                .filter_map(|(place, &position)| {
                    let (of, sample) = self.part(position);
                    (of == at).then_some((place, sample))
                })
                .unzip();
            let of_part = part.dataset.groups(&samples).into_iter();
            groups.extend(of_part.map(|group| group.moved(at, &places)));
        }
        groups
    }

    /// As [`Dataset::read_group`].
    pub async fn read_group<S: Sink>(&self, group: &Group, sinks: &mut [S]) -> Result<(), Error> {
        let dataset = &self.parts[group.part].dataset;
        dataset.read_group(group, sinks).await
    }
}

impl Part {
    /// Of all its samples, and of the longest one.
    fn bytes(&self) -> (u64, u64) {
        let index = self.dataset.index();
        (index.total_bytes(), index.max_length())
    }
}

fn wrong(what: &str) -> Error {
    Error::View {
        what: what.to_owned(),
    }
}
