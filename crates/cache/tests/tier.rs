//! What a memory tier promises, one behaviour at a time.

mod rig;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use forebay_cache::{Error, FlightResult, Held, Lookup, MemoryTier, Settings};
use forebay_format::Kind;
use rig::{BLOCK, is, read_in, tier, use_once, write};

/// Long enough never to pass on a machine that is merely slow.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn what_was_read_once_is_there_the_next_time() {
    let tier = tier("lru", 20, 2);
    for len in [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK] {
        assert!(!use_once(&tier, len, len, None));
        assert!(use_once(&tier, len, len, None));
    }
    let stats = tier.stats();
    assert_eq!((stats.hits, stats.misses), (5, 5));
    assert_eq!(stats.hit_bytes, stats.miss_bytes);
    assert_eq!((stats.held_bytes, stats.kept_bytes), (0, 10 * BLOCK));
}

#[test]
fn an_empty_sample_is_a_sample() {
    let tier = tier("farthest", 4, 1);
    let Lookup::Fill(mut fill) = tier.lookup(1, 0, None).unwrap() else {
        panic!("it should be missing");
    };
    assert!(fill.slices_mut().is_empty());
    fill.write_at(0, &[]);
    let held = fill.commit();
    assert!(held.is_empty() && !held.was_hit());
    assert_eq!(held.slices().count(), 0);
    assert_eq!(held.as_slice(), Some(&[][..]));
    held.copy_to(&mut []);
    drop(held);
    assert!(use_once(&tier, 1, 0, None));
}

#[test]
fn a_sample_may_take_the_whole_tier() {
    for name in forebay_policy::NAMES {
        let tier = tier(name, 30, 3);
        for key in 0..20 {
            use_once(&tier, key, 2 * BLOCK, Some(50 + key));
        }
        let whole = read_in(&tier, 99, 30 * BLOCK, Some(200));
        assert!(is(&whole, 99));
        assert_eq!(tier.stats().used, 30 * BLOCK, "{name}");
        drop(whole);
        assert!(
            !use_once(&tier, 100, 10 * BLOCK, None),
            "{name}: and the tier goes on"
        );
    }
}

#[test]
fn a_sample_that_can_never_fit_is_an_error_that_names_the_least_budget() {
    let small = tier("farthest", 10, 1);
    let error = small.lookup(1, 10 * BLOCK + 1, None).unwrap_err();
    assert_eq!(error.kind(), Kind::Exhausted);
    let Error::TooLarge { len, least, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(len, 10 * BLOCK + 1);
    for (budget, fits) in [(least - 1, false), (least, true)] {
        let settings = Settings {
            budget,
            reserve: 0,
            policy: rig::policy("farthest"),
            shared: false,
        };
        let tier = MemoryTier::with_block_size(settings, BLOCK).unwrap();
        assert_eq!(tier.lookup(1, len, None).is_ok(), fits);
    }
    let hint = Error::TooLarge {
        len,
        budget: 1,
        least: 5 << 20,
    }
    .hint();
    assert_eq!(hint, "raise memory= to at least 5MiB");
}

#[test]
fn a_budget_too_small_for_anything_is_an_error() {
    let settings = Settings {
        budget: 1000,
        reserve: 0,
        policy: rig::policy("lru"),
        shared: false,
    };
    let error = MemoryTier::new(settings).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.hint().contains("memory="), "{}", error.hint());
}

#[test]
#[cfg_attr(miri, ignore = "Miri takes memory as soon as it is reserved")]
fn a_budget_larger_than_the_machine_costs_nothing_until_used() {
    let settings = Settings {
        budget: 64 << 30,
        reserve: 1 << 30,
        policy: rig::policy("farthest"),
        shared: false,
    };
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let before = resident();
    let tier = MemoryTier::new(settings).unwrap();
    for key in 0..10 {
        use_once(&tier, key, 100_000, Some(key));
    }
    let grown = resident().saturating_sub(before);
    assert!(tier.stats().capacity > 60 << 30);
    assert!(grown < 64 << 20, "{grown} bytes for 1 MB of samples");
}

