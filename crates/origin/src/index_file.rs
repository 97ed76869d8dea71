//! The index file of a dataset: found, locked, replaced.
//!
//! ```text
//! ~/.cache/forebay/index/train-0f3a..9c.index       read by every process
//!                        train-0f3a..9c.previous    the one before, if it numbered otherwise
//!                        train-0f3a..9c.lock        held by the one that lists
//!                        .tmpXXXX                   being written, renamed when whole
//! ```
//!
//! A reader sees the old file or the new one, never a part. It reads and checks all of it
//! into memory of its own: pages of a mapped file are gone when somebody cuts the file, or
//! when another host replaces it on NFS, and whoever touches them then is killed. Forked
//! processes share that memory. The lock only saves the work of listing twice: it belongs to
//! an open file, so it goes when its process does, and a cache that cannot lock works without.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use forebay_format::{Error as IndexError, Index, IndexBuilder, hash};
use rustix::io::Errno;

use crate::Error;

/// How often a file that was replaced on a network file system while it was read is opened anew.
const TRIES: usize = 3;

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
        self.path.as_ref().map_or(Ok(None), |path| self.read(path))
    }

    /// The index that the present one replaced, if it numbered samples otherwise: for processes
    /// of a job that began with it.
    pub(crate) fn load_previous(&self) -> Option<Index> {
        self.read(&previous(self.path.as_ref()?)).ok().flatten()
    }

    fn read(&self, path: &Path) -> Result<Option<Index>, String> {
        let bytes = match read_whole(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let parse = || {
            let index = Index::parse(bytes)?;
            index.verify()?;
            Ok(index)
        };
        let index = parse().map_err(|error: IndexError| format!("{}: {error}", path.display()))?;
        // Another dataset with the same key is as good as no index.
        Ok((index.url() == self.url && index.layout() == self.layout).then_some(index))
    }

    /// Puts a new index in place of `old`. If that cannot be, the index is kept in memory
    /// only, and the reason is given as well.
    pub(crate) fn save(
        &self,
        builder: IndexBuilder,
        old: Option<&Index>,
    ) -> Result<(Index, Option<String>), Error> {
        let bytes = builder.finish();
        let kept = match &self.path {
            None => Err("no cache folder: set FOREBAY_CACHE, XDG_CACHE_HOME or HOME".to_owned()),
            Some(path) => write(path, &bytes)
                .map_err(|error| format!("index cannot be kept in {}: {error}", path.display()))
                .map(|file| (file, path)),
        };
        let index = Index::parse(bytes)?;
        let placed = kept.and_then(|(file, path)| {
            if old.is_some_and(|old| old.numbering() != index.numbering()) {
                set_aside(path);
            }
            let placed = file.persist(path);
            placed.map_err(|error| {
                let error = error.error;
                format!("index cannot be kept in {}: {error}", path.display())
            })
        });
        Ok((index, placed.err()))
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

/// All bytes of a file, if there is memory for them.
fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut bytes = Vec::with_capacity(Index::START);
        (&file).take(Index::START as u64).read_to_end(&mut bytes)?;
        match Index::claimed_len(&bytes) {
            Ok(claimed) if claimed == length => {
                // One byte more: without it the end of the file makes a full vector double.
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                bytes.try_reserve_exact(length.saturating_add(1))?;
                file.read_to_end(&mut bytes)?;
            }
            // A length that somebody made up takes no memory.
            Ok(claimed) => {
                let what = format!("index is corrupt: file is {length} bytes, head says {claimed}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            Err(_) => {} // the parser says why
        }
        Ok(bytes)
    };
    let mut tries = 1;
    loop {
        match read() {
            // Another host has replaced it: the name leads to the new one.
            Err(error) if is_stale(&error) && tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::STALE.raw_os_error())
}

fn write(path: &Path, bytes: &[u8]) -> Result<tempfile::NamedTempFile, Box<dyn std::error::Error>> {
    let folder = path.parent().ok_or("no folder")?;
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    Ok(file)
}

/// Gives the file that is about to be replaced another name as well. Where that cannot be, those
/// who would have needed it get an error instead.
fn set_aside(path: &Path) {
    let previous = previous(path);
    let _ = fs::remove_file(&previous);
    let _ = fs::hard_link(path, &previous);
}

fn previous(path: &Path) -> PathBuf {
    path.with_extension("previous")
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
