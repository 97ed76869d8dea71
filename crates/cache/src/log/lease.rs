//! Who writes: one process at a time, until it ends.
//!
//! A record lock of the kernel's on a file. It goes when its process does, however that ended, so
//! it is never stale; unlike `flock` it does not pass to processes that were forked meanwhile. It
//! does not tell two holders in one process apart, so those are told apart here.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, Pid, fcntl_getlk};

/// Files whose lock this process has. Opening one of them again and closing it would let the
/// lock go, so nobody does.
static HELD: LazyLock<Mutex<HashSet<(u32, PathBuf)>>> = LazyLock::new(Mutex::default);

/// The right to write, until dropped.
#[derive(Debug)]
pub(super) struct Lease {
    file: Option<File>,
    key: (u32, PathBuf),
}

impl Lease {
    /// The lease, or `None` if somebody has it. Never waits. Says whose it is, for people who look.
    pub(super) fn take(path: &Path) -> io::Result<Option<Self>> {
        let mut lease = Self::lock(path)?;
        if let Some(file) = lease.as_mut().and_then(|lease| lease.file.as_mut()) {
            let _ = writeln!(file, "{}", std::process::id());
        }
        Ok(lease)
    }

    /// The same on a file that stays empty, so that it takes no room.
    pub(super) fn lock(path: &Path) -> io::Result<Option<Self>> {
        let folder = path.parent().unwrap_or(Path::new(".")).canonicalize()?;
        let path = folder.join(path.file_name().unwrap_or_default());
        // A fork's child has the set but not the locks: its own process number tells.
        let key = (std::process::id(), path.clone());
        let mut held = HELD.lock().expect("the leases' lock");
        if held.contains(&key) {
            return Ok(None);
        }
        let file = loop {
            let file = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)?;
            match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
            if is_at(&file, &path)? {
                break file;
            }
            // Whoever deleted the log had it first: this is the lock of a file that is gone.
        };
        let _ = file.set_len(0); // its time tells when it was last taken
        held.insert(key.clone());
        Ok(Some(Self {
            file: Some(file),
            key,
        }))
    }
}

/// Whether a file that was opened is the one that is there now.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match path.metadata() {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The process that has the lease, if there is one; 0 if its number cannot be told from here.
/// Only looks: nobody is kept from taking it meanwhile.
pub(super) fn holder(path: &Path) -> io::Result<Option<u32>> {
    let key = match path.canonicalize() {
        Ok(path) => (std::process::id(), path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let held = HELD.lock().expect("the leases' lock");
    if held.contains(&key) {
        return Ok(Some(key.0));
    }
    let found = fcntl_getlk(File::open(path)?, &Flock::from(FlockType::WriteLock))?;
    Ok(found.map(|lock| Pid::as_raw(lock.pid).unsigned_abs()))
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Both under the lock: closing would let go what another holder here took in between.
        let mut held = HELD.lock().expect("the leases' lock");
        self.file = None;
        held.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_in_one_process_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        assert_eq!(holder(&path).unwrap(), None);
        let first = Lease::take(&path).unwrap().unwrap();
        assert!(Lease::take(&path).unwrap().is_none());
        assert_eq!(holder(&path).unwrap(), Some(std::process::id()));
        drop(first);
        assert_eq!(holder(&path).unwrap(), None);
        assert!(Lease::take(&path).unwrap().is_some());
    }

    #[test]
    fn the_lease_of_a_log_that_was_deleted_is_no_lease() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        let old = File::create(&path).unwrap();
        assert!(is_at(&old, &path).unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(!is_at(&old, &path).unwrap());
        let new = Lease::take(&path).unwrap().unwrap();
        assert!(!is_at(&old, &path).unwrap());
        assert!(is_at(new.file.as_ref().unwrap(), &path).unwrap());
    }
}
