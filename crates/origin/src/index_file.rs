//! The index file of a dataset: found, locked, replaced.
//!
//! ```text
//! ~/.cache/forebay/index/train-0f3a..9c.index       mapped by every process
//!                        train-0f3a..9c.lock        held by the one that lists
//!                        .tmpXXXX                   being written, renamed when whole
//! ```
//!
//! A reader sees the old file or the new one, never a part. The lock only saves the
//! work of listing twice: it belongs to an open file, so it goes when its process
//! does, and a cache that cannot lock works without.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use forebay_format::{Error as IndexError, Index, IndexBuilder, hash};

use crate::Error;
use crate::map::map;

/// Index files up to this size are checked whole when opened, which takes some 5 ms;
/// larger ones page by page as they are used.
const VERIFIED_AT_OPEN: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct IndexFile {
    path: Option<PathBuf>,
    name: String,
    key: u64,
    url: String,
    layout: String,
}

impl IndexFile {
    /// The index of the dataset `url`, laid out as `layout`. `store` tells apart
    /// stores that have equal urls (the same bucket name at another endpoint).
    pub(crate) fn new(folder: Option<PathBuf>, url: &str, layout: &str, store: &str) -> Self {
        let key = hash(format!("{url}\n{layout}\n{store}").as_bytes());
        let end = url
            .trim_end_matches('/')
            .rsplit('/')
            .next()
            .unwrap_or_default();
        let slug: String = end
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c))
            .take(40)
            .collect();
        let name = format!("{slug}-{key:016x}");
        let path = folder
            .or_else(default_folder)
            .map(|folder| folder.join(format!("{name}.index")));
        Self {
            path,
            name,
            key,
            url: url.to_owned(),
            layout: layout.to_owned(),
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// What the dataset's files are called, and the key in that name.
    pub(crate) fn name(&self) -> (&str, u64) {
        (&self.name, self.key)
    }

    /// The index, or `None` if there is no file, or why the file is of no use.
    pub(crate) fn load(&self) -> Result<Option<Index>, String> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let map = match map(path) {
            Ok(map) => map,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let read = || {
            let index = Index::parse(map)?;
            if index.file_len() <= VERIFIED_AT_OPEN {
                index.verify()?;
            }
            Ok(index)
        };
        let index = read().map_err(|error: IndexError| format!("{}: {error}", path.display()))?;
        // Another dataset with the same key is as good as no index.
        Ok((index.url() == self.url && index.layout() == self.layout).then_some(index))
    }

    /// Puts a new index in place and opens it. If that cannot be, the index is kept
    /// in memory, and the reason is given as well.
    pub(crate) fn save(&self, builder: IndexBuilder) -> Result<(Index, Option<String>), Error> {
        let Some(path) = &self.path else {
            let reason = "no cache folder: set FOREBAY_CACHE, XDG_CACHE_HOME or HOME";
            return Ok((Index::parse(builder.finish())?, Some(reason.to_owned())));
        };
        match replace(path, &builder) {
            Ok(index) => Ok((index, None)),
            Err(error) => {
                let reason = format!("index cannot be kept in {}: {error}", path.display());
                Ok((Index::parse(builder.finish())?, Some(reason)))
            }
        }
    }

    /// Waits until no other process lists this dataset. `None` if the cache cannot lock.
    pub(crate) fn lock(&self) -> Option<Lock> {
        let path = self.path.as_ref()?.with_extension("lock");
        fs::create_dir_all(path.parent()?).ok()?;
        let file = File::options().create(true).append(true).open(path).ok()?;
        file.lock().ok()?;
        Some(Lock(file))
    }
}

/// The right to list, until dropped.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough if a process was forked meanwhile: it has the file open too.
        let _ = self.0.unlock();
    }
}

fn replace(path: &Path, builder: &IndexBuilder) -> Result<Index, Box<dyn std::error::Error>> {
    let folder = path.parent().ok_or("no folder")?;
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    builder.write_to(&mut file)?;
    file.persist(path)?;
    Ok(Index::parse(map(path)?)?)
}

fn default_folder() -> Option<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("FOREBAY_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("forebay")))
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/forebay")))
        .map(|cache| cache.join("index"))
}
