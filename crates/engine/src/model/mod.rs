//! A model of the window, the tier and the wake-ups: does any batch wait for ever?
//!
//! `loom` runs each scenario in all orders that its threads may take, and reports a deadlock if
//! one of them has no end. Nobody times out here, so a wake-up that is lost is a deadlock. The parts
//! that decide are the engine's own: [`Window`](crate::window::Window) with its readahead, the memory
//! tier with its reserve, slabs and tasks, and the crew's [bell](self::bell), which is compiled a
//! second time against `loom`. The code that calls them reads files and speaks to stores, and is
//! mirrored here:
//!
//! | here | mirrors |
//! |---|---|
//! | `World::begin`, `next`, `stir` | the methods of `Job`; `Board::divide_readahead` |
//! | `World::pump` | `fetch::remote::{ask, find, spawn_reads}` |
//! | `World::bring` | a network task: `read_group`, `Target::done`, `finish`, `settle` |
//! | `World::work`, `place` | `Desk::work`, `Desk::pump_again`, `fetch::place` |
//! | `World::fetch_local` | `fetch::local` |
//! | `World::finish` | `fetch::finish` |
//! | `World::crew` | `Board::run` |
//!
//! Whoever changes one of these changes its mirror. Each fix can be taken out ([`Fixes`]), and a
//! test shows that the model then finds a schedule without an end: a model that finds nothing
//! proves nothing. The bell alone is explored in all orders, the worlds up to a number of
//! preemptions that is above what each fault needs.

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use forebay_origin::{Dataset, DatasetSpec, Layout, View};
use loom::thread;

use self::world::World;
use crate::slab::SlabPool;

/// What keeps batches from waiting for ever.
#[derive(Debug, Clone, Copy)]
struct Fixes {
    /// An open batch does not wait for room in the tier.
    goes_past_a_full_tier: bool,
    /// The readahead is divided when an epoch begins.
    divides_readahead: bool,
    /// After a batch that failed, crew and network look at the one that was opened.
    stirs_after_a_failure: bool,
    /// What is postponed in an open batch wakes the crew.
    wakes_for_what_is_postponed: bool,
    /// A thread that worked wakes the others before it rests.
    wakes_before_it_rests: bool,
    /// A batch that leaves the window takes along what was counted for it.
    releases_with_the_batch: bool,
    /// A panic that nobody else catches ends the engine.
    ends_on_a_panic: bool,
}

const ALL: Fixes = Fixes {
    goes_past_a_full_tier: true,
    divides_readahead: true,
    stirs_after_a_failure: true,
    wakes_for_what_is_postponed: true,
    wakes_before_it_rests: true,
    releases_with_the_batch: true,
    ends_on_a_panic: true,
};

/// Where samples come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Images in a bucket: they arrive in the tier.
    Remote,
    /// Files.
    Local,
    /// Files, with a log on disk that has none of them yet.
    Logged,
}

/// Which threads there are beside the user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Threads {
    /// One of the crew, and the network.
    CrewAndNetwork,
    /// The same as one thread.
    Both,
    /// One of the crew.
    Crew,
    /// Two of the crew; the second one rests after a piece of work.
    CrewAndOneThatRests,
}

/// A small run.
#[derive(Debug, Clone, Copy)]
struct Scenario {
    source: Source,
    threads: Threads,
    /// Samples of the batches of each rank; each is one block.
    ranks: &'static [&'static [u32]],
    /// The ranks that the user asks in turn for a batch.
    asks: &'static [usize],
    /// How many of these fail.
    failing: usize,
    /// Blocks of the tier, and how many may be fetched ahead.
    blocks: u64,
    readahead: u64,
    /// A sample that cannot be read.
    bad: Option<u32>,
    /// No slab can be mapped until a batch has failed for that.
    unmapped: bool,
    /// The network's task panics.
    breaks: bool,
    /// The threads run already when the first samples are asked for.
    stirs_late: bool,
    /// How often a thread may be interrupted where it could have gone on.
    preemptions: usize,
}

