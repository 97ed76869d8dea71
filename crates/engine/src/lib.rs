//! The engine: jobs and the pipeline that feeds them.
//!
//! ```text
//!   sequence          fetch ahead            copy, or decode       assemble
//!   of batches  --->  into the memory  --->  and augment, into --> batches, in
//!   (the plan)        tier, in order         the batch's slab      order
//! ```
//!
//! An [`Engine`] owns the memory tier, the crew (threads) and, once a remote
//! dataset is read, a tokio runtime. It holds any number of [`Job`]s; each job has
//! its own sequence of batches and its own queue, all share tier and crew.

mod aside;
mod batch;
mod building;
mod cache_form;
mod crew;
mod disk;
mod engine;
mod error;
mod fetch;
mod job;
mod lane;
mod leg;
mod lending;
mod logs;
mod machine;
#[cfg(test)]
mod model;
mod preparation;
mod quarantine;
mod rows;
mod sequence;
mod slab;
mod stats;
mod task;
mod watch;
mod window;

/// What the door needs of the crates below.
pub use {
    forebay_cache as cache, forebay_origin as origin, forebay_plan as plan,
    forebay_prepare as prepare,
};

pub use batch::{Batch, Lent};
pub use cache_form::CacheForm;
pub use crew::FixedSplit;
pub use disk::{DiskSettings, disk_buffers};
pub use engine::{Engine, EngineSettings};
pub use error::Error;
pub use forebay_origin::Kind;
pub use job::{Coming, Job, JobSettings, Next, OnError};
pub use lending::LendingSettings;
pub use machine::{LimitedBy, Memory, usable_memory};
pub use preparation::PreparationSettings;
pub use quarantine::{BadSample, CANDIDATES, candidate};
pub use sequence::{Draws, Sequence};
pub use slab::{Slab, SlabLease};
pub use stats::{BottleneckStats, CrewStats, EngineStats, JobStats, QueueStats};
