//! The directory as the kernel asks for it: names, attributes, listings, files.
//!
//! A path gets a number when it is first looked up and keeps it for the life of the mount, so
//! that a million files cost a hundred megabytes: enough for benchmarks.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, Request,
};

use super::Shared;
use super::later::Later;

/// The kernel may keep names and attributes for so long: NFS does, for a minute at most.
const KEEP: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Tree {
    shared: Arc<Shared>,
    later: Arc<Later>,
    paths: Mutex<Paths>,
    handles: Mutex<Handles>,
}

/// Paths by number: the root is 1.
#[derive(Debug)]
struct Paths {
    by_number: Vec<PathBuf>,
    numbers: HashMap<PathBuf, u64>,
}

#[derive(Debug, Default)]
struct Handles {
    open: HashMap<u64, Handle>,
    came: u64,
}

#[derive(Clone, Debug)]
enum Handle {
    File(Arc<File>),
    Listing(Arc<Vec<Entry>>),
}

#[derive(Debug)]
struct Entry {
    number: INodeNo,
    kind: FileType,
    name: OsString,
}

impl Tree {
    pub(super) fn new(source: PathBuf, shared: Arc<Shared>, later: Arc<Later>) -> Self {
        let numbers = HashMap::from([(source.clone(), 1)]);
        let paths = Paths {
            by_number: vec![source],
            numbers,
        };
        Self {
            shared,
            later,
            paths: Mutex::new(paths),
            handles: Mutex::default(),
        }
    }

    fn path(&self, number: INodeNo) -> io::Result<PathBuf> {
        let paths = self.paths.lock().expect("no panic while naming");
        let at = usize::try_from(number.0).unwrap_or(usize::MAX);
        let found = paths.by_number.get(at.wrapping_sub(1));
        found.cloned().ok_or(io::ErrorKind::NotFound.into())
    }

    fn number(&self, path: PathBuf) -> INodeNo {
        let mut paths = self.paths.lock().expect("no panic while naming");
        if let Some(&number) = paths.numbers.get(&path) {
            return INodeNo(number);
        }
        paths.by_number.push(path.clone());
        let number = paths.by_number.len() as u64;
        paths.numbers.insert(path, number);
        INodeNo(number)
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().expect("no panic while opening")
    }

    fn hold(&self, handle: Handle) -> FileHandle {
        let mut handles = self.handles();
        handles.came += 1;
        let came = handles.came;
        handles.open.insert(came, handle);
        FileHandle(came)
    }

    fn held(&self, handle: FileHandle) -> Option<Handle> {
        self.handles().open.get(&handle.0).cloned()
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let path = self.path(parent)?.join(name);
        let found = fs::symlink_metadata(&path)?;
        attributes(self.number(path), &found)
    }

    fn list(&self, directory: INodeNo) -> io::Result<Vec<Entry>> {
        let path = self.path(directory)?;
        let mut entries: Vec<_> = [".", ".."]
            .map(|name| Entry {
                // The kernel knows better: the number of the parent is not looked at.
                number: directory,
                kind: FileType::Directory,
                name: name.into(),
            })
            .into();
        for found in fs::read_dir(&path)? {
            let found = found?;
            entries.push(Entry {
                number: self.number(found.path()),
                kind: kind(found.file_type()?)?,
                name: found.file_name(),
            });
        }
        Ok(entries)
    }

    /// Counts a request in and sends its answer when it is due.
    fn answer(&self, bytes: usize, answer: impl FnOnce() + Send + 'static) {
        let mut counts = self.shared.counting();
        counts.in_flight += 1;
        counts.max_in_flight = counts.max_in_flight.max(counts.in_flight);
        drop(counts);
        let shared = Arc::clone(&self.shared);
        let due = self.shared.due(bytes);
        self.later.at(due, move || {
            // Before the answer: whoever has it sees the request gone.
            shared.counting().in_flight -= 1;
            answer();
        });
    }
}

impl Filesystem for Tree {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok(found) => reply.entry(&KEEP, &found, Generation(0)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.path(number).and_then(fs::symlink_metadata);
        match found.and_then(|found| attributes(number, &found)) {
            Ok(found) => reply.attr(&KEEP, &found),
            Err(error) => reply.error(error.into()),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.path(number).and_then(fs::read_link) {
            Ok(target) => reply.data(target.as_os_str().as_bytes()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.shared.counting().opens += 1;
        match self.path(number).and_then(File::open) {
            Ok(file) => {
                let handle = self.hold(Handle::File(Arc::new(file)));
                // Past the page cache: every read comes here.
                self.answer(0, move || reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO));
            }
            Err(error) => self.answer(0, move || reply.error(error.into())),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(Handle::File(file)) = self.held(handle) else {
            return reply.error(Errno::EBADF);
        };
        match read_at(&file, offset, size as usize) {
            Ok(data) => {
                let mut counts = self.shared.counting();
                counts.reads += 1;
                counts.bytes_out += data.len() as u64;
                drop(counts);
                self.answer(data.len(), move || reply.data(&data));
            }
            Err(error) => self.answer(0, move || reply.error(error.into())),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // There is nothing to write, and after this answer the kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.handles().open.remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Listed once, so that offsets in it stay true.
        match self.list(number) {
            Ok(entries) => {
                let handle = self.hold(Handle::Listing(Arc::new(entries)));
                reply.opened(handle, FopenFlags::empty());
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(Handle::Listing(entries)) = self.held(handle) else {
            return reply.error(Errno::EBADF);
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, entry) in entries.iter().enumerate().skip(from) {
            if reply.add(entry.number, at as u64 + 1, entry.kind, &entry.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.handles().open.remove(&handle.0);
        reply.ok();
    }
}

/// Up to `size` bytes: fewer only at the file's end.
fn read_at(file: &File, offset: u64, size: usize) -> io::Result<Vec<u8>> {
    let mut data = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match file.read_at(&mut data[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    data.truncate(filled);
    Ok(data)
}

fn kind(found: fs::FileType) -> io::Result<FileType> {
    FileType::from_std(found).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

fn attributes(number: INodeNo, found: &Metadata) -> io::Result<FileAttr> {
    let accessed = found.accessed().unwrap_or(SystemTime::UNIX_EPOCH);
    let changed = Duration::new(
        found.ctime().try_into().unwrap_or(0),
        found.ctime_nsec().try_into().unwrap_or(0),
    );
    Ok(FileAttr {
        ino: number,
        size: found.size(),
        blocks: found.blocks(),
        atime: accessed,
        mtime: found.modified()?,
        ctime: SystemTime::UNIX_EPOCH + changed,
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(found.file_type())?,
        perm: (found.mode() & 0o7777) as u16,
        nlink: found.nlink() as u32,
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        blksize: found.blksize() as u32,
        flags: 0,
    })
}
