//! A dataset in class folders and a cache of its own, for tests of what is kept on disk.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use serde_json::Value;
use tempfile::TempDir;

use super::{Ran, command, finish};

/// Bytes that no other sample has.
pub(crate) fn content(sample: usize, bytes: usize) -> Vec<u8> {
    let mut state = sample as u64 + 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// A dataset, and a cache of its own.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
}

impl Place {
    /// Samples of so many bytes each.
    pub(crate) fn new(samples: usize, bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        for sample in 0..samples {
            let path = place.root().join(format!("{}/{sample:04}", sample % 2));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content(sample, bytes)).unwrap();
        }
        place
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("train")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("cache")
    }

    pub(crate) fn command(&self, line: &str) -> std::process::Command {
        let root = self.root();
        let arguments: Vec<_> = std::iter::once("cache")
            .chain(line.split_whitespace())
            .map(|word| {
                if word == "ROOT" {
                    root.to_str().unwrap()
                } else {
                    word
                }
            })
            .collect();
        let mut command = command(&arguments);
        command.env("FOREBAY_CACHE", self.cache());
        command
    }

    pub(crate) fn run(&self, line: &str) -> Ran {
        finish(&mut self.command(line))
    }

    pub(crate) fn warm(&self, rest: &str) -> Value {
        self.run(&format!("warm ROOT --disk 64MiB --json {rest}"))
            .json()
    }

    /// The one log there is.
    pub(crate) fn status(&self) -> Value {
        let mut document = self.run("status --json").json();
        assert_eq!(document["logs"].as_array().unwrap().len(), 1, "{document}");
        document["logs"][0].take()
    }

    pub(crate) fn log(&self) -> PathBuf {
        let entries = fs::read_dir(self.cache().join("log")).unwrap();
        let mut folders = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir());
        folders.next().unwrap()
    }

    /// Turns a bit of the log at the first place where these bytes are.
    pub(crate) fn flip(&self, bytes: &[u8]) {
        for entry in fs::read_dir(self.log()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "segment") {
                continue;
            }
            let all = fs::read(&path).unwrap();
            if let Some(at) = all.windows(bytes.len()).position(|window| window == bytes) {
                let file = File::options().write(true).open(&path).unwrap();
                file.write_all_at(&[all[at] ^ 1], at as u64).unwrap();
                return;
            }
        }
        panic!("the log does not have these bytes");
    }
}

pub(crate) fn du(folder: &Path) -> u64 {
    let own = fs::symlink_metadata(folder).unwrap().blocks() * 512;
    let Ok(entries) = fs::read_dir(folder) else {
        return own;
    };
    own + entries.map(|entry| du(&entry.unwrap().path())).sum::<u64>()
}

/// What a job that writes a log has.
pub(crate) fn lock(folder: &Path) -> File {
    let path = folder.join("lease");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .unwrap();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    file
}
