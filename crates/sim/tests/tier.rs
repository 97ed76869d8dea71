//! The simulator's memory tier beside the cache's: the same calls, the same answers.

use forebay_cache::{Held, Lookup, MemoryTier};
use forebay_policy::{NAMES, Policy, Settings, by_name};
use forebay_sim::memory::{Found, Tiers};
use forebay_sim::{Memory, Sizes};
use proptest::prelude::*;

fn policy(name: &str) -> Box<dyn Policy> {
    let settings = Settings {
        epoch: Some(200),
        sole_copy: true,
    };
    by_name(name, settings).unwrap()
}

/// What somebody has in hand: the real sample, and its slot here.
struct Hand(Held, u32);

fn real(name: &str, budget: u64, reserve: u64) -> MemoryTier {
    MemoryTier::new(forebay_cache::Settings {
        budget,
        reserve,
        policy: policy(name),
        shared: false,
    })
    .unwrap()
}

fn ours(name: &str, budget: u64, readahead: u64) -> Tiers {
    let policy = policy(name);
    let memory = Memory::Engine { budget, readahead };
    let room = memory.room(policy.overhead()).unwrap();
    Tiers::new(&[(100, Sizes::Equal(0))], vec![(room, policy)])
}

#[test]
fn the_room_is_that_of_the_tier_for_every_policy_and_budget() {
    for name in NAMES {
        for budget in [40_000, 1 << 20, 123_456_789, 4 << 30] {
            let real = real(name, budget, budget / 4);
            let tiers = ours(name, budget, budget);
            assert_eq!(tiers.room(0).capacity(), real.stats().capacity, "{name}");
        }
    }
}

#[derive(Debug, Clone)]
enum Call {
    Lookup {
        sample: u32,
        len: u64,
        next: Option<u64>,
    },
    LetGo(usize),
    Advance(u64),
}

fn call() -> impl Strategy<Value = Call> {
    let len = prop_oneof![8 => 1u64..20_000, 1 => 60_000u64..150_000];
    let next = proptest::option::weighted(0.8, 0u64..400);
    prop_oneof![
        6 => (0u32..40, len, next).prop_map(|(sample, len, next)| Call::Lookup { sample, len, next }),
        5 => (0usize..50).prop_map(Call::LetGo),
        1 => (0u64..50).prop_map(Call::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Samples larger than the reserve too, so that room is made by force.
    #[test]
    fn the_same_calls_give_the_same_answers(
        name in proptest::sample::select(NAMES.to_vec()),
        reserve in 0u64..100_000,
        calls in proptest::collection::vec(call(), 1..400),
    ) {
        const BUDGET: u64 = 400_000;
        let real = real(name, BUDGET, reserve);
        let mut tiers = ours(name, BUDGET, reserve);
        let mut lengths = [0u64; 100];
        let mut hands: Vec<Hand> = Vec::new();
        let mut now = 0;
        for call in calls {
            match call {
                Call::Lookup { sample, len, next } => {
                    // A sample has one length.
                    let len = match lengths[sample as usize] {
                        0 => len,
                        len => len,
                    };
                    lengths[sample as usize] = len;
                    let next = next.map(|next| now + next);
                    let found = tiers.lookup(0, sample, len, next);
                    match (real.lookup(u64::from(sample), len, next).unwrap(), found) {
                        (Lookup::Hit(held), Found::Hit(slot)) => hands.push(Hand(held, slot)),
                        (Lookup::Fill(fill), Found::New(slot)) => {
                            tiers.commit(0, slot);
                            hands.push(Hand(fill.commit(), slot));
                        }
                        (Lookup::Full, Found::Full) => {}
                        (theirs, ours) => prop_assert!(false, "{theirs:?} beside {ours:?}"),
                    }
                }
                Call::LetGo(at) => {
                    if !hands.is_empty() {
                        let Hand(held, slot) = hands.swap_remove(at % hands.len());
                        drop(held);
                        tiers.let_go(0, slot);
                    }
                }
                Call::Advance(ticks) => {
                    now += ticks;
                    real.advance(now);
                    tiers.advance(0, now);
                }
            }
            let (theirs, ours) = (real.stats(), tiers.stats(0));
            let room = tiers.room(0);
            prop_assert_eq!(theirs.used, room.capacity() - ours.free * room.block());
            prop_assert_eq!(
                (theirs.entries, theirs.evictions, theirs.expired, theirs.refused, theirs.full),
                (ours.entries, ours.evictions, ours.expired, ours.refused, ours.full)
            );
            for sample in 0..40 {
                prop_assert_eq!(real.contains(u64::from(sample)), tiers.contains(0, sample));
            }
        }
    }
}