#[test]
fn ten_askers_cause_one_read() {
    let tier = tier("farthest", 20, 5);
    let together = Barrier::new(10);
    let reads = AtomicUsize::new(0);
    let (busy, nine_busy) = mpsc::channel();
    let nine_busy = std::sync::Mutex::new(nine_busy);
    thread::scope(|scope| {
        for _ in 0..10 {
            let busy = busy.clone();
            let (tier, together, reads, nine_busy) = (&tier, &together, &reads, &nine_busy);
            scope.spawn(move || {
                together.wait();
                match tier.lookup(7, 300, None).unwrap() {
                    Lookup::Fill(mut fill) => {
                        reads.fetch_add(1, Ordering::Relaxed);
                        let nine_busy = nine_busy.lock().unwrap();
                        for _ in 0..9 {
                            nine_busy.recv_timeout(PATIENCE).unwrap();
                        }
                        write(&mut fill, 7);
                        assert!(is(&fill.commit(), 7));
                    }
                    Lookup::Busy(flight) => {
                        busy.send(()).unwrap();
                        match flight.wait(PATIENCE) {
                            FlightResult::Ready(held) => assert!(is(&held, 7) && !held.was_hit()),
                            other => panic!("{other:?}"),
                        }
                    }
                    other => panic!("{other:?}"),
                }
            });
        }
    });
    assert_eq!(reads.load(Ordering::Relaxed), 1);
    let stats = tier.stats();
    assert_eq!((stats.misses, stats.joined, stats.held_bytes), (1, 9, 0));
}

