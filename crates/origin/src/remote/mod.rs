//! Objects elsewhere: buckets and web servers.
//!
//! ```text
//! read_group -> fetch: permits, deadline, retries, resume, hedge
//!                 |
//!               store (object_store, its own retries off) -> http: statuses seen here
//! ```
//!
//! The promise is kept here: the bytes given are those of the object that was indexed,
//! or there is an error once there was no progress for as long as the deadline.

mod fetch;
mod http;
mod list;
mod retry;
mod store;
mod version;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use object_store::ObjectStore;
use object_store::path::Path;
use tokio::sync::Semaphore;
use url::Url;

use crate::{DatasetSpec, Error, ReadSettings};

pub(crate) use fetch::Want;
pub(crate) use list::Object;

/// A root in an object store.
pub(crate) struct Remote {
    store: Arc<dyn ObjectStore>,
    /// The root's path in the store.
    prefix: Path,
    /// Which store, where urls do not say (the endpoint).
    pub(crate) identity: String,
    /// The root, without secrets, for errors.
    url: String,
    /// Whether listing means WebDAV, which few web servers speak.
    is_http: bool,
    settings: ReadSettings,
    requests: Semaphore,
    bytes: Semaphore,
    /// The versions of objects that the index has none of, by the hash of their names.
    learned: Mutex<HashMap<u64, u64>>,
}

/// The store's own words would tell the key's name.
impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Bytes in flight are counted in units of this many.
const UNIT: u64 = 4096;

impl Remote {
    /// Makes a client for a root; connects to nothing yet.
    pub(crate) fn new(url: &Url, spec: &DatasetSpec) -> Result<Self, Error> {
        let store::Built {
            store,
            prefix,
            identity,
        } = store::build(url, &spec.storage_options)?;
        let settings = spec.read.clone();
        let units = (settings.bytes_in_flight / UNIT).clamp(1, Semaphore::MAX_PERMITS as u64 / 2);
        Ok(Self {
            store,
            prefix,
            identity,
            url: crate::redact(url.as_str()).trim_end_matches('/').to_owned(),
            is_http: matches!(url.scheme(), "http" | "https"),
            requests: Semaphore::new(settings.requests_in_flight.clamp(1, Semaphore::MAX_PERMITS)),
            bytes: Semaphore::new(units.min(u64::from(u32::MAX)) as usize),
            settings,
            learned: Mutex::default(),
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// An object's path in the store.
    fn path(&self, name: &str) -> Result<Path, Error> {
        let invalid = |what: String| Error::Refused {
            name: format!("{}/{name}", self.url),
            cause: what,
        };
        let relative = Path::parse(name).map_err(|error| invalid(error.to_string()))?;
        Ok(self.prefix.parts().chain(relative.parts()).collect())
    }

    /// An object's name for errors.
    fn show(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }
}
