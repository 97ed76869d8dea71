//! Where each sample lies: a table in a file that all processes share.
//!
//! ```text
//!   | head: which dataset, which index | location, check | location, check | ...
//!     4096 bytes                         16 bytes a sample
//! ```
//!
//! The table is a hint: whoever reads a sample checks its bytes against the check, which is
//! seeded with the sample's name and validator, so an entry that is old, torn or damaged costs a
//! read of the origin and never gives other bytes. Lost or of another index, it is made again from
//! the chunks (`recover`), and so it is completed if its last writer did not say that it is: that
//! word is all that is ever synced.
//!
//! It is read and written by `pread` and `pwrite` and never mapped: the page cache shares it
//! between processes just as well (226 MB for 14.1 million samples, on nobody's heap), and a table
//! that somebody cuts, or that a file server has lost, is an error here and not a SIGBUS. A look-up
//! costs a system call, well below a microsecond.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_format::hash;
use rustix::fs::{FallocateFlags, fallocate};

const MAGIC: [u8; 8] = *b"FBlogmap";
const VERSION: u64 = 1;
const HEAD: usize = 4096;
/// What of it is compared.
pub(super) const HEAD_BYTES: usize = 56;
/// Where the head says that the last writer has closed it.
const CLEAN: usize = 64;
/// Where it remembers the number of the next segment.
const NEXT: usize = 72;
const ROW: usize = 16;
/// A megabyte of them.
const ROWS_AT_A_TIME: usize = 1 << 16;
/// Segments have lower numbers than this: a location has no room for more.
pub(super) const MOST_SEGMENTS: u32 = 1 << 24;

/// Directory, segment and offset of a sample's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Which of the log's directories.
    pub dir: u8,
    /// Which segment.
    pub segment: u32,
    /// Where in it.
    pub offset: u32,
}

impl Location {
    const PRESENT: u64 = 1 << 63;

    fn pack(self) -> u64 {
        Self::PRESENT
            | u64::from(self.dir & 0x7f) << 56
            | u64::from(self.segment & 0xff_ffff) << 32
            | u64::from(self.offset)
    }

    fn unpack(word: u64) -> Option<Self> {
        (word & Self::PRESENT != 0).then_some(Self {
            dir: (word >> 56) as u8 & 0x7f,
            segment: (word >> 32) as u32 & 0xff_ffff,
            offset: word as u32,
        })
    }
}

/// Of which dataset and index a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// The dataset's key.
    pub dataset: u64,
    /// The digest of its index.
    pub index: u64,
    /// Samples.
    pub samples: u32,
    /// A hash of the log's directories: locations count them.
    pub dirs: u64,
}

