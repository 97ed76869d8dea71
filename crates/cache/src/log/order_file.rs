//! The order of a reordered log, kept beside it: with it, what is on the disk can be found after
//! a restart, whatever the seed of the next run.
//!
//! ```text
//!   | magic | dataset | index | first segment | batch | reach | samples | stripes | chunk | check |
//!   | id, id, ... |
//! ```
//!
//! Every directory of the log has a copy, so that one that is lost takes only its own records
//! along. A file is believed only if all that it says can be true of the dataset: its checksum
//! tells damage from a whole file, and not who made it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use forebay_format::chunk::BLOCK;
use forebay_format::hash;

use super::index::{MOST_SEGMENTS, Subject};
use super::layout_packed::Bits;

const MAGIC: [u8; 8] = *b"FBorder\x02";
const HEAD: usize = 64;
/// Bytes of a segment: the most that a chunk may have.
pub(super) const SEGMENT: u64 = 1 << 30;
/// The most directories that a log is spread over.
const MOST_STRIPES: u32 = 127;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OrderFile {
    /// Number of the first segment; the others follow.
    pub(super) first: u32,
    /// How samples are cut into chunks.
    pub(super) chunking: Chunking,
    /// Directories that the chunks go round.
    pub(super) stripes: u32,
    /// Samples from here on have no place.
    pub(super) reach: u32,
    /// The samples, in the order in which they are first read. None comes twice.
    pub(super) ids: Vec<u32>,
}

/// Where a chunk ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunking {
    /// After so many samples; 0 if only bytes count.
    pub(super) batch: u32,
    /// The most bytes that it has, a multiple of the block. Longer samples have no place.
    pub(super) bytes: u32,
}

fn path(folder: &Path, first: u32) -> PathBuf {
    folder.join(format!("{first:08}.order"))
}

impl OrderFile {
    /// Puts it in place, whole.
    pub(super) fn save(&self, folder: &Path, subject: Subject) -> io::Result<()> {
        let mut bytes = vec![0; HEAD];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&subject.dataset.to_le_bytes());
        bytes[16..24].copy_from_slice(&subject.index.to_le_bytes());
        let words = [
            self.first,
            self.chunking.batch,
            self.reach,
            self.ids.len() as u32,
            self.stripes,
            self.chunking.bytes,
        ];
        for (cell, word) in bytes[24..48].chunks_exact_mut(4).zip(words) {
            cell.copy_from_slice(&word.to_le_bytes());
        }
        bytes.extend(self.ids.iter().flat_map(|id| id.to_le_bytes()));
        let check = hash(&bytes);
        bytes[56..64].copy_from_slice(&check.to_le_bytes());
        let beside = folder.join("order.new");
        fs::write(&beside, &bytes)?;
        fs::rename(beside, path(folder, self.first))
    }

    fn load(path: &Path, subject: Subject) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        // No more is read than an order of this dataset can have.
        let length = file.metadata().ok()?.len();
        if length < HEAD as u64 || length > HEAD as u64 + u64::from(subject.samples) * 4 {
            return None;
        }
        let mut bytes = Vec::with_capacity(length as usize);
        file.by_ref().take(length).read_to_end(&mut bytes).ok()?;
        Self::read(&mut bytes, subject).filter(|order| order.can_be_of(subject))
    }

    fn read(bytes: &mut [u8], subject: Subject) -> Option<Self> {
        let check = u64::from_le_bytes(bytes.get(56..64)?.try_into().ok()?);
        bytes[56..64].fill(0);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let right = hash(bytes) == check
            && bytes[..8] == MAGIC
            && long(8) == subject.dataset
            && long(16) == subject.index
            && bytes.len() as u64 == HEAD as u64 + u64::from(word(36)) * 4;
        let ids = bytes[HEAD..].chunks_exact(4);
        right.then(|| Self {
            first: word(24),
            chunking: Chunking {
                batch: word(28),
                bytes: word(44),
            },
            reach: word(32),
            stripes: word(40),
            ids: ids
                .map(|id| u32::from_le_bytes(id.try_into().expect("four")))
                .collect(),
        })
    }

    /// Whether an order of this dataset can be like this.
    fn can_be_of(&self, subject: Subject) -> bool {
        let bytes = u64::from(self.chunking.bytes);
        self.first < MOST_SEGMENTS
            && self.reach as usize <= self.ids.len()
            && (1..=MOST_STRIPES).contains(&self.stripes)
            && (BLOCK as u64..=SEGMENT).contains(&bytes)
            && bytes.is_multiple_of(BLOCK as u64)
            && distinct(&self.ids, subject.samples).len() == self.ids.len()
    }

    /// The first segments' numbers of all orders that are there, whatever they are of.
    pub(super) fn numbers(folder: &Path) -> Vec<u32> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let number = |name: &str| name.strip_suffix(".order")?.parse().ok();
        let mut found: Vec<u32> = entries
            .filter_map(|entry| number(entry.file_name().to_str()?))
            .filter(|&number| number < MOST_SEGMENTS)
            .collect();
        found.sort_unstable();
        found
    }

    /// The orders that are there for this very index.
    pub(super) fn list(folder: &Path, subject: Subject) -> Vec<Self> {
        let numbers = Self::numbers(folder).into_iter();
        let load = |first| Self::load(&path(folder, first), subject);
        let found = numbers.filter_map(|first| load(first).filter(|order| order.first == first));
        found.collect()
    }

    /// Deletes the order whose first segment is `first`.
    pub(super) fn delete(folder: &Path, first: u32) {
        let _ = fs::remove_file(path(folder, first));
    }
}

