//! A chunk of the log: samples that stand together and are written in one piece.
//!
//! ```text
//!   0      64                                 table               length, a multiple of 4096
//!   | head | sample | sample | ... | sample | entry | ... | entry | zeros |
//! ```
//!
//! The head's check covers head and entries; an entry has its sample's check. That one is seeded
//! with what the bytes are supposed to be, the sample's name and its validator, so that bytes of
//! another sample, or of an earlier state of this one, never pass for it.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::{Error, hash};

/// Everything in a log begins at a multiple of this, as direct reads and writes want it.
pub const BLOCK: usize = 4096;
/// Bytes of a chunk's head.
pub const HEAD: usize = 64;
/// Bytes of a sample's entry in a chunk's table.
pub const ENTRY: usize = 36;

const MAGIC: [u8; 8] = *b"FBchunk\n";
const VERSION: u32 = 1;

/// Who a sample is, whatever its number in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// A hash of its object's name and its offset there.
    pub key: u64,
    /// The hash that changes when its object does.
    pub validator: u64,
}

impl Identity {
    fn seed(&self) -> u64 {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&self.key.to_le_bytes());
        name[8..].copy_from_slice(&self.validator.to_le_bytes());
        hash(&name)
    }

    /// The check of this sample's bytes.
    pub fn check(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seed())
    }

    /// The same of bytes that lie in several pieces.
    pub fn check_parts<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> u64 {
        let mut check = Xxh3::with_seed(self.seed());
        parts.for_each(|part| check.update(part));
        check.digest()
    }
}

/// What a chunk's table says of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Who it is.
    pub identity: Identity,
    /// The check of its bytes.
    pub check: u64,
    /// Its number in the index that the head names.
    pub id: u32,
    /// Where its bytes begin in the chunk.
    pub offset: u32,
    /// How many there are.
    pub length: u32,
}

/// Where a chunk belongs, said in its head: one that lies elsewhere is not valid there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// The dataset's key.
    pub dataset: u64,
    /// The digest of the index that the entries' numbers are of.
    pub index: u64,
    /// Chunks are numbered in the order in which they were begun.
    pub number: u64,
    /// The segment.
    pub segment: u32,
    /// The offset there.
    pub offset: u32,
}

/// A chunk's head, not yet checked: that takes the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Where it belongs.
    pub home: Home,
    /// Samples.
    pub count: u32,
    /// Where the table begins in the chunk.
    pub table: u32,
    /// Bytes of the chunk.
    pub length: u32,
    check: u64,
}

impl Head {
    /// Reads a head. `None` if it cannot be one: the log ends here.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEAD)?;
        if bytes[..8] != MAGIC || u32_at(bytes, 8) != VERSION {
            return None;
        }
        let head = Self {
            home: Home {
                dataset: u64_at(bytes, 16),
                index: u64_at(bytes, 24),
                number: u64_at(bytes, 32),
                segment: u32_at(bytes, 40),
                offset: u32_at(bytes, 44),
            },
            count: u32_at(bytes, 12),
            table: u32_at(bytes, 48),
            length: u32_at(bytes, 52),
            check: u64_at(bytes, 56),
        };
        let end = u64::from(head.table) + u64::from(head.count) * ENTRY as u64;
        let sane = head.table as usize >= HEAD
            && end <= u64::from(head.length)
            && (head.length as usize).is_multiple_of(BLOCK);
        sane.then_some(head)
    }

    /// Where the table lies in the chunk.
    pub fn table_range(&self) -> std::ops::Range<usize> {
        let start = self.table as usize;
        start..start + self.count as usize * ENTRY
    }

    /// The entries of the table, if head and table are as they were written.
    pub fn entries(&self, table: &[u8]) -> Result<Vec<Entry>, Error> {
        if table.len() != self.count as usize * ENTRY {
            return Err(Error::corrupt("a chunk's table is cut off"));
        }
        let found = head_check(&self.bytes(), table);
        if found != self.check {
            return Err(Error::corrupt(format!(
                "chunk {}: checksum is {found:#018x}, head says {:#018x}",
                self.home.number, self.check
            )));
        }
        let entries: Vec<_> = table.chunks_exact(ENTRY).map(read_entry).collect();
        let inside = |entry: &Entry| {
            entry.offset as usize >= HEAD
                && u64::from(entry.offset) + u64::from(entry.length) <= u64::from(self.table)
        };
        if entries.iter().all(inside) {
            Ok(entries)
        } else {
            Err(Error::corrupt("a chunk's entry lies outside the chunk"))
        }
    }

    /// Head and table of the same chunk with only these of its entries; both stay where they are,
    /// and so do the samples.
    pub fn with_only(&self, entries: &[Entry]) -> ([u8; HEAD], Vec<u8>) {
        let mut table = vec![0; entries.len() * ENTRY];
        for (cell, entry) in table.chunks_exact_mut(ENTRY).zip(entries) {
            write_entry(entry, cell);
        }
        let mut head = Head {
            count: entries.len() as u32,
            ..*self
        };
        head.check = head_check(&head.bytes(), &table);
        (head.bytes(), table)
    }

    fn bytes(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.home.dataset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.home.index.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.home.number.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.home.segment.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.home.offset.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.table.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.length.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.check.to_le_bytes());
        bytes
    }
}

