//! The segments of a log: files in one or several directories, opened for direct I/O.
//!
//! ```text
//!   <cache dir>/log/<dataset>/00000000.segment, 00000002.segment, ...
//!   <another>/log/<dataset>/00000001.segment, ...
//! ```
//!
//! Segment numbers are not used again, so a descriptor never means another segment. The table of a
//! packed log remembers them (`index`); a reordered one, which nobody reads beside its writer, goes
//! on above what is there. Should all that be lost, then numbers come again, and who still has old
//! segments open reads bytes that do not pass for a sample's.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, RwLock};

use rustix::process::{Resource, getrlimit};

use super::budget::Budget;
use super::index::MOST_SEGMENTS;
use super::warnings::Warnings;

/// Read errors in a row after which a directory is given up.
const MOST_ERRORS: u32 = 16;

/// Segments that are open at a time, at the least and at the most; between, a quarter of the files
/// that the process may have open.
const OPEN: (u64, u64) = (64, 4096);

/// One directory of a log.
#[derive(Debug)]
pub(super) struct Dir {
    /// Where this dataset's files are.
    pub folder: PathBuf,
    /// What it may take.
    pub budget: Budget,
    /// Neither read nor written any more.
    dead: AtomicBool,
    /// Only read.
    read_only: AtomicBool,
    errors: AtomicU32,
}

impl Dir {
    /// A directory as it was found.
    pub(super) fn new(folder: PathBuf, budget: Budget) -> Self {
        Self {
            folder,
            budget,
            dead: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            errors: AtomicU32::new(0),
        }
    }

    /// Whether it is read.
    pub(super) fn is_alive(&self) -> bool {
        !self.dead.load(Ordering::Relaxed)
    }

    /// Whether it is written to.
    pub(super) fn is_writable(&self) -> bool {
        self.is_alive() && !self.read_only.load(Ordering::Relaxed)
    }

    fn path(&self, segment: u32, extension: &str) -> PathBuf {
        self.folder.join(format!("{segment:08}.{extension}"))
    }
}

fn most_open() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit / 4).clamp(OPEN.0, OPEN.1) as usize
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Files {
    dirs: Vec<Dir>,
    open: RwLock<HashMap<(u8, u32), Arc<File>>>,
    most_open: usize,
    direct: AtomicBool,
    extension: &'static str,
    warnings: Arc<Warnings>,
}

impl Files {
    /// Files of these directories with this extension.
    pub(super) fn new(dirs: Vec<Dir>, extension: &'static str, warnings: Arc<Warnings>) -> Self {
        Self {
            dirs,
            extension,
            open: RwLock::default(),
            most_open: most_open(),
            direct: AtomicBool::new(true),
            warnings,
        }
    }

    /// The directories.
    pub(super) fn dirs(&self) -> &[Dir] {
        &self.dirs
    }

    /// Whether the page cache is left out.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// A segment's file, for reading and, by the writer, writing.
    pub(super) fn segment(&self, dir: u8, segment: u32) -> io::Result<Arc<File>> {
        let key = (dir, segment);
        if let Some(file) = self.open.read().expect("the files' lock").get(&key) {
            return Ok(file.clone());
        }
        let folder = self
            .dirs
            .get(usize::from(dir))
            .filter(|dir| dir.is_alive())
            .ok_or(io::ErrorKind::NotFound)?;
        let file = Arc::new(self.open_file(&folder.path(segment, self.extension))?);
        // Deleted since: who asked may read it, but it is not kept from giving its blocks back.
        let is_there = |file: &File| file.metadata().is_ok_and(|meta| meta.nlink() > 0);
        let mut open = self.open.write().expect("the files' lock");
        if !is_there(&file) {
            return Ok(file);
        }
        if open.len() >= self.most_open && !open.contains_key(&key) {
            // Any will do: samples are read at random, and one in use stays open until it was.
            let other = open.keys().next().copied();
            other.and_then(|other| open.remove(&other));
        }
        Ok(open.entry(key).or_insert(file).clone())
    }

