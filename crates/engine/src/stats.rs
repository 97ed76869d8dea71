//! Figures that a user can ask for at any time.
//!
//! *hits* are samples that an earlier use left in memory: they save reads of the
//! origin. *ready* are samples that were in their slab when asked for: they save
//! waiting. The two are never added up.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache_form::CacheForm;
use crate::crew::Totals;
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
    /// Nanoseconds that were spent on reading the origin, and of these on the processor.
    pub(crate) reading: AtomicU64,
    pub(crate) reading_on_processor: AtomicU64,
    /// Samples that were prepared, their bytes, and nanoseconds spent on it.
    pub(crate) prepared: AtomicU64,
    pub(crate) prepared_bytes: AtomicU64,
    pub(crate) preparing: AtomicU64,
    /// Nanoseconds from a batch to the demand for the next.
    pub(crate) stepping: AtomicU64,
    pub(crate) steps: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, value: u64) {
        counter.fetch_add(value, Ordering::Relaxed);
    }

    /// What the crew's pilot wants to know.
    pub(crate) fn totals(&self) -> Totals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            batches: get(&self.batches),
            samples: get(&self.samples),
            // No other node is asked yet.
            bytes: [
                get(&self.hit_bytes),
                get(&self.log_hit_bytes),
                0,
                get(&self.read_bytes),
            ],
            reading: get(&self.reading),
            reading_on_processor: get(&self.reading_on_processor),
            log_reading: 0,
            prepared: get(&self.prepared),
            prepared_bytes: get(&self.prepared_bytes),
            preparing: get(&self.preparing),
            stepping: get(&self.stepping),
            steps: get(&self.steps),
            waited: get(&self.waited_nanos),
        }
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
            reading_seconds: get(&self.reading) as f64 * 1e-9,
            prepared: get(&self.prepared),
            preparing_seconds: get(&self.preparing) as f64 * 1e-9,
            steps: get(&self.steps),
            stepping_seconds: get(&self.stepping) as f64 * 1e-9,
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
    /// Seconds spent on reads of the origin, those side by side added up.
    pub reading_seconds: f64,
    /// Samples that were prepared.
    pub prepared: u64,
    /// Seconds of threads spent on that.
    pub preparing_seconds: f64,
    /// Times that the user came back for another batch.
    pub steps: u64,
    /// Seconds from a batch to the demand for the next, of all of them.
    pub stepping_seconds: f64,
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
    /// The crew's figures.
    pub crew: CrewStats,
    /// The memory tier's figures.
    pub memory: forebay_cache::Stats,
    /// The device of the logs and their figures together, if there is one.
    pub log: Option<(&'static str, forebay_cache::log::LogStats)>,
}

/// The crew's figures: who does what now, how far its models were off, what holds all up.
#[derive(Debug, Clone)]
pub struct CrewStats {
    /// Threads.
    pub threads: usize,
    /// Of these, such that prepare first.
    pub prepare: usize,
    /// How often roles were changed while the queues stayed the same.
    pub moves: u64,
    /// How far predicted times of preparing were off lately, as a share.
    pub prepare_residual: f64,
    /// The same of reading, by tier, the nearest first.
    pub tier_residuals: [f64; 4],
    /// What holds all up, once there was an edge between batches.
    pub bottleneck: Option<BottleneckStats>,
    /// The queues in use, in no order.
    pub queues: Vec<QueueStats>,
}

/// What holds everybody up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BottleneckStats {
    /// `training` if it is the user, `prepare`, or the tier that is read: `origin`, `log`.
    pub stage: &'static str,
    /// The rank that waits longest, if there are several.
    pub rank: Option<u32>,
    /// How often it has changed.
    pub changes: u64,
}

/// A queue of the crew.
#[derive(Debug, Clone, Copy)]
pub struct QueueStats {
    /// Whose it is, if there are several ranks.
    pub rank: Option<u32>,
    /// Threads that load for it, or requests that it may have in flight.
    pub load: usize,
    /// Seconds its user takes for a batch, lately.
    pub step_seconds: f64,
    /// Seconds its user waits for a batch, lately.
    pub wait_seconds: f64,
}