#[test]
fn a_fill_given_up_wakes_those_who_wait_and_one_of_them_may_try() {
    let tier = tier("farthest", 20, 5);
    let Lookup::Fill(fill) = tier.lookup(7, 300, None).unwrap() else {
        panic!("it should be missing");
    };
    let flights: Vec<_> = (0..3)
        .map(|_| match tier.lookup(7, 300, None).unwrap() {
            Lookup::Busy(flight) => flight,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(matches!(
        flights[0].wait(Duration::ZERO),
        FlightResult::TimedOut
    ));
    thread::scope(|scope| {
        let waits: Vec<_> = flights
            .iter()
            .map(|flight| scope.spawn(|| matches!(flight.wait(PATIENCE), FlightResult::Failed)))
            .collect();
        drop(fill);
        for wait in waits {
            assert!(wait.join().unwrap());
        }
    });
    assert_eq!(
        tier.stats().used,
        0,
        "the room is free although flights remain"
    );
    let held = read_in(&tier, 7, 300, None);
    assert!(
        matches!(flights[0].wait(Duration::ZERO), FlightResult::Failed),
        "another fill is not theirs"
    );
    drop(flights);
    assert!(is(&held, 7));
    assert_eq!((tier.stats().aborted, tier.stats().entries), (1, 1));
}

#[test]
fn a_flight_that_comes_late_finds_the_sample_still_there() {
    let tier = tier("none", 4, 4);
    let Lookup::Fill(mut fill) = tier.lookup(1, 2 * BLOCK, None).unwrap() else {
        panic!("it should be missing");
    };
    let Lookup::Busy(flight) = tier.lookup(1, 2 * BLOCK, None).unwrap() else {
        panic!("it should be on its way");
    };
    write(&mut fill, 1);
    drop(fill.commit());
    drop(read_in(&tier, 2, 2 * BLOCK, None));
    let FlightResult::Ready(held) = flight.wait(Duration::ZERO) else {
        panic!("it was committed");
    };
    drop(flight);
    assert!(is(&held, 1));
    drop(held);
    assert_eq!(tier.stats().used, 0);
}

#[test]
fn callbacks_run_once_when_the_fill_ends_however_it_ends() {
    for commit in [true, false] {
        let tier = tier("farthest", 20, 5);
        let calls = Arc::new(AtomicUsize::new(0));
        let count = || {
            let calls = Arc::clone(&calls);
            move || {
                calls.fetch_add(1, Ordering::Relaxed);
            }
        };
        let Lookup::Fill(fill) = tier.lookup(7, 10, None).unwrap() else {
            panic!("it should be missing");
        };
        let Lookup::Busy(flight) = tier.lookup(7, 10, None).unwrap() else {
            panic!("it should be on its way");
        };
        flight.on_done(count());
        flight.on_done(count());
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        if commit {
            drop(fill.commit());
        } else {
            drop(fill);
        }
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        flight.on_done(count());
        assert_eq!(calls.load(Ordering::Relaxed), 3, "ended already: at once");
        assert_eq!(
            matches!(flight.wait(Duration::ZERO), FlightResult::Ready(_)),
            commit
        );
    }
}

#[test]
fn what_is_held_is_neither_evicted_nor_overwritten() {
    for name in forebay_policy::NAMES {
        let tier = tier(name, 16, 12);
        let held: Vec<Held> = (0..4)
            .map(|key| read_in(&tier, key, 2 * BLOCK, Some(90)))
            .collect();
        let twice = held[0].clone();
        for key in 100..300 {
            use_once(&tier, key, 1 + key % (4 * BLOCK), Some(key));
        }
        for (key, held) in held.iter().enumerate() {
            assert!(is(held, key as u64), "{name}");
            assert!(tier.contains(key as u64), "{name}");
        }
        drop(held);
        assert!(is(&twice, 0), "{name}");
    }
}

#[test]
fn a_sample_larger_than_the_reserve_takes_its_room_from_those_that_nobody_holds() {
    for name in ["minio", "farthest", "lru"] {
        let tier = tier(name, 16, 4);
        for key in 0..12 {
            use_once(&tier, key, BLOCK, Some(50));
        }
        let held: Vec<Held> = (0..4)
            .map(|key| match tier.lookup(key, BLOCK, Some(60)).unwrap() {
                Lookup::Hit(held) => held,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(
            matches!(tier.lookup(99, 13 * BLOCK, Some(99)).unwrap(), Lookup::Full),
            "{name}"
        );
        drop(read_in(&tier, 99, 12 * BLOCK, Some(99)));
        for (key, held) in held.iter().enumerate() {
            assert!(is(held, key as u64), "{name}");
        }
    }
}

#[test]
fn a_full_tier_says_so_and_calls_when_there_is_room() {
    let tier = tier("farthest", 4, 4);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let again = tier.clone();
    tier.set_on_room(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        // Called without the lock: the tier answers.
        assert!(again.stats().used <= again.stats().capacity);
    }));
    let first = read_in(&tier, 1, 2 * BLOCK, None);
    let second = read_in(&tier, 2, 2 * BLOCK, None);
    let third = || tier.lookup(3, 1, None).unwrap();
    assert!(matches!(third(), Lookup::Full));
    assert!(matches!(third(), Lookup::Full));
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    drop(first);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    drop(second);
    assert_eq!(calls.load(Ordering::Relaxed), 1, "nobody waits any more");
    assert!(matches!(third(), Lookup::Fill(_)));
    assert_eq!(tier.stats().full, 2);
    // The call holds the tier that holds it: without this neither would ever be freed.
    tier.set_on_room(Box::new(|| {}));
}

#[test]
fn kept_samples_leave_the_reserve_to_those_on_their_way() {
    for name in forebay_policy::NAMES {
        let tier = tier(name, 10, 4);
        for key in 0..20 {
            use_once(&tier, key, BLOCK, Some(50 + key));
        }
        assert!(tier.stats().kept_bytes <= 6 * BLOCK, "{name}");
        // Wanted last of all: no policy that looks ahead displaces anything for these.
        let transit: Vec<Held> = (50..54)
            .map(|key| read_in(&tier, key, BLOCK, Some(199)))
            .collect();
        assert_eq!(transit.len(), 4, "{name}");
    }
}

#[test]
fn transit_within_its_reserve_evicts_nobody() {
    for name in ["farthest", "lru", "lfu", "minio"] {
        let tier = tier(name, 10, 4);
        for key in 0..6 {
            use_once(&tier, key, BLOCK, Some(50 + key));
        }
        let transit: Vec<Held> = (50..54)
            .map(|key| read_in(&tier, key, BLOCK, Some(10)))
            .collect();
        assert_eq!(tier.stats().evictions, 0, "{name}");
        drop(transit);
    }
}

#[test]
fn transit_beyond_its_reserve_displaces_only_what_the_policy_would() {
    let kept_until = |name: &str, next| {
        let tier = tier(name, 10, 4);
        for key in 0..6 {
            use_once(&tier, key, BLOCK, Some(50 + key));
        }
        let transit: Vec<Held> = (60..64)
            .map(|key| read_in(&tier, key, BLOCK, next))
            .collect();
        let found = tier.lookup(99, BLOCK, next).unwrap();
        let full = matches!(found, Lookup::Full);
        drop((transit, found));
        (full, tier.stats().evictions > 0 && !tier.contains(5))
    };
    assert_eq!(kept_until("farthest", Some(10)), (false, true));
    assert_eq!(kept_until("farthest", Some(99)), (true, false));
    assert_eq!(kept_until("minio", Some(10)), (true, false));
}

#[test]
fn farthest_keeps_what_is_wanted_soonest() {
    let tier = tier("farthest", 5, 1);
    for (key, next) in [(1, 40), (2, 10), (3, 30), (4, 20)] {
        use_once(&tier, key, BLOCK, Some(next));
    }
    use_once(&tier, 5, BLOCK, Some(15));
    assert!(!tier.contains(1) && tier.contains(5));
    use_once(&tier, 6, BLOCK, Some(99));
    assert!(!tier.contains(6), "wanted later than all: not kept");
    let held = read_in(&tier, 7, BLOCK, Some(99));
    held.set_next(Some(5));
    drop(held);
    assert!(
        tier.contains(7) && !tier.contains(3),
        "the last word on the next use counts"
    );
    assert_eq!((tier.stats().evictions, tier.stats().refused), (2, 1));
}

#[test]
fn minio_and_none_pass_samples_through() {
    for (name, kept) in [("minio", 8), ("none", 0)] {
        let tier = tier(name, 10, 2);
        for key in 0..100 {
            use_once(&tier, key, BLOCK, Some(key));
        }
        assert_eq!(tier.stats().kept_bytes, kept * BLOCK, "{name}");
        assert_eq!(tier.stats().evictions, 0, "{name}");
    }
}

#[test]
fn reuse_lets_go_what_has_no_further_use_as_the_clock_goes_on() {
    let tier = tier("reuse", 10, 2);
    use_once(&tier, 1, BLOCK, Some(10));
    use_once(&tier, 2, BLOCK, Some(11));
    use_once(&tier, 3, BLOCK, None);
    assert!(
        !tier.contains(3),
        "without further use it is not kept at all"
    );
    use_once(&tier, 1, BLOCK, None);
    let Lookup::Hit(held) = tier.lookup(2, BLOCK, None).unwrap() else {
        panic!("it should be there");
    };
    drop(held.clone());
    tier.advance(12);
    assert!(!tier.contains(1));
    assert!(tier.contains(2) && is(&held, 2), "held");
    drop(held);
    tier.advance(13);
    assert!(!tier.contains(2));
    assert_eq!((tier.stats().used, tier.stats().expired), (0, 2));
}

#[test]
fn a_forgotten_sample_is_read_again_while_its_holders_keep_theirs() {
    let tier = tier("lru", 10, 2);
    use_once(&tier, 1, BLOCK, None);
    assert!(tier.forget(1));
    assert!(!tier.forget(1) && !tier.contains(1));
    assert_eq!(tier.stats().used, 0);

    let old = read_in(&tier, 1, BLOCK, None);
    assert!(tier.forget(1));
    let Lookup::Fill(mut fill) = tier.lookup(1, BLOCK, None).unwrap() else {
        panic!("it was forgotten");
    };
    write(&mut fill, 1001);
    let new = fill.commit();
    assert!(is(&old, 1) && is(&new, 1001));
    drop(new);
    drop(old);
    assert_eq!(
        tier.stats().used,
        BLOCK,
        "the old one is gone, the new one kept"
    );
    let Lookup::Hit(held) = tier.lookup(1, BLOCK, None).unwrap() else {
        panic!("it should be there");
    };
    assert!(is(&held, 1001));
}

#[test]
fn a_sample_forgotten_during_its_fill_serves_those_who_asked_before() {
    let tier = tier("lru", 10, 2);
    let Lookup::Fill(mut fill) = tier.lookup(1, BLOCK, None).unwrap() else {
        panic!("it should be missing");
    };
    let Lookup::Busy(flight) = tier.lookup(1, BLOCK, None).unwrap() else {
        panic!("it should be on its way");
    };
    tier.forget(1);
    assert!(matches!(
        tier.lookup(1, BLOCK, None).unwrap(),
        Lookup::Fill(_)
    ));
    write(&mut fill, 1);
    drop(fill.commit());
    assert!(!tier.contains(1));
    assert!(matches!(flight.wait(Duration::ZERO), FlightResult::Ready(held) if is(&held, 1)));
    drop(flight);
    assert_eq!(tier.stats().used, 0);
}

#[test]
fn a_sample_of_another_length_has_changed() {
    let tier = tier("lru", 10, 2);
    use_once(&tier, 1, BLOCK, None);
    assert!(!use_once(&tier, 1, 2 * BLOCK, None));
    assert!(use_once(&tier, 1, 2 * BLOCK, None));
    assert_eq!(tier.stats().entries, 1);
}

#[test]
fn clearing_leaves_only_what_is_held() {
    let tier = tier("farthest", 10, 2);
    for key in 0..6 {
        use_once(&tier, key, BLOCK, Some(key));
    }
    let held = read_in(&tier, 9, BLOCK, None);
    tier.clear();
    assert_eq!(tier.stats().used, BLOCK);
    assert!(is(&held, 9) && !tier.contains(9));
    drop(held);
    assert_eq!(tier.stats().used, 0);
}

#[test]
fn parts_written_in_any_order_make_the_sample() {
    let tier = MemoryTier::new(Settings {
        budget: 1 << 20,
        reserve: 0,
        policy: rig::policy("lru"),
        shared: false,
    })
    .unwrap();
    let expected: Vec<u8> = (0..100_000).map(|at| rig::byte(1, at)).collect();
    let Lookup::Fill(mut fill) = tier.lookup(1, 100_000, None).unwrap() else {
        panic!("it should be missing");
    };
    for start in (0..100_000).step_by(7_000).rev() {
        let end = (start + 7_000).min(100_000);
        fill.write_at(start as u64, &expected[start..end]);
    }
    let held = fill.commit();
    assert!(is(&held, 1));
    assert_eq!(
        held.as_slice(),
        Some(&expected[..]),
        "fresh blocks lie in one run"
    );
}

#[test]
fn handles_and_samples_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    fn moves<T: Send>() {}
    crosses::<MemoryTier>();
    crosses::<Held>();
    moves::<forebay_cache::Fill>();
    moves::<forebay_cache::Flight>();
}
