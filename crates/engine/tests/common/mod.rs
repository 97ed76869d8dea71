//! What the engine's tests share.
#![allow(dead_code)] // each test binary uses its own part

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::cache::{PolicySettings, policy_by_name};
use forebay_engine::origin::{Dataset, DatasetSpec, Layout};
use forebay_engine::plan::{Deal, Order, Plan, Uneven};
use forebay_engine::{Batch, Engine, EngineSettings, Error, Job, Next, Sequence};

/// The class folders under `root/data`.
pub(crate) fn open(root: &Path) -> Arc<Dataset> {
    let layout = Layout::ClassFolders {
        extensions: None,
        allow_empty: false,
    };
    let mut spec = DatasetSpec::new(root.join("data").to_str().unwrap(), layout);
    spec.index_dir = Some(root.join("index"));
    Arc::new(Dataset::open(&spec, &()).unwrap())
}

pub(crate) fn engine(memory: u64, threads: usize) -> Engine {
    let policy = policy_by_name("farthest", PolicySettings::default()).unwrap();
    Engine::new(EngineSettings {
        memory,
        readahead: 64 << 20,
        policy,
        disk: None,
        threads,
        split: None,
        shared: false,
    })
    .unwrap()
}

pub(crate) fn epoch(samples: u32, seed: u64, batch: u32) -> Sequence {
    let deal = Deal::Strided {
        uneven: Uneven::Pad,
    };
    let plan = Plan::new(samples, Order::Seeded { seed }, deal, 1, Some(batch), false).unwrap();
    Sequence::Planned {
        epoch: plan.epoch(0),
        rank: 0,
    }
}

pub(crate) fn take(job: &Job) -> Result<Option<Batch>, Error> {
    loop {
        match job.next(Duration::from_secs(1))? {
            Next::Batch(batch) => return Ok(Some(batch)),
            Next::End => return Ok(None),
            Next::Wait => {}
        }
    }
}
