//! Figures that a user can ask for at any time.
//!
//! *hits* are samples that an earlier use left in memory: they save reads of the
//! origin. *ready* are samples that were in their slab when asked for: they save
//! waiting. The two are never added up.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache_form::CacheForm;
use crate::quarantine::BadSample;

/// Counters of a job, written by many threads.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) samples: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) hit_bytes: AtomicU64,
    pub(crate) log_hits: AtomicU64,
    pub(crate) log_hit_bytes: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) ready: AtomicU64,
    pub(crate) waited_nanos: AtomicU64,
    pub(crate) replaced: AtomicU64,
    pub(crate) foreseen: AtomicU64,
    pub(crate) decoded: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, value: u64) {
        counter.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> JobStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        JobStats {
            batches: get(&self.batches),
            samples: get(&self.samples),
            bytes: get(&self.bytes),
            hits: get(&self.hits),
            hit_bytes: get(&self.hit_bytes),
            log_hits: get(&self.log_hits),
            log_hit_bytes: get(&self.log_hit_bytes),
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            ready: get(&self.ready),
            waited_seconds: get(&self.waited_nanos) as f64 * 1e-9,
            replaced: get(&self.replaced),
            epochs_foreseen: get(&self.foreseen),
            decoded: get(&self.decoded),
            ..JobStats::default()
        }
    }
}

/// A job's figures so far.
#[derive(Debug, Clone, Default)]
pub struct JobStats {
    /// Batches the user took.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes of those samples.
    pub bytes: u64,
    /// Samples found in memory from an earlier use.
    pub hits: u64,
    /// Their bytes.
    pub hit_bytes: u64,
    /// Samples read from the log on disk.
    pub log_hits: u64,
    /// Their bytes.
    pub log_hit_bytes: u64,
    /// Samples read from the origin.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Samples whose batch was complete when the user asked for it.
    pub ready: u64,
    /// Seconds the user's thread waited for batches.
    pub waited_seconds: f64,
    /// Samples that a stand-in took the place of.
    pub replaced: u64,
    /// Epochs that were fetched ahead before they began.
    pub epochs_foreseen: u64,
    /// Images that were decoded by the engine.
    pub decoded: u64,
    /// Batch buffers in use: filling, ready or with the user.
    pub slabs_out: usize,
    /// Batch buffers ever made.
    pub slabs_made: u64,
    /// The most bytes of batch buffers in use at one time.
    pub slab_peak_bytes: u64,
    /// The form in which images stay in memory, once it is chosen.
    pub cache_form: Option<CacheForm>,
    /// The samples in quarantine.
    pub bad_samples: Vec<BadSample>,
}

/// The engine's figures so far.
#[derive(Debug, Clone)]
pub struct EngineStats {
    /// Threads of the crew.
    pub threads: usize,
    /// The memory tier's figures.
    pub memory: forebay_cache::Stats,
    /// The log's device and figures, if there is one.
    pub log: Option<(&'static str, forebay_cache::log::LogStats)>,
}
