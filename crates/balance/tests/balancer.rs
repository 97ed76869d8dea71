//! The balancer from outside: what it asks for in given circumstances, and that nothing upsets it.

use forebay_balance::{
    Balancer, Demand, Edge, Flow, Means, Preparing, Settings, Split, Stage, Throughput, Tier, Work,
};
use proptest::prelude::*;

const MB: f64 = 1e6;

fn settings(threads: usize) -> Settings {
    Settings {
        cores: 2,
        threads,
        requests: 16,
        as_needed: false,
    }
}

/// A queue of images of 100 KB, 32 a batch, a share of them from the origin.
fn demand(origin: f64, step: f64) -> Demand {
    let bytes = 3.2 * MB;
    Demand {
        means: Means::Threads,
        waiting: 32.0,
        samples: 32.0,
        bytes: [bytes * (1.0 - origin), 0.0, 0.0, bytes * origin],
        prepared: true,
        step,
    }
}

/// Each reader reads 10 MB/s, standing still; an image takes a millisecond.
fn edge(demands: Vec<Demand>) -> Edge {
    let waits = vec![0.0; demands.len()];
    let mut edge = Edge {
        demands,
        waits,
        ..Edge::default()
    };
    edge.flows[3] = Flow {
        bytes: 10.0 * MB,
        busy: 1.0,
        by_threads: 1.0,
        on_processor: 0.0,
        concurrency: 4.0,
    };
    edge.work = Work {
        samples: 1000.0,
        bytes: 100.0 * MB,
        busy: 1.0,
        threads: 1.0,
    };
    edge
}

fn settle(balancer: &mut Balancer, edge: &Edge) -> Split {
    (0..20).for_each(|_| {
        balancer.edge(edge);
    });
    balancer.split().clone()
}

#[test]
fn threads_go_to_the_queue_that_reads_most() {
    let mut balancer = Balancer::new(settings(12));
    let shares = [0.1, 0.3, 0.6, 1.0];
    let edge = edge(shares.map(|share| demand(share, 0.05)).to_vec());
    let split = settle(&mut balancer, &edge);
    assert_eq!(split.prepare + split.load.iter().sum::<usize>(), 12);
    assert!(split.load.is_sorted(), "{split:?}");
    assert!(split.load[3] >= 2 * split.load[0], "{split:?}");
    // As even as whole threads can make it.
    let slowest = |split: &Split| {
        let times = balancer.predict(&edge.demands, split);
        times.iter().map(|t| t.load).fold(0.0, f64::max)
    };
    let equal = Split {
        prepare: split.prepare,
        load: vec![(12 - split.prepare) / 4; 4],
    };
    assert!(slowest(&split) < 0.7 * slowest(&equal), "{split:?}");
}

#[test]
fn where_all_are_on_time_threads_go_by_the_length_of_queues() {
    let mut balancer = Balancer::new(settings(8));
    let mut demands = vec![demand(0.01, 10.0); 2];
    demands[1].waiting = 96.0;
    let split = settle(&mut balancer, &edge(demands));
    assert_eq!(split.prepare, 2);
    // In proportion 1 to 3, and at least one each.
    assert_eq!(split.load, [2, 4]);
}

#[test]
fn preparing_leaves_a_thread_to_loading_where_that_is_slower() {
    let mut balancer = Balancer::new(Settings {
        cores: 4,
        ..settings(6)
    });
    let split = settle(&mut balancer, &edge(vec![demand(1.0, 0.01)]));
    assert!(split.prepare < 4 && split.load[0] > 2, "{split:?}");
}

#[test]
fn reads_that_are_all_processor_get_no_threads_of_their_own() {
    let mut balancer = Balancer::new(settings(4));
    let mut edge = edge(vec![demand(1.0, 0.01)]);
    edge.flows[3].on_processor = 0.95;
    let split = settle(&mut balancer, &edge);
    // Nor more in all than there are cores.
    assert_eq!((split.prepare, split.load[0]), (2, 0));
}

#[test]
fn all_that_were_asked_for_work_until_they_are_known_to_crowd_the_cores() {
    let mut balancer = Balancer::new(settings(6));
    let mut edge = edge(vec![demand(1.0, 0.01)]);
    let flow = std::mem::take(&mut edge.flows[3]);
    let split = settle(&mut balancer, &edge);
    assert_eq!((split.prepare, split.load[0]), (6, 0));
    edge.flows[3] = flow;
    let split = settle(&mut balancer, &edge);
    assert_eq!(split.prepare + split.load[0], 6);
    assert!(split.load[0] >= 4, "{split:?}");
}

