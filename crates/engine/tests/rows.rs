//! Batches of large samples that lie in the memory tier itself while it fills.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_engine::origin::Dataset;
use forebay_engine::{Batch, Draws, Engine, Job, JobSettings, OnError, Sequence};

use common::{engine, epoch, open, take};

const SAMPLES: u32 = 40;
const BATCH: u32 = 5;
const BATCHES: u64 = (SAMPLES / BATCH) as u64;

fn content(sample: usize) -> Vec<u8> {
    // Around one and two pieces of a read, and of a block.
    let len = [70_000, 65_536, 131_072, 20_000, 131_073][sample % 5] + sample;
    (0..len).map(|at| (at * 31 + sample * 7) as u8).collect()
}

fn dataset() -> (tempfile::TempDir, Arc<Dataset>) {
    let dir = tempfile::tempdir().unwrap();
    let class = dir.path().join("data").join("a");
    std::fs::create_dir_all(&class).unwrap();
    for sample in 0..SAMPLES as usize {
        std::fs::write(file(dir.path(), sample), content(sample)).unwrap();
    }
    let dataset = open(dir.path());
    (dir, dataset)
}

fn file(root: &Path, sample: usize) -> std::path::PathBuf {
    root.join("data").join("a").join(format!("{sample:05}"))
}

fn job(engine: &Engine, dataset: &Arc<Dataset>, on_error: OnError) -> Job {
    let settings = JobSettings {
        depth: 2,
        on_error,
        max_bad_samples: 3,
        rank: None,
        preparation: None,
        lending: None,
        gaps: true,
    };
    engine.job(dataset.clone(), settings).unwrap()
}

fn begin(job: &Job, seed: u64) {
    let sequence = epoch(SAMPLES, seed, BATCH);
    job.begin(&seed.to_string(), sequence, Draws::default())
        .unwrap();
}

fn check(batch: &Batch) {
    for (slot, &id) in batch.ids().iter().enumerate() {
        assert_eq!(batch.sample(slot), content(id as usize), "sample {id}");
    }
}

fn drain(job: &Job) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Some(batch) = take(job).unwrap() {
        check(&batch);
        batches.push(batch);
    }
    batches
}

/// Takes all batches, lets `use_it` have each, and tells how many lay in a row.
fn count_rows(job: &Job, use_it: impl Fn(&Batch)) -> u64 {
    let mut rows = 0;
    while let Some(batch) = take(job).unwrap() {
        check(&batch);
        rows += u64::from(batch.cuts().is_some());
        use_it(&batch);
    }
    rows
}

/// As a user's tensor does it.
#[allow(unsafe_code)]
fn write(batch: &Batch, slot: usize) {
    let sample = batch.sample(slot);
    // SAFETY: the batch is this thread's, and nothing else refers to its bytes while this writes.
    unsafe { sample.as_ptr().cast_mut().add(sample.len() / 2).write(0xEE) };
}

#[test]
fn a_first_epoch_makes_no_slab_and_leaves_all_it_read_in_memory() {
    let (_dir, dataset) = dataset();
    for threads in [1, 4] {
        let engine = engine(64 << 20, threads);
        let job = job(&engine, &dataset, OnError::Raise);
        begin(&job, 0);
        let rows = count_rows(&job, |_| {});
        // Where reads stand still, on a busy machine, rows end.
        assert!(rows > 0 && (rows < BATCHES || job.stats().slabs_made == 0));
        for seed in 1..3 {
            begin(&job, seed);
            assert_eq!(count_rows(&job, |_| {}), 0);
        }
        let (stats, memory) = (job.stats(), engine.stats().memory);
        assert_eq!(stats.reads, u64::from(SAMPLES));
        assert_eq!(stats.hits, 2 * u64::from(SAMPLES));
        assert_eq!((memory.spoiled, memory.held_bytes), (0, 0));
        assert_eq!(
            stats.bytes,
            3 * (0..40).map(|s| content(s).len() as u64).sum::<u64>()
        );
    }
}

#[test]
fn what_a_user_writes_into_a_batch_is_never_served() {
    let (_dir, dataset) = dataset();
    let engine = engine(64 << 20, 2);
    let job = job(&engine, &dataset, OnError::Raise);
    begin(&job, 0);
    let rows = count_rows(&job, |batch| {
        [0, 3].iter().for_each(|&slot| write(batch, slot));
    });
    assert!(rows > 0);
    for seed in 1..4 {
        begin(&job, seed);
        drain(&job);
    }
    assert_eq!(engine.stats().memory.spoiled, 2 * rows);
    assert_eq!(job.stats().reads, u64::from(SAMPLES) + 2 * rows);
}

