//! Every sample of a log, read and checked; those that are not whole can be taken out.
//!
//! ```text
//!   segment --chunk by chunk--> table's checks against the bytes --> bad
//!   samples.map --places that no table has--------------------------> lost
//! ```
//!
//! Nothing but the log's own files is needed. What is taken out is read from the origin the next
//! time that it is wanted, and written anew. 8 bytes a sample twice, and a chunk a thread.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_format::chunk::{BLOCK, Entry, Head};
use rustix::fs::{Advice, fadvise};

use super::index::Location;
use super::inspect::{CannotChange, Found};
use super::recover::read_chunk;

/// Segments read at a time.
const THREADS: usize = 4;

/// What came of reading a log.
#[derive(Debug, Default)]
pub struct Verified {
    /// Samples whose bytes are what they should be.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Samples whose bytes are not, or cannot be read.
    pub bad: u64,
    /// Samples that the log's table has where no chunk, or none with a whole table, is.
    pub lost: u64,
    /// Samples that were taken out, of both kinds.
    pub repaired: u64,
    /// Why they were not, if they were to be.
    pub refusal: Option<CannotChange>,
    /// Segments that could not be opened, and why.
    pub unreadable: Vec<String>,
    /// Files that were not looked into, and their bytes.
    pub unchecked: Vec<(String, u64)>,
}

/// A segment's file.
struct Segment {
    path: PathBuf,
    number: u32,
}

/// A number that stands for a place: segments of one log have numbers of their own, wherever they
/// lie.
fn place(segment: u32, offset: u32) -> u64 {
    u64::from(segment) << 32 | u64::from(offset)
}

fn place_of(head: &Head, entry: &Entry) -> u64 {
    place(
        head.home.segment,
        head.home.offset.saturating_add(entry.offset),
    )
}

/// Calls `each` with the chunks of a segment's file: the file, and the chunk's head and entries.
pub(super) fn chunks(
    path: &Path,
    number: u32,
    dataset: Option<u64>,
    mut each: impl FnMut(&File, Head, Vec<Entry>),
) -> io::Result<()> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut at = 0;
    while at < size {
        let found = read_chunk(&file, at, size).ok().flatten();
        let right = found.filter(|(head, _)| {
            dataset.is_none_or(|dataset| dataset == head.home.dataset)
                && head.home.segment == number
                && u64::from(head.home.offset) == at
        });
        match right {
            Some((head, entries)) => {
                at += u64::from(head.length);
                each(&file, head, entries);
            }
            None => at += BLOCK as u64,
        }
    }
    Ok(())
}

/// Which of a chunk's samples are whole.
fn check(file: &File, head: &Head, entries: &[Entry], buffer: &mut Vec<u8>) -> Vec<bool> {
    let start = u64::from(head.home.offset);
    // From the disk, not from memory; and memory is not filled with what nobody wants.
    let length = NonZeroU64::new(u64::from(head.length));
    let _ = fadvise(file, start, length, Advice::DontNeed);
    buffer.resize(head.length as usize, 0);
    let whole = file.read_exact_at(buffer, start).is_ok();
    let checked = entries.iter().map(|entry| {
        let range = entry.offset as usize..entry.offset as usize + entry.length as usize;
        let bytes = &mut buffer[range];
        // A block that cannot be read is not all of a chunk.
        let read = whole
            || file
                .read_exact_at(bytes, start + u64::from(entry.offset))
                .is_ok();
        read && entry.identity.check(bytes) == entry.check
    });
    let checked = checked.collect();
    let _ = fadvise(file, start, length, Advice::DontNeed);
    checked
}

/// What one thread found.
#[derive(Default)]
struct Finding {
    samples: u64,
    bytes: u64,
    bad: u64,
    /// Places that a table has.
    places: Vec<u64>,
    /// Segments with bad samples.
    damaged: Vec<(PathBuf, u32)>,
    unreadable: Vec<String>,
}

impl Found {
    /// Bytes of the files that [`Found::verify`] reads.
    pub fn verifiable_bytes(&self) -> u64 {
        self.segments().iter().map(|(_, _, bytes)| bytes).sum()
    }