const QUIET: Scenario = Scenario {
    source: Source::Local,
    threads: Threads::Crew,
    ranks: &[],
    asks: &[],
    failing: 0,
    blocks: 1,
    readahead: 1,
    bad: None,
    unmapped: false,
    breaks: false,
    stirs_late: false,
    preemptions: 2,
};

/// Eight files of one block each. Opened once: what is modelled only asks it for lengths.
fn dataset() -> &'static Arc<View> {
    static DATASET: OnceLock<Arc<View>> = OnceLock::new();
    DATASET.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let class = dir.path().join("data/a");
        std::fs::create_dir_all(&class).unwrap();
        for name in 0..8 {
            std::fs::write(class.join(name.to_string()), [0; 100]).unwrap();
        }
        let layout = Layout::ClassFolders {
            extensions: None,
            allow_empty: false,
        };
        let mut spec = DatasetSpec::new(dir.path().join("data").to_str().unwrap(), layout);
        spec.index_dir = Some(dir.path().join("index"));
        Arc::new(Arc::new(Dataset::open(&spec, &()).unwrap()).into())
    })
}

/// Runs a scenario in all orders within its number of preemptions; how many there were.
fn explore(scenario: Scenario, fixes: Fixes) -> usize {
    let orders = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = orders.clone();
    let (dataset, pool) = (dataset(), SlabPool::new(8));
    let mut builder = loom::model::Builder::new();
    builder.max_branches = LONGEST;
    builder.preemption_bound = Some(scenario.preemptions);
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        pool.refuse(if scenario.unmapped { usize::MAX } else { 0 });
        run(scenario, fixes, dataset, &pool);
    });
    orders.load(std::sync::atomic::Ordering::Relaxed)
}

/// Far more steps than any scenario needs: threads that wake each other for ever reach it.
const LONGEST: usize = 2000;