/// Of all of the head but its check, and the table.
fn head_check(head: &[u8; HEAD], table: &[u8]) -> u64 {
    let mut check = Xxh3::new();
    check.update(&head[..HEAD - 8]);
    check.update(table);
    check.digest()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn read_entry(bytes: &[u8]) -> Entry {
    Entry {
        identity: Identity {
            key: u64_at(bytes, 0),
            validator: u64_at(bytes, 8),
        },
        check: u64_at(bytes, 16),
        id: u32_at(bytes, 24),
        offset: u32_at(bytes, 28),
        length: u32_at(bytes, 32),
    }
}

fn write_entry(entry: &Entry, into: &mut [u8]) {
    into[..8].copy_from_slice(&entry.identity.key.to_le_bytes());
    into[8..16].copy_from_slice(&entry.identity.validator.to_le_bytes());
    into[16..24].copy_from_slice(&entry.check.to_le_bytes());
    into[24..28].copy_from_slice(&entry.id.to_le_bytes());
    into[28..32].copy_from_slice(&entry.offset.to_le_bytes());
    into[32..36].copy_from_slice(&entry.length.to_le_bytes());
}

/// Bytes of a chunk with one sample of `length`.
pub fn chunk_of_one(length: u64) -> u64 {
    ((HEAD + ENTRY) as u64)
        .saturating_add(length)
        .next_multiple_of(BLOCK as u64)
}

/// Fills a buffer with a chunk. The buffer is the caller's and the same in every call.
#[derive(Debug)]
pub struct ChunkBuilder {
    entries: Vec<Entry>,
    at: usize,
}

impl Default for ChunkBuilder {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            at: HEAD,
        }
    }
}

impl ChunkBuilder {
    /// Samples so far.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether a buffer of `room` bytes has place for one more sample of `length`.
    pub fn fits(&self, room: usize, length: u64) -> bool {
        let table = (self.entries.len() + 1) * ENTRY;
        let taken = (self.at + table) as u64;
        taken
            .checked_add(length)
            .is_some_and(|end| end <= room.min(u32::MAX as usize) as u64)
    }

