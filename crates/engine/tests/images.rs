//! The pipeline over real images: finished samples, whatever the threads, forms and bad files.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forebay_engine::origin::Dataset;
use forebay_engine::prepare::{Draw, Recipe, Scratch};
use forebay_engine::{
    CacheForm, Draws, Engine, Error, Job, JobSettings, Kind, OnError, PreparationSettings,
};

use common::{engine, epoch, open, take};

const RECIPE: &str = r#"{"decode": "exact", "orient": false, "max_pixels": 1000000, "order": "chw",
    "steps": [
        {"op": "random_resized_crop", "height": 16, "width": 16, "scale": [0.08, 1.0],
         "ratio": [0.75, 1.3333333333333333], "filter": "bilinear"},
        {"op": "horizontal_flip", "p": 0.5},
        {"op": "to_tensor"},
        {"op": "normalize", "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}]}"#;

const DRAWS: Draws = Draws {
    seed: 7,
    epoch: 3,
    first: 0,
    stride: 1,
};

fn file(root: &Path, sample: usize) -> std::path::PathBuf {
    root.join("data/a").join(format!("{sample:05}.png"))
}

/// Pictures of slightly different sizes, no two alike.
fn pictures(count: usize) -> (tempfile::TempDir, Arc<Dataset>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("data/a")).unwrap();
    for sample in 0..count {
        let (width, height) = (40 + sample as u32 % 7, 30 + sample as u32 % 5);
        image::RgbImage::from_fn(width, height, |x, y| {
            image::Rgb([
                (x * 5) as u8,
                (y * 7) as u8,
                (sample * 11 + (x * y) as usize) as u8,
            ])
        })
        .save(file(dir.path(), sample))
        .unwrap();
    }
    let dataset = open(dir.path());
    (dir, dataset)
}

fn job(engine: &Engine, dataset: &Arc<Dataset>, cache_form: CacheForm, on_error: OnError) -> Job {
    let preparation = PreparationSettings {
        recipe: Arc::new(Recipe::from_json(RECIPE).unwrap()),
        cache_form,
    };
    let settings = JobSettings {
        depth: 3,
        on_error,
        max_bad_samples: 3,
        rank: None,
        preparation: Some(preparation),
        lending: None,
        gaps: false,
    };
    engine.job(dataset.clone(), settings).unwrap()
}

/// Ids and bytes in the order in which they come.
fn drain(job: &Job) -> Vec<(u32, Vec<u8>)> {
    let mut seen = Vec::new();
    while let Some(batch) = take(job).unwrap() {
        for slot in 0..batch.len() {
            seen.push((batch.ids()[slot], batch.sample(slot).to_vec()));
        }
    }
    seen
}

/// One sample made by itself.
fn by_hand(root: &Path, sample: u32, position: u64) -> Vec<u8> {
    let recipe = Recipe::from_json(RECIPE).unwrap();
    let mut out = vec![0; recipe.shape().bytes()];
    let draw = Draw {
        seed: DRAWS.seed,
        epoch: DRAWS.epoch,
        position,
    };
    let encoded = std::fs::read(file(root, sample as usize)).unwrap();
    let mut scratch = Scratch::default();
    recipe
        .prepare(&encoded, draw, &mut scratch, &mut out)
        .unwrap();
    out
}

#[test]
fn samples_are_the_recipes_whatever_the_threads_and_the_form() {
    let (dir, dataset) = pictures(60);
    for threads in [1, 2, 8] {
        for form in [CacheForm::Auto, CacheForm::Encoded, CacheForm::Decoded] {
            let engine = engine(64 << 20, threads);
            let job = job(&engine, &dataset, form, OnError::Raise);
            for _ in 0..3 {
                job.begin("0", epoch(60, 0, 7), DRAWS).unwrap();
                let seen = drain(&job);
                assert_eq!(seen.len(), 60);
                for (position, (id, bytes)) in seen.iter().enumerate() {
                    assert!(
                        *bytes == by_hand(dir.path(), *id, position as u64),
                        "sample {id} at {position}, {threads} threads, {form:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn places_in_the_epoch_count_not_those_since_a_resume() {
    let (dir, dataset) = pictures(20);
    let engine = engine(64 << 20, 2);
    let job = job(&engine, &dataset, CacheForm::Encoded, OnError::Raise);
    let resumed = Draws {
        first: 9,
        stride: 2,
        ..DRAWS
    };
    job.begin("0", epoch(20, 0, 5), resumed).unwrap();
    for (position, (id, bytes)) in drain(&job).into_iter().enumerate() {
        assert_eq!(bytes, by_hand(dir.path(), id, 9 + 2 * position as u64));
    }
}

#[test]
fn an_epoch_foreseen_with_other_draws_is_made_anew() {
    let (dir, dataset) = pictures(20);
    let engine = engine(64 << 20, 2);
    let job = job(&engine, &dataset, CacheForm::Encoded, OnError::Raise);
    job.begin("0", epoch(20, 0, 5), DRAWS).unwrap();
    let other = Draws { seed: 8, ..DRAWS };
    job.foresee("1", epoch(20, 1, 5), other).unwrap();
    drain(&job);
    job.begin("1", epoch(20, 1, 5), DRAWS).unwrap();
    for (position, (id, bytes)) in drain(&job).into_iter().enumerate() {
        assert_eq!(bytes, by_hand(dir.path(), id, position as u64));
    }
}

#[test]
fn decoded_images_stay_and_are_not_read_again() {
    let (_dir, dataset) = pictures(40);
    let engine = engine(64 << 20, 2);
    let job = job(&engine, &dataset, CacheForm::Decoded, OnError::Raise);
    for seed in 0..3 {
        job.begin("x", epoch(40, seed, 8), DRAWS).unwrap();
        drain(&job);
    }
    let stats = job.stats();
    assert_eq!((stats.reads, stats.hits), (40, 80));
    let kept = engine.stats().memory;
    assert_eq!(kept.entries, 40, "the image stays, not its bytes as well");
    assert!(kept.kept_bytes > 40 * 40 * 30 * 3);
}

#[test]
fn memory_for_hardly_anything_gives_the_same_samples() {
    let (dir, dataset) = pictures(40);
    for form in [CacheForm::Auto, CacheForm::Encoded, CacheForm::Decoded] {
        let engine = engine(96 << 10, 4);
        let job = job(&engine, &dataset, form, OnError::Raise);
        job.begin("0", epoch(40, 0, 8), DRAWS).unwrap();
        for (position, (id, bytes)) in drain(&job).into_iter().enumerate() {
            assert_eq!(bytes, by_hand(dir.path(), id, position as u64));
        }
    }
}

#[test]
fn the_choice_of_form_is_made_and_told() {
    let (_dir, dataset) = pictures(100);
    let engine = engine(64 << 20, 2);
    let job = job(&engine, &dataset, CacheForm::Auto, OnError::Raise);
    job.begin("0", epoch(100, 0, 10), DRAWS).unwrap();
    drain(&job);
    // There is memory for all of it in either form: then the one that saves more is decoded.
    assert_eq!(job.stats().cache_form, Some(CacheForm::Decoded));
}

#[test]
fn a_file_that_is_no_image_fails_its_batch_by_name() {
    let (dir, dataset) = pictures(10);
    let length = std::fs::metadata(file(dir.path(), 4)).unwrap().len();
    std::fs::write(file(dir.path(), 4), vec![b'x'; length as usize]).unwrap();
    let engine = engine(64 << 20, 2);
    let job = job(&engine, &dataset, CacheForm::Auto, OnError::Raise);
    job.begin("0", epoch(10, 0, 10), DRAWS).unwrap();
    let error = take(&job).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("a/00004.png"), "{error}");
}

#[test]
fn a_stand_in_is_prepared_in_the_bad_ones_place_every_time() {
    let (dir, dataset) = pictures(10);
    let length = std::fs::metadata(file(dir.path(), 4)).unwrap().len();
    std::fs::write(file(dir.path(), 4), vec![b'x'; length as usize]).unwrap();
    let mut stood_in = BTreeMap::new();
    for form in [CacheForm::Encoded, CacheForm::Decoded] {
        let engine = engine(64 << 20, 2);
        let job = job(&engine, &dataset, form, OnError::Replace);
        for _ in 0..2 {
            job.begin("0", epoch(10, 0, 5), DRAWS).unwrap();
            for (position, (id, bytes)) in drain(&job).into_iter().enumerate() {
                assert_eq!(bytes, by_hand(dir.path(), id, position as u64));
                *stood_in.entry(id).or_insert(0) += 1;
            }
        }
        let stats = job.stats();
        assert_eq!(stats.replaced, 2);
        assert_eq!(stats.bad_samples[0].sample, 4);
    }
    assert!(!stood_in.contains_key(&4));
    assert_eq!(stood_in.values().filter(|&&times| times == 8).count(), 1);
}

#[test]
fn an_image_over_the_cap_names_the_setting() {
    let (_dir, dataset) = pictures(3);
    let engine = engine(64 << 20, 1);
    let recipe = Recipe::from_json(&RECIPE.replace("1000000", "1000")).unwrap();
    let settings = JobSettings {
        depth: 3,
        on_error: OnError::Raise,
        max_bad_samples: 0,
        rank: None,
        preparation: Some(PreparationSettings {
            recipe: Arc::new(recipe),
            cache_form: CacheForm::Auto,
        }),
        lending: None,
        gaps: false,
    };
    let job = engine.job(dataset, settings).unwrap();
    job.begin("0", epoch(3, 0, 3), DRAWS).unwrap();
    let error = take(&job).unwrap_err();
    assert!(matches!(error, Error::Image { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("max_pixels="), "{error}");
}
