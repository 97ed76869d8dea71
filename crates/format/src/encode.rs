//! Writing an index: samples in, bytes out.
//!
//! Samples come one by one, in the order that gives them their ids, borrowed from
//! wherever the listing keeps them; the builder allocates nothing per sample. Each
//! goes into the columns at once, so that the transient cost beside the listing is
//! the index itself. About 100 ns a sample, dominated by the comparison of names.

use std::io::{self, Write};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::column::{Column, ColumnBuilder};
use crate::head::{Head, PARTS, Section};
use crate::names::NamesBuilder;
use crate::{Error, pages, strings};

/// One sample, as a listing knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<'a> {
    /// The object's name, relative to the dataset's root.
    pub object: &'a str,
    /// Where the sample starts in its object.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// Its class, or -1 for none.
    pub label: i64,
    /// A hash that changes when the object does (of its ETag, or of mtime and size); 0 for none.
    pub validator: u64,
}

/// A local path whose change makes the listing stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Relative to the dataset's root.
    pub path: String,
    /// When it last changed, in nanoseconds since 1970.
    pub mtime: i64,
}

/// An odd constant whose bits look random, to spread each fold over the whole word.
const FOLD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Gathers samples into an index.
pub struct IndexBuilder {
    samples: u32,
    total_bytes: u64,
    max_length: u64,
    ranged: bool,
    fingerprint: u64,
    offsets: ColumnBuilder,
    lengths: ColumnBuilder,
    labels: ColumnBuilder,
    validators: ColumnBuilder,
    names: NamesBuilder,
    text: Vec<u8>,
    classes: Vec<u8>,
    directories: Vec<u8>,
}

impl std::fmt::Debug for IndexBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IndexBuilder")
            .field("samples", &self.samples)
            .finish_non_exhaustive()
    }
}

impl IndexBuilder {
    /// An index of the dataset at `url` (which must hold no secret), laid out as
    /// `layout` says. Both are kept as they are.
    pub fn new(url: &str, layout: &str) -> Self {
        let mut text = Vec::new();
        strings::put(&mut text, url);
        strings::put(&mut text, layout);
        Self {
            samples: 0,
            total_bytes: 0,
            max_length: 0,
            ranged: false,
            fingerprint: 0,
            offsets: ColumnBuilder::default(),
            lengths: ColumnBuilder::default(),
            labels: ColumnBuilder::default(),
            validators: ColumnBuilder::default(),
            names: NamesBuilder::default(),
            text,
            classes: Vec::new(),
            directories: Vec::new(),
        }
    }

    /// Says that samples are parts of objects rather than whole ones.
    pub fn ranged(&mut self, ranged: bool) {
        self.ranged = ranged;
    }

    /// Adds the name of the next class.
    pub fn class(&mut self, name: &str) {
        strings::put(&mut self.classes, name);
    }

    /// Adds a path whose change makes the listing stale.
    pub fn directory(&mut self, path: &str, mtime: i64) {
        strings::put(&mut self.directories, path);
        self.directories.extend_from_slice(&mtime.to_le_bytes());
    }

    /// Adds the next sample; its id is the number of those before it.
    pub fn push(&mut self, sample: Sample<'_>) -> Result<(), Error> {
        if self.samples == u32::MAX {
            return Err(Error::TooMany);
        }
        if sample.label < -1 {
            return Err(Error::Label(sample.label));
        }
        let label = sample.label.wrapping_add(1) as u64;
        self.names.push(sample.object);
        self.offsets.push(sample.offset);
        self.lengths.push(sample.length);
        self.labels.push(label);
        self.validators.push(sample.validator);
        self.total_bytes = self.total_bytes.saturating_add(sample.length);
        self.max_length = self.max_length.max(sample.length);
        self.samples += 1;

        // One hash a sample, folded in order: cheaper than a stream of small updates.
        let row = xxh3_64_with_seed(
            sample.object.as_bytes(),
            sample.length ^ label.rotate_left(32),
        );
        self.fingerprint = (self.fingerprint.rotate_left(5) ^ row).wrapping_mul(FOLD);
        Ok(())
    }

    /// Samples so far.
    pub fn len(&self) -> u32 {
        self.samples
    }

    /// Whether there is no sample so far.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// The bytes of the index file.
    pub fn finish(self) -> Vec<u8> {
        let mut file = Vec::new();
        let written = self.write_to(&mut file);
        debug_assert!(written.is_ok(), "a Vec takes every write");
        file
    }

    /// Writes the index file, without a copy of it in memory.
    pub fn write_to(&self, file: &mut impl Write) -> io::Result<()> {
        let plain = Column {
            width: 1,
            constant: 0,
        };
        let parts: [(Column, &[u8]); PARTS] = [
            (plain, &self.text),
            (plain, &self.classes),
            (plain, &self.directories),
            self.offsets.parts(),
            self.lengths.parts(),
            self.labels.parts(),
            self.validators.parts(),
            self.names.starts.parts(),
            (plain, &self.names.bytes),
        ];
        let mut body_len = 0;
        let sections = parts.each_ref().map(|(column, bytes)| {
            let section = Section {
                offset: body_len,
                length: bytes.len() as u64,
                column: *column,
            };
            body_len += section.length;
            section
        });
        let head = Head {
            samples: self.samples,
            total_bytes: self.total_bytes,
            max_length: self.max_length,
            fingerprint: self.fingerprint,
            ranged: self.ranged,
            sections,
            checksums: pages::checksums(parts.map(|(_, bytes)| bytes)),
        };
        file.write_all(&head.bytes(body_len))?;
        parts
            .iter()
            .try_for_each(|(_, bytes)| file.write_all(bytes))
    }
}
