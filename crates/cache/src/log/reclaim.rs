//! Making room: segments whose samples have mostly changed, and logs that nobody uses.
//!
//! A packed log has nothing to give back as long as its dataset stays the same. When objects
//! change, their old bytes stay behind in their segments; when a log is full, segments that are
//! less than half of use go, with what they still have, which is then read from the origin again.
//! The directory's other logs go before, the one first that was not used for longest.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::core::Core;
use super::index::SampleIndex;
use super::lease::Lease;

/// The lease of a log, in the folder of its table.
pub(super) const LEASE: &str = "lease";
/// And in each of its folders: a directory may be the first of one log's and the second of
/// another's.
pub(super) const PART: &str = "part";

/// Keeps a budget that is smaller than it was: other logs go first.
pub(super) fn shrink_others(core: &Core) {
    for dir in core.files.dirs() {
        while dir.budget.used() > dir.budget.limit() && evict_stranger(&dir.folder) {}
    }
}

/// Then this one's last segments do.
pub(super) fn shrink(core: &Core, index: &SampleIndex) {
    for (at, dir) in core.files.dirs().iter().enumerate() {
        while dir.budget.used() > dir.budget.limit() {
            let segments = core.files.list();
            let Some(&last) = segments.iter().rfind(|(dir, _)| usize::from(*dir) == at) else {
                break;
            };
            if !drop_segment(core, index, last) {
                break;
            }
        }
    }
}

/// Deletes a log that nobody uses, if there is one beside this.
pub(super) fn evict_strangers(core: &Core) -> bool {
    let mut dirs = core.files.dirs().iter().filter(|dir| dir.is_writable());
    dirs.any(|dir| evict_stranger(&dir.folder))
}

/// Deletes segments that are mostly of no more use. Called when none is being written.
pub(super) fn drop_stale(core: &Core, index: &SampleIndex) -> bool {
    let mut live: HashMap<(u8, u32), u64> = HashMap::new();
    for (sample, at) in index.rows() {
        *live.entry((at.dir, at.segment)).or_default() += (core.length)(sample).unwrap_or(0);
    }
    let mut any = false;
    for segment in core.files.list() {
        if !core.files.dirs()[usize::from(segment.0)].is_writable() {
            continue; // another's to write
        }
        let size = fs::metadata(core.files.path(segment.0, segment.1)).map_or(0, |meta| meta.len());
        if live.get(&segment).copied().unwrap_or(0) * 2 < size {
            any |= drop_segment(core, index, segment);
        }
    }
    any
}

/// Deletes a segment; no row points to it any more.
fn drop_segment(core: &Core, index: &SampleIndex, segment: (u8, u32)) -> bool {
    for (sample, at) in index.rows() {
        if (at.dir, at.segment) == segment {
            index.remove(sample, at);
        }
    }
    core.files.delete(segment.0, segment.1).is_ok()
}

/// Deletes the log beside `own` that nobody uses and that was not used for longest.
pub(super) fn evict_stranger(own: &Path) -> bool {
    let Some(entries) = own.parent().and_then(|root| fs::read_dir(root).ok()) else {
        return false;
    };
    let mut others: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir() && path != own)
        .filter_map(|path| {
            let used = |name: &&str| fs::metadata(path.join(name)).ok()?.modified().ok();
            let last = [LEASE, PART].iter().filter_map(used).max()?;
            Some((last, path))
        })
        .collect();
    others.sort();
    others.iter().any(|(_, path)| delete_unused(path))
}

/// Deletes a log's folder unless somebody writes to it.
fn delete_unused(folder: &Path) -> bool {
    let mut leases = Vec::new();
    for name in [LEASE, PART] {
        let path = folder.join(name);
        match path.exists().then(|| Lease::lock(&path)) {
            Some(Ok(Some(lease))) => leases.push(lease),
            Some(_) => return false,
            None => {}
        }
    }
    fs::remove_dir_all(folder).is_ok()
}