#[test]
fn batches_that_a_user_keeps_are_nobody_elses_and_end_the_rows() {
    let (_dir, dataset) = dataset();
    // Small, so that few batches are laid ahead of the user.
    let engine = engine(5 << 20, 2);
    let job = job(&engine, &dataset, OnError::Raise);
    let begin = |seed: u64| {
        let sequence = epoch(SAMPLES, seed, 2);
        job.begin(&seed.to_string(), sequence, Draws::default())
            .unwrap();
    };
    begin(0);
    let kept = drain(&job);
    let in_rows = kept.iter().filter(|batch| batch.cuts().is_some()).count();
    assert!((1..20).contains(&in_rows), "{in_rows}");
    // The user writes at will, and the next epoch begins.
    kept.iter().for_each(|batch| write(batch, 1));
    begin(1);
    drain(&job);
    let reads = job.stats().reads;
    assert_eq!(reads, u64::from(SAMPLES) + 2 * in_rows as u64);
    drop(kept);
    begin(2);
    drain(&job);
    let memory = engine.stats().memory;
    assert_eq!((memory.held_bytes, memory.spoiled), (0, in_rows as u64));
}

#[test]
fn a_bad_sample_in_a_row_is_replaced_or_named() {
    let (dir, dataset) = dataset();
    std::fs::write(file(dir.path(), 7), b"cut").unwrap();
    let engine_ = engine(64 << 20, 2);
    let job_ = job(&engine_, &dataset, OnError::Replace);
    for seed in 0..2 {
        begin(&job_, seed);
        let batches = drain(&job_);
        assert_eq!(batches.len() as u64, BATCHES);
        assert!(batches.iter().all(|batch| !batch.ids().contains(&7)));
    }
    assert_eq!(job_.stats().bad_samples.len(), 1);

    let engine = engine(64 << 20, 2);
    let job = job(&engine, &dataset, OnError::Raise);
    begin(&job, 0);
    let mut failed = 0;
    for _ in 0..BATCHES {
        match take(&job) {
            Ok(batch) => check(&batch.unwrap()),
            Err(error) => {
                failed += 1;
                assert!(error.to_string().contains("00007"), "{error}");
            }
        }
    }
    assert_eq!(failed, 1);
}

#[test]
fn an_epoch_given_up_gives_its_rows_back() {
    let (_dir, dataset) = dataset();
    for round in 0..20 {
        let engine = engine(64 << 20, 3);
        let job = job(&engine, &dataset, OnError::Raise);
        begin(&job, round);
        for _ in 0..round % 4 {
            check(&take(&job).unwrap().unwrap());
        }
        job.cancel();
        begin(&job, round + 1);
        drain(&job);
        drop(job);
        // A thread may still be at a piece of what was given up.
        let end = Instant::now() + Duration::from_secs(30);
        while engine.stats().memory.held_bytes > 0 {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
    }
}

#[test]
fn there_are_no_rows_where_memory_is_less_than_the_dataset() {
    let (_dir, dataset) = dataset();
    let engine = engine(2 << 20, 2);
    let job = job(&engine, &dataset, OnError::Raise);
    for seed in 0..4 {
        begin(&job, seed);
        assert_eq!(count_rows(&job, |_| {}), 0);
        let memory = engine.stats().memory;
        assert!(memory.peak_used <= memory.capacity);
    }
    assert!(job.stats().hits > 0);
}

#[test]
fn a_sample_that_comes_again_at_once_is_read_again_rather_than_waited_for() {
    let (_dir, dataset) = dataset();
    let engine = engine(64 << 20, 2);
    let job = job(&engine, &dataset, OnError::Raise);
    job.begin("listed", Sequence::listed(), Draws::default())
        .unwrap();
    for ids in [[1, 2, 3], [3, 4, 5], [6, 6, 7], [1, 2, 3]] {
        job.push(ids.to_vec()).unwrap();
    }
    job.close();
    assert_eq!(drain(&job).len(), 4);
}

#[test]
fn jobs_that_share_an_engine_have_no_rows_and_read_each_sample_once() {
    let (_dir, dataset) = dataset();
    let engine = engine(64 << 20, 3);
    let jobs = [0, 1].map(|_| job(&engine, &dataset, OnError::Raise));
    jobs.iter().for_each(|job| begin(job, 0));
    for _ in 0..BATCHES {
        for job in &jobs {
            let batch = take(job).unwrap().unwrap();
            check(&batch);
            assert!(batch.cuts().is_none());
        }
    }
    assert_eq!(
        jobs[0].stats().reads + jobs[1].stats().reads,
        u64::from(SAMPLES)
    );
}