fn run(scenario: Scenario, fixes: Fixes, dataset: &Arc<View>, pool: &SlabPool) {
    let world = Arc::new(World::new(scenario, fixes, dataset, pool));
    let ranks = 0..scenario.ranks.len();
    for rank in ranks.clone() {
        world.begin(rank);
        if !scenario.stirs_late {
            world.stir(rank);
        }
    }
    let start = |work: fn(&World)| {
        let world = world.clone();
        thread::spawn(move || work(&world))
    };
    let threads = match scenario.threads {
        Threads::CrewAndNetwork => vec![start(|world| world.crew(false)), start(World::network)],
        Threads::Both => vec![start(World::both)],
        Threads::Crew => vec![start(|world| world.crew(false))],
        Threads::CrewAndOneThatRests => vec![
            start(|world| world.crew(false)),
            start(|world| world.crew(true)),
        ],
    };
    if scenario.stirs_late {
        ranks.for_each(|rank| world.stir(rank));
    }
    let mut failed = 0;
    for &rank in scenario.asks {
        failed += usize::from(!world.next(rank));
        pool.refuse(0);
    }
    assert_eq!(failed, scenario.failing, "batches that failed");
    // The user has all batches: in which order threads end does not matter.
    loom::skip_branch();
    world.end();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// The scenario comes to its end in all orders with these fixes, and not in all of them without
/// one more.
fn shows(scenario: Scenario, with: Fixes, without: Fixes) {
    let orders = explore(scenario, with);
    assert!(orders > 1, "{orders} orders");
    let found = catch_unwind(AssertUnwindSafe(|| explore(scenario, without)));
    let panic = found.expect_err("no order without an end was found");
    let why = crate::preparation::words(&*panic);
    let endless = why.contains("deadlock") || why.contains("maximum number of branches");
    assert!(endless, "{why}");
}

#[test]
fn an_open_batch_does_not_wait_for_whoever_holds_the_tier() {
    // Each rank's share is less than a sample, and each may have one sample all the same.
    let scenario = Scenario {
        source: Source::Remote,
        threads: Threads::Both,
        ranks: &[&[1, 1], &[1]],
        asks: &[1, 0, 0],
        ..QUIET
    };
    let without = Fixes {
        goes_past_a_full_tier: false,
        ..ALL
    };
    shows(scenario, ALL, without);
}

#[test]
fn a_rank_that_begins_first_leaves_the_others_their_part_of_the_tier() {
    let scenario = Scenario {
        source: Source::Remote,
        threads: Threads::Both,
        ranks: &[&[1, 1, 1], &[1]],
        asks: &[1, 0],
        blocks: 2,
        readahead: 2,
        ..QUIET
    };
    // Going past the tier would hide it.
    let with = Fixes {
        goes_past_a_full_tier: false,
        ..ALL
    };
    let without = Fixes {
        divides_readahead: false,
        ..with
    };
    shows(scenario, with, without);
}

#[test]
fn a_batch_after_one_that_failed_is_filled() {
    let scenario = Scenario {
        ranks: &[&[1, 1]],
        asks: &[0, 0],
        bad: Some(0),
        failing: 1,
        readahead: 0,
        ..QUIET
    };
    let without = Fixes {
        stirs_after_a_failure: false,
        ..ALL
    };
    shows(scenario, ALL, without);
}

#[test]
fn what_is_postponed_after_room_was_signalled_is_fetched() {
    let scenario = Scenario {
        source: Source::Remote,
        threads: Threads::CrewAndNetwork,
        ranks: &[&[1, 1]],
        asks: &[0, 0],
        readahead: 2,
        stirs_late: true,
        ..QUIET
    };
    let without = Fixes {
        wakes_for_what_is_postponed: false,
        ..ALL
    };
    shows(scenario, ALL, without);
}

#[test]
fn what_a_thread_postpones_before_it_rests_is_fetched_by_another() {
    let scenario = Scenario {
        threads: Threads::CrewAndOneThatRests,
        ranks: &[&[1, 1]],
        asks: &[0, 0],
        readahead: 2,
        ..QUIET
    };
    let neither = Fixes {
        wakes_for_what_is_postponed: false,
        wakes_before_it_rests: false,
        ..ALL
    };
    // Either alone is enough.
    let with = Fixes {
        wakes_for_what_is_postponed: true,
        ..neither
    };
    shows(scenario, with, neither);
}

#[test]
fn readahead_that_a_thread_gives_back_before_it_rests_is_used_by_another() {
    let scenario = Scenario {
        source: Source::Logged,
        threads: Threads::CrewAndOneThatRests,
        ranks: &[&[2]],
        asks: &[0],
        blocks: 2,
        ..QUIET
    };
    let without = Fixes {
        wakes_before_it_rests: false,
        ..ALL
    };
    shows(scenario, ALL, without);
}

#[test]
fn a_batch_without_a_slab_leaves_the_readahead_to_the_next() {
    let scenario = Scenario {
        source: Source::Remote,
        threads: Threads::Both,
        ranks: &[&[1, 1, 1]],
        asks: &[0, 0, 0],
        failing: 2,
        blocks: 2,
        unmapped: true,
        ..QUIET
    };
    let without = Fixes {
        releases_with_the_batch: false,
        ..ALL
    };
    shows(scenario, ALL, without);
}

#[test]
fn a_panic_ends_in_an_error() {
    let scenario = Scenario {
        source: Source::Remote,
        threads: Threads::CrewAndNetwork,
        ranks: &[&[1]],
        asks: &[0],
        failing: 1,
        breaks: true,
        ..QUIET
    };
    let without = Fixes {
        ends_on_a_panic: false,
        ..ALL
    };
    shows(scenario, ALL, without);
}

/// What the bell is made of here.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
    pub(super) use loom::sync::{Condvar, Mutex};
}

#[path = "../crew/bell.rs"]
#[allow(clippy::duplicate_mod)] // the same code on other primitives
mod bell;

#[test]
fn no_ring_is_lost() {
    loom::model(|| {
        let shared = loom::sync::Arc::new((bell::Bell::new(), sync::Mutex::new(false)));
        let thread = thread::spawn({
            let shared = shared.clone();
            move || {
                let (bell, work) = &*shared;
                loop {
                    let heard = bell.heard();
                    if *work.lock().unwrap() {
                        return;
                    }
                    bell.sleep(heard, || false);
                }
            }
        });
        let (bell, work) = &*shared;
        *work.lock().unwrap() = true;
        bell.ring();
        thread.join().unwrap();
    });
}
