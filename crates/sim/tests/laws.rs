//! What holds for every scenario.

mod rig;

use forebay_policy::replay::{replay, trace};
use forebay_policy::{NAMES, Settings, by_name};
use forebay_sim::{Loading, Scenario, Sizes, Walk, baselines, optimum};
use proptest::prelude::*;
use rig::{plain, scenario};

fn hits(scenario: &Scenario) -> Vec<u64> {
    let report = scenario.run().unwrap();
    let epochs = report.jobs[0].epochs.iter();
    epochs.map(|epoch| epoch.all().hits).collect()
}

#[test]
fn one_rank_that_looks_at_nothing_ahead_hits_as_a_replay_of_its_trace_does() {
    for name in NAMES {
        let scenario = scenario(name, 500, 1, 13_000);
        let job = &scenario.jobs[0];
        let mut policy = by_name(
            name,
            Settings {
                epoch: Some(500),
                sole_copy: true,
            },
        )
        .unwrap();
        let order = |epoch| job.plan.epoch(epoch).rank(0).collect::<Vec<_>>();
        let keys: Vec<u64> = (0..3).flat_map(order).map(u64::from).collect();
        let replayed = replay(&mut *policy, 13_000, &trace(&keys, |_| 100));
        assert_eq!(hits(&scenario).iter().sum::<u64>(), replayed.hits, "{name}");
    }
}

#[test]
fn minio_and_farthest_hit_what_fits_and_nobody_hits_more() {
    for world in [1, 4] {
        for name in NAMES {
            let scenario = scenario(name, 1000, world, 29_600);
            let hits = hits(&scenario);
            match name {
                "minio" | "farthest" | "reuse" => assert_eq!(hits, [0, 296, 296], "{name}"),
                "none" => assert_eq!(hits, [0; 3]),
                // 0.048 of a large dataset.
                "lru" => assert!(hits[1] < 90, "{hits:?}"),
                _ => assert!(hits[1] <= 296 && hits[2] <= 296, "{name} {hits:?}"),
            }
        }
    }
}

#[test]
fn a_placement_by_frequency_hits_what_fits_on_one_node() {
    let mut scenario = scenario("none", 1000, 4, 29_600);
    let placed = baselines::Placed::new(&scenario.jobs[0], 1, 0, 29_600);
    scenario.policy = std::sync::Arc::new(move |_| Box::new(placed.clone()));
    assert_eq!(hits(&scenario), [0, 296, 296]);
}

#[test]
fn farthest_reaches_the_ceiling_where_samples_are_alike_and_two_jobs_share_them() {
    let mut scenario = scenario("farthest", 600, 1, 20_000);
    let mut second = scenario.jobs[0].clone();
    second.plan = rig::plan(600, 1, 16, 99);
    scenario.jobs.push(second);
    for job in &mut scenario.jobs {
        job.plan = match job.plan.order() {
            forebay_plan::Order::Seeded { seed } => rig::plan(600, 1, 1, *seed),
            _ => unreachable!(),
        };
        job.loading.runs_on = false;
        job.epochs = 4;
    }
    let report = scenario.run().unwrap();
    let ours: u64 = report.jobs.iter().map(|job| job.from(0).hit_bytes).sum();
    let walk = Walk::new(&scenario, 0);
    let best: u64 = optimum(&walk, 20_000)
        .iter()
        .map(|epoch| epoch.hit_bytes)
        .sum();
    assert!(
        ours <= best && ours as f64 > 0.97 * best as f64,
        "{ours} of {best}"
    );
    let mut minio = scenario.clone();
    minio.policy = rig::policy("minio", 600);
    let report = minio.run().unwrap();
    let first_come: u64 = report.jobs.iter().map(|job| job.from(0).hit_bytes).sum();
    assert!(first_come < ours, "{first_come} of {ours}");
}

#[test]
fn where_data_is_quick_the_epoch_takes_its_steps_and_where_it_is_slow_its_bytes() {
    let mut quick = scenario("none", 1600, 1, 1000);
    quick.jobs[0].loading = Loading::local(4);
    quick.costs.origin.node = forebay_sim::Curve::flat(1e9);
    let epoch = &quick.run().unwrap().jobs[0].epochs[1];
    assert!(
        (epoch.seconds() - 100.0 * 0.01).abs() < 0.01,
        "{}",
        epoch.seconds()
    );
    assert_eq!(epoch.all().ready, 1600);
    assert_eq!(epoch.stalled, 0);

    // 160 kB at 10 kB/s: 16 s, of which a second is the steps'.
    let mut slow = quick.clone();
    slow.costs.origin.node = forebay_sim::Curve::flat(1e4);
    let epoch = &slow.run().unwrap().jobs[0].epochs[1];
    assert!(
        (epoch.seconds() / 16.0 - 1.0).abs() < 0.05,
        "{}",
        epoch.seconds()
    );
    assert!((epoch.waiting(0.01) - 15.0 / 16.0).abs() < 0.02);
    assert_eq!(epoch.stalled, 100);
}

#[test]
fn a_rank_that_waits_holds_the_others_up() {
    let mut scenario = scenario("none", 3200, 2, 1000);
    // All samples of rank 1 are ten times as long.
    let order: Vec<u32> = (0..3200).collect();
    let sizes = Sizes::listed((0..3200).map(|id| if id % 2 == 1 { 1000 } else { 100 }));
    let job = &mut scenario.jobs[0];
    let order = forebay_plan::Order::Given(order.into());
    job.plan = forebay_plan::Plan::new(3200, order, job.plan.deal(), 2, Some(16), false).unwrap();
    job.sizes = sizes;
    let epoch = &scenario.run().unwrap().jobs[0].epochs[1];
    assert_eq!(epoch.iterations, 100);
    assert!(epoch.imbalanced > 90, "{}", epoch.imbalanced);
    assert!(epoch.ranks[1].waited > epoch.ranks[0].waited + 0.5);
}

