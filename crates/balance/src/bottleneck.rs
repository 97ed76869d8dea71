//! Which stage of which queue holds everybody up.

use crate::split::{Demand, Times};
use crate::throughput::Tier;

/// A stage on the way of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The consumers themselves: data is there when they ask.
    Training,
    /// Reading, from that tier for the most part.
    Load(Tier),
    /// Decoding and augmenting.
    Prepare,
}

impl Stage {
    /// What users read.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Training => "training",
            Stage::Load(Tier::Memory) => "memory",
            Stage::Load(Tier::Log) => "log",
            Stage::Load(Tier::Peer) => "peer",
            Stage::Load(Tier::Origin) => "origin",
            Stage::Prepare => "prepare",
        }
    }
}

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bottleneck {
    pub stage: Stage,
    /// Which queue, by its place; none where it is the training.
    pub queue: Option<usize>,
}

/// Waiting below this share of a step is not worth a word.
const WORTH_A_WORD: f64 = 0.1;

/// The one that waits longest, by what was measured (`waits`: seconds a batch), and the stage that
/// is predicted to be its slowest. `per_tier`: its seconds of loading by tier.
pub(crate) fn find(
    demands: &[Demand],
    waits: &[f64],
    times: &[Times],
    per_tier: impl Fn(usize) -> [(Tier, f64); 4],
) -> Bottleneck {
    let slowest = (0..demands.len())
        .filter(|&at| waits[at] > WORTH_A_WORD * (demands[at].step + waits[at]))
        .max_by(|&a, &b| waits[a].total_cmp(&waits[b]).then(b.cmp(&a)));
    let Some(queue) = slowest else {
        return Bottleneck {
            stage: Stage::Training,
            queue: None,
        };
    };
    let stage = if times[queue].prepare > times[queue].load {
        Stage::Prepare
    } else {
        let dearest = per_tier(queue)
            .into_iter()
            .max_by(|(_, a), (_, b)| a.total_cmp(b));
        Stage::Load(dearest.map_or(Tier::Origin, |(tier, _)| tier))
    };
    Bottleneck {
        stage,
        queue: Some(queue),
    }
}
