//! What is on the disk: the chunks of all segments, found by their heads.
//!
//! ```text
//!   head -> length -> next head -> ...; where there is no head, from block to block
//! ```
//!
//! Two small reads a chunk of megabytes: 138 GB of samples are found in seconds. Nothing of the
//! samples themselves is read; whether they are whole is checked when they are.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_format::chunk::{BLOCK, Entry, HEAD, Head};

use super::core::Core;
use super::index::{Location, SampleIndex};

/// Segments looked at at a time.
const THREADS: usize = 8;
/// Segments whose entries are in memory at a time.
const IN_MEMORY: usize = 32;

/// One segment's chunks.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) dir: u8,
    pub(super) number: u32,
    /// Where the last whole chunk ends.
    pub(super) end: u64,
    /// All of it could be looked at.
    pub(super) is_known: bool,
    pub(super) chunks: Vec<(Head, Vec<Entry>)>,
}

/// Looks at all segments, a few at a time; in the order of their numbers.
fn scan(core: &Core) -> impl Iterator<Item = Segment> {
    let mut list = core.files.list();
    list.sort_unstable_by_key(|&(_, number)| number);
    let mut done = 0;
    std::iter::from_fn(move || {
        let part = &list[done..list.len().min(done + IN_MEMORY)];
        done += part.len();
        (!part.is_empty()).then(|| scan_part(core, part))
    })
    .flatten()
}

fn scan_part(core: &Core, list: &[(u8, u32)]) -> Vec<Segment> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(list.len()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(list.len()) {
            scope.spawn(|| {
                while let Some(&(dir, number)) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let segment = scan_segment(core, dir, number);
                    found.lock().expect("the scan's lock").push(segment);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("the scan's lock");
    found.sort_unstable_by_key(|segment| segment.number);
    found
}

fn scan_segment(core: &Core, dir: u8, number: u32) -> Segment {
    let mut segment = Segment {
        dir,
        number,
        end: 0,
        is_known: false,
        chunks: Vec::new(),
    };
    let Ok(file) = File::open(core.files.path(dir, number)) else {
        return segment;
    };
    let Ok(size) = file.metadata().map(|meta| meta.len()) else {
        return segment;
    };
    segment.is_known = true;
    let mut at = 0;
    while at < size {
        let found = read_chunk(&file, at, size).unwrap_or_else(|_| {
            segment.is_known = false;
            None
        });
        let right = found.filter(|(head, _)| {
            head.home.dataset == core.subject.dataset
                && head.home.segment == number
                && u64::from(head.home.offset) == at
        });
        match right {
            Some((head, entries)) => {
                at += u64::from(head.length);
                segment.end = at;
                segment.chunks.push((head, entries));
            }
            // Behind one that is torn or damaged there may be others that are whole.
            None => at += BLOCK as u64,
        }
    }
    segment
}

/// The head and the table of the chunk that begins `at`, if one does.
pub(super) fn read_chunk(
    file: &File,
    at: u64,
    size: u64,
) -> io::Result<Option<(Head, Vec<Entry>)>> {
    if at + HEAD as u64 > size {
        return Ok(None);
    }
    let mut bytes = [0; HEAD];
    file.read_exact_at(&mut bytes, at)?;
    let Some(head) = Head::read(&bytes) else {
        return Ok(None);
    };
    if at + u64::from(head.length) > size {
        return Ok(None);
    }
    let range = head.table_range();
    let mut table = vec![0; range.len()];
    file.read_exact_at(&mut table, at + range.start as u64)?;
    Ok(head.entries(&table).ok().map(|entries| (head, entries)))
}

/// Fills an empty index with what is on the disk and cuts off what is not whole. Entries of samples
/// that have changed, or are gone, are left out. What cannot be looked at stays: it may be read
/// another time.
pub(super) fn recover(core: &Core, index: &SampleIndex) -> io::Result<()> {
    let mut rows = index.draft();
    // The numbers of another index mean nothing here: then samples are found by their names.
    let by_key = LazyCell::new(|| numbers_by_key(core));
    for segment in scan(core) {
        for (head, entries) in &segment.chunks {
            let same = head.home.index == core.subject.index;
            for entry in entries {
                let id = if same {
                    Some(entry.id)
                } else {
                    by_key.get(&entry.identity.key).copied().filter(|&id| {
                        (core.identify)(id).is_some_and(|identity| identity == entry.identity)
                    })
                };
                if let Some(id) = id {
                    let at = Location {
                        dir: segment.dir,
                        segment: segment.number,
                        offset: head.home.offset + entry.offset,
                    };
                    rows.set(id, at, entry.check);
                }
            }
        }
        let is_ours = core.files.dirs()[usize::from(segment.dir)].is_writable();
        if segment.is_known && is_ours {
            let _ = core.files.trim(segment.dir, segment.number, segment.end);
        }
    }
    index.put(&rows)
}

fn numbers_by_key(core: &Core) -> HashMap<u64, u32> {
    (0..core.subject.samples)
        .filter_map(|id| Some(((core.identify)(id)?.key, id)))
        .collect()
}