#[test]
fn as_many_threads_as_loading_within_a_step_takes() {
    let mut balancer = Balancer::new(Settings {
        as_needed: true,
        ..settings(34)
    });
    // 3.2 MB a batch by readers of 10 MB/s: 320 ms of reading for a step of 40 ms.
    let split = settle(&mut balancer, &edge(vec![demand(1.0, 0.04)]));
    assert_eq!(split.prepare, 2);
    assert!((8..=12).contains(&split.load[0]), "{split:?}");
    // A patient user needs fewer.
    let split = settle(&mut balancer, &edge(vec![demand(1.0, 0.5)]));
    assert!(split.load[0] <= 4, "{split:?}");
}

#[test]
fn threads_that_stand_by_for_a_moment_are_kept() {
    let mut balancer = Balancer::new(Settings {
        as_needed: true,
        ..settings(34)
    });
    let (busy, quiet) = (edge(vec![demand(1.0, 0.04)]), edge(vec![demand(1.0, 0.5)]));
    let split = settle(&mut balancer, &busy);
    // A few slow steps, such as a checkpoint that is written.
    for _ in 0..5 {
        assert_eq!(balancer.edge(&quiet), None);
    }
    assert_eq!(balancer.edge(&busy), None);
    assert_eq!(balancer.split(), &split);
    let fewer = settle(&mut balancer, &quiet);
    assert!(fewer.load[0] < split.load[0], "{fewer:?}");
}

#[test]
fn what_was_wanted_before_does_not_hasten_a_move() {
    let mut balancer = Balancer::new(Settings {
        as_needed: true,
        ..settings(34)
    });
    settle(&mut balancer, &edge(vec![demand(1.0, 0.04)]));
    let quiet = edge(vec![demand(1.0, 0.5)]);
    (0..5).for_each(|_| assert_eq!(balancer.edge(&quiet), None));
    // One short step alone is no reason to take more threads; two are.
    let short = edge(vec![demand(1.0, 0.01)]);
    assert_eq!(balancer.edge(&short), None);
    assert!(balancer.edge(&short).is_some());
}

#[test]
fn requests_are_shared_out_like_threads() {
    let mut balancer = Balancer::new(settings(2));
    let mut demands = vec![demand(0.2, 0.01), demand(1.0, 0.01)];
    demands.iter_mut().for_each(|d| d.means = Means::Requests);
    let split = settle(&mut balancer, &edge(demands));
    assert_eq!(split.prepare, 2);
    assert_eq!(split.load.iter().sum::<usize>(), 16);
    assert!(split.load[1] >= 3 * split.load[0], "{split:?}");
}

#[test]
fn noise_moves_nobody() {
    let mut balancer = Balancer::new(settings(10));
    let quiet = edge(vec![demand(0.4, 0.1), demand(0.6, 0.1)]);
    settle(&mut balancer, &quiet);
    let mut moves = 0;
    for turn in 0..200u32 {
        let mut noisy = quiet.clone();
        let wobble = 1.0 + 0.03 * f64::from(turn % 3) - 0.03;
        noisy.demands.iter_mut().for_each(|d| d.bytes[3] *= wobble);
        noisy.demands[(turn % 2) as usize].waiting *= 1.1;
        noisy.work.busy *= wobble;
        moves += usize::from(balancer.edge(&noisy).is_some());
    }
    assert_eq!(moves, 0);
}

#[test]
fn a_slower_origin_shows_within_a_few_edges() {
    let mut balancer = Balancer::new(settings(8));
    let mut edge = edge(vec![demand(1.0, 0.05)]);
    edge.flows[3].bytes = 100.0 * MB; // at first it is quick
    let before = settle(&mut balancer, &edge);
    edge.flows[3].bytes = 2.0 * MB;
    let moved = (0..20).position(|_| balancer.edge(&edge).is_some());
    assert!(
        before.prepare == 2 && moved.is_some_and(|edges| edges < 15),
        "{before:?} {moved:?}"
    );
    assert_eq!(balancer.split().prepare, 1);
}

#[test]
fn the_bottleneck_is_the_slowest_stage_of_the_queue_that_waits() {
    let mut balancer = Balancer::new(settings(8));
    let mut edge = edge(vec![demand(0.0, 0.1), demand(1.0, 0.1)]);
    let split = settle(&mut balancer, &edge);
    let found = balancer.bottleneck(&edge, &split);
    assert_eq!((found.stage, found.queue), (Stage::Training, None));
    edge.waits = vec![0.02, 0.3];
    let found = balancer.bottleneck(&edge, &split);
    assert_eq!(
        (found.stage, found.queue),
        (Stage::Load(Tier::Origin), Some(1))
    );
    edge.waits = vec![0.5, 0.3];
    let found = balancer.bottleneck(&edge, &split);
    assert_eq!((found.stage, found.queue), (Stage::Prepare, Some(0)));
}

