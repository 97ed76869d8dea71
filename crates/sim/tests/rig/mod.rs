//! Scenarios for the tests.
#![allow(dead_code)] // each test file uses a part

use std::sync::Arc;

use forebay_plan::{Deal, Order, Plan, Uneven};
use forebay_policy::{Settings, by_name};
use forebay_sim::{Access, Costs, Job, Loading, MakePolicy, Memory, Scenario, Sizes};

pub(crate) fn plan(samples: u32, world: u32, batch: u32, seed: u64) -> Plan {
    let deal = Deal::Strided {
        uneven: Uneven::Keep,
    };
    Plan::new(
        samples,
        Order::Seeded { seed },
        deal,
        world,
        Some(batch),
        false,
    )
    .unwrap()
}

pub(crate) fn policy(name: &'static str, epoch: u64) -> MakePolicy {
    let settings = Settings {
        epoch: Some(epoch),
        sole_copy: true,
    };
    Arc::new(move |_| by_name(name, settings).unwrap())
}

/// A loader that looks at nothing ahead: one thread, one sample after the other.
pub(crate) fn plain() -> Loading {
    Loading {
        depth: 1,
        run: 1,
        readahead: 0,
        across: false,
        ..Loading::local(1)
    }
}

/// One node, one job of three epochs.
pub(crate) fn scenario(name: &'static str, samples: u32, world: u32, kept: u64) -> Scenario {
    Scenario {
        jobs: vec![Job {
            plan: plan(samples, world, 16, 3),
            dataset: 0,
            sizes: Sizes::Equal(100),
            first_epoch: 0,
            epochs: 3,
            step: 0.01,
            loading: plain(),
        }],
        nodes: 1,
        memory: Memory::Exact {
            kept,
            transit: 1 << 20,
        },
        policy: policy(name, u64::from(samples / world)),
        log: None,
        peers: false,
        costs: Costs::origin_only(Access::flat(1e6)),
    }
}