fn loading() -> impl Strategy<Value = Loading> {
    let requests = proptest::option::of(1u32..40);
    (
        1u32..5,
        requests,
        1u32..5,
        0u64..5_000,
        1u32..20,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(threads, requests, depth, readahead, run, across, foresight)| Loading {
                requests,
                depth,
                readahead,
                run,
                across,
                foresight,
                ..Loading::local(threads)
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_sample_comes_from_somewhere_once_and_the_same_run_gives_the_same_figures(
        name in proptest::sample::select(NAMES.to_vec()),
        loading in loading(),
        nodes in 1u32..4,
        each in 1u32..4,
        jobs in 1usize..3,
        kept in 0u64..40_000,
        log in proptest::option::of((0u64..60_000, any::<bool>(), any::<bool>())),
        peers in any::<bool>(),
        prepare in prop_oneof![Just(0.0), Just(0.001)],
    ) {
        let mut scenario = scenario(name, 331, nodes * each, kept);
        scenario.nodes = nodes;
        scenario.peers = peers;
        scenario.jobs[0].loading = Loading { prepare, ..loading };
        scenario.jobs[0].sizes = Sizes::log_normal(331, 100.0, 0.5, 1);
        for seed in 1..jobs {
            let mut job = scenario.jobs[0].clone();
            job.plan = rig::plan(331, nodes * each, 7, seed as u64);
            job.epochs = 2;
            scenario.jobs.push(job);
        }
        scenario.memory = forebay_sim::Memory::Exact { kept, transit: 2_000 };
        scenario.log = log.map(|(capacity, packed, by_threads)| forebay_sim::Log {
            capacity,
            layout: if packed { forebay_sim::Layout::Packed } else { forebay_sim::Layout::Reorder },
            together: 4,
            requests: 8,
            by_threads,
        });
        let report = scenario.run().unwrap();
        let mut events = 0;
        for (job, settings) in report.jobs.iter().zip(&scenario.jobs) {
            for epoch in &job.epochs {
                let all = epoch.all();
                prop_assert_eq!(all.samples, 331);
                prop_assert_eq!(all.hits + all.log_reads + all.peer_reads + all.reads, 331);
                prop_assert_eq!(
                    all.hit_bytes + all.log_bytes + all.peer_bytes + all.read_bytes,
                    settings.sizes.total(331)
                );
                prop_assert!(all.ready_whole <= all.ready && all.ready <= 331);
                prop_assert!(epoch.imbalanced <= epoch.stalled && epoch.stalled <= epoch.iterations);
                prop_assert!(epoch.seconds() >= epoch.iterations as f64 * settings.step - 1e-9);
                events += all.samples;
            }
        }
        prop_assert_eq!(report.events, events);
        prop_assert_eq!(&report, &scenario.run().unwrap());
    }

    #[test]
    fn no_policy_passes_the_ceiling(
        name in proptest::sample::select(NAMES.to_vec()),
        kept in 0u64..40_000,
        nodes in 1u32..4,
        seed in 0u64..50,
    ) {
        let mut scenario = scenario(name, 300, nodes, kept);
        scenario.nodes = nodes;
        scenario.jobs[0].plan = rig::plan(300, nodes, 16, seed);
        scenario.jobs[0].loading = plain();
        scenario.jobs[0].sizes = Sizes::log_normal(300, 100.0, 0.5, seed);
        let report = scenario.run().unwrap();
        for node in 0..nodes {
            let best: u64 = optimum(&Walk::new(&scenario, node), kept)
                .iter()
                .map(|epoch| epoch.hit_bytes)
                .sum();
            let epochs = report.jobs[0].epochs.iter();
            let ours: u64 = epochs.map(|epoch| epoch.ranks[node as usize].hit_bytes).sum();
            prop_assert!(ours <= best, "{} of {}", ours, best);
        }
    }
}

#[test]
fn whoever_watches_can_end_it() {
    let scenario = scenario("lru", 1000, 1, 1000);
    let stopped = scenario.run_watched(&mut |_| false);
    assert_eq!(stopped.unwrap_err(), forebay_sim::Error::Stopped);
}

#[test]
fn a_scenario_that_cannot_run_is_refused_with_the_reason() {
    let good = scenario("lru", 100, 4, 1000);
    let mut uneven = good.clone();
    uneven.nodes = 3;
    assert_eq!(
        uneven.run().unwrap_err().to_string(),
        "4 ranks do not go evenly onto 3 nodes"
    );
    let mut idle = good.clone();
    idle.jobs[0].loading.threads = 0;
    assert!(
        idle.run()
            .unwrap_err()
            .to_string()
            .starts_with("job 0: nobody loads")
    );
    let mut small = good.clone();
    small.memory = forebay_sim::Memory::Engine {
        budget: 1000,
        readahead: 0,
    };
    assert_eq!(
        small.run().unwrap_err().to_string(),
        "a memory of 1000 bytes does not hold a single block"
    );
    let mut short = good;
    short.jobs[0].sizes = Sizes::listed([1, 2, 3]);
    assert!(short.run().is_err());
}
