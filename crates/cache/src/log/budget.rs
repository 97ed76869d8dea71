//! The disk contract: bytes of a cache directory, and of its file system.
//!
//! Blocks are taken (`fallocate`) before they are written, and only while all logs of the
//! directory together stay within the budget and the file system above its floor. What is counted
//! is what the file system says the files take, as `du` does.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// What a file system may need for a file beyond its blocks.
const SLACK: u64 = 16 << 10;
/// What is left for the small files of logs: folders, leases, tables.
const HEADROOM: u64 = 64 << 10;
/// What a log takes at least: its folder, lease, address and what it has put by.
pub(super) const LEAST: u64 = 16 << 10;
/// The file in a log's folder that says how many bytes it has put by.
pub(super) const RESERVED: &str = "reserved";
/// How long the book is waited for.
const PATIENCE: u32 = 200;

/// One directory's share of the disk.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    /// The folder with all logs of a cache directory.
    root: PathBuf,
    limit: u64,
    floor: u64,
}

/// The budget's book is open: nobody else takes blocks of this directory.
#[derive(Debug)]
struct Book(File);

impl Drop for Book {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Budget {
    /// At most `limit` bytes under `root`, and `floor` bytes left free on its file system.
    pub(super) fn new(root: &Path, limit: u64, floor: u64) -> Self {
        Self {
            root: root.to_owned(),
            limit,
            floor,
        }
    }

    /// The folder with all logs.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The most it allows.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that all logs of the directory take.
    pub(super) fn used(&self) -> u64 {
        used(&self.root)
    }

    /// Bytes that may still be taken.
    pub(super) fn room(&self) -> u64 {
        self.spare().saturating_sub(self.headroom())
    }

    fn headroom(&self) -> u64 {
        HEADROOM.min(self.limit / 16)
    }

    /// The same with what is left for small files.
    pub(super) fn spare(&self) -> u64 {
        let within = self.limit.saturating_sub(self.taken());
        let free = statvfs(&self.root).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
        within.min(free.saturating_sub(self.floor))
    }

    /// Bytes that all logs take, have put by, or are about to take for their small files.
    fn taken(&self) -> u64 {
        let own = fs::symlink_metadata(&self.root).map_or(0, |meta| meta.blocks() * 512);
        let Ok(entries) = fs::read_dir(&self.root) else {
            return own;
        };
        entries.flatten().fold(own, |sum, entry| {
            let path = entry.path();
            let reserved = fs::read_to_string(path.join(RESERVED)).ok();
            let reserved = reserved
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(0);
            let least = if path.is_dir() { LEAST } else { 0 };
            sum + used(&path).max(reserved).max(least)
        })
    }

    /// Makes the folder of a log, if there is room for what a log has at least. The first one is
    /// made in any case: who opens it says then what is wanting.
    pub(super) fn make_folder(&self, log: &Path) -> io::Result<()> {
        if log.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(&self.root)?;
        let _book = self.open()?;
        let mut entries = fs::read_dir(&self.root)?.flatten();
        if entries.any(|entry| entry.path().is_dir()) && self.spare() < LEAST {
            return Err(io::ErrorKind::StorageFull.into());
        }
        fs::create_dir_all(log)
    }

    /// What `take` makes of `bytes` of the disk; `None` if there are not so many.
    pub(super) fn take<T>(
        &self,
        bytes: u64,
        take: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        let _book = self.open()?;
        if self.spare() < bytes {
            return Ok(None);
        }
        take().map(Some)
    }

    /// Puts bytes by for a log that takes its blocks as it goes; `log` has the rest of what may be
    /// taken, but for what is in use already. Returns how many.
    pub(super) fn reserve(&self, log: &Path) -> io::Result<u64> {
        let _book = self.open()?;
        let _ = fs::remove_file(log.join(RESERVED));
        let own = used(log);
        let others = self.taken().saturating_sub(own);
        // The log may have more than it may: the budget was another then.
        let most = self.limit.saturating_sub(self.headroom() + others);
        let bytes = (self.room() + own).min(most);
        fs::write(log.join(RESERVED), bytes.to_string())?;
        Ok(bytes)
    }

    fn open(&self) -> io::Result<Book> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.root.join("book"))?;
        for _ in 0..PATIENCE {
            match file.try_lock() {
                Ok(()) => return Ok(Book(file)),
                Err(fs::TryLockError::WouldBlock) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Makes the file `path` with as many blocks as there are to be had, from `least` up to
    /// `most` bytes, both multiples of the block. `None` if there is no room for it.
    pub(super) fn create(
        &self,
        path: &Path,
        least: u64,
        most: u64,
    ) -> io::Result<Option<(File, u64)>> {
        let _book = self.open()?;
        let block = forebay_format::chunk::BLOCK as u64;
        let size = most.min(self.room().saturating_sub(SLACK)) / block * block;
        if size < least {
            return Ok(None);
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        match fallocate(&file, FallocateFlags::empty(), 0, size) {
            // Blocks come as they are written; a full disk shows then.
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size)?,
            Err(rustix::io::Errno::NOSPC) => {
                drop(file);
                fs::remove_file(path)?;
                return Ok(None);
            }
            Err(errno) => {
                drop(file);
                let _ = fs::remove_file(path);
                return Err(errno.into());
            }
            Ok(()) => {}
        }
        Ok(Some((file, size)))
    }
}

/// What `du` would say of a folder.
pub fn used(folder: &Path) -> u64 {
    let Ok(meta) = fs::symlink_metadata(folder) else {
        return 0;
    };
    let own = meta.blocks() * 512;
    let Ok(entries) = fs::read_dir(folder) else {
        return own;
    };
    entries.flatten().fold(own, |sum, entry| {
        sum + match entry.metadata() {
            Ok(meta) if meta.is_dir() => used(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_beyond_the_budget_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let limit = 10 << 20;
        let budget = Budget::new(folder.path(), limit, 0);
        let mut taken = 0;
        for number in 0.. {
            let path = folder.path().join(number.to_string());
            let Some((_, size)) = budget.create(&path, 4096, 3 << 20).unwrap() else {
                break;
            };
            taken += size;
            assert!(used(folder.path()) <= limit);
        }
        assert!(taken > limit - (200 << 10), "{taken} of {limit}");
    }

    #[test]
    fn the_floor_of_the_file_system_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget::new(folder.path(), u64::MAX, u64::MAX / 2);
        assert_eq!(budget.room(), 0);
        assert!(
            budget
                .create(&folder.path().join("a"), 4096, 4096)
                .unwrap()
                .is_none()
        );
        assert!(!folder.path().join("a").exists());
    }
}
