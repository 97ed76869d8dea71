//! Images lent from the tier: the same pixels in every epoch, decoded once, bounded by the tier.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_engine::cache::{Held, PolicySettings, policy_by_name};
use forebay_engine::origin::Dataset;
use forebay_engine::prepare::{Scratch, head};
use forebay_engine::{
    CacheForm, Draws, Engine, EngineSettings, Job, JobSettings, LendingSettings, OnError,
};

use common::{engine, epoch, open, take};

const DRAWS: Draws = Draws {
    seed: 0,
    epoch: 0,
    first: 0,
    stride: 0,
};
const NAMES: [&str; 6] = [
    "420.jpg",
    "444.jpg",
    "cmyk.jpg",
    "grey.jpg",
    "progressive.jpg",
    "turned6.jpg",
];

fn golden(name: &str) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    crates.join("prepare/tests/golden").join(name)
}

/// Four copies of each, and behind them one file that is cut off and one that is no image.
fn pictures() -> (tempfile::TempDir, Arc<Dataset>, Vec<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("data/a");
    std::fs::create_dir_all(&folder).unwrap();
    let mut files: Vec<Vec<u8>> = (0..4)
        .flat_map(|_| NAMES.map(|name| std::fs::read(golden(name)).unwrap()))
        .collect();
    files.push(files[0][..files[0].len() / 2].to_vec());
    files.push(b"no image".to_vec());
    for (number, file) in files.iter().enumerate() {
        std::fs::write(folder.join(format!("{number:03}.jpg")), file).unwrap();
    }
    let dataset = open(dir.path());
    (dir, dataset, files)
}

fn sharing(memory: u64) -> Engine {
    Engine::new(EngineSettings {
        memory,
        readahead: memory / 4,
        policy: policy_by_name("farthest", PolicySettings::default()).unwrap(),
        disk: None,
        threads: 2,
        split: None,
        shared: true,
    })
    .unwrap()
}

fn job(engine: &Engine, dataset: &Arc<Dataset>, cache_form: CacheForm) -> Job {
    let settings = JobSettings {
        depth: 2,
        on_error: OnError::Raise,
        max_bad_samples: 0,
        rank: None,
        preparation: None,
        gaps: false,
        lending: Some(LendingSettings {
            max_pixels: 1 << 20,
            cache_form,
            most: 16,
        }),
    };
    engine.job(dataset.clone(), settings).unwrap()
}

/// What a lent image should look like in the tier.
fn packed(file: &[u8]) -> Vec<u8> {
    let mut scratch = Scratch::default();
    let image = scratch.decode(file, 1 << 20).unwrap();
    let size = [image.width.to_le_bytes(), image.height.to_le_bytes()].concat();
    [&size, image.rgb, head(file).unwrap()].concat()
}

fn bytes(held: &Held) -> Vec<u8> {
    let mut bytes = vec![0; held.len() as usize];
    held.copy_to(&mut bytes);
    bytes
}

/// Runs an epoch and checks every sample; how many were lent.
fn check_epoch(job: &Job, files: &[Vec<u8>], seed: u64) -> usize {
    job.begin("", epoch(files.len() as u32, seed, 8), DRAWS)
        .unwrap();
    let (mut seen, mut lent) = (0, 0);
    while let Some(batch) = take(job).unwrap() {
        let images = batch.lent();
        lent += images.len();
        for slot in 0..batch.len() {
            let file = &files[batch.ids()[slot] as usize];
            match images.iter().find(|(at, _)| *at == slot) {
                Some((_, held)) => assert_eq!(bytes(held), packed(file)),
                None => assert_eq!(batch.sample(slot), file),
            }
            seen += 1;
        }
    }
    assert_eq!(seen, files.len());
    lent
}

#[test]
fn images_are_decoded_once_and_what_is_none_goes_as_it_is() {
    let (_dir, dataset, files) = pictures();
    for engine in [engine(64 << 20, 2), sharing(64 << 20)] {
        let job = job(&engine, &dataset, CacheForm::Decoded);
        for seed in 0..3 {
            assert_eq!(check_epoch(&job, &files, seed), files.len() - 2);
        }
        let stats = job.stats();
        assert_eq!(stats.decoded, files.len() as u64 - 2);
        assert_eq!(stats.reads, files.len() as u64);
        assert_eq!(stats.cache_form, Some(CacheForm::Decoded));
    }
}

#[test]
fn a_tier_with_room_for_few_images_lends_what_it_can_and_is_never_passed() {
    let (_dir, dataset, files) = pictures();
    for memory in [96 << 10, 160 << 10, 320 << 10] {
        let engine = sharing(memory);
        let job = job(&engine, &dataset, CacheForm::Decoded);
        for seed in 0..4 {
            check_epoch(&job, &files, seed);
        }
        let tier = engine.stats().memory;
        assert!(tier.peak_used <= tier.capacity && tier.capacity <= memory);
    }
}

#[test]
fn what_is_to_stay_encoded_is_not_lent() {
    let (_dir, dataset, files) = pictures();
    let engine = sharing(64 << 20);
    let job = job(&engine, &dataset, CacheForm::Encoded);
    for seed in 0..2 {
        assert_eq!(check_epoch(&job, &files, seed), 0);
    }
    assert_eq!(job.stats().decoded, 0);
}

#[test]
fn a_lent_image_lies_in_the_shared_file_and_stays_there_while_it_is_held() {
    use std::os::unix::fs::FileExt;
    let (_dir, dataset, files) = pictures();
    let engine = sharing(512 << 10);
    let job = job(&engine, &dataset, CacheForm::Decoded);
    job.begin("", epoch(files.len() as u32, 5, 8), DRAWS)
        .unwrap();
    let batch = take(&job).unwrap().unwrap();
    let lent = batch.lent().clone();
    for seed in 6..9 {
        check_epoch(&job, &files, seed); // others come and go
    }
    let file = engine.shared_memory().unwrap();
    for (slot, held) in lent.iter() {
        let mut found = Vec::new();
        for (offset, len) in held.extents() {
            let mut part = vec![0; len as usize];
            file.read_exact_at(&mut part, offset).unwrap();
            found.extend(part);
        }
        assert_eq!(found, packed(&files[batch.ids()[*slot] as usize]));
    }
    assert!(!lent.is_empty());
}
