//! The budget with everything in it: the arena, the tables, and the policy's memory, counted by
//! the allocator itself.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_cache::{Lookup, MemoryTier, Settings};
use forebay_policy::{NAMES, by_name};

/// Counts what is allocated now and at most. A reallocation counts old and new at once.
struct Counting;

static NOW: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as u64;
        let now = NOW.fetch_add(size, Ordering::Relaxed) + size;
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the pointer came from `alloc` above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Each block has a link of two words of 32 bits beside its bytes.
const LINK: u64 = 8;

fn most_memory(name: &str, budget: u64, block: u64) -> (u64, u64) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let settings = forebay_policy::Settings {
        epoch: Some(1 << 40),
        sole_copy: false,
    };
    let policy = by_name(name, settings).unwrap();
    let tier = MemoryTier::with_block_size(
        Settings {
            budget,
            reserve: block,
            policy,
            shared: false,
        },
        block,
    )
    .unwrap();
    let capacity = tier.stats().capacity;
    let samples = capacity / block;
    // The smallest samples there are, so that the tables are as full as can be; then hits, so
    // that the policy's are; then others in their place.
    for round in 0..6 {
        for id in 0..samples {
            let key = if round < 4 { id } else { id + samples };
            let next = Some((6 - round) * samples + id);
            match tier.lookup(key, 1, next).unwrap() {
                Lookup::Hit(held) => drop(held),
                Lookup::Fill(mut fill) => {
                    fill.write_at(0, &[1]);
                    drop(fill.commit());
                }
                other => panic!("{other:?}"),
            }
        }
        tier.advance(round);
    }
    assert!(
        tier.stats().peak_used >= capacity - block,
        "the tier was filled"
    );
    let heap = PEAK.load(Ordering::Relaxed) - before;
    (heap + capacity + samples * LINK, capacity)
}

#[test]
fn no_policy_at_no_budget_takes_more_memory_than_the_budget() {
    for name in NAMES.into_iter().filter(|&name| name != "none") {
        for block in [64, 4096] {
            let mut budget = 48 << 10;
            while budget < 9 << 20 {
                let (memory, capacity) = most_memory(name, budget, block);
                assert!(
                    memory <= budget,
                    "{name}, blocks of {block}: {memory} of {budget}"
                );
                if block == 4096 && budget > 4 << 20 {
                    assert!(
                        capacity > budget / 100 * 93,
                        "{name}: only {capacity} of {budget}"
                    );
                }
                // Not a whole number of doublings, to meet the tables at every fill.
                budget = budget * 131 / 100;
            }
        }
    }
}
