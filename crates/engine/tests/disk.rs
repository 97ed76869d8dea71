//! The disk tier from its engine: logs of several datasets at once.

mod common;

use std::path::Path;
use std::sync::Arc;

use forebay_engine::cache::log::{DeviceChoice, LayoutChoice, used};
use forebay_engine::cache::{PolicySettings, policy_by_name};
use forebay_engine::origin::Dataset;
use forebay_engine::{DiskSettings, Draws, Engine, EngineSettings, JobSettings, OnError};

use common::{epoch, open, take};

const LIMIT: u64 = 16 << 20;

fn engine(cache: &Path) -> Engine {
    let disk = DiskSettings {
        dirs: vec![cache.to_owned()],
        bytes: LIMIT,
        floor: 0,
        layout: LayoutChoice::Packed,
        chunk: None,
        device: DeviceChoice::Auto,
    };
    Engine::new(EngineSettings {
        memory: 16 << 20,
        readahead: 4 << 20,
        policy: policy_by_name("none", PolicySettings::default()).unwrap(),
        disk: Some(disk),
        threads: 2,
        split: None,
        shared: false,
    })
    .unwrap()
}

/// A dataset of `count` files of `size` bytes.
fn dataset(root: &Path, count: u32, size: usize) -> Arc<Dataset> {
    std::fs::create_dir_all(root.join("data/a")).unwrap();
    for sample in 0..count {
        let bytes = vec![sample as u8; size];
        std::fs::write(root.join("data/a").join(format!("{sample:05}")), bytes).unwrap();
    }
    open(root)
}

/// Reads an epoch and waits until its samples are in the log.
fn train(engine: &Engine, dataset: &Arc<Dataset>, seed: u64) {
    let settings = JobSettings {
        depth: 3,
        on_error: OnError::Raise,
        max_bad_samples: 0,
        rank: None,
        preparation: None,
        lending: None,
        gaps: false,
    };
    let job = engine.job(dataset.clone(), settings).unwrap();
    let sequence = epoch(dataset.index().len(), seed, 8);
    job.begin("an epoch", sequence, Draws::default()).unwrap();
    while take(&job).unwrap().is_some() {}
    engine.log(dataset).unwrap().flush();
}

#[test]
fn the_figures_are_those_of_all_logs() {
    let dir = tempfile::tempdir().unwrap();
    let few = dataset(&dir.path().join("few"), 40, 3000);
    let many = dataset(&dir.path().join("many"), 200, 700);
    let cache = dir.path().join("cache");
    let engine = engine(&cache);
    assert!(engine.stats().log.is_none(), "no log is open yet");
    for seed in 0..2 {
        train(&engine, &few, seed);
        train(&engine, &many, seed);
    }
    let (_, together) = engine.stats().log.unwrap();
    let [few, many] = [few, many].map(|dataset| engine.log(&dataset).unwrap().stats());
    assert!(few.written > 0 && many.written > 0 && few.reads > 0 && many.reads > 0);
    assert_eq!(together.written, few.written + many.written);
    assert_eq!(
        together.written_bytes,
        few.written_bytes + many.written_bytes
    );
    assert_eq!(together.reads, few.reads + many.reads);
    assert_eq!(together.read_bytes, few.read_bytes + many.read_bytes);
    assert!(together.writes);
    // All logs of a directory share its bytes: they are not counted twice.
    assert_eq!(together.disk_bytes, used(&cache.join("log")));
    assert_eq!(together.disk_limit, LIMIT);
}
