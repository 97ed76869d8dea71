//! Reading an index: any sample's row in a few loads.
//!
//! ```text
//! file  | head (checked at open) | text | classes | ... | lengths | ... | names |
//!                                                          ^ row i * width
//! ```
//!
//! The bytes stay where they are, so that parsing costs the head and the class names
//! whatever the number of samples.
//! Every getter is total: a damaged file gives an error, never a wrong value.

use std::fmt;

use xxhash_rust::xxh3::Xxh3;

use crate::head::{Head, Part};
use crate::names::{self, BLOCK};
use crate::pages::Pages;
use crate::{Directory, Error, strings};

/// A dataset's index.
pub struct Index {
    file: Box<dyn AsRef<[u8]> + Send + Sync>,
    body: usize,
    head: Head,
    pages: Pages,
    url: String,
    layout: String,
    classes: Vec<String>,
}

impl Index {
    /// Opens the bytes of an index file. Checks the head; pages of the body are
    /// checked as they are touched, or all by [`Index::verify`].
    pub fn parse(file: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, Error> {
        let (mut head, body) = Head::read(file.as_ref())?;
        let pages = Pages::new(std::mem::take(&mut head.checksums));
        let (url, layout, classes) = (String::new(), String::new(), Vec::new());
        let mut index = Self {
            file: Box::new(file),
            body,
            head,
            pages,
            url,
            layout,
            classes,
        };
        let mut text = index.section(Part::Text)?;
        let (url, layout) = (
            strings::take(&mut text)?.to_owned(),
            strings::take(&mut text)?.to_owned(),
        );
        let mut rest = index.section(Part::Classes)?;
        let mut classes = Vec::new();
        while !rest.is_empty() {
            classes.push(strings::take(&mut rest)?.to_owned());
        }
        (index.url, index.layout, index.classes) = (url, layout, classes);
        Ok(index)
    }

    /// How many bytes of a file [`Index::claimed_len`] wants to see.
    pub const START: usize = crate::head::FIXED;

    /// The length of a whole index file according to its start: what is not of this length need
    /// not be read.
    pub fn claimed_len(start: &[u8]) -> Result<u64, Error> {
        Head::claimed_len(start)
    }

    /// Checks every page.
    pub fn verify(&self) -> Result<(), Error> {
        self.pages.check_all(self.body())
    }

    /// Samples.
    #[allow(clippy::len_without_is_empty)] // clippy wants usize; is_empty is below
    pub fn len(&self) -> u32 {
        self.head.samples
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.head.samples == 0
    }

    /// The name of a sample's object, relative to the dataset's root.
    pub fn name(&self, sample: u32) -> Result<String, Error> {
        let mut name = String::new();
        self.name_into(sample, &mut name)?;
        Ok(name)
    }

    /// As [`Index::name`], into a string that is reused.
    pub fn name_into(&self, sample: u32, into: &mut String) -> Result<(), Error> {
        let row = self.row(sample)?;
        let names = &self.head.sections[Part::Names as usize];
        let start = self.cell(Part::NameStarts, row / BLOCK)?;
        let last_block = row / BLOCK + 1 >= (self.head.samples as usize).div_ceil(BLOCK);
        let end = if last_block {
            names.length
        } else {
            self.cell(Part::NameStarts, row / BLOCK + 1)?
        };
        if start > end || end > names.length {
            return Err(Error::corrupt("a block of names lies outside its section"));
        }
        let block = self.pages.get(
            self.body(),
            (names.offset + start) as usize..(names.offset + end) as usize,
        )?;
        names::read(block, row, into)
    }

    /// Where a sample starts in its object.
    pub fn offset(&self, sample: u32) -> Result<u64, Error> {
        self.cell(Part::Offsets, self.row(sample)?)
    }

    /// A sample's bytes.
    pub fn length(&self, sample: u32) -> Result<u64, Error> {
        self.cell(Part::Lengths, self.row(sample)?)
    }

    /// A sample's class, or -1 for none.
    pub fn label(&self, sample: u32) -> Result<i64, Error> {
        Ok(self.cell(Part::Labels, self.row(sample)?)?.wrapping_sub(1) as i64)
    }

    /// The hash that changes when the sample's object does; 0 for none.
    pub fn validator(&self, sample: u32) -> Result<u64, Error> {
        self.cell(Part::Validators, self.row(sample)?)
    }

    /// Names of the classes, by label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The local paths whose change makes the listing stale.
    pub fn directories(&self) -> Result<Vec<Directory>, Error> {
        let mut rest = self.section(Part::Directories)?;
        let mut directories = Vec::new();
        while !rest.is_empty() {
            let path = strings::take(&mut rest)?.to_owned();
            let (mtime, after) = rest
                .split_first_chunk::<8>()
                .ok_or_else(|| Error::corrupt("a directory has no mtime"))?;
            directories.push(Directory {
                path,
                mtime: i64::from_le_bytes(*mtime),
            });
            rest = after;
        }
        Ok(directories)
    }

    /// Bytes of all samples.
    pub fn total_bytes(&self) -> u64 {
        self.head.total_bytes
    }

    /// Bytes of the longest sample.
    pub fn max_length(&self) -> u64 {
        self.head.max_length
    }

    /// A hash of all names, lengths and labels in their order: the same samples
    /// have the same fingerprint, whatever the format's version.
    pub fn fingerprint(&self) -> u64 {
        self.head.fingerprint
    }

    /// A hash of all objects, ranges, lengths and validators in their order: another as soon as
    /// any object changed, and the same whatever else a listing has noted. Reads the names and
    /// columns of the whole index, some 20 bytes a sample; of a damaged one it is another hash.
    pub fn digest(&self) -> u64 {
        self.hash_of(&[Part::Offsets, Part::Lengths, Part::Validators, Part::Names])
    }

    /// A hash of what each number stands for: objects, ranges, labels and class names in their
    /// order. Two listings with the same hash number their samples alike, whatever else has
    /// changed between them. Reads as much of the index as [`Index::digest`] does.
    pub fn numbering(&self) -> u64 {
        self.hash_of(&[
            Part::Classes,
            Part::Offsets,
            Part::Lengths,
            Part::Labels,
            Part::Names,
        ])
    }

    /// Whether the version of any sample's object is unknown: its validator is 0.
    pub fn lacks_validators(&self) -> bool {
        let column = self.head.sections[Part::Validators as usize].column;
        if column.width == 0 {
            return column.constant == 0 && !self.is_empty();
        }
        (0..self.len()).any(|sample| self.validator(sample).is_ok_and(|found| found == 0))
    }

    fn hash_of(&self, parts: &[Part]) -> u64 {
        let mut all = Xxh3::new();
        all.update(&self.head.samples.to_le_bytes());
        all.update(&[u8::from(self.head.ranged)]);
        for &part in parts {
            let section = &self.head.sections[part as usize];
            let (start, column) = (section.offset as usize, section.column);
            // A column of equal values has its one value in the head and no bytes.
            all.update(&[column.width]);
            all.update(&column.constant.to_le_bytes());
            all.update(&section.length.to_le_bytes());
            let bytes = self.body().get(start..start + section.length as usize);
            all.update(bytes.unwrap_or_default());
        }
        all.digest()
    }

    /// Whether samples are parts of objects rather than whole ones.
    pub fn ranged(&self) -> bool {
        self.head.ranged
    }

    /// The dataset's address, without secrets.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How the dataset is laid out, as its builder said.
    pub fn layout(&self) -> &str {
        &self.layout
    }

    /// Bytes of the index file.
    pub fn file_len(&self) -> u64 {
        (*self.file).as_ref().len() as u64
    }

    fn body(&self) -> &[u8] {
        (*self.file).as_ref().get(self.body..).unwrap_or_default()
    }

    fn row(&self, sample: u32) -> Result<usize, Error> {
        let len = self.head.samples;
        if sample < len {
            Ok(sample as usize)
        } else {
            Err(Error::NoSuchSample { sample, len })
        }
    }

    fn cell(&self, part: Part, row: usize) -> Result<u64, Error> {
        let section = &self.head.sections[part as usize];
        let width = usize::from(section.column.width);
        let start = section.offset as usize + row * width;
        let bytes = self.pages.get(self.body(), start..start + width)?;
        section
            .column
            .get(bytes, 0)
            .ok_or_else(|| Error::corrupt("a column ends outside its section"))
    }

    fn section(&self, part: Part) -> Result<&[u8], Error> {
        let section = &self.head.sections[part as usize];
        self.pages.get(
            self.body(),
            section.offset as usize..(section.offset + section.length) as usize,
        )
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut index = f.debug_struct("Index");
        index
            .field("url", &self.url)
            .field("layout", &self.layout)
            .field("samples", &self.head.samples);
        index
            .field("bytes", &self.head.total_bytes)
            .finish_non_exhaustive()
    }
}
