//! What is on the disk of a reordered log: its orders, and which records have blocks. Whether a
//! record is whole is seen when it is read. Looking changes nothing; who writes deletes the rest.
//!
//! Orders are in every directory, and a segment's number tells its stripe, so it does not matter
//! which of the directories are still there, nor in which order the user names them.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::{SeekFrom, seek};

use super::core::Core;
use super::index::Location;
use super::order_file::OrderFile;
use super::ordered::Ordered;

/// With more logs than this the smallest is brought over into the next: each has its table in
/// memory.
pub(super) const MOST_LOGS: usize = 6;
/// More are there after one kill upon the other, before that was done.
const MOST_FOUND: usize = 2 * MOST_LOGS;

/// The logs that are there, the oldest first.
pub(super) fn logs(core: &Core) -> Vec<Ordered> {
    let mut orders = BTreeMap::new();
    for dir in core.files.dirs() {
        for order in OrderFile::list(&dir.folder, core.subject) {
            orders.entry(order.first).or_insert(order);
        }
    }
    let segments = core.files.list();
    let mut extents = Extents::default();
    let log = |order: &OrderFile| {
        // A stripe of which nothing is there may lie anywhere.
        let dirs = core.files.dirs().len() as u32;
        let anywhere = (0..order.stripes).map(|stripe| (stripe % dirs) as u8);
        let mut log = Ordered::new(order, core, anywhere.collect())?;
        log.lies_in(&segments);
        log.recover(&mut |at, bytes| extents.has(core, at, bytes));
        Some(log)
    };
    let mut logs: Vec<_> = orders.values().filter_map(log).collect();
    logs.drain(..logs.len().saturating_sub(MOST_FOUND));
    logs
}

/// The logs, for the process that writes, and the lowest number that no segment has. Whatever
/// belongs to none of them is deleted.
pub(super) fn take_over(core: &Core) -> (Vec<Arc<Ordered>>, u32) {
    let sources: Vec<_> = logs(core).into_iter().map(Arc::new).collect();
    // Above all that was there, of use or not.
    let ends = sources.iter().map(|log| log.first + log.segment_count());
    let mut next_segment = ends.max().unwrap_or(0).max(core.files.next_segment());
    for dir in core.files.dirs() {
        for first in OrderFile::numbers(&dir.folder) {
            next_segment = next_segment.max(first + 1);
            if sources.iter().all(|log| log.first != first) {
                OrderFile::delete(&dir.folder, first);
            }
        }
    }
    for (dir, segment) in core.files.list() {
        let known =
            |log: &Arc<Ordered>| (log.first..log.first + log.segment_count()).contains(&segment);
        if !sources.iter().any(known) {
            let _ = core.files.delete(dir, segment);
        }
    }
    (sources, next_segment)
}

/// Parts of segments that have blocks.
#[derive(Debug, Default)]
struct Extents(HashMap<(u8, u32), Vec<(u64, u64)>>);

impl Extents {
    fn has(&mut self, core: &Core, at: Location, bytes: u64) -> bool {
        let found = || parts(core, at).unwrap_or_default();
        let parts = self.0.entry((at.dir, at.segment)).or_insert_with(found);
        let start = u64::from(at.offset);
        let after = parts.partition_point(|&(from, _)| from <= start);
        after > 0 && start + bytes <= parts[after - 1].1
    }
}

fn parts(core: &Core, at: Location) -> io::Result<Vec<(u64, u64)>> {
    let path = core.files.path(at.dir, at.segment);
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut parts = Vec::new();
    let mut from = 0;
    while from < size {
        match seek(&file, SeekFrom::Data(from)) {
            Ok(start) => {
                from = seek(&file, SeekFrom::Hole(start))?;
                parts.push((start, from));
            }
            Err(rustix::io::Errno::NXIO) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(parts)
}