    /// Reads all samples and checks them. With `repair`, those that are not whole are taken out,
    /// unless a process writes the log. `progress` is told of samples and bytes as they are read,
    /// by several threads.
    pub fn verify(&self, repair: bool, progress: &(dyn Fn(u64, u64) + Sync)) -> Verified {
        let table = self.table(false);
        let dataset = table.as_ref().map(|(_, subject)| subject.dataset);
        // Before the segments are read: what is published later is no loss if it is not found.
        let published = table
            .as_ref()
            .map(|(index, _)| self.places_here(index.rows()));
        let segments = self.segments().into_iter();
        let segments: Vec<_> = segments
            .map(|(path, number, _)| Segment { path, number })
            .collect();
        let finding = read_all(&segments, dataset, progress);
        let lost = match (&table, published) {
            (Some((index, _)), Some(published)) => {
                let mut places = finding.places;
                places.sort_unstable();
                let missing = |place: &u64| places.binary_search(place).is_err();
                let missing: HashSet<u64> = published.into_iter().filter(missing).collect();
                // A writer may have deleted a segment meanwhile, and its samples from the table.
                let now = index.rows().map(|(_, at)| place(at.segment, at.offset));
                now.filter(|place| missing.contains(place)).collect()
            }
            _ => HashSet::new(),
        };
        let mut verified = Verified {
            samples: finding.samples,
            bytes: finding.bytes,
            bad: finding.bad,
            lost: lost.len() as u64,
            unreadable: finding.unreadable,
            unchecked: self.others(),
            ..Verified::default()
        };
        if repair && (verified.bad > 0 || verified.lost > 0) {
            match self.lease() {
                Ok(_lease) => verified.repaired = self.take_out(&finding.damaged, lost),
                Err(refusal) => verified.refusal = Some(refusal),
            }
        }
        verified
    }

    /// Places of samples that should be in these folders.
    fn places_here(&self, rows: impl Iterator<Item = (u32, Location)>) -> Vec<u64> {
        let there: HashSet<u32> = self
            .segments()
            .iter()
            .map(|(_, number, _)| *number)
            .collect();
        let here =
            |at: &Location| there.contains(&at.segment) || usize::from(at.dir) < self.folders.len();
        let rows = rows.map(|(_, at)| at).filter(here);
        rows.map(|at| place(at.segment, at.offset)).collect()
    }

    /// Takes bad samples out of their chunks' tables, and those and the lost ones out of the log's.
    /// Under the lease. How many that were.
    fn take_out(&self, damaged: &[(PathBuf, u32)], lost: HashSet<u64>) -> u64 {
        let mut gone = lost;
        let mut repaired = gone.len() as u64;
        let mut buffer = Vec::new();
        for (path, number) in damaged {
            let Ok(writable) = File::options().write(true).open(path) else {
                continue;
            };
            let _ = chunks(path, *number, None, |file, head, entries| {
                let whole = check(file, &head, &entries, &mut buffer);
                if whole.iter().all(|&whole| whole) {
                    return;
                }
                let (mut kept, mut bad) = (Vec::new(), Vec::new());
                for (entry, whole) in entries.iter().zip(whole) {
                    let pile = if whole { &mut kept } else { &mut bad };
                    pile.push(*entry);
                }
                if rewrite(&writable, &head, &kept).is_ok() {
                    gone.extend(bad.iter().map(|entry| place_of(&head, entry)));
                    repaired += bad.len() as u64;
                }
            });
        }
        if let Some((index, _)) = self.table(true) {
            for (sample, at) in index.rows() {
                if gone.contains(&place(at.segment, at.offset)) {
                    index.remove(sample, at);
                }
            }
        }
        repaired
    }
}

/// Puts a chunk's head and a shorter table in place of its own. If this ends half way the chunk is
/// of no use, and its samples are read from the origin.
fn rewrite(file: &File, head: &Head, kept: &[Entry]) -> io::Result<()> {
    let (bytes, table) = head.with_only(kept);
    let start = u64::from(head.home.offset);
    file.write_all_at(&table, start + u64::from(head.table))?;
    file.write_all_at(&bytes, start)?;
    file.sync_data()
}

fn read_all(
    segments: &[Segment],
    dataset: Option<u64>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Finding {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Finding::default());
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(segments.len()) {
            scope.spawn(|| {
                let mut finding = Finding::default();
                let mut buffer = Vec::new();
                while let Some(segment) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
                    read_segment(segment, dataset, &mut finding, &mut buffer, progress);
                }
                let mut all = all.lock().expect("the finding's lock");
                all.samples += finding.samples;
                all.bytes += finding.bytes;
                all.bad += finding.bad;
                all.places.append(&mut finding.places);
                all.damaged.append(&mut finding.damaged);
                all.unreadable.append(&mut finding.unreadable);
            });
        }
    });
    all.into_inner().expect("the finding's lock")
}

fn read_segment(
    segment: &Segment,
    dataset: Option<u64>,
    finding: &mut Finding,
    buffer: &mut Vec<u8>,
    progress: &(dyn Fn(u64, u64) + Sync),
) {
    let before = finding.bad;
    let read = chunks(
        &segment.path,
        segment.number,
        dataset,
        |file, head, entries| {
            let whole = check(file, &head, &entries, buffer);
            for (entry, whole) in entries.iter().zip(whole) {
                finding.places.push(place_of(&head, entry));
                if whole {
                    finding.samples += 1;
                    finding.bytes += u64::from(entry.length);
                } else {
                    finding.bad += 1;
                }
            }
            progress(entries.len() as u64, u64::from(head.length));
        },
    );
    match read {
        // A writer makes room.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => finding
            .unreadable
            .push(format!("{}: {error}", segment.path.display())),
        Ok(()) => {}
    }
    if finding.bad > before {
        finding.damaged.push((segment.path.clone(), segment.number));
    }
}