/// Constant, zero, tiny, huge, negative and what is no number at all.
fn wild() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..1e9f64,
        1 => Just(0.0),
        1 => Just(1e-300),
        1 => Just(f64::MAX),
        1 => Just(-1.0),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
    ]
}

prop_compose! {
    fn wild_demand()(
        values in prop::array::uniform7(wild()),
        by_threads: bool,
        prepared: bool,
    ) -> Demand {
        let [waiting, samples, memory, log, peer, origin, step] = values;
        let means = if by_threads { Means::Threads } else { Means::Requests };
        Demand { means, waiting, samples, bytes: [memory, log, peer, origin], prepared, step }
    }
}

proptest! {
    #[test]
    fn models_stay_finite(seen in prop::collection::vec(prop::array::uniform3(wild()), 0..50)) {
        let mut reading = Throughput::default();
        let mut preparing = Preparing::new(4);
        for [a, b, c] in seen {
            reading.see(a, b, c);
            preparing.see(a, b, c);
        }
        for threads in [1usize, 2, 3, 7, 64, 10_000] {
            prop_assert!(reading.at(threads as f64).is_none_or(|rate| rate.is_finite() && rate >= 0.0));
            for size in [0.0, 1e3, 1e6, 1e12] {
                let seconds = preparing.seconds(size, threads);
                prop_assert!(seconds.is_none_or(|s| s.is_finite() && s >= 0.0));
            }
            prop_assert!((1..=threads).contains(&preparing.peak(1e5, threads)));
        }
        prop_assert!(reading.residual().is_finite() && preparing.residual().is_finite());
    }

    #[test]
    fn a_constant_is_learnt_as_it_is(
        rate in 1.0..1e9f64, seconds in 1e-6..10.0f64, edges in 1usize..100
    ) {
        let mut reading = Throughput::default();
        let mut preparing = Preparing::new(4);
        for _ in 0..edges {
            reading.see(4.0, rate, 1.0);
            preparing.see(1e5, 4.0, seconds);
        }
        prop_assert!((reading.at(4.0).unwrap() / (4.0 * rate) - 1.0).abs() < 1e-9);
        prop_assert!((preparing.seconds(1e5, 4).unwrap() / seconds - 1.0).abs() < 1e-9);
        prop_assert!(reading.residual() < 1e-9 && preparing.residual() < 1e-9);
    }

    #[test]
    fn no_queue_starves_and_no_thread_is_invented(
        edges in prop::collection::vec(
            (prop::collection::vec(wild_demand(), 1..6), prop::array::uniform4(wild())),
            1..20,
        ),
        threads in 1usize..40,
        as_needed: bool,
    ) {
        let mut balancer = Balancer::new(Settings { as_needed, ..settings(threads) });
        for (demands, [bytes, busy, on_processor, concurrency]) in edges {
            let mut edge = Edge { waits: vec![0.0; demands.len()], demands, ..Edge::default() };
            edge.flows[3] = Flow { bytes, busy, by_threads: busy, on_processor, concurrency };
            edge.work = Work { samples: bytes, bytes: busy, busy: on_processor, threads: concurrency };
            balancer.edge(&edge);
            let split = balancer.split();
            prop_assert_eq!(split.load.len(), edge.demands.len());
            let of = |means| {
                let ours = edge.demands.iter().zip(&split.load).filter(move |(d, _)| d.means == means);
                ours.map(|(_, &load)| load).collect::<Vec<_>>()
            };
            let by_threads = of(Means::Threads);
            let loading = by_threads.iter().sum::<usize>();
            prop_assert!((1..=threads).contains(&(split.prepare + loading)), "{:?}", split);
            // Who prepares takes any queue's work; with nobody preparing each has threads of its own.
            prop_assert!(
                split.prepare > 0 || by_threads.len() > threads || by_threads.iter().all(|&l| l > 0),
                "{:?}", split
            );
            let requests = of(Means::Requests);
            prop_assert!(requests.iter().sum::<usize>() <= 16);
            prop_assert!(requests.len() > 16 || requests.iter().all(|&l| l > 0), "{:?}", split);
        }
    }
}
