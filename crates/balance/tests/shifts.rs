//! An origin whose latency steps in mid-run, up and down: the balancer follows.
//!
//! ```text
//!   edges      0 ............ 60 ....... 80
//!   latency    before         after             the split at 80 is what a balancer finds
//!                             |-- 20 --|        that never saw anything but `after`
//! ```
//!
//! Times are made up by a small model of the engine: every thread takes what there is to do, reads
//! stand still for the latency, and cores limit what is on the processor.

use forebay_balance::{Balancer, Demand, Edge, Flow, Means, Settings, Split, Work};
use proptest::prelude::*;

const LATENCIES_MS: [f64; 5] = [0.0, 1.0, 5.0, 20.0, 100.0];
const BEFORE: usize = 60;
const RECOVERY: usize = 20;
const SIZE: f64 = 100e3;
const SAMPLES: f64 = 16.0;

/// What is read, by how many at most, and by whom it is used.
#[derive(Debug, Clone, Copy)]
struct World {
    settings: Settings,
    means: Means,
    /// Seconds on the processor to read and to prepare a sample; the latter 0 for raw bytes.
    read: f64,
    prepare: f64,
    /// Bytes a second that the origin gives at most.
    limit: f64,
    step: f64,
    /// Times vary by this share; and reading may be counted an edge late, as long runs are.
    noise: f64,
    is_late: bool,
}

const IMAGES: World = World {
    settings: Settings {
        cores: 2,
        threads: 34,
        requests: 1,
        as_needed: true,
    },
    means: Means::Threads,
    read: 0.1e-3,
    prepare: 3e-3,
    limit: f64::INFINITY,
    step: 0.05,
    noise: 0.0,
    is_late: false,
};

const RAW: World = World {
    prepare: 0.0,
    ..IMAGES
};

/// A run: the balancer, and what its origin is like just now.
struct Run {
    world: World,
    balancer: Balancer,
    random: u64,
    /// Reading that the next edge will count.
    late: Flow,
}

impl Run {
    fn new(world: World) -> Self {
        Self {
            world,
            balancer: Balancer::new(world.settings),
            random: 1,
            late: Flow::default(),
        }
    }

    fn wobble(&mut self) -> f64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let share = (self.random >> 33) as f64 / f64::from(u32::MAX >> 1);
        1.0 + self.world.noise * (2.0 * share - 1.0)
    }

    /// So many batches at that latency.
    fn go(&mut self, edges: usize, latency: f64) -> Split {
        for _ in 0..edges {
            let latency = latency * self.wobble();
            let mut edge = self.batch(latency);
            if self.world.is_late {
                std::mem::swap(&mut edge.flows[3], &mut self.late);
            }
            self.balancer.edge(&edge);
        }
        self.balancer.split().clone()
    }

    fn batch(&mut self, latency: f64) -> Edge {
        let Times { batch, reading } = times(&self.world, self.balancer.split(), latency);
        let preparing = SAMPLES * self.world.prepare * self.wobble();
        let by_threads = match self.world.means {
            Means::Threads => reading,
            Means::Requests => 0.0,
        };
        let mut edge = Edge {
            demands: vec![Demand {
                means: self.world.means,
                waiting: SAMPLES,
                samples: SAMPLES,
                bytes: [0.0, 0.0, 0.0, SAMPLES * SIZE],
                prepared: self.world.prepare > 0.0,
                step: self.world.step,
            }],
            waits: vec![batch - self.world.step],
            ..Edge::default()
        };
        edge.flows[3] = Flow {
            bytes: SAMPLES * SIZE,
            busy: reading,
            by_threads,
            on_processor: (SAMPLES * self.world.read).min(by_threads),
            concurrency: reading / batch,
        };
        if preparing > 0.0 {
            edge.work = Work {
                samples: SAMPLES,
                bytes: SAMPLES * SIZE,
                busy: preparing,
                threads: preparing / batch,
            };
        }
        edge
    }
}

/// Seconds of a batch, and of its reads, summed.
struct Times {
    batch: f64,
    reading: f64,
}

/// How long a batch takes with that split.
fn times(world: &World, split: &Split, latency: f64) -> Times {
    let load = split.load.iter().sum::<usize>() as f64;
    let (threads, readers) = match world.means {
        Means::Threads => (split.prepare as f64 + load, split.prepare as f64 + load),
        Means::Requests => (split.prepare as f64, load),
    };
    let threads = threads.max(1.0);
    let on_processor = SAMPLES * (world.read + world.prepare) / (world.settings.cores as f64);
    let prepare = SAMPLES * world.prepare;
    let alone = SAMPLES * (latency + world.read);
    let by_limit = SAMPLES * SIZE / world.limit;
    let held_up = match world.means {
        Means::Threads => (alone + prepare) / threads,
        Means::Requests => (alone / readers.max(1.0)).max(prepare / threads),
    };
    let batch = world.step.max(on_processor).max(held_up).max(by_limit);
    // Readers that the origin holds back are at it all the time.
    let reading = match by_limit >= batch {
        true => alone.max(by_limit * readers - prepare),
        false => alone,
    };
    Times { batch, reading }
}

