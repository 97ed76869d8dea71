//! A resume loses no sample and repeats none, wherever it happens, to however many
//! ranks, with whatever batch size.

use std::collections::HashMap;

use forebay_plan::{Deal, Epoch, Order, Plan, Uneven};
use proptest::prelude::*;

const DEALS: [Deal; 4] = [
    Deal::Strided {
        uneven: Uneven::Pad,
    },
    Deal::Strided {
        uneven: Uneven::Drop,
    },
    Deal::Strided {
        uneven: Uneven::Keep,
    },
    Deal::Batches,
];

fn epoch(samples: u32, deal: Deal, world: u32, size: u32, drop_last: bool) -> Epoch {
    let order = Order::Seeded { seed: 9 };
    let plan = Plan::new(samples, order, deal, world, Some(size), drop_last);
    plan.unwrap().epoch(3)
}

/// How often each sample comes in the first `steps` batches of every rank.
fn take(epoch: &Epoch, steps: u64, seen: &mut HashMap<u32, u32>) {
    for rank in 0..epoch.world() {
        for index in 0..steps.min(epoch.batches(rank)) {
            for sample in epoch.batch(rank, index) {
                *seen.entry(sample).or_default() += 1;
            }
        }
    }
}

/// What was seen is right: at most `spare` repeats for padding or gaps for dropping,
/// according to the deal.
fn check(seen: &HashMap<u32, u32>, samples: u32, deal: Deal, drop_last: bool, spare: u64) {
    let total: u64 = seen.values().map(|&count| u64::from(count)).sum();
    let gaps = u64::from(samples) - seen.len() as u64;
    let repeats = total - seen.len() as u64;
    let may_pad = matches!(
        deal,
        Deal::Batches
            | Deal::Strided {
                uneven: Uneven::Pad
            }
    );
    let may_drop = drop_last
        || matches!(
            deal,
            Deal::Strided {
                uneven: Uneven::Drop
            }
        );
    assert!(
        repeats <= if may_pad { spare } else { 0 },
        "{repeats} repeats"
    );
    assert!(gaps <= if may_drop { spare } else { 0 }, "{gaps} gaps");
}

#[test]
fn every_position_on_up_to_three_ranks_resumes_on_up_to_three() {
    for samples in [1, 6, 23, 24] {
        for (deal, drop_last) in DEALS.into_iter().flat_map(|d| [(d, false), (d, true)]) {
            for (from, to) in (1..=3).flat_map(|from| (1..=3).map(move |to| (from, to))) {
                for (before, after) in [(1, 1), (2, 2), (4, 4), (2, 5), (5, 2)] {
                    let first = epoch(samples, deal, from, before, drop_last);
                    let settings = epoch(samples, deal, to, after, drop_last);
                    for steps in 0..=first.batches(0) {
                        let mut seen = HashMap::new();
                        take(&first, steps, &mut seen);
                        let rest = settings.from_position(first.consumed(steps));
                        take(&rest, u64::MAX, &mut seen);
                        let spare = u64::from((from * before).max(to * after));
                        check(&seen, samples, deal, drop_last, spare);
                    }
                }
            }
        }
    }
}

#[test]
fn on_as_many_ranks_as_before_a_resume_is_the_rest_of_the_same_epoch() {
    for (deal, drop_last) in DEALS.into_iter().flat_map(|d| [(d, false), (d, true)]) {
        for world in 1..=4 {
            let whole = epoch(53, deal, world, 3, drop_last);
            for steps in 0..=whole.batches(0) {
                let rest = whole.from_position(whole.consumed(steps));
                for rank in 0..world {
                    let all = whole.batches(rank);
                    assert_eq!(rest.batches(rank), all.saturating_sub(steps));
                    for index in steps..all {
                        let expected: Vec<u32> = whole.batch(rank, index).collect();
                        let found: Vec<u32> = rest.batch(rank, index - steps).collect();
                        assert_eq!(found, expected, "{deal:?} rank {rank} batch {index}");
                    }
                }
            }
        }
    }
}

#[test]
fn one_rank_gets_the_batches_of_a_plain_batch_sampler() {
    for deal in DEALS {
        let plan = Plan::new(7, Order::Sequential, deal, 1, Some(3), false).unwrap();
        let epoch = plan.epoch(0);
        let batches: Vec<Vec<u32>> = (0..epoch.batches(0))
            .map(|index| epoch.batch(0, index).collect())
            .collect();
        assert_eq!(batches, [vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
    }
}

proptest! {
    #[test]
    fn resumes_can_be_chained(
        samples in 1u32..200,
        legs in proptest::collection::vec((1u32..6, 1u32..9, 0u64..6), 1..6),
        deal in 0usize..4,
        drop_last: bool,
    ) {
        let deal = DEALS[deal];
        let mut seen = HashMap::new();
        let (mut position, mut spare) = (0, 0);
        for (leg, &(world, size, steps)) in legs.iter().enumerate() {
            let part = epoch(samples, deal, world, size, drop_last).from_position(position);
            let steps = if leg + 1 == legs.len() { u64::MAX } else { steps };
            take(&part, steps, &mut seen);
            position = part.consumed(steps);
            spare = spare.max(u64::from(world * size));
        }
        prop_assert!(position == u64::from(samples) || seen.is_empty() || drop_last || deal == DEALS[1]);
        check(&seen, samples, deal, drop_last, spare);
    }

    #[test]
    fn a_batch_is_what_its_positions_say(
        samples in 1u32..100, world in 1u32..5, size in 1u32..7, deal in 0usize..4,
        drop_last: bool, start in 0u64..50,
    ) {
        let epoch = epoch(samples, DEALS[deal], world, size, drop_last).from_position(start);
        for rank in 0..world {
            let batches: Vec<u32> =
                (0..epoch.batches(rank)).flat_map(|index| epoch.batch(rank, index)).collect();
            let positions: Vec<u32> =
                (0..epoch.len(rank)).map(|position| epoch.sample(rank, position)).collect();
            prop_assert_eq!(&batches, &positions);
            prop_assert_eq!(&batches, &epoch.rank(rank).collect::<Vec<_>>());
            let other = epoch.with_world(world + 1).unwrap().with_world(world).unwrap();
            prop_assert_eq!(&batches, &other.rank(rank).collect::<Vec<_>>());
        }
    }
}