impl Subject {
    fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&VERSION.to_le_bytes());
        head[16..24].copy_from_slice(&self.dataset.to_le_bytes());
        head[24..32].copy_from_slice(&self.index.to_le_bytes());
        head[32..40].copy_from_slice(&u64::from(self.samples).to_le_bytes());
        head[40..48].copy_from_slice(&self.dirs.to_le_bytes());
        let check = hash(&head[..48]);
        head[48..56].copy_from_slice(&check.to_le_bytes());
        head
    }

    /// What the head of a table says it is of, if it is one.
    pub(super) fn read(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let word =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let subject = Self {
            dataset: word(16),
            index: word(24),
            samples: u32::try_from(word(32)).ok()?,
            dirs: word(40),
        };
        (subject.head() == *head).then_some(subject)
    }

    /// Bytes of its table.
    pub fn table_bytes(&self) -> u64 {
        HEAD as u64 + u64::from(self.samples) * ROW as u64
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct SampleIndex {
    file: File,
    subject: Subject,
    writable: bool,
    /// Held while a row is changed: several threads of the writing process do.
    change: Mutex<()>,
    /// Something could not be written: what the table has is not all that there is.
    failed: AtomicBool,
}

impl SampleIndex {
    /// The table in `path` for reading, if there is one of this very subject.
    pub(super) fn open(path: &Path, subject: Subject) -> io::Result<Option<Self>> {
        match File::open(path) {
            Ok(file) => Self::of(file, subject, false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same for writing.
    pub(super) fn open_for_writing(path: &Path, subject: Subject) -> io::Result<Option<Self>> {
        match File::options().read(true).write(true).open(path) {
            Ok(file) => Self::of(file, subject, true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A new, empty table in place of whatever `path` has, whose blocks are given back first; its
    /// readers keep theirs. It goes on with the numbers of segments.
    pub(super) fn create(path: &Path, subject: Subject) -> io::Result<Self> {
        let next = Self::remembered(path);
        let _ = std::fs::remove_file(path);
        let beside = path.with_extension("new");
        let _ = std::fs::remove_file(&beside);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&beside)?;
        let length = subject.table_bytes();
        // Blocks now: they are counted against the budget, and a full disk shows here.
        match fallocate(&file, FallocateFlags::empty(), 0, length) {
            Ok(()) => {}
            Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(&file, length)?,
            Err(errno) => return Err(errno.into()),
        }
        file.write_all_at(&subject.head(), 0)?;
        file.write_all_at(&numbered(next).to_le_bytes(), NEXT as u64)?;
        std::fs::rename(&beside, path)?;
        Self::of(file, subject, true)?.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn of(file: File, subject: Subject, writable: bool) -> io::Result<Option<Self>> {
        let mut head = [0; HEAD_BYTES];
        if file.metadata()?.len() != subject.table_bytes() {
            return Ok(None);
        }
        file.read_exact_at(&mut head, 0)?;
        Ok((head == subject.head()).then_some(Self {
            file,
            subject,
            writable,
            change: Mutex::default(),
            failed: AtomicBool::new(false),
        }))
    }

    /// A word of the file; 0 where it cannot be read.
    fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        let read = self.file.read_exact_at(&mut word, at as u64);
        read.map_or(0, |()| u64::from_le_bytes(word))
    }

    fn put_word(&self, at: u64, word: u64) {
        if self.file.write_all_at(&word.to_le_bytes(), at).is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    fn row(&self, sample: u32) -> Option<u64> {
        (sample < self.subject.samples).then(|| (HEAD + sample as usize * ROW) as u64)
    }

    /// Where all samples lie that it has.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u32, Location)> {
        (0..self.subject.samples)
            .step_by(ROWS_AT_A_TIME)
            .flat_map(move |first| {
                let count = (self.subject.samples - first).min(ROWS_AT_A_TIME as u32);
                let mut rows = vec![0; count as usize * ROW];
                // What cannot be read is not there.
                let at = (HEAD + first as usize * ROW) as u64;
                if self.file.read_exact_at(&mut rows, at).is_err() {
                    rows.clear();
                }
                let found = rows.chunks_exact(ROW).zip(first..);
                let found = found.filter_map(|(row, sample)| Some((sample, read_row(row)?.0)));
                found.collect::<Vec<_>>()
            })
    }

    /// Where a sample lies, and the check of its bytes.
    pub(super) fn get(&self, sample: u32) -> Option<(Location, u64)> {
        let mut row = [0; ROW];
        self.file.read_exact_at(&mut row, self.row(sample)?).ok()?;
        read_row(&row)
    }

    /// Says where a sample lies. For the one writer.
    pub(super) fn set(&self, sample: u32, at: Location, sum: u64) {
        if let Some(row) = self.row(sample)
            && self.writable
        {
            let _alone = self.change.lock().expect("the table's lock");
            // Others read meanwhile: a location is never there without its check.
            if self.word(row as usize) != 0 {
                self.put_word(row, 0);
            }
            self.put_word(row + 8, sum);
            self.put_word(row, at.pack());
        }
    }

    /// The sample is not there, unless it has moved meanwhile. True if this changed something.
    pub(super) fn remove(&self, sample: u32, from: Location) -> bool {
        let Some(row) = self.row(sample).filter(|_| self.writable) else {
            return false;
        };
        let _alone = self.change.lock().expect("the table's lock");
        let is_there = self.word(row as usize) == from.pack();
        if is_there {
            self.put_word(row, 0);
        }
        is_there
    }

    /// All rows, in memory, to change many of them.
    pub(super) fn draft(&self) -> Draft {
        let mut rows = vec![0; self.subject.samples as usize * ROW];
        if self.file.read_exact_at(&mut rows, HEAD as u64).is_err() {
            rows.fill(0);
        }
        Draft(rows)
    }

    /// Puts a draft in place of all rows. For the one writer, before anybody reads.
    pub(super) fn put(&self, draft: &Draft) -> io::Result<()> {
        self.file.write_all_at(&draft.0, HEAD as u64)
    }

    /// The lowest number that no segment has had yet; 0 if that is not known.
    pub(super) fn next_segment(&self) -> u32 {
        number(self.word(NEXT))
    }

    /// Segments have had all numbers below `next`. Said before the segment is made.
    pub(super) fn remember_segment(&self, next: u32) {
        if self.writable {
            self.put_word(NEXT as u64, numbered(next));
        }
    }

    /// The same as the table in `path` says, whatever that is of.
    fn remembered(path: &Path) -> u32 {
        let mut word = [0; 8];
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut word, NEXT as u64));
        read.map_or(0, |()| number(u64::from_le_bytes(word)))
    }

    /// Whether the last writer has said that all it wrote is in the table.
    pub(super) fn is_clean(&self) -> bool {
        self.word(CLEAN) == 1
    }

    /// Says so, or that a writer is at it. That is on the disk when this returns, and before it
    /// what it is about: after a power failure a table that says it is complete must be.
    pub(super) fn set_clean(&self, clean: bool) {
        if !self.writable || clean && !self.is_whole() {
            return;
        }
        self.put_word(CLEAN as u64, u64::from(clean));
        // Where this fails the rest does as well, and is noticed there.
        let _ = self.file.sync_data();
    }

    /// Whether all that was written is in the file, and on the disk.
    fn is_whole(&self) -> bool {
        let length = self.file.metadata().map_or(0, |meta| meta.len());
        !self.failed.load(Ordering::Relaxed)
            && length == self.subject.table_bytes()
            && self.file.sync_data().is_ok()
    }
}

/// Rows of a table that are not in its file yet.
#[derive(Debug)]
pub(super) struct Draft(Vec<u8>);

impl Draft {
    /// Says where a sample lies.
    pub(super) fn set(&mut self, sample: u32, at: Location, sum: u64) {
        if let Some(row) = self.0.chunks_exact_mut(ROW).nth(sample as usize) {
            row[..8].copy_from_slice(&at.pack().to_le_bytes());
            row[8..].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

fn read_row(row: &[u8]) -> Option<(Location, u64)> {
    let word = |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().expect("eight bytes"));
    Some((Location::unpack(word(0))?, word(8)))
}

/// A segment's number with a check of its own: a damaged one would use up all others at once.
fn numbered(number: u32) -> u64 {
    hash(&number.to_le_bytes()) << 32 | u64::from(number)
}

fn number(word: u64) -> u32 {
    let number = word as u32;
    if word == numbered(number) { number } else { 0 }
}

fn write_zeros(file: &File, length: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = 0;
    while at < length {
        let count = (length - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..count as usize], at)?;
        at += count;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: Subject = Subject {
        dataset: 1,
        index: 2,
        samples: 10,
        dirs: 3,
    };

    fn at(offset: u32) -> Location {
        Location {
            dir: 3,
            segment: 0x12_3456,
            offset,
        }
    }

    #[test]
    fn another_process_sees_what_the_writer_set() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        assert!(SampleIndex::open(&path, SUBJECT).unwrap().is_none());
        let writer = SampleIndex::create(&path, SUBJECT).unwrap();
        let reader = SampleIndex::open(&path, SUBJECT).unwrap().unwrap();
        assert_eq!(reader.get(4), None);
        writer.set(4, at(77), 99);
        assert_eq!(reader.get(4), Some((at(77), 99)));
        assert!(!reader.remove(4, at(77)), "readers change nothing");
        assert!(!writer.remove(4, at(78)), "it lies elsewhere");
        assert!(writer.remove(4, at(77)));
        assert_eq!(reader.get(4), None);
        assert_eq!(reader.get(10), None, "there is no such sample");
    }

    #[test]
    fn a_table_of_another_index_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        SampleIndex::create(&path, SUBJECT).unwrap();
        for other in [
            Subject {
                dataset: 9,
                ..SUBJECT
            },
            Subject {
                index: 9,
                ..SUBJECT
            },
            Subject {
                samples: 11,
                ..SUBJECT
            },
            Subject { dirs: 9, ..SUBJECT },
        ] {
            assert!(SampleIndex::open(&path, other).unwrap().is_none());
            assert!(
                SampleIndex::open_for_writing(&path, other)
                    .unwrap()
                    .is_none()
            );
        }
        assert!(
            SampleIndex::open_for_writing(&path, SUBJECT)
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn a_new_table_goes_on_with_the_numbers_of_segments_unless_they_are_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        let table = SampleIndex::create(&path, SUBJECT).unwrap();
        assert_eq!(table.next_segment(), 0);
        table.remember_segment(77);
        let other = Subject {
            index: 9,
            samples: 1000,
            ..SUBJECT
        };
        let table = SampleIndex::create(&path, other).unwrap();
        assert_eq!(table.next_segment(), 77);
        let whole = std::fs::read(&path).unwrap();
        for bit in NEXT * 8..(NEXT + 8) * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, damaged).unwrap();
            let table = SampleIndex::open(&path, other).unwrap().unwrap();
            assert_eq!(table.next_segment(), 0, "bit {bit}");
        }
    }

    #[test]
    fn a_table_that_is_cut_while_it_is_in_use_has_no_more_samples_and_is_not_complete() {
        for length in [0, 40, HEAD as u64, HEAD as u64 + 5 * ROW as u64 + 3] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("map");
            let writer = SampleIndex::create(&path, SUBJECT).unwrap();
            (0..10).for_each(|sample| writer.set(sample, at(sample), 99));
            let reader = SampleIndex::open(&path, SUBJECT).unwrap().unwrap();
            assert_eq!(reader.rows().count(), 10);
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(length).unwrap();
            let left = length.saturating_sub(HEAD as u64) / ROW as u64;
            for index in [&reader, &writer] {
                let found = (0..10).filter(|&sample| index.get(sample).is_some());
                assert_eq!(found.count() as u64, left, "cut to {length}");
                assert_eq!(index.rows().count(), 0, "no whole part is there");
                assert!(!index.is_clean());
            }
            assert!(!writer.remove(9, at(9)));
            writer.set_clean(true);
            assert!(!writer.is_clean(), "cut to {length}");
            assert!(SampleIndex::open(&path, SUBJECT).unwrap().is_none());
            // What is added after that can be found again, and nothing else is made up.
            writer.set(7, at(7), 98);
            assert_eq!(reader.get(7), Some((at(7), 98)));
            assert_eq!(reader.get(6), None);
        }
    }

    #[test]
    fn a_draft_puts_many_rows_at_once_and_keeps_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let index = SampleIndex::create(&folder.path().join("map"), SUBJECT).unwrap();
        index.set(2, at(1), 5);
        let mut draft = index.draft();
        draft.set(9, at(3), 7);
        draft.set(10, at(3), 7);
        index.put(&draft).unwrap();
        let rows: Vec<_> = index.rows().collect();
        assert_eq!(rows, [(2, at(1)), (9, at(3))]);
    }

    #[test]
    fn a_table_says_what_it_is_of() {
        assert_eq!(Subject::read(&SUBJECT.head()), Some(SUBJECT));
        for at in 0..HEAD_BYTES {
            let mut head = SUBJECT.head();
            head[at] ^= 4;
            assert_eq!(Subject::read(&head), None, "byte {at}");
        }
    }

    #[test]
    fn fourteen_million_samples_are_ready_at_once_and_below_400_mb() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        let subject = Subject {
            samples: 14_100_000,
            ..SUBJECT
        };
        assert!(subject.table_bytes() < 400 << 20);
        let writer = SampleIndex::create(&path, subject).unwrap();
        writer.set(14_099_999, at(5), 6);
        drop(writer);
        let reader = SampleIndex::open(&path, subject).unwrap().unwrap();
        assert_eq!(reader.get(14_099_999), Some((at(5), 6)));
    }
}
