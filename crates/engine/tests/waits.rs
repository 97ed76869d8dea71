//! Batches that once never came: every wait here ends within a minute, or is a failure.

mod common;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_engine::cache::log::{Device, DeviceChoice, Done, LayoutChoice, Op, transfer};
use forebay_engine::cache::{PolicySettings, policy_by_name};
use forebay_engine::origin::Dataset;
use forebay_engine::{
    Batch, DiskSettings, Draws, Engine, EngineSettings, Error, Job, JobSettings, Next, OnError,
    Sequence,
};

use common::{epoch, open};

const LONG: Duration = Duration::from_secs(60);

fn dataset(root: &Path, count: u32) -> Arc<Dataset> {
    std::fs::create_dir_all(root.join("data/a")).unwrap();
    for sample in 0..count {
        let path = root.join("data/a").join(format!("{sample:05}"));
        std::fs::write(path, vec![sample as u8; 3000]).unwrap();
    }
    open(root)
}

fn job(engine: &Engine, dataset: &Arc<Dataset>, depth: usize) -> Job {
    let settings = JobSettings {
        depth,
        on_error: OnError::Raise,
        max_bad_samples: 0,
        rank: None,
        preparation: None,
        lending: None,
        gaps: false,
    };
    engine.job(dataset.clone(), settings).unwrap()
}

/// The next batch; its bytes are checked.
fn next(job: &Job) -> Result<Option<Batch>, Error> {
    let batch = match job.next(LONG)? {
        Next::Wait => panic!("no batch within {LONG:?}"),
        Next::End => return Ok(None),
        Next::Batch(batch) => batch,
    };
    for (slot, id) in batch.ids().iter().enumerate() {
        assert_eq!(batch.sample(slot), vec![*id as u8; 3000]);
    }
    Ok(Some(batch))
}

#[test]
fn a_batch_after_one_that_failed_comes_though_the_crew_was_asleep() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = dataset(dir.path(), 6);
    for bad in [0, 1, 4] {
        std::fs::remove_file(dir.path().join(format!("data/a/{bad:05}"))).unwrap();
    }
    let engine = common::engine(1 << 20, 1);
    for _ in 0..5 {
        let job = job(&engine, &dataset, 1);
        let sequence = Sequence::Listed {
            batches: (0..6).map(|id| vec![id]).collect(),
            closed: true,
        };
        job.begin("listed", sequence, Draws::default()).unwrap();
        for id in 0..6 {
            // It fetches ahead as long as it may, and falls asleep.
            std::thread::sleep(Duration::from_millis(10));
            match next(&job) {
                Ok(batch) => assert_eq!(batch.unwrap().ids(), [id]),
                Err(error) => assert!([0, 1, 4].contains(&id), "{error}"),
            }
        }
        assert!(next(&job).unwrap().is_none());
    }
}

/// A disk whose reads are a bug once it is told to.
struct Breaking {
    breaks: Arc<AtomicBool>,
    under_way: VecDeque<Op>,
}

impl Device for Breaking {
    fn name(&self) -> &'static str {
        "breaking"
    }

    fn start(&mut self, op: Op) {
        let breaks = self.breaks.load(Ordering::SeqCst) && !op.write;
        assert!(!breaks, "a bug in a test");
        self.under_way.push_back(op);
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        while let Some(mut op) = self.under_way.pop_front() {
            let result = transfer(&mut op);
            done.push(Done { op, result });
        }
    }

    fn in_flight(&self) -> usize {
        self.under_way.len()
    }
}

#[test]
fn samples_of_a_log_whose_reader_broke_are_read_from_the_origin() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = dataset(dir.path(), 50);
    let breaks = Arc::new(AtomicBool::new(false));
    let told = breaks.clone();
    let device = DeviceChoice::Own(Arc::new(move || {
        Box::new(Breaking {
            breaks: told.clone(),
            under_way: VecDeque::new(),
        })
    }));
    let engine = Engine::new(EngineSettings {
        memory: 16 << 20,
        readahead: 4 << 20,
        policy: policy_by_name("none", PolicySettings::default()).unwrap(),
        disk: Some(DiskSettings {
            dirs: vec![dir.path().join("cache")],
            bytes: 16 << 20,
            floor: 0,
            layout: LayoutChoice::Packed,
            chunk: None,
            device,
        }),
        threads: 2,
        split: None,
        shared: false,
    })
    .unwrap();
    let job = job(&engine, &dataset, 3);
    for pass in 0..3 {
        breaks.store(pass == 1, Ordering::SeqCst);
        let reads = job.stats().reads;
        job.begin(&pass.to_string(), epoch(50, pass, 8), Draws::default())
            .unwrap();
        let mut samples = 0;
        while let Some(batch) = next(&job).unwrap() {
            samples += batch.len();
        }
        assert_eq!((samples, job.stats().reads - reads), (50, 50), "{pass}");
        engine.log(&dataset).unwrap().flush();
    }
    let warnings = job.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("its thread broke"), "{warnings:?}");
}
