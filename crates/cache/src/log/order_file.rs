//! The order of a reordered log, kept beside it: with it, what is on the disk can be found after
//! a restart, whatever the seed of the next run.
//!
//! ```text
//!   | magic | dataset | index | first segment | batch | reach | samples | check | id, id, ... |
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_format::hash;

use super::index::{MOST_SEGMENTS, Subject};

const MAGIC: [u8; 8] = *b"FBorder\x01";
const HEAD: usize = 64;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OrderFile {
    /// Number of the first segment; the others follow.
    pub(super) first: u32,
    /// Samples of a chunk.
    pub(super) batch: u32,
    /// Samples from here on have no place.
    pub(super) reach: u32,
    /// The samples, in the order in which they are to be read.
    pub(super) ids: Vec<u32>,
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
        bytes[24..28].copy_from_slice(&self.first.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.batch.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.reach.to_le_bytes());
        bytes[36..40].copy_from_slice(&(self.ids.len() as u32).to_le_bytes());
        bytes.extend(self.ids.iter().flat_map(|id| id.to_le_bytes()));
        let check = hash(&bytes);
        bytes[56..64].copy_from_slice(&check.to_le_bytes());
        let beside = folder.join("order.new");
        fs::write(&beside, &bytes)?;
        fs::rename(beside, path(folder, self.first))
    }

    fn load(path: &Path, subject: Subject) -> Option<Self> {
        let mut bytes = fs::read(path).ok()?;
        if bytes.len() < HEAD {
            return None;
        }
        let check = u64::from_le_bytes(bytes[56..64].try_into().ok()?);
        bytes[56..64].fill(0);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let right = hash(&bytes) == check
            && bytes[..8] == MAGIC
            && long(8) == subject.dataset
            && long(16) == subject.index
            && bytes.len() == HEAD + word(36) as usize * 4
            && word(28) > 0;
        let ids = bytes[HEAD..].chunks_exact(4);
        right.then(|| Self {
            first: word(24),
            batch: word(28),
            reach: word(32),
            ids: ids
                .map(|id| u32::from_le_bytes(id.try_into().expect("four")))
                .collect(),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written_and_no_flipped_bit_passes() {
        let folder = tempfile::tempdir().unwrap();
        let subject = Subject {
            dataset: 1,
            index: 2,
            samples: 5,
            dirs: 0,
        };
        let order = OrderFile {
            first: 3,
            batch: 2,
            reach: 4,
            ids: vec![4, 0, 3, 1, 2],
        };
        order.save(folder.path(), subject).unwrap();
        assert_eq!(OrderFile::list(folder.path(), subject), [order]);
        let other = Subject {
            index: 3,
            ..subject
        };
        assert!(OrderFile::list(folder.path(), other).is_empty());
        let path = path(folder.path(), 3);
        let bytes = fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, flipped).unwrap();
            assert!(
                OrderFile::list(folder.path(), subject).is_empty(),
                "bit {bit}"
            );
        }
    }
}
