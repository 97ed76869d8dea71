//! Tiers of an exact number of blocks, and bytes that say whose they are.

#![allow(dead_code)]

use forebay_cache::{Error, Fill, Held, Lookup, MemoryTier, Settings};
use forebay_policy::{Next, Policy, by_name};

pub(crate) const BLOCK: u64 = 64;

pub(crate) fn policy(name: &str) -> Box<dyn Policy> {
    let settings = forebay_policy::Settings {
        epoch: Some(100),
        sole_copy: false,
    };
    by_name(name, settings).unwrap()
}

fn with_budget(name: &str, budget: u64, reserve: u64) -> Result<MemoryTier, Error> {
    let policy = policy(name);
    let settings = Settings {
        budget,
        reserve,
        policy,
        shared: false,
    };
    MemoryTier::with_block_size(settings, BLOCK)
}

/// A tier of `blocks` blocks. Its budget is what the errors of smaller ones ask for.
pub(crate) fn tier(name: &str, blocks: u64, reserve_blocks: u64) -> MemoryTier {
    let least = match with_budget(name, 0, 0) {
        Err(Error::TooSmall { least, .. }) => least,
        other => panic!("{other:?}"),
    };
    let one = with_budget(name, least, 0).unwrap();
    let budget = match one.lookup(0, blocks * BLOCK, None) {
        Err(Error::TooLarge { least, .. }) => least,
        Ok(_) => least,
        Err(other) => panic!("{other:?}"),
    };
    let tier = with_budget(name, budget, reserve_blocks * BLOCK).unwrap();
    assert_eq!(tier.stats().capacity, blocks * BLOCK);
    tier
}

/// The byte at `at` of a sample.
pub(crate) fn byte(stamp: u64, at: u64) -> u8 {
    let mixed = (stamp << 32 | at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

pub(crate) fn write(fill: &mut Fill, stamp: u64) {
    let mut at = 0;
    for slice in fill.slices_mut() {
        for target in slice {
            *target = byte(stamp, at);
            at += 1;
        }
    }
    assert_eq!(at, fill.len());
}

pub(crate) fn is(held: &Held, stamp: u64) -> bool {
    let mut bytes = vec![0; held.len() as usize];
    held.copy_to(&mut bytes);
    let slices = held.slices().flatten().copied().eq(bytes.iter().copied());
    slices
        && (0..)
            .zip(&bytes)
            .all(|(at, &found)| found == byte(stamp, at))
}

/// Reads a missing sample in, stamped with its key.
pub(crate) fn read_in(tier: &MemoryTier, key: u64, len: u64, next: Next) -> Held {
    match tier.lookup(key, len, next).unwrap() {
        Lookup::Fill(mut fill) => {
            write(&mut fill, key);
            fill.commit()
        }
        other => panic!("sample {key} should be missing: {other:?}"),
    }
}

/// Uses a sample as a job would: looked up, read in if missing, let go. True if it was there.
pub(crate) fn use_once(tier: &MemoryTier, key: u64, len: u64, next: Next) -> bool {
    match tier.lookup(key, len, next).unwrap() {
        Lookup::Hit(held) => {
            assert!(is(&held, key));
            true
        }
        Lookup::Fill(mut fill) => {
            write(&mut fill, key);
            drop(fill.commit());
            false
        }
        other => panic!("sample {key}: {other:?}"),
    }
}
