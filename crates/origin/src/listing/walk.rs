//! One class folder of a local dataset, walked as Python's `os.walk(followlinks=True)` does.
//!
//! Symbolic links are followed, to files and to folders. A link back to a folder that
//! it lies in would go round for ever (torchvision goes round until the system has
//! enough of it): here it is an error. A link that leads nowhere is a file, as
//! for torchvision, and fails when it is read.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::class_folders::Rules;
use super::stat;
use crate::Error;

/// The files of one folder. Names lie one after the other in a single string.
#[derive(Debug, Default)]
pub(crate) struct Folder {
    /// Relative to the dataset's root.
    pub(crate) path: String,
    pub(crate) mtime: i64,
    names: String,
    files: Vec<File>,
}

#[derive(Debug, Clone, Copy)]
struct File {
    start: usize,
    end: usize,
    length: u64,
    validator: u64,
}

impl Folder {
    /// Name, length and validator of each file, by name.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.files.iter().map(|file| {
            (
                &self.names[file.start..file.end],
                file.length,
                file.validator,
            )
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    fn push(&mut self, name: &str, length: u64, validator: u64) {
        let start = self.names.len();
        self.names.push_str(name);
        self.files.push(File {
            start,
            end: self.names.len(),
            length,
            validator,
        });
    }

    fn sort(&mut self) {
        let names = &self.names;
        self.files
            .sort_unstable_by(|a, b| names[a.start..a.end].cmp(&names[b.start..b.end]));
    }
}

/// Device and inode: the same folder, whatever its name.
type Id = (u64, u64);

/// A folder still to be looked at, and the folders it lies in.
struct Ahead {
    path: String,
    within: Vec<Id>,
}

/// All folders beneath `class`, itself included, in the order of their paths.
pub(crate) fn walk(root: &OwnedFd, class: &str, rules: &Rules<'_>) -> Result<Vec<Folder>, Error> {
    let mut folders = Vec::new();
    let mut ahead = vec![Ahead {
        path: class.to_owned(),
        within: Vec::new(),
    }];
    while let Some(Ahead { path, mut within }) = ahead.pop() {
        let (folder, id, inner) = read(root, path, rules)?;
        if within.contains(&id) {
            return Err(Error::Cycle { path: folder.path });
        }
        within.push(id);
        for name in inner {
            ahead.push(Ahead {
                path: format!("{}/{name}", folder.path),
                within: within.clone(),
            });
        }
        folders.push(folder);
    }
    folders.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(folders)
}

/// One folder's files, its identity, and the folders in it.
fn read(
    root: &OwnedFd,
    path: String,
    rules: &Rules<'_>,
) -> Result<(Folder, Id, Vec<String>), Error> {
    let failed = |error: Errno| Error::io(path.clone(), error);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(root, path.as_str(), flags, Mode::empty()).map_err(failed)?;
    let now = stat::now();
    let itself = rustix::fs::fstat(&fd).map_err(failed)?;
    let mtime = stat::settled(stat::mtime(&itself), now);
    let mut folder = Folder {
        mtime,
        ..Folder::default()
    };
    let mut inner = Vec::new();
    for entry in Dir::read_from(&fd).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let text = || name.to_str().map_err(|_| not_utf8(&path, name.to_bytes()));
        // The entry's type saves the stat for folders and for files that do not count.
        let mut kind = entry.file_type();
        let mut stat = None;
        if matches!(kind, FileType::Symlink | FileType::Unknown) {
            stat = follow(&fd, name)
                .map_err(|error| Error::io(format!("{path}/{}", name.to_string_lossy()), error))?;
            kind = stat.as_ref().map_or(FileType::Symlink, |stat| {
                FileType::from_raw_mode(stat.st_mode)
            });
        }
        if kind == FileType::Directory {
            inner.push(text()?.to_owned());
            continue;
        }
        if !rules.counts(&name.to_string_lossy()) {
            continue;
        }
        let text = text()?;
        let full = || format!("{path}/{text}");
        if kind == FileType::RegularFile && stat.is_none() {
            stat = follow(&fd, name).map_err(|error| Error::io(full(), error))?;
        }
        match stat {
            Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                folder.push(text, stat.st_size as u64, stat::validator(&stat));
            }
            None if matches!(kind, FileType::Symlink | FileType::RegularFile) => {
                folder.push(text, 0, 0);
            }
            _ => return Err(Error::NotAFile { path: full() }),
        }
    }
    folder.sort();
    folder.path = path;
    Ok((folder, (itself.st_dev as u64, itself.st_ino as u64), inner))
}

/// What a name stands for, links followed; `None` if it leads nowhere.
fn follow(fd: &OwnedFd, name: &std::ffi::CStr) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(fd, name, AtFlags::empty()) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn not_utf8(folder: &str, name: &[u8]) -> Error {
    Error::NotUtf8 {
        path: format!("{folder}/{}", String::from_utf8_lossy(name)),
    }
}
