//! What is simulated: jobs, nodes, what things cost.
//!
//! ```text
//!   job 0   rank 0  rank 1 | rank 2  rank 3      ranks fill the nodes in order,
//!   job 1   rank 0  rank 1 | rank 2  rank 3      those of one job step together
//!           -------------- | --------------
//!           node 0: memory, log    node 1: memory, log      peers
//!           -----------------------------------------
//!                           origin
//! ```

use std::fmt;
use std::sync::Arc;

use forebay_plan::Plan;
use forebay_policy::Policy;

use crate::curve::Access;
use crate::room::Memory;
use crate::sizes::Sizes;

/// Makes the policy of a node.
pub type MakePolicy = Arc<dyn Fn(u32) -> Box<dyn Policy> + Send + Sync>;

/// Everything that a run depends on. The same scenario gives the same figures.
#[derive(Clone)]
pub struct Scenario {
    /// Those who train.
    pub jobs: Vec<Job>,
    /// How many nodes there are; all alike.
    pub nodes: u32,
    /// The memory of each node.
    pub memory: Memory,
    /// What stays in it.
    pub policy: MakePolicy,
    /// The disk of each node, if it keeps samples there.
    pub log: Option<Log>,
    /// Whether nodes serve each other from memory.
    pub peers: bool,
    /// What things cost.
    pub costs: Costs,
}

impl fmt::Debug for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scenario")
            .field("jobs", &self.jobs)
            .field("nodes", &self.nodes)
            .field("memory", &self.memory)
            .field("log", &self.log)
            .field("peers", &self.peers)
            .field("costs", &self.costs)
            .finish_non_exhaustive()
    }
}

/// One training run.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its order, ranks and batches.
    pub plan: Plan,
    /// Jobs with the same number use the same samples.
    pub dataset: usize,
    /// The lengths of its samples.
    pub sizes: Sizes,
    /// The first epoch of the plan that is run.
    pub first_epoch: u64,
    /// How many epochs.
    pub epochs: u32,
    /// Seconds that a rank computes on a batch.
    pub step: f64,
    /// How each of its ranks loads.
    pub loading: Loading,
}

/// How a rank brings its samples in. [`Loading::local`] and [`Loading::remote`] are the engine's.
#[derive(Debug, Clone, PartialEq)]
pub struct Loading {
    /// Threads that place samples in batches, and prepare them.
    pub threads: u32,
    /// Requests in flight. `None`: the threads themselves read, one sample at a time each.
    pub requests: Option<u32>,
    /// Batches that are filled or full ahead of the user.
    pub depth: u32,
    /// Bytes that may be fetched into memory ahead of those batches.
    pub readahead: u64,
    /// Most samples one thread takes at a time.
    pub run: u32,
    /// Most bytes of them.
    pub run_bytes: u64,
    /// Fetching goes on into the coming epoch before this one ends.
    pub across: bool,
    /// It goes on so after the last epoch too: no loader knows that it is the last.
    pub runs_on: bool,
    /// The policy hears when samples are wanted next.
    pub foresight: bool,
    /// Seconds of a thread to prepare a sample (decode, augment).
    pub prepare: f64,
}

impl Loading {
    /// The engine on local files.
    pub fn local(threads: u32) -> Self {
        Self {
            threads,
            requests: None,
            depth: 3,
            readahead: 256 << 20,
            run: 16,
            run_bytes: 1 << 20,
            across: true,
            runs_on: false,
            foresight: true,
            prepare: 0.0,
        }
    }

    /// The engine on objects of a store.
    pub fn remote(threads: u32, requests: u32) -> Self {
        Self {
            requests: Some(requests),
            ..Self::local(threads)
        }
    }
}

/// The disk of a node as a cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// Bytes of samples that it holds.
    pub capacity: u64,
    /// How they lie there.
    pub layout: Layout,
    /// Samples that one request brings.
    pub together: u32,
    /// Requests in flight.
    pub requests: u32,
    /// The threads of a loader that has no requests read it themselves, one sample after the
    /// other, as files are read; else all that is wanted is asked for together.
    pub by_threads: bool,
}

/// How samples lie in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Written once as they come; a full log stays as it is.
    Packed,
    /// Written anew each epoch in the order of the next one. Both lie there at once, so half the
    /// capacity is each one's.
    Reorder,
}

/// What things cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Copying a sample from memory into its batch.
    pub memory: Access,
    /// Reading from the node's disk.
    pub log: Access,
    /// Reading from another node's memory.
    pub peer: Access,
    /// Reading from the origin.
    pub origin: Access,
}

impl Costs {
    /// Everything but the origin costs nothing.
    pub fn origin_only(origin: Access) -> Self {
        let free = Access::flat(f64::MAX);
        Self {
            memory: free.clone(),
            log: free.clone(),
            peer: free,
            origin,
        }
    }
}