    fn open_file(&self, path: &Path) -> io::Result<File> {
        let open = |direct: i32| {
            let both = File::options()
                .read(true)
                .write(true)
                .custom_flags(direct)
                .open(path);
            match both {
                // A reader of somebody else's log, or a file system mounted read-only.
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied
                        || error.kind() == io::ErrorKind::ReadOnlyFilesystem =>
                {
                    File::options().read(true).custom_flags(direct).open(path)
                }
                other => other,
            }
        };
        match open(libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.direct.store(false, Ordering::Relaxed);
                open(0)
            }
            other => other,
        }
    }

    /// A segment's path.
    pub(super) fn path(&self, dir: u8, segment: u32) -> PathBuf {
        self.dirs[usize::from(dir)].path(segment, self.extension)
    }

    /// A segment's file, made without any blocks if it is not there.
    pub(super) fn sparse(&self, dir: u8, segment: u32) -> io::Result<Arc<File>> {
        match self.segment(dir, segment) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = &self.dirs[usize::from(dir)];
                File::options()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(folder.path(segment, self.extension))?;
                self.segment(dir, segment)
            }
            other => other,
        }
    }

    /// A new segment of at least `least` and at most `most` bytes; `None` if there is no room.
    pub(super) fn create(
        &self,
        dir: u8,
        segment: u32,
        least: u64,
        most: u64,
    ) -> io::Result<Option<u64>> {
        let folder = &self.dirs[usize::from(dir)];
        let made = folder
            .budget
            .create(&folder.path(segment, self.extension), least, most)?;
        Ok(made.map(|(_, size)| size))
    }

    /// Gives back what a segment has beyond `length`; all of it if that is nothing.
    pub(super) fn trim(&self, dir: u8, segment: u32, length: u64) -> io::Result<()> {
        if length == 0 {
            return self.delete(dir, segment);
        }
        let path = self.path(dir, segment);
        // Cutting frees blocks that were taken beyond the end as well.
        if fs::metadata(&path)?.len() > length {
            File::options().write(true).open(path)?.set_len(length)?;
        }
        Ok(())
    }

    /// Deletes a segment; who reads it now reads on.
    pub(super) fn delete(&self, dir: u8, segment: u32) -> io::Result<()> {
        let deleted = fs::remove_file(self.path(dir, segment));
        // Afterwards: who opens it meanwhile sees that it is gone.
        let mut open = self.open.write().expect("the files' lock");
        open.remove(&(dir, segment));
        deleted
    }

    /// The segments that are there: directory and number.
    pub(super) fn list(&self) -> Vec<(u8, u32)> {
        let mut found = Vec::new();
        for (at, dir) in self.dirs.iter().enumerate() {
            let Ok(entries) = fs::read_dir(&dir.folder) else {
                continue;
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let number = name
                    .to_str()
                    .and_then(|name| name.strip_suffix(self.extension)?.strip_suffix('.'))
                    .and_then(|number| number.parse().ok());
                if let Some(number) = number {
                    found.push((at as u8, number));
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// The lowest number above those of all segments that are there.
    pub(super) fn next_segment(&self) -> u32 {
        let numbers = self.list().into_iter().map(|(_, segment)| segment);
        // What has a higher one is not ours.
        let ours = numbers.filter(|&segment| segment < MOST_SEGMENTS);
        ours.max().map_or(0, |last| last + 1)
    }

    /// Closes all segments: another process may have deleted some meanwhile.
    pub(super) fn forget(&self) {
        self.open.write().expect("the files' lock").clear();
    }

    /// A read has worked.
    pub(super) fn went_well(&self, dir: u8) {
        let errors = &self.dirs[usize::from(dir)].errors;
        if errors.load(Ordering::Relaxed) > 0 {
            errors.store(0, Ordering::Relaxed);
        }
    }

    /// A read has failed: after a few in a row, the directory is given up.
    pub(super) fn read_failed(&self, dir: u8, error: &io::Error) {
        let failed = &self.dirs[usize::from(dir)];
        let errors = failed.errors.fetch_add(1, Ordering::Relaxed) + 1;
        if errors >= MOST_ERRORS && !failed.dead.swap(true, Ordering::Relaxed) {
            self.warnings.say(format!(
                "cache directory {} cannot be read ({error}); going on without it",
                failed.folder.display()
            ));
        }
    }

    /// Looks whether the directories are still there: files that are open can be read long after
    /// they were deleted, and nobody would hear of it.
    pub(super) fn look(&self) {
        for (dir, there) in self.dirs.iter().enumerate() {
            if there.is_writable()
                && let Err(error) = fs::symlink_metadata(&there.folder)
            {
                self.write_failed(dir as u8, &error);
            }
        }
    }

    /// A write has failed: the directory is only read from now on.
    pub(super) fn write_failed(&self, dir: u8, error: &io::Error) {
        let failed = &self.dirs[usize::from(dir)];
        if !failed.read_only.swap(true, Ordering::Relaxed) {
            self.warnings.say(format!(
                "cache directory {} cannot be written to ({error}); what it holds is still read",
                failed.folder.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Files {
        let budget = Budget::new(folder, 1 << 30, 0);
        let dirs = vec![Dir::new(folder.to_owned(), budget)];
        Files {
            most_open: 4,
            ..Files::new(dirs, "segment", Arc::default())
        }
    }

    #[test]
    fn more_segments_than_may_be_open_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        for segment in 0..20 {
            files.sparse(0, segment).unwrap();
        }
        let all: Vec<_> = (0..20).map(|segment| files.segment(0, segment)).collect();
        assert!(all.iter().all(Result::is_ok));
        assert_eq!(files.open.read().unwrap().len(), 4);
    }

    #[test]
    fn a_segment_that_is_deleted_is_not_kept_open() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path());
        files.sparse(0, 7).unwrap();
        files.delete(0, 7).unwrap();
        assert!(files.open.read().unwrap().is_empty());
        assert!(files.segment(0, 7).is_err());
    }
}