/// The samples of an order, each where it comes first; none that the dataset does not have.
pub(super) fn distinct(ids: &[u32], samples: u32) -> Vec<u32> {
    let seen = Bits::new(samples);
    let is_new = |id: &u32| {
        let new = *id < samples && !seen.has(*id);
        seen.set(*id, true);
        new
    };
    ids.iter().copied().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: Subject = Subject {
        dataset: 1,
        index: 2,
        samples: 5,
        dirs: 0,
    };

    fn order() -> OrderFile {
        OrderFile {
            first: 3,
            chunking: Chunking {
                batch: 2,
                bytes: 1 << 20,
            },
            stripes: 3,
            reach: 4,
            ids: vec![4, 0, 3, 1, 2],
        }
    }

    #[test]
    fn an_order_is_read_as_it_was_written_and_no_flipped_bit_passes() {
        let folder = tempfile::tempdir().unwrap();
        order().save(folder.path(), SUBJECT).unwrap();
        assert_eq!(OrderFile::list(folder.path(), SUBJECT), [order()]);
        let other = Subject {
            index: 3,
            ..SUBJECT
        };
        assert!(OrderFile::list(folder.path(), other).is_empty());
        let path = path(folder.path(), 3);
        let bytes = fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, flipped).unwrap();
            assert!(
                OrderFile::list(folder.path(), SUBJECT).is_empty(),
                "bit {bit}"
            );
        }
    }

    #[test]
    fn an_order_that_cannot_be_of_the_dataset_is_none_though_its_checksum_is_right() {
        let with = |change: &dyn Fn(&mut OrderFile)| {
            let mut order = order();
            change(&mut order);
            order
        };
        let forged = [
            with(&|order| order.reach = 6),
            with(&|order| order.reach = u32::MAX),
            with(&|order| order.stripes = 0),
            with(&|order| order.stripes = u32::MAX),
            with(&|order| order.chunking.bytes = 0),
            with(&|order| order.chunking.bytes = 4097),
            with(&|order| order.chunking.bytes = u32::MAX),
            with(&|order| order.ids[2] = 5),
            with(&|order| order.ids[2] = u32::MAX),
            with(&|order| order.ids[2] = 4),
            with(&|order| order.ids.push(4)),
            with(&|order| order.first = MOST_SEGMENTS),
            with(&|order| order.first = u32::MAX),
        ];
        for order in forged {
            let folder = tempfile::tempdir().unwrap();
            order.save(folder.path(), SUBJECT).unwrap();
            assert_eq!(OrderFile::list(folder.path(), SUBJECT), [], "{order:?}");
        }
    }

    #[test]
    fn a_file_of_terabytes_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        order().save(folder.path(), SUBJECT).unwrap();
        let file = File::options().write(true).open(path(folder.path(), 3));
        file.unwrap().set_len(1 << 43).unwrap();
        assert_eq!(OrderFile::list(folder.path(), SUBJECT), []);
    }

    #[test]
    fn a_sample_that_comes_twice_counts_where_it_comes_first() {
        assert_eq!(distinct(&[3, 1, 3, 9, 0, 1], 5), [3, 1, 0]);
    }
}
