//! Making room: segments whose samples have mostly changed, and logs that nobody uses.
//!
//! A packed log has nothing to give back as long as its dataset stays the same. When objects
//! change, their old bytes stay behind in their segments; when a log is full, segments that are
//! less than half of use go, with what they still have, which is then read from the origin again.
//! The directory's other logs go before, the one first that was not used for longest.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::core::Core;
use super::index::{Location, SampleIndex};
use super::lease::Lease;
use super::recover::scan;

/// The lease of a log, in its folder.
pub(super) const LEASE: &str = "lease";

/// Makes some room, if it can. Called by the writer when there is none.
pub(super) fn reclaim(core: &Core, index: &SampleIndex) -> bool {
    let strangers = core
        .files
        .dirs()
        .iter()
        .any(|dir| evict_stranger(&dir.folder));
    strangers || drop_stale(core, index)
}

fn drop_stale(core: &Core, index: &SampleIndex) -> bool {
    let mut any = false;
    for segment in scan(core) {
        let mut live = Vec::new();
        let mut live_bytes = 0;
        for (head, entries) in &segment.chunks {
            for entry in entries {
                let at = Location {
                    dir: segment.dir,
                    segment: segment.number,
                    offset: head.home.offset + entry.offset,
                };
                let same = head.home.index == core.subject.index;
                if same && index.get(entry.id).is_some_and(|(found, _)| found == at) {
                    live.push((entry.id, at));
                    live_bytes += u64::from(entry.length);
                }
            }
        }
        if segment.end > 0 && live_bytes * 2 < segment.end {
            for (id, at) in live {
                index.remove(id, at);
            }
            any |= core.files.delete(segment.dir, segment.number).is_ok();
        }
    }
    any
}

/// Deletes the log beside `own` that nobody uses and that was not used for longest.
fn evict_stranger(own: &Path) -> bool {
    let Some(entries) = own.parent().and_then(|root| fs::read_dir(root).ok()) else {
        return false;
    };
    let mut others: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() && path != own)
        .filter_map(|path| {
            let used = fs::metadata(path.join(LEASE)).and_then(|meta| meta.modified());
            Some((used.ok()?, path))
        })
        .collect();
    others.sort();
    others
        .iter()
        .any(|(_, path)| match Lease::take(&path.join(LEASE)) {
            Ok(Some(_lease)) => fs::remove_dir_all(path).is_ok(),
            _ => false,
        })
}
