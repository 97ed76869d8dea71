//! Finding a dataset's samples, by its layout.
//!
//! A listing ends in an [`IndexBuilder`]: samples in the order that gives them their
//! ids. For class folders that order is torchvision's; a manifest's is its own; shards
//! come in the order of their names, samples in the order of the archive.

mod bucket_folders;
mod class_folders;
mod manifest;
mod manifest_rows;
mod shards;
pub(crate) mod stat;
mod walk;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_format::{Index, IndexBuilder};
use rustix::fs::AtFlags;

use crate::local::Local;
use crate::remote::Remote;
use crate::{Error, Layout, Progress};

/// Where to list.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Local(&'a Local),
    Remote(&'a Remote),
}

/// What to list, and what is known already.
pub(crate) struct Listing<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) layout: &'a Layout,
    /// The address for errors and for the index.
    pub(crate) url: &'a str,
    /// The layout's tag for the index.
    pub(crate) tag: &'a str,
    /// Shards named one by one, for [`Layout::Tar`].
    pub(crate) shards: Option<&'a [String]>,
    /// The index before, whose unchanged archives need no second look.
    pub(crate) old: Option<&'a Index>,
    pub(crate) progress: &'a Counter<'a>,
}

impl Listing<'_> {
    pub(crate) fn run(&self) -> Result<IndexBuilder, Error> {
        let builder = match self.layout {
            Layout::ClassFolders {
                extensions,
                allow_empty,
            } => {
                let rules = class_folders::Rules::new(extensions.as_deref(), *allow_empty);
                match &self.source {
                    Source::Local(local) => class_folders::list(self, local.fd(), &rules),
                    Source::Remote(remote) => bucket_folders::list(self, remote, &rules),
                }
            }
            Layout::Manifest {
                manifest,
                allow_outside,
            } => manifest::list(self, manifest, *allow_outside),
            Layout::Tar => shards::list(self),
        }?;
        self.progress.done();
        Ok(builder)
    }

    fn builder(&self) -> IndexBuilder {
        IndexBuilder::new(self.url, self.tag)
    }
}

/// Counts what is found, from many threads, and tells the watcher now and then.
pub(crate) struct Counter<'a> {
    progress: &'a dyn Progress,
    found: AtomicU64,
}

/// Objects between two words to the watcher.
const EVERY: u64 = 1000;

impl<'a> Counter<'a> {
    pub(crate) fn new(progress: &'a dyn Progress) -> Self {
        Self {
            progress,
            found: AtomicU64::new(0),
        }
    }

    fn add(&self, objects: u64) {
        let before = self.found.fetch_add(objects, Ordering::Relaxed);
        if before / EVERY != (before + objects) / EVERY {
            self.progress.listed(before + objects);
        }
    }

    fn done(&self) {
        self.progress.listed(self.found.load(Ordering::Relaxed));
        self.progress.done();
    }
}

/// Runs a listing's requests on a runtime of its own.
fn block_on<T>(task: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .map_err(|error| Error::io("network runtime", error))?
        .block_on(task)
}

/// Whether a local listing may be stale: a path it depends on has another mtime.
pub(crate) fn is_stale(root: &OwnedFd, index: &Index) -> Result<bool, Error> {
    for directory in index.directories()? {
        let path = if directory.path.is_empty() {
            "."
        } else {
            &directory.path
        };
        match rustix::fs::statat(root, path, AtFlags::empty()) {
            Ok(stat) if stat::mtime(&stat) == directory.mtime => {}
            _ => return Ok(true),
        }
    }
    Ok(false)
}
