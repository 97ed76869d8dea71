//! How fast the memory tier is on its hot path: a lookup that hits, and letting go.
//!
//! Seconds are of this thread on a processor, so that others' work counts less. The larger number
//! of samples has tables beyond the processor's caches: there it is memory that is measured.
//!
//! `cargo run --release -p forebay-cache --example lookups`

#![allow(clippy::print_stdout)]

use std::hint::black_box;

use forebay_cache::{Lookup, MemoryTier, Settings};
use forebay_policy::by_name;

const SAMPLE: u64 = 4096;

/// Ids in an order with no pattern that a processor could guess: a permutation of a power of two.
fn shuffled(at: u64, samples: u64) -> u64 {
    let mut id = at & (samples - 1);
    for _ in 0..2 {
        id = id.wrapping_mul(0x9E37_79B1) & (samples - 1);
        id ^= id >> 7;
    }
    id
}

fn seconds() -> f64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").expect("linux");
    let nanoseconds = spent
        .split(' ')
        .next()
        .and_then(|first| first.parse::<u64>().ok());
    nanoseconds.expect("nanoseconds") as f64 / 1e9
}

fn main() {
    println!(
        "{:>10} {:>10} {:>26} {:>22}",
        "policy", "samples", "lookup + release a second", "fill + commit, 4 KiB"
    );
    for samples in [1 << 14, 1 << 18] {
        for name in forebay_policy::NAMES
            .into_iter()
            .filter(|&name| name != "none")
        {
            measure(name, samples);
        }
    }
}

fn measure(name: &str, samples: u64) {
    let policy = by_name(name, forebay_policy::Settings::default()).expect("a policy's name");
    let budget = samples * (SAMPLE + 512) + (1 << 20);
    let tier = MemoryTier::new(Settings {
        budget,
        reserve: 1 << 16,
        policy,
        shared: false,
    })
    .expect("a tier");

    let bytes = [7; SAMPLE as usize];
    let start = seconds();
    for key in 0..samples {
        let Ok(Lookup::Fill(mut fill)) = tier.lookup(key, SAMPLE, Some(key + samples)) else {
            panic!("sample {key} should be missing");
        };
        fill.write_at(0, &bytes);
        drop(fill.commit());
    }
    let fills = samples as f64 / (seconds() - start);

    let rounds = (4_000_000 / samples).max(2);
    let start = seconds();
    for use_ in 0..rounds * samples {
        let next = Some(use_ + 2 * samples);
        match tier.lookup(shuffled(use_, samples), SAMPLE, next) {
            Ok(Lookup::Hit(held)) => {
                black_box(held.len());
            }
            other => panic!("a hit was expected: {other:?}"),
        }
    }
    let hits = (rounds * samples) as f64 / (seconds() - start);
    println!(
        "{name:>10} {samples:>10} {:>24.2} M {:>20.2} M",
        hits / 1e6,
        fills / 1e6
    );
}
