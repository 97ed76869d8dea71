//! What came of a run.
//!
//! *hits* are samples that an earlier use left in memory: they save reads of the origin. *ready*
//! are samples that had come when their batch was asked for: they save waiting. The two are never
//! added up.

use std::ops::AddAssign;

/// Figures of one rank in one epoch, or a sum of them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Samples fetched.
    pub samples: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Found in memory from an earlier use, or on their way there for another rank.
    pub hits: u64,
    /// Bytes of those.
    pub hit_bytes: u64,
    /// Read from the node's disk.
    pub log_reads: u64,
    /// Bytes of those.
    pub log_bytes: u64,
    /// Requests for them.
    pub log_requests: u64,
    /// Read from another node.
    pub peer_reads: u64,
    /// Bytes of those.
    pub peer_bytes: u64,
    /// Read from the origin, a request each.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Batches taken.
    pub batches: u64,
    /// Samples that had come when their batch was asked for.
    pub ready: u64,
    /// Samples of batches that were complete when asked for: what the engine counts as ready.
    pub ready_whole: u64,
    /// Seconds that the rank waited for batches.
    pub waited: f64,
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.samples += other.samples;
        self.bytes += other.bytes;
        self.hits += other.hits;
        self.hit_bytes += other.hit_bytes;
        self.log_reads += other.log_reads;
        self.log_bytes += other.log_bytes;
        self.log_requests += other.log_requests;
        self.peer_reads += other.peer_reads;
        self.peer_bytes += other.peer_bytes;
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.batches += other.batches;
        self.ready += other.ready;
        self.ready_whole += other.ready_whole;
        self.waited += other.waited;
    }
}

impl Figures {
    /// Hits of all samples.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits, self.samples)
    }

    /// Bytes of hits of all bytes.
    pub fn hit_byte_ratio(&self) -> f64 {
        ratio(self.hit_bytes, self.bytes)
    }

    /// Ready samples of all samples.
    pub fn ready_ratio(&self) -> f64 {
        ratio(self.ready, self.samples)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// One epoch of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Epoch {
    /// By rank.
    pub ranks: Vec<Figures>,
    /// When it began and ended, in seconds of the run.
    pub span: (f64, f64),
    /// Steps that the ranks took together.
    pub iterations: u64,
    /// Those for which the slowest rank waited more than a tenth of a step.
    pub stalled: u64,
    /// Those for which it waited so much longer than the quickest.
    pub imbalanced: u64,
}

impl Epoch {
    /// All ranks together.
    pub fn all(&self) -> Figures {
        let mut sum = Figures::default();
        for &figures in &self.ranks {
            sum += figures;
        }
        sum
    }

    /// Seconds from its first request for a batch to the end of its last step.
    pub fn seconds(&self) -> f64 {
        self.span.1 - self.span.0
    }

    /// The share of the time that a rank did not compute, on average.
    pub fn waiting(&self, step: f64) -> f64 {
        let seconds = self.seconds();
        if seconds <= 0.0 {
            return 0.0;
        }
        1.0 - (self.iterations as f64 * step / seconds).min(1.0)
    }
}

/// What came of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobReport {
    /// Its epochs; where fetching ran on after the last one, there is one more, without time.
    pub epochs: Vec<Epoch>,
}

impl JobReport {
    /// All figures of the epochs from `first` on.
    pub fn from(&self, first: usize) -> Figures {
        let mut sum = Figures::default();
        for epoch in self.epochs.iter().skip(first) {
            sum += epoch.all();
        }
        sum
    }
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// By job.
    pub jobs: Vec<JobReport>,
    /// By node.
    pub tiers: Vec<crate::memory::Stats>,
    /// Samples fetched in all.
    pub events: u64,
}