    /// Adds a sample that [`ChunkBuilder::fits`].
    pub fn push<'a>(
        &mut self,
        buffer: &mut [u8],
        id: u32,
        identity: Identity,
        parts: impl Iterator<Item = &'a [u8]>,
    ) {
        let start = self.at;
        for part in parts {
            buffer[self.at..self.at + part.len()].copy_from_slice(part);
            self.at += part.len();
        }
        self.entries.push(Entry {
            identity,
            check: identity.check(&buffer[start..self.at]),
            id,
            offset: start as u32,
            length: (self.at - start) as u32,
        });
    }

    /// Bytes that the chunk would have if it ended here.
    pub fn length(&self) -> usize {
        (self.at + self.entries.len() * ENTRY).next_multiple_of(BLOCK)
    }

    /// Ends the chunk: the buffer's first [`ChunkBuilder::length`] bytes are to be written.
    pub fn seal(&mut self, buffer: &mut [u8], home: Home) -> Vec<Entry> {
        let length = self.length();
        let table = self.at;
        for (cell, entry) in buffer[table..].chunks_exact_mut(ENTRY).zip(&self.entries) {
            write_entry(entry, cell);
        }
        let end = table + self.entries.len() * ENTRY;
        buffer[end..length].fill(0);
        let mut head = Head {
            home,
            count: self.entries.len() as u32,
            table: table as u32,
            length: length as u32,
            check: 0,
        };
        head.check = head_check(&head.bytes(), &buffer[table..end]);
        buffer[..HEAD].copy_from_slice(&head.bytes());
        self.at = HEAD;
        std::mem::take(&mut self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> Home {
        Home {
            dataset: 0x0123_4567_89ab_cdef,
            index: 7,
            number: 3,
            segment: 2,
            offset: 8192,
        }
    }

    fn identity(id: u32) -> Identity {
        Identity {
            key: u64::from(id) * 1_000_003,
            validator: 99,
        }
    }

    fn chunk() -> Vec<u8> {
        let mut buffer = vec![0xaa; 3 * BLOCK];
        let mut builder = ChunkBuilder::default();
        for id in 0..4 {
            let bytes: Vec<u8> = (0..100 * id).map(|i| (i * 7 + id) as u8).collect();
            assert!(builder.fits(buffer.len(), bytes.len() as u64));
            builder.push(&mut buffer, id, identity(id), bytes.chunks(33));
        }
        let length = builder.length();
        builder.seal(&mut buffer, home());
        buffer.truncate(length);
        buffer
    }

    fn read(chunk: &[u8]) -> Option<(Head, Vec<Entry>)> {
        let head = Head::read(chunk)?;
        let table = chunk.get(head.table_range())?;
        Some((head, head.entries(table).ok()?))
    }

    #[test]
    fn a_chunk_is_read_as_it_was_written() {
        let chunk = chunk();
        let (head, entries) = read(&chunk).unwrap();
        assert_eq!(head.home, home());
        assert_eq!(head.length as usize, chunk.len());
        assert_eq!(entries.len(), 4);
        for (id, entry) in entries.iter().enumerate() {
            let bytes = &chunk[entry.offset as usize..][..entry.length as usize];
            assert_eq!(bytes.len(), 100 * id);
            assert_eq!(entry.identity.check(bytes), entry.check);
        }
    }

    #[test]
    fn the_bytes_of_a_chunk_stay_what_they_are() {
        // Golden: a change here is a change of the format and wants another version.
        assert_eq!(hash(&chunk()), 3_160_451_968_799_431_877);
    }

    #[test]
    fn every_flipped_bit_is_found_or_harmless() {
        let whole = chunk();
        let (_, entries) = read(&whole).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut chunk = whole.clone();
            chunk[bit / 8] ^= 1 << (bit % 8);
            let Some((head, found)) = read(&chunk) else {
                continue; // found
            };
            assert_eq!((head.home, &found), (home(), &entries), "bit {bit}");
            for entry in &found {
                let bytes = &chunk[entry.offset as usize..][..entry.length as usize];
                let same = bytes == &whole[entry.offset as usize..][..entry.length as usize];
                assert_eq!(
                    entry.identity.check(bytes) == entry.check,
                    same,
                    "bit {bit}"
                );
            }
        }
    }

    #[test]
    fn a_chunk_can_do_without_some_of_its_samples() {
        let whole = chunk();
        let (head, entries) = read(&whole).unwrap();
        for kept in [&entries[1..], &entries[..2], &[]] {
            let mut chunk = whole.clone();
            let (bytes, table) = head.with_only(kept);
            chunk[..HEAD].copy_from_slice(&bytes);
            chunk[head.table_range()][..table.len()].copy_from_slice(&table);
            let (changed, found) = read(&chunk).unwrap();
            assert_eq!((changed.home, changed.length), (head.home, head.length));
            assert_eq!(found, kept);
        }
    }

    #[test]
    fn bytes_of_another_sample_or_another_state_do_not_pass() {
        let bytes = [5; 1000];
        let check = identity(1).check(&bytes);
        assert_ne!(identity(2).check(&bytes), check);
        let changed = Identity {
            validator: 100,
            ..identity(1)
        };
        assert_ne!(changed.check(&bytes), check);
        assert_eq!(identity(1).check_parts(bytes.chunks(7)), check);
    }

    #[test]
    fn no_head_claims_more_than_its_chunk_has() {
        let whole = chunk();
        for (at, value) in [(12, u32::MAX), (48, u32::MAX), (48, 0), (52, 1), (52, 0)] {
            let mut chunk = whole.clone();
            chunk[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert!(Head::read(&chunk).is_none(), "{value} at {at}");
        }
        assert!(Head::read(&whole[..63]).is_none());
    }
}
