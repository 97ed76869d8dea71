//! Reading whole local files with three system calls: open, read, close (large ones, where somebody
//! looks at the bytes as they come, with a few reads).
//!
//! The root directory is held open, so a name is looked up from there, and there is
//! no stat: the read asks for one byte more than the index says, and so learns from
//! its own result whether the file is shorter or longer.
//!
//! ```text
//! index says 5    readv(fd, [5 bytes of the caller's, 1 of ours])
//!                 -> 5: as indexed      -> 3: shorter      -> 6: longer
//! ```

use std::cell::RefCell;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use forebay_format::Index;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::Error;
use crate::shard_files::ShardFiles;

thread_local! {
    /// Each thread's room for a name, so that a warm read allocates nothing.
    static NAME: RefCell<String> = const { RefCell::new(String::new()) };
}

#[derive(Debug)]
pub(crate) struct Local {
    path: PathBuf,
    root: OwnedFd,
    shards: ShardFiles,
}

impl Local {
    pub(crate) fn open(root: &Path) -> Result<Self, Error> {
        Ok(Self {
            path: root.to_owned(),
            root: open_root(root)?,
            shards: ShardFiles::default(),
        })
    }

    /// The root, held open.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.root
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn read(
        &self,
        index: &Index,
        sample: u32,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<(), Error> {
        let length = index.length(sample)?;
        let given = into.iter().map(|slice| slice.len() as u64).sum();
        if given != length {
            return Err(Error::Room {
                sample,
                length,
                given,
            });
        }
        NAME.with_borrow_mut(|name| {
            index.name_into(sample, name)?;
            if index.ranged() {
                let file = self
                    .shards
                    .open(&self.root, name, index.validator(sample)?)?;
                return read_range(&file, name, index.offset(sample)?, length, into);
            }
            self.read_file(name, length, into)
        })
    }

    fn read_file(&self, name: &str, length: u64, into: &mut [IoSliceMut<'_>]) -> Result<(), Error> {
        let file = open_file(&self.root, name)?;
        let mut beyond = [0];
        let read = read_all(into, &mut beyond, |slices, _| {
            rustix::io::readv(&file, slices)
        });
        let read = read.map_err(|error| Error::io(name, error))?;
        check_size(&file, name, read, length)
    }

    /// Reads a whole file a piece at a time; `seen` gets each while it is hot in the core's cache.
    pub(crate) fn read_in_pieces(
        &self,
        index: &Index,
        sample: u32,
        into: &mut [u8],
        mut seen: impl FnMut(&[u8]),
    ) -> Result<(), Error> {
        let length = index.length(sample)?;
        if index.ranged() || length != into.len() as u64 || length <= PIECE as u64 {
            self.read(index, sample, &mut [IoSliceMut::new(into)])?;
            seen(into);
            return Ok(());
        }
        NAME.with_borrow_mut(|name| {
            index.name_into(sample, name)?;
            let file = open_file(&self.root, name)?;
            let mut read = 0;
            for piece in into.chunks_mut(PIECE) {
                let is_last = read + piece.len() as u64 == length;
                let mut beyond = [0];
                let beyond = &mut beyond[..usize::from(is_last)];
                let found = read_all(&mut [IoSliceMut::new(piece)], beyond, |slices, _| {
                    rustix::io::readv(&file, slices)
                });
                let found = found.map_err(|error| Error::io(name.as_str(), error))?;
                read += found;
                if found != piece.len() as u64 {
                    break;
                }
                seen(piece);
            }
            check_size(&file, name, read, length)
        })
    }
}

/// Small enough for a core's own cache, large enough for few calls.
const PIECE: usize = 64 << 10;

fn check_size(file: &OwnedFd, name: &str, read: u64, length: u64) -> Result<(), Error> {
    if read == length {
        return Ok(());
    }
    // The size is asked for only now, to name it.
    let found = rustix::fs::fstat(file).map_or(read, |stat| stat.st_size as u64);
    Err(Error::Size {
        name: name.to_owned(),
        found,
        expected: length,
    })
}

fn open_root(root: &Path) -> Result<OwnedFd, Error> {
    let path = || root.display().to_string();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(root, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => Error::NoRoot { path: path() },
        _ => Error::io(path(), error),
    })
}

pub(crate) fn open_file(root: &OwnedFd, name: &str) -> Result<OwnedFd, Error> {
    // NONBLOCK: opening a pipe that took a file's place must not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    rustix::fs::openat(root, name, flags, Mode::empty()).map_err(|error| Error::io(name, error))
}

fn read_range(
    file: &OwnedFd,
    name: &str,
    offset: u64,
    length: u64,
    into: &mut [IoSliceMut<'_>],
) -> Result<(), Error> {
    let read = read_all(into, &mut [], |slices, at| {
        rustix::io::preadv(file.as_fd(), slices, offset + at)
    });
    let read = read.map_err(|error| Error::io(name, error))?;
    if read == length {
        return Ok(());
    }
    Err(Error::Size {
        name: name.to_owned(),
        found: offset + read,
        expected: offset + length,
    })
}

/// Fills `into`, then `beyond`, with as few calls as the system allows. Gives the
/// bytes read, at most those of both.
fn read_all(
    into: &mut [IoSliceMut<'_>],
    beyond: &mut [u8],
    mut read: impl FnMut(&mut [IoSliceMut<'_>], u64) -> Result<usize, Errno>,
) -> Result<u64, Errno> {
    const FEW: usize = 64;
    let size = |slices: &[IoSliceMut<'_>]| slices.iter().map(|slice| slice.len()).sum::<usize>();
    let (length, extra) = (size(into), beyond.len());
    let mut done = 0;
    loop {
        // What is left to fill, as a list of its own: the caller's slices stay whole.
        let mut few: [IoSliceMut<'_>; FEW] = std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut skip = done;
        let mut used = 0;
        let all = into
            .iter_mut()
            .map(|slice| &mut slice[..])
            .chain([&mut beyond[..]]);
        for slice in all {
            if skip >= slice.len() {
                skip -= slice.len();
            } else if used < FEW {
                few[used] = IoSliceMut::new(&mut slice[skip..]);
                (skip, used) = (0, used + 1);
            }
        }
        if used == 0 {
            return Ok(done as u64);
        }
        let asks_for_all = done + size(&few[..used]) == length + extra;
        match read(&mut few[..used], done as u64) {
            Ok(0) => return Ok(done as u64),
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        // A file that has just what was asked for: the byte that is missing is its end. (A
        // read that stops there by chance, before a byte that was added, goes unnoticed:
        // the bytes given are still the first of the file.)
        if asks_for_all && extra > 0 && done == length {
            return Ok(done as u64);
        }
    }
}
