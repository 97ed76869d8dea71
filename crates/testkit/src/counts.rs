//! What has passed through the proxy.
//!
//! Kept under one lock that is held for a few additions; a test takes a copy and compares.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

/// A copy of the counters, since the proxy's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Connections that clients have opened.
    pub connections: u64,
    /// Requests by method, those that met a fault included.
    pub requests: BTreeMap<String, u64>,
    /// Requests that met a rule's fault.
    pub faults: u64,
    /// Requests being served now.
    pub in_flight: u64,
    /// The most requests that were ever served at one time.
    pub max_in_flight: u64,
    /// Bytes of request bodies that came in.
    pub bytes_in: u64,
    /// Bytes of response bodies that went out, chunk framing included.
    pub bytes_out: u64,
}

impl Counts {
    /// Requests of one method.
    pub fn of(&self, method: &str) -> u64 {
        self.requests.get(method).copied().unwrap_or(0)
    }
}

/// The counters while they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counter(Mutex<Counts>);

impl Counter {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().expect("no panic while counting")
    }

    pub(crate) fn copy(&self) -> Counts {
        self.lock().clone()
    }

    /// Counts a request in, and out again when the guard goes.
    pub(crate) fn request(&self, method: &str) -> InFlight<'_> {
        let mut counts = self.lock();
        match counts.requests.get_mut(method) {
            Some(requests) => *requests += 1,
            None => {
                counts.requests.insert(method.to_owned(), 1);
            }
        }
        counts.in_flight += 1;
        counts.max_in_flight = counts.max_in_flight.max(counts.in_flight);
        InFlight(self)
    }
}

/// A request that is being served.
#[derive(Debug)]
pub(crate) struct InFlight<'a>(&'a Counter);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
    }
}
