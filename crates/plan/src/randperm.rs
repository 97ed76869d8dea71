//! `torch.randperm`, the same numbers in less than half the time.
//!
//! torch shuffles 0..n forward: position i swaps with i + random() % (n - i). At
//! 14 million ids nearly every swap misses the caches, and each draw divides. The
//! draws do not depend on the swaps, so they run ahead in blocks:
//!
//! ```text
//!   draw a block -> remainders, four at a time -> swap j, while the target of
//!   of words        (vectorised f64 division)     swap j + 32 is being fetched
//! ```
//!
//! From u32::MAX / 20 ids on, torch 2.6 and later build the permutation inside out
//! with 64-bit draws instead, and so does this.
//!
//! n - 1 draws (2n inside out), 4 bytes an id, no other memory.

use crate::{Dialect, Mt19937, prefetch::prefetch};

const BLOCK: usize = 1024;
const AHEAD: usize = 32;

/// `torch.randperm(n, generator=g)` of today's torch, where `engine` stands for g.
pub fn randperm(engine: &mut Mt19937, n: u32) -> Vec<u32> {
    let mut ids = vec![0; n as usize];
    randperm_into(engine, &mut ids);
    ids
}

/// Overwrites `ids` with the permutation of 0..ids.len(), reusing its memory.
///
/// # Panics
/// If `ids` is longer than a `u32` can count.
pub fn randperm_into(engine: &mut Mt19937, ids: &mut [u32]) {
    randperm_as(Dialect::Current, engine, ids);
}

/// The same for any torch; they differ from 214,748,364 ids on.
///
/// # Panics
/// If `ids` is longer than a `u32` can count.
pub fn randperm_as(dialect: Dialect, engine: &mut Mt19937, ids: &mut [u32]) {
    assert!(u32::try_from(ids.len()).is_ok(), "ids are 32 bits wide");
    if dialect.inside_out(ids.len()) {
        inside_out(engine, ids);
    } else {
        forward(engine, ids);
    }
}

/// How many 32-bit draws `randperm(n)` takes.
pub fn randperm_draws(n: u32) -> u64 {
    randperm_draws_as(Dialect::Current, n)
}

/// How many 32-bit draws `randperm_as` takes.
pub fn randperm_draws_as(dialect: Dialect, n: u32) -> u64 {
    if dialect.inside_out(n as usize) {
        2 * u64::from(n)
    } else {
        u64::from(n.saturating_sub(1))
    }
}

fn forward(engine: &mut Mt19937, ids: &mut [u32]) {
    for (i, id) in ids.iter_mut().enumerate() {
        *id = i as u32;
    }
    let n = ids.len() as u32;
    let swaps = n.saturating_sub(1) as usize;
    // The first `waiting` targets were drawn in the round before and are on their way.
    // The last AHEAD stay 0: fetched at the end of a round for nothing, and harmless.
    let mut targets = [0u32; AHEAD + BLOCK + AHEAD];
    let mut waiting = 0;
    let (mut drawn, mut swapped) = (0, 0);
    while swapped < swaps {
        let count = BLOCK.min(swaps - drawn);
        let fresh = &mut targets[waiting..waiting + count];
        engine.fill(fresh);
        to_targets(fresh, drawn as u32, n);
        drawn += count;
        let known = waiting + count;
        let ready = if drawn == swaps { known } else { known - AHEAD };
        for j in 0..ready {
            prefetch(ids, targets[j + AHEAD] as usize);
            ids.swap(swapped + j, targets[j] as usize);
        }
        swapped += ready;
        waiting = known - ready;
        targets.copy_within(ready..known, 0);
    }
}

fn inside_out(engine: &mut Mt19937, ids: &mut [u32]) {
    for i in 0..ids.len() {
        let target = (engine.random64() % (i as u64 + 1)) as usize;
        ids[i] = ids[target];
        ids[target] = i as u32;
    }
}

/// Turns draw j into the position that swap `first + j` swaps with.
fn to_targets(draws: &mut [u32], first: u32, n: u32) {
    for (draw, i) in draws.iter_mut().zip(first..) {
        *draw = i + remainder(*draw, n - i);
    }
}

/// x % m in f64, where division has a vector form. The quotient is rounded, so the
/// remainder may come out negative, by less than m; all values are exact, being
/// integers below 2^53.
#[inline]
fn remainder(x: u32, m: u32) -> u32 {
    // Added to an f64 in 0..2^51, rounds it to an integer that stands in the low bits.
    const INTEGER: f64 = (1u64 << 52) as f64;
    let widen = |v: u32| f64::from_bits(INTEGER.to_bits() | u64::from(v)) - INTEGER;
    let (x, m) = (widen(x), widen(m));
    let quotient = (x / m + INTEGER) - INTEGER;
    let rest = x - quotient * m;
    let rest = if rest < 0.0 { rest + m } else { rest };
    (rest + INTEGER).to_bits() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// torch's loop as it is written down, draw by draw.
    fn plainly(engine: &mut Mt19937, n: u32) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..n).collect();
        for i in 0..n.saturating_sub(1) {
            let target = i + engine.random() % (n - i);
            ids.swap(i as usize, target as usize);
        }
        ids
    }

    proptest! {
        #[test]
        fn drawing_ahead_gives_what_drawing_in_step_gives(
            n in prop_oneof![0u32..70, 900u32..1200, 2000u32..2200, Just(50_000)],
            seed: u64,
        ) {
            let (mut ours, mut plain) = (Mt19937::new(seed), Mt19937::new(seed));
            prop_assert_eq!(randperm(&mut ours, n), plainly(&mut plain, n));
            prop_assert_eq!(&ours, &plain);
            let mut skipped = Mt19937::new(seed);
            skipped.skip(randperm_draws(n));
            prop_assert_eq!(ours, skipped);
        }

        #[test]
        fn the_remainder_is_that_of_the_integers(x: u32, m in 1u32.., near in 0u32..3) {
            prop_assert_eq!(remainder(x, m), x % m);
            let multiple = (x / m * m).saturating_sub(1).saturating_add(near);
            prop_assert_eq!(remainder(multiple, m), multiple % m);
        }
    }

    #[test]
    fn the_remainder_holds_at_the_edges() {
        let edges = [
            1,
            2,
            3,
            5,
            (1 << 31) - 1,
            1 << 31,
            (1 << 31) + 1,
            u32::MAX - 1,
            u32::MAX,
        ];
        for m in edges {
            for x in edges.into_iter().chain([0]) {
                assert_eq!(remainder(x, m), x % m, "{x} % {m}");
            }
        }
    }

    #[test]
    fn inside_out_is_a_permutation_and_takes_two_draws_an_id() {
        let mut engine = Mt19937::new(1);
        let mut ids = vec![0; 1000];
        inside_out(&mut engine, &mut ids);
        let mut skipped = Mt19937::new(1);
        skipped.skip(2000);
        assert_eq!(engine, skipped);
        ids.sort_unstable();
        assert!(ids.iter().enumerate().all(|(i, &id)| i as u32 == id));
    }

    #[test]
    fn the_branches_meet_where_torch_changes_over() {
        assert_eq!(randperm_draws(0), 0);
        assert_eq!(randperm_draws(1), 0);
        assert_eq!(randperm_draws(214_748_363), 214_748_362);
        assert_eq!(randperm_draws(214_748_364), 429_496_728);
        let before = randperm_draws_as(Dialect::Before2_6, 214_748_364);
        assert_eq!(before, 214_748_363);
    }
}
