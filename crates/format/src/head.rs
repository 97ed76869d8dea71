//! The head of an index file: what the body holds, where, and its checksums.
//!
//! ```text
//! magic 8 | version 4 | sections 4 | samples 8 | total 8 | longest 8 | fingerprint 8
//! | file length 8 | page checksums 8 (their number) | flags 8
//! | sections x (offset 8, length 8, constant 8, width 8)
//! | page checksums x 8
//! | checksum of all the above 8
//! | body, in pages of 64 KiB from here
//! ```
//!
//! Little endian, offsets from the body's start. The head of a 14-million-sample
//! index is 45 KB: it is checked whole at open, and after that nothing in it needs
//! to be doubted. Its place is first, so that a torn write shows at once.

use crate::column::Column;
use crate::pages::PAGE;
use crate::{Error, hash};

/// The format version this crate writes and reads.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"FBYINDEX";
pub(crate) const FIXED: usize = 72;
const SECTION: usize = 32;

/// The sections of the body, in the order of the head's table.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    Text,
    Classes,
    Directories,
    Offsets,
    Lengths,
    Labels,
    Validators,
    NameStarts,
    Names,
}

pub(crate) const PARTS: usize = Part::Names as usize + 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) column: Column,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) samples: u32,
    pub(crate) total_bytes: u64,
    pub(crate) max_length: u64,
    pub(crate) fingerprint: u64,
    pub(crate) ranged: bool,
    pub(crate) sections: [Section; PARTS],
    pub(crate) checksums: Vec<u64>,
}

impl Head {
    /// Bytes before the body of an index with so many pages.
    pub(crate) fn size(pages: usize) -> usize {
        FIXED + PARTS * SECTION + pages * 8 + 8
    }

    pub(crate) fn bytes(&self, body_len: u64) -> Vec<u8> {
        let size = Self::size(self.checksums.len());
        let mut bytes = Vec::with_capacity(size);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(PARTS as u32).to_le_bytes());
        let file_len = size as u64 + body_len;
        let pages = self.checksums.len() as u64;
        let samples = u64::from(self.samples);
        let flags = u64::from(self.ranged);
        for number in [
            samples,
            self.total_bytes,
            self.max_length,
            self.fingerprint,
            file_len,
            pages,
            flags,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for section in &self.sections {
            let width = u64::from(section.column.width);
            for number in [
                section.offset,
                section.length,
                section.column.constant,
                width,
            ] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        for checksum in &self.checksums {
            bytes.extend_from_slice(&checksum.to_le_bytes());
        }
        let checksum = hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The length that a file has according to its first [`FIXED`] bytes.
    pub(crate) fn claimed_len(file: &[u8]) -> Result<u64, Error> {
        if file.get(..8) != Some(&MAGIC[..]) {
            return Err(Error::corrupt("it does not start as an index does"));
        }
        let version = u32_at(file, 8)?;
        if version != VERSION {
            return Err(Error::Version {
                found: version,
                expected: VERSION,
            });
        }
        number(file, 48)
    }

    /// Reads and checks the head of a whole file; also gives where the body starts.
    pub(crate) fn read(file: &[u8]) -> Result<(Self, usize), Error> {
        let file_len = Self::claimed_len(file)?;
        if file_len != file.len() as u64 {
            return Err(Error::Corrupt(format!(
                "file is {} bytes, head says {file_len}",
                file.len()
            )));
        }
        let pages = usize::try_from(number(file, 56)?).unwrap_or(usize::MAX);
        if pages > file.len() / 8 {
            return Err(Error::corrupt(
                "head has more checksums than the file has room for",
            ));
        }
        let size = Self::size(pages);
        let checked = file
            .get(..size - 8)
            .ok_or_else(|| Error::corrupt("file ends in its head"))?;
        let (found, expected) = (hash(checked), number(file, size - 8)?);
        if found != expected {
            return Err(Error::Corrupt(format!(
                "head's checksum is {found:#018x}, it says {expected:#018x}"
            )));
        }
        Self::read_checked(file, pages, size)
    }

    /// The head's own checksum holds: what is left to check is that its numbers agree.
    fn read_checked(file: &[u8], pages: usize, size: usize) -> Result<(Self, usize), Error> {
        let body_len = file.len().saturating_sub(size) as u64;
        if u32_at(file, 12)? != PARTS as u32 || pages as u64 != body_len.div_ceil(PAGE as u64) {
            return Err(Error::corrupt("head's numbers disagree"));
        }
        let samples = u32::try_from(number(file, 16)?).map_err(|_| Error::TooMany)?;
        let mut sections = [Section {
            offset: 0,
            length: 0,
            column: Column {
                width: 0,
                constant: 0,
            },
        }; PARTS];
        for (part, section) in sections.iter_mut().enumerate() {
            let at = FIXED + part * SECTION;
            let width = u8::try_from(number(file, at + 24)?).unwrap_or(u8::MAX);
            let column = Column {
                width,
                constant: number(file, at + 16)?,
            };
            *section = Section {
                offset: number(file, at)?,
                length: number(file, at + 8)?,
                column,
            };
            if section
                .offset
                .checked_add(section.length)
                .is_none_or(|end| end > body_len)
            {
                return Err(Error::corrupt("a section ends outside the file"));
            }
        }
        let checksums = (0..pages).map(|page| number(file, FIXED + PARTS * SECTION + page * 8));
        let head = Self {
            samples,
            total_bytes: number(file, 24)?,
            max_length: number(file, 32)?,
            fingerprint: number(file, 40)?,
            ranged: number(file, 64)? & 1 != 0,
            sections,
            checksums: checksums.collect::<Result<_, _>>()?,
        };
        head.check_columns()?;
        Ok((head, size))
    }

    fn check_columns(&self) -> Result<(), Error> {
        let samples = u64::from(self.samples);
        let blocks = samples.div_ceil(crate::names::BLOCK as u64);
        let columns = [Part::Offsets, Part::Lengths, Part::Labels, Part::Validators];
        let rows = columns
            .map(|part| (part, samples))
            .into_iter()
            .chain([(Part::NameStarts, blocks)]);
        for (part, rows) in rows {
            let section = &self.sections[part as usize];
            if section.column.size(rows) != Some(section.length) {
                return Err(Error::Corrupt(format!(
                    "column {part:?} has {} bytes for {rows} rows",
                    section.length
                )));
            }
        }
        Ok(())
    }
}

fn number(file: &[u8], at: usize) -> Result<u64, Error> {
    let bytes = file.get(at..).and_then(|rest| rest.first_chunk::<8>());
    bytes
        .map(|bytes| u64::from_le_bytes(*bytes))
        .ok_or_else(|| Error::corrupt("file ends in its head"))
}

fn u32_at(file: &[u8], at: usize) -> Result<u32, Error> {
    let bytes = file.get(at..).and_then(|rest| rest.first_chunk::<4>());
    bytes
        .map(|bytes| u32::from_le_bytes(*bytes))
        .ok_or_else(|| Error::corrupt("file ends in its head"))
}
