//! Hits on traces: what each policy reaches, and that none passes the optimum.

use forebay_policy::replay::{Replayer, replay, trace};
use forebay_policy::{Key, NAMES, Policy, Settings, by_name};
use proptest::prelude::*;

const SAMPLES: u64 = 20_000;
const EPOCHS: u64 = 6;

fn make(name: &str) -> Box<dyn Policy> {
    by_name(
        name,
        Settings {
            epoch: Some(SAMPLES),
            sole_copy: false,
        },
    )
    .unwrap()
}

/// Shuffled epochs: every sample once in each, in an order of its own.
fn shuffled_epochs(samples: u64, epochs: u64) -> Vec<Key> {
    let mut state = 1_u64;
    let mut keys = Vec::new();
    for _ in 0..epochs {
        let mut epoch: Vec<Key> = (0..samples).collect();
        for i in (1..epoch.len()).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            epoch.swap(i, ((state >> 33) % (i as u64 + 1)) as usize);
        }
        keys.extend(epoch);
    }
    keys
}

/// The hits of each epoch but the first.
fn hits_by_epoch(name: &str, share: f64) -> Vec<u64> {
    let mut policy = make(name);
    let mut replayer = Replayer::new(policy.as_mut(), (share * SAMPLES as f64) as u64);
    let uses = trace(&shuffled_epochs(SAMPLES, EPOCHS), |_| 1);
    let hits = |epoch: &[_]| {
        epoch
            .iter()
            .filter(|&&access| replayer.step(access))
            .count() as u64
    };
    uses.chunks(SAMPLES as usize).map(hits).skip(1).collect()
}

#[test]
fn lru_on_shuffled_epochs_has_far_fewer_hits_than_its_share() {
    for (share, expected) in [
        (0.2, 0.022),
        (0.296, 0.048),
        (0.4, 0.094),
        (0.6, 0.235),
        (0.8, 0.480),
    ] {
        let hits = hits_by_epoch("lru", share);
        let ratio = hits.iter().sum::<u64>() as f64 / (hits.len() as u64 * SAMPLES) as f64;
        assert!(
            (ratio - expected).abs() < 0.01,
            "{share}: {ratio:.4}, expected {expected}"
        );
    }
}

#[test]
fn farthest_and_minio_on_shuffled_epochs_have_exactly_their_share_of_hits() {
    for name in ["farthest", "minio"] {
        for share in [0.2, 0.296, 0.4, 0.6, 0.8] {
            let expected = (share * SAMPLES as f64) as u64;
            assert_eq!(
                hits_by_epoch(name, share),
                vec![expected; EPOCHS as usize - 1],
                "{name} {share}"
            );
        }
    }
}

#[test]
fn reuse_on_one_node_has_the_optimum_too() {
    let expected = (0.4 * SAMPLES as f64) as u64;
    assert_eq!(
        hits_by_epoch("reuse", 0.4),
        vec![expected; EPOCHS as usize - 1]
    );
}

#[test]
fn none_has_no_hits() {
    assert_eq!(hits_by_epoch("none", 0.8), vec![0; EPOCHS as usize - 1]);
}

#[test]
fn with_all_in_memory_each_sample_misses_once() {
    for name in ["farthest", "reuse", "lru", "lfu", "minio"] {
        assert_eq!(
            hits_by_epoch(name, 1.0),
            vec![SAMPLES; EPOCHS as usize - 1],
            "{name}"
        );
    }
}

proptest! {
    #[test]
    fn with_equal_sizes_farthest_is_never_worse_than_any_other(
        keys in prop::collection::vec(0_u64..40, 1..600),
        capacity in 1_u64..40,
        epoch in prop::option::of(1_u64..100),
        sole_copy: bool,
    ) {
        let uses = trace(&keys, |_| 1);
        let settings = Settings { epoch, sole_copy };
        let hits = |name| replay(by_name(name, settings).unwrap().as_mut(), capacity, &uses).hits;
        let best = hits("farthest");
        for name in NAMES {
            prop_assert!(hits(name) <= best, "{} has {}, farthest {}", name, hits(name), best);
        }
    }

    #[test]
    fn no_policy_passes_its_capacity(
        keys in prop::collection::vec(0_u64..60, 1..600),
        sizes in prop::collection::vec(0_u64..50, 60),
        capacity in 0_u64..400,
        epoch in prop::option::of(1_u64..100),
    ) {
        let uses = trace(&keys, |key| sizes[key as usize]);
        for name in NAMES {
            let mut policy = by_name(name, Settings { epoch, sole_copy: false }).unwrap();
            let tally = replay(policy.as_mut(), capacity, &uses);
            prop_assert!(tally.peak <= capacity, "{}", name);
            prop_assert_eq!(tally.hits + tally.misses, keys.len() as u64);
        }
    }
}
