//! What is on the disk of a reordered log: its orders, and which records have blocks. Whether a
//! record is whole is seen when it is read. Looking changes nothing.

use std::fs::File;
use std::io;

use rustix::fs::{SeekFrom, seek};

use super::core::Core;
use super::index::Location;
use super::order_file::OrderFile;
use super::ordered::Ordered;

/// This epoch's log and the next one's, as far as they are there, in this order.
pub(super) fn logs(core: &Core) -> Vec<Ordered> {
    let orders = OrderFile::list(&core.files.dirs()[0].folder, core.subject);
    let stale = orders.len().saturating_sub(2);
    let log = |order| {
        let log = Ordered::new(order, core);
        let mut extents = Extents::default();
        log.recover(&mut |at, bytes| extents.has(core, at, bytes));
        log
    };
    orders[stale..].iter().map(log).collect()
}

/// Parts of a segment that have blocks.
#[derive(Debug, Default)]
struct Extents {
    of: Option<(u8, u32)>,
    parts: Vec<(u64, u64)>,
}

impl Extents {
    fn has(&mut self, core: &Core, at: Location, bytes: u64) -> bool {
        if self.of != Some((at.dir, at.segment)) {
            self.of = Some((at.dir, at.segment));
            self.parts = parts(core, at).unwrap_or_default();
        }
        let start = u64::from(at.offset);
        let after = self.parts.partition_point(|&(from, _)| from <= start);
        after > 0 && start + bytes <= self.parts[after - 1].1
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
