//! The pipeline over real files: order, bytes, epochs' edges, bad samples, giving up.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::origin::Dataset;
use forebay_engine::{Draws, Engine, Error, Job, JobSettings, Next, OnError, Sequence};

use common::{engine, epoch, open, take};

fn content(sample: usize) -> Vec<u8> {
    (0..500 + sample % 90)
        .map(|at| (at * 31 + sample * 7) as u8)
        .collect()
}

fn files(root: &Path, count: usize) {
    std::fs::create_dir_all(root.join("a")).unwrap();
    for sample in 0..count {
        std::fs::write(root.join("a").join(format!("{sample:05}")), content(sample)).unwrap();
    }
}

fn dataset(count: usize) -> (tempfile::TempDir, Arc<Dataset>) {
    let dir = tempfile::tempdir().unwrap();
    files(&dir.path().join("data"), count);
    let dataset = open(dir.path());
    (dir, dataset)
}

fn job(engine: &Engine, dataset: &Arc<Dataset>, on_error: OnError) -> Job {
    engine
        .job(
            dataset.clone(),
            JobSettings {
                depth: 3,
                on_error,
                max_bad_samples: 3,
                rank: None,
                preparation: None,
                lending: None,
                gaps: false,
            },
        )
        .unwrap()
}

fn ids(sequence: &Sequence) -> Vec<u32> {
    let Sequence::Planned { epoch, rank } = sequence else {
        panic!("a planned one")
    };
    epoch.rank(*rank).collect()
}

fn drain(job: &Job) -> Vec<u32> {
    let mut seen = Vec::new();
    while let Some(batch) = take(job).unwrap() {
        for slot in 0..batch.len() {
            let id = batch.ids()[slot];
            assert_eq!(batch.sample(slot), content(id as usize));
            seen.push(id);
        }
    }
    seen
}

#[test]
fn batches_come_in_the_plans_order_with_the_files_bytes() {
    let (_dir, dataset) = dataset(100);
    for threads in [1, 2, 7] {
        for memory in [256 << 10, 16 << 20] {
            let engine = engine(memory, threads);
            let job = job(&engine, &dataset, OnError::Raise);
            for seed in 0..3 {
                let sequence = epoch(100, seed, 8);
                let expected = ids(&sequence);
                job.begin(&seed.to_string(), sequence, Draws::default())
                    .unwrap();
                assert_eq!(drain(&job), expected);
            }
        }
    }
}

#[test]
fn the_coming_epoch_is_fetched_before_it_begins_and_nothing_twice() {
    let (_dir, dataset) = dataset(60);
    let engine = engine(16 << 20, 2);
    let job = job(&engine, &dataset, OnError::Raise);
    for seed in 0..4 {
        job.begin(&seed.to_string(), epoch(60, seed, 7), Draws::default())
            .unwrap();
        job.foresee(
            &(seed + 1).to_string(),
            epoch(60, seed + 1, 7),
            Draws::default(),
        )
        .unwrap();
        assert_eq!(drain(&job), ids(&epoch(60, seed, 7)));
    }
    let stats = job.stats();
    assert_eq!((stats.epochs_foreseen, stats.reads), (3, 60));
}

#[test]
fn an_epoch_foreseen_wrongly_changes_nothing() {
    let (_dir, dataset) = dataset(60);
    let engine = engine(16 << 20, 2);
    let job = job(&engine, &dataset, OnError::Raise);
    job.begin("0", epoch(60, 0, 7), Draws::default()).unwrap();
    job.foresee("1", epoch(60, 1, 7), Draws::default()).unwrap();
    drain(&job);
    job.begin("other", epoch(60, 9, 7), Draws::default())
        .unwrap();
    assert_eq!(drain(&job), ids(&epoch(60, 9, 7)));
    assert_eq!(job.stats().epochs_foreseen, 0);
}

#[test]
fn an_epoch_given_up_in_the_middle_leaves_the_next_one_whole() {
    let (_dir, dataset) = dataset(80);
    let engine = engine(1 << 20, 3);
    let job = job(&engine, &dataset, OnError::Raise);
    for round in 0..50 {
        job.begin("a", epoch(80, round, 4), Draws::default())
            .unwrap();
        for _ in 0..round % 7 {
            take(&job).unwrap();
        }
        if round % 2 == 0 {
            job.cancel();
        }
    }
    job.begin("b", epoch(80, 5, 4), Draws::default()).unwrap();
    assert_eq!(drain(&job), ids(&epoch(80, 5, 4)));
}

