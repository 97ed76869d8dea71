//! Class folders on local disk, by torchvision's rules.
//!
//! ```text
//! root/cat/1.jpg          classes: the sorted folders of the root
//! root/cat/more/2.jpg     in a class: folders by path ("cat/a-b" before "cat/a/b"),
//! root/dog/3.jpg          in a folder: files by name
//! ```
//!
//! A few threads walk a class each, since most of the time is waiting for the file
//! system; classes go into the index in their order as they come.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use forebay_format::{IndexBuilder, Sample};
use rustix::fs::{AtFlags, Dir, FileType};

use super::walk::{Folder, not_utf8, walk};
use super::{Listing, stat};
use crate::Error;

const THREADS: usize = 8;

/// Which files count.
#[derive(Debug)]
pub(crate) struct Rules<'a> {
    given: Option<&'a [String]>,
    endings: Option<Vec<String>>,
    allow_empty: bool,
}

impl<'a> Rules<'a> {
    pub(crate) fn new(extensions: Option<&'a [String]>, allow_empty: bool) -> Self {
        let lower =
            |extensions: &[String]| extensions.iter().map(|text| text.to_lowercase()).collect();
        Self {
            given: extensions,
            endings: extensions.map(lower),
            allow_empty,
        }
    }

    /// Whether a file of this name is a sample: its lower-case name has one of the endings.
    pub(crate) fn counts(&self, name: &str) -> bool {
        let Some(endings) = &self.endings else {
            return true;
        };
        let tail = |ending: &str| {
            name.len()
                .checked_sub(ending.len())
                .is_some_and(|at| name.as_bytes()[at..].eq_ignore_ascii_case(ending.as_bytes()))
        };
        endings.iter().any(|ending| {
            if name.is_ascii() {
                tail(ending)
            } else {
                name.to_lowercase().ends_with(ending)
            }
        })
    }

    /// The error for classes without a file, if that is one.
    pub(crate) fn check_empty(&self, empty: &[&str]) -> Result<(), Error> {
        if empty.is_empty() || self.allow_empty {
            return Ok(());
        }
        let extensions = self.given.map(|given| given.join(", ")).unwrap_or_default();
        Err(Error::EmptyClasses {
            classes: empty.join(", "),
            extensions,
        })
    }
}

pub(crate) fn list(
    listing: &Listing<'_>,
    root: &OwnedFd,
    rules: &Rules<'_>,
) -> Result<IndexBuilder, Error> {
    let mut builder = listing.builder();
    let (classes, mtime) = classes(root, listing.url)?;
    builder.directory("", mtime);
    for class in &classes {
        builder.class(class);
    }
    let mut empty = Vec::new();
    let mut name = String::new();
    in_order(root, &classes, rules, listing, |label, folders| {
        if folders.iter().all(|folder| folder.len() == 0) {
            empty.push(classes[label].as_str());
        }
        for folder in folders {
            builder.directory(&folder.path, folder.mtime);
            for (file, length, validator) in folder.files() {
                name.clear();
                name.extend([folder.path.as_str(), "/", file]);
                builder.push(Sample {
                    object: &name,
                    offset: 0,
                    length,
                    label: label as i64,
                    validator,
                })?;
            }
        }
        Ok(())
    })?;
    rules.check_empty(&empty)?;
    Ok(builder)
}

/// The root's folders, sorted, and its mtime.
fn classes(root: &OwnedFd, url: &str) -> Result<(Vec<String>, i64), Error> {
    let failed = |error| Error::io(url, error);
    let now = stat::now();
    let mtime = stat::mtime(&rustix::fs::fstat(root).map_err(failed)?);
    let mut classes = Vec::new();
    for entry in Dir::read_from(root).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let is_folder = match entry.file_type() {
            FileType::Directory => true,
            FileType::Symlink | FileType::Unknown => {
                rustix::fs::statat(root, name, AtFlags::empty())
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
            }
            _ => false,
        };
        if is_folder {
            classes.push(
                name.to_str()
                    .map_err(|_| not_utf8(url, name.to_bytes()))?
                    .to_owned(),
            );
        }
    }
    if classes.is_empty() {
        return Err(Error::NoClasses {
            url: url.to_owned(),
        });
    }
    classes.sort_unstable();
    Ok((classes, stat::settled(mtime, now)))
}

/// Walks the classes with a few threads and hands them over in their order.
fn in_order(
    root: &OwnedFd,
    classes: &[String],
    rules: &Rules<'_>,
    listing: &Listing<'_>,
    mut take: impl FnMut(usize, Vec<Folder>) -> Result<(), Error>,
) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let progress = listing.progress;
    // Bounded, so that walkers do not run far ahead of the encoder.
    let (sender, receiver) = mpsc::sync_channel(4 * THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(classes.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let label = next.fetch_add(1, Ordering::Relaxed);
                    let Some(class) = classes.get(label) else {
                        return;
                    };
                    let folders = walk(root, class, rules);
                    if let Ok(folders) = &folders {
                        progress.add(folders.iter().map(|folder| folder.len() as u64).sum());
                    }
                    if sender.send((label, folders)).is_err() {
                        return; // the listing has failed elsewhere
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut wanted = 0;
        for (label, folders) in receiver {
            early.insert(label, folders);
            while let Some(folders) = early.remove(&wanted) {
                take(wanted, folders?)?;
                wanted += 1;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_compared_without_case() {
        let extensions = [".jpg".to_owned(), ".tar.GZ".to_owned()];
        let rules = Rules::new(Some(&extensions), false);
        for name in ["a.jpg", "A.JPG", ".jpg", "é.Jpg", "x.tar.gz"] {
            assert!(rules.counts(name), "{name}");
        }
        for name in ["a.jpgx", "jpg", "a.png", "é.jp", ""] {
            assert!(!rules.counts(name), "{name}");
        }
        assert!(Rules::new(None, false).counts("anything"));
    }
}
