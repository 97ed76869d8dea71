//! What can be wrong with a scenario. Every case is a call to mend.

/// Why a scenario was refused, or did not end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Points that are no curve.
    #[error("a curve needs points of ascending concurrency and throughputs above 0")]
    Curve,
    /// There is nobody to serve.
    #[error("a scenario needs a job and a node")]
    Empty,
    /// A memory that holds nothing.
    #[error("a memory of {bytes} bytes does not hold a single block")]
    Memory {
        /// What was given.
        bytes: u64,
    },
    /// A sample that can never be in memory.
    #[error("a sample of {len} bytes does not fit in a memory of {capacity} bytes")]
    Sample {
        /// Its length.
        len: u32,
        /// What there is for samples.
        capacity: u64,
    },
    /// Ranks that do not go evenly onto the nodes.
    #[error("{ranks} ranks do not go evenly onto {nodes} nodes")]
    Ranks {
        /// Of one job.
        ranks: u32,
        /// Of the scenario.
        nodes: u32,
    },
    /// A dataset that two jobs see differently, or whose lengths are missing.
    #[error("job {job}: the lengths of dataset {dataset} are missing, or others than before")]
    Dataset {
        /// Which job.
        job: usize,
        /// Its dataset.
        dataset: usize,
    },
    /// More samples than there are ids.
    #[error("more than 4,294,967,295 samples in all datasets together")]
    Samples,
    /// A time that is none, or a loader without threads, requests or batches.
    #[error("job {job}: {what}")]
    Setting {
        /// Which job.
        job: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Whoever watches had enough.
    #[error("stopped")]
    Stopped,
    /// Nothing was left to happen before the jobs were done: a bug of the simulator.
    #[error("nothing happens any more after {seconds} seconds; this is a bug")]
    Stuck {
        /// The simulated time.
        seconds: u64,
    },
}