#[test]
fn batches_handed_over_come_in_their_order() {
    let (_dir, dataset) = dataset(10);
    let engine = engine(1 << 20, 2);
    let job = job(&engine, &dataset, OnError::Raise);
    job.begin("listed", Sequence::listed(), Draws::default())
        .unwrap();
    job.push(vec![3, 1, 3]).unwrap();
    assert_eq!(take(&job).unwrap().unwrap().ids(), [3, 1, 3]);
    assert!(
        matches!(job.next(Duration::ZERO).unwrap(), Next::Wait),
        "more may come"
    );
    job.push(vec![]).unwrap();
    job.push(vec![9]).unwrap();
    job.close();
    assert!(take(&job).unwrap().unwrap().is_empty());
    assert_eq!(take(&job).unwrap().unwrap().ids(), [9]);
    assert!(take(&job).unwrap().is_none());
    assert!(matches!(
        job.push(vec![10]),
        Err(Error::OutOfRange {
            sample: 10,
            samples: 10
        })
    ));
}

#[test]
fn a_bad_sample_fails_its_batch_by_name() {
    let (dir, dataset) = dataset(20);
    std::fs::write(dir.path().join("data/a/00007"), b"short").unwrap();
    let engine = engine(1 << 20, 2);
    let job = job(&engine, &dataset, OnError::Raise);
    job.begin("0", epoch(20, 0, 5), Draws::default()).unwrap();
    let error = loop {
        match take(&job) {
            Ok(Some(batch)) => assert!(!batch.ids().contains(&7)),
            Ok(None) => panic!("the batch with the bad sample was delivered"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.to_string(), "sample 7 (a/00007)");
}

#[test]
fn a_bad_sample_is_replaced_by_the_same_one_every_time() {
    let (dir, dataset) = dataset(20);
    std::fs::remove_file(dir.path().join("data/a/00007")).unwrap();
    let mut stand_ins = Vec::new();
    for threads in [1, 2, 4] {
        let engine = engine(1 << 20, threads);
        let job = job(&engine, &dataset, OnError::Replace);
        for seed in 0..3 {
            job.begin("x", epoch(20, seed, 6), Draws::default())
                .unwrap();
            let seen = drain(&job);
            let at = ids(&epoch(20, seed, 6))
                .iter()
                .position(|&id| id == 7)
                .unwrap();
            stand_ins.push(seen[at]);
        }
        let bad = job.stats().bad_samples;
        assert_eq!(
            (bad.len(), bad[0].name.as_str(), job.stats().replaced),
            (1, "a/00007", 3)
        );
    }
    assert!(stand_ins.iter().all(|&id| id == stand_ins[0] && id != 7));
}

#[test]
fn more_bad_samples_than_allowed_are_an_error() {
    let (dir, dataset) = dataset(20);
    for sample in 0..4 {
        std::fs::remove_file(dir.path().join(format!("data/a/{sample:05}"))).unwrap();
    }
    let engine = engine(1 << 20, 1);
    let job = job(&engine, &dataset, OnError::Replace);
    job.begin("0", epoch(20, 0, 20), Draws::default()).unwrap();
    let error = take(&job).unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooManyBad {
                count: 4,
                limit: 3,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn several_jobs_share_one_engine_and_its_memory() {
    let (_dir, dataset) = dataset(50);
    let engine = Arc::new(engine(16 << 20, 2));
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (engine, dataset) = (engine.clone(), dataset.clone());
            scope.spawn(move || {
                let job = job(&engine, &dataset, OnError::Raise);
                for epoch_number in 0..5 {
                    let sequence = epoch(50, seed * 10 + epoch_number, 6);
                    let expected = ids(&sequence);
                    job.begin("x", sequence, Draws::default()).unwrap();
                    assert_eq!(drain(&job), expected);
                }
            });
        }
    });
    assert_eq!(
        engine.stats().memory.misses,
        50,
        "each sample was read once for all"
    );
}

#[test]
fn a_sample_that_can_never_fit_is_refused_with_the_least_budget() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("data/a")).unwrap();
    std::fs::write(dir.path().join("data/a/big"), vec![1; 1 << 20]).unwrap();
    let dataset = open(dir.path());
    let settings = JobSettings {
        depth: 2,
        on_error: OnError::Raise,
        max_bad_samples: 0,
        rank: None,
        preparation: None,
        lending: None,
        gaps: false,
    };
    let error = engine(256 << 10, 1)
        .job(dataset.clone(), settings.clone())
        .unwrap_err();
    assert!(error.hint().unwrap().contains("memory="), "{error}");
    assert!(engine(4 << 20, 1).job(dataset, settings).is_ok());
}

#[test]
fn an_engine_dropped_under_a_running_job_ends_it() {
    let (_dir, dataset) = dataset(50);
    for _ in 0..20 {
        let engine = engine(1 << 20, 2);
        let job = job(&engine, &dataset, OnError::Raise);
        job.begin("0", epoch(50, 0, 5), Draws::default()).unwrap();
        drop(engine);
        drop(job);
    }
}