/// Every ordered pair of latencies; tells those after which the split is not near a fresh one's.
fn astray(world: World) -> Vec<String> {
    let mut astray = Vec::new();
    for from in LATENCIES_MS {
        for to in LATENCIES_MS {
            if from == to {
                continue;
            }
            let latency = to * 1e-3;
            let fresh = Run::new(world).go(BEFORE, latency);
            let mut run = Run::new(world);
            let before = run.go(BEFORE, from * 1e-3);
            let after = run.go(RECOVERY, latency);
            if !is_near(&world, &after, &fresh, latency) {
                astray.push(format!(
                    "{from} -> {to} ms: {before:?}, then {after:?}, fresh {fresh:?}"
                ));
            }
        }
    }
    astray
}

/// Hardly slower, and not with many more threads, of which a fresh run's own number varies.
fn is_near(world: &World, split: &Split, fresh: &Split, latency: f64) -> bool {
    let pace = |split: &Split| times(world, split, latency).batch;
    let all = |split: &Split| (split.prepare + split.load.iter().sum::<usize>()) as f64;
    pace(split) <= 1.1 * pace(fresh) && all(split) <= 1.5 * all(fresh) + 3.0
}

fn check(world: World) {
    let astray = astray(world);
    assert!(astray.is_empty(), "{world:?}\n{}", astray.join("\n"));
}

#[test]
fn images_are_loaded_as_by_a_fresh_run_twenty_batches_after_any_step() {
    check(IMAGES);
}

#[test]
fn raw_bytes_are_loaded_as_by_a_fresh_run_twenty_batches_after_any_step() {
    check(RAW);
}

#[test]
fn a_user_who_takes_batches_as_fast_as_they_come_is_served_as_by_a_fresh_run() {
    for world in [IMAGES, RAW] {
        check(World {
            step: 0.1e-3,
            ..world
        });
    }
}

#[test]
fn noise_and_reads_that_are_counted_late_do_not_keep_a_step_from_showing() {
    for world in [IMAGES, RAW] {
        for is_late in [false, true] {
            check(World {
                noise: 0.1,
                is_late,
                ..world
            });
        }
    }
}

#[test]
fn a_number_of_threads_that_is_given_is_split_as_by_a_fresh_run() {
    for world in [IMAGES, RAW] {
        check(World {
            settings: Settings {
                threads: 8,
                as_needed: false,
                ..world.settings
            },
            ..world
        });
    }
}

#[test]
fn an_origin_that_gives_so_much_and_no_more_is_read_as_by_a_fresh_run() {
    for world in [IMAGES, RAW] {
        check(World {
            limit: 24e6,
            ..world
        });
    }
}

#[test]
fn a_stores_requests_are_as_many_as_of_a_fresh_run() {
    for world in [IMAGES, RAW] {
        check(World {
            means: Means::Requests,
            settings: Settings {
                requests: 64,
                ..world.settings
            },
            ..world
        });
    }
}

#[test]
fn a_latency_that_creeps_up_or_down_is_followed() {
    for world in [IMAGES, RAW] {
        for (from, to) in [(1e-3, 0.1f64), (0.1, 1e-3)] {
            let mut run = Run::new(world);
            run.go(BEFORE, from);
            for edge in 0..200 {
                run.go(1, from * (to / from).powf(f64::from(edge) / 200.0));
            }
            let after = run.go(RECOVERY, to);
            let fresh = Run::new(world).go(BEFORE, to);
            assert!(
                is_near(&world, &after, &fresh, to),
                "{from} -> {to}: {after:?}, fresh {fresh:?}"
            );
        }
    }
}

proptest! {
    #[test]
    fn whatever_came_before_twenty_batches_are_enough(
        phases in prop::collection::vec((1usize..60, 0.0..0.1f64), 1..8),
        is_raw: bool,
        is_late: bool,
        noise in 0.0..0.1f64,
        step in 1e-4..0.1f64,
        last in prop::sample::select(LATENCIES_MS.to_vec()),
    ) {
        let world = World { noise, is_late, step, ..if is_raw { RAW } else { IMAGES } };
        let mut run = Run::new(world);
        for (edges, latency) in &phases {
            run.go(*edges, *latency);
        }
        let after = run.go(RECOVERY, last * 1e-3);
        let fresh = Run::new(world).go(BEFORE, last * 1e-3);
        prop_assert!(
            is_near(&world, &after, &fresh, last * 1e-3),
            "{:?}, fresh {:?}", after, fresh
        );
    }
}
