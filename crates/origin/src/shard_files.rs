//! Archives held open while they are read from: a bounded set, least recently used first out.
//!
//! A shard holds thousands of samples, so opening it for each would be waste. Whether
//! it is still the file that was indexed is asked once, when it is opened; after that
//! the open file cannot be replaced under us.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Error;
use crate::listing::stat::validator;
use crate::local::open_file;

/// Open at a time, at most.
const LIMIT: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct ShardFiles {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    files: HashMap<String, (Arc<OwnedFd>, u64)>,
    clock: u64,
}

impl ShardFiles {
    /// The open file of a shard; `expected` is its validator in the index, 0 for none.
    pub(crate) fn open(
        &self,
        root: &OwnedFd,
        name: &str,
        expected: u64,
    ) -> Result<Arc<OwnedFd>, Error> {
        if let Some(file) = self.find(name) {
            return Ok(file);
        }
        let file = Arc::new(open_file(root, name)?);
        let stat = rustix::fs::fstat(&file).map_err(|error| Error::io(name, error))?;
        if expected != 0 && validator(&stat) != expected {
            return Err(Error::Changed {
                name: name.to_owned(),
            });
        }
        self.keep(name, &file);
        Ok(file)
    }

    fn find(&self, name: &str) -> Option<Arc<OwnedFd>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clock += 1;
        let now = open.clock;
        let (file, used) = open.files.get_mut(name)?;
        *used = now;
        Some(file.clone())
    }

    fn keep(&self, name: &str, file: &Arc<OwnedFd>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.files.len() >= LIMIT {
            let oldest = open
                .files
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                open.files.remove(&oldest);
            }
        }
        let now = open.clock;
        open.files.insert(name.to_owned(), (file.clone(), now));
    }
}
