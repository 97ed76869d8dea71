//! Many threads on a tier far too small for them.

mod rig;

use std::thread;
use std::time::Duration;

use forebay_cache::{FlightResult, Held, Lookup, MemoryTier};
use rig::{BLOCK, is, tier, write};

/// Miri takes as long for one use as a processor does for thousands.
const THREADS: u64 = if cfg!(miri) { 3 } else { 8 };
const USES: u64 = if cfg!(miri) { 12 } else { 4_000 };
const SAMPLES: u64 = 150;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn len(key: u64) -> u64 {
    key * 37 % (6 * BLOCK)
}

/// A job that holds a few samples at a time and checks each when it gets and when it drops it.
fn job(tier: &MemoryTier, seed: u64) {
    let mut random = Random(seed);
    let mut hand: Vec<(u64, Held)> = Vec::new();
    for tick in 0..USES {
        let key = random.below(SAMPLES);
        let next = (random.below(5) > 0).then(|| tick + random.below(300));
        match tier.lookup(key, len(key), next).unwrap() {
            Lookup::Hit(held) => hand.push((key, held)),
            Lookup::Fill(mut fill) => {
                if random.below(10) == 0 {
                    // Half-written rubbish that nobody may ever see.
                    write(&mut fill, key + 1_000_000);
                    continue;
                }
                write(&mut fill, key);
                hand.push((key, fill.commit()));
            }
            Lookup::Busy(flight) => {
                // Whoever waits lets go first, or all could wait for each other's room.
                hand.clear();
                match flight.wait(Duration::from_secs(120)) {
                    FlightResult::Ready(held) => hand.push((key, held)),
                    FlightResult::Failed => {}
                    FlightResult::TimedOut => panic!("nobody ended the fill of {key}"),
                }
            }
            Lookup::Full => {
                hand.clear();
                thread::yield_now();
            }
        }
        if let Some((key, held)) = hand.last() {
            assert!(is(held, *key), "sample {key}");
        }
        match random.below(50) {
            0 => drop(tier.forget(random.below(SAMPLES))),
            1 => tier.advance(tick),
            2 => hand.extend(hand.first().cloned()),
            3 if tick % 100 == 0 => tier.clear(),
            _ => {}
        }
        while hand.len() > 4 {
            let (key, held) = hand.swap_remove(random.below(5) as usize);
            assert!(is(&held, key), "sample {key} changed while held");
        }
        let stats = tier.stats();
        assert!(stats.used <= stats.capacity && stats.used == stats.kept_bytes + stats.held_bytes);
    }
}

#[test]
fn bytes_read_are_the_bytes_written_whatever_the_threads_do() {
    let names = forebay_policy::NAMES;
    for name in &names[..if cfg!(miri) { 1 } else { names.len() }] {
        let tier = tier(name, 120, 40);
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let tier = &tier;
                scope.spawn(move || job(tier, seed));
            }
        });
        let stats = tier.stats();
        assert!(stats.peak_used <= stats.capacity, "{name}");
        assert_eq!(stats.held_bytes, 0, "{name}");
        assert!(stats.kept_bytes <= 80 * BLOCK, "{name}");
        tier.clear();
        assert_eq!(
            (tier.stats().used, tier.stats().entries),
            (0, 0),
            "{name}: nothing leaks"
        );
    }
}
