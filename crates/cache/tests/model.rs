//! Random interleavings of everything a user can do, against a model of what must hold.

mod rig;

use std::collections::HashMap;
use std::time::Duration;

use forebay_cache::{Fill, Flight, FlightResult, Held, Lookup, MemoryTier};
use forebay_policy::Next;
use proptest::prelude::*;
use rig::{BLOCK, is, tier, write};

const BLOCKS: u64 = 16;

#[derive(Debug, Clone)]
enum Step {
    Lookup(u64, Next),
    Commit(usize),
    Abort(usize),
    LetGo(usize),
    Again(usize),
    SetNext(usize, Next),
    Wait(usize),
    LeaveFlight(usize),
    Forget(u64),
    Advance(u64),
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0_u64..12;
    let next = || prop::option::of(0_u64..300);
    let which = || 0_usize..8;
    let step = prop_oneof![
        10 => (key.clone(), next()).prop_map(|(key, next)| Step::Lookup(key, next)),
        8 => which().prop_map(Step::Commit),
        2 => which().prop_map(Step::Abort),
        9 => which().prop_map(Step::LetGo),
        1 => which().prop_map(Step::Again),
        1 => (which(), next()).prop_map(|(at, next)| Step::SetNext(at, next)),
        2 => which().prop_map(Step::Wait),
        1 => which().prop_map(Step::LeaveFlight),
        1 => key.prop_map(Step::Forget),
        1 => (0_u64..200).prop_map(Step::Advance),
    ];
    let step = prop_oneof![120 => step, 1 => Just(Step::Clear)];
    prop::collection::vec(step, 1..400)
}

/// From none to more than half of the tier.
fn len(key: u64) -> u64 {
    key * BLOCK * 3 / 4
}

fn blocks(key: u64) -> u64 {
    len(key).div_ceil(BLOCK).max(1)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bytes {
    Filling,
    Ready,
    Aborted,
}

/// One reading-in of a sample; its stamp is its place in the list.
#[derive(Debug)]
struct Reading {
    key: u64,
    bytes: Bytes,
    /// Not forgotten since.
    known: bool,
}

struct Model {
    tier: MemoryTier,
    reserve: u64,
    readings: Vec<Reading>,
    fills: Vec<(Fill, usize)>,
    held: Vec<(Held, usize)>,
    flights: Vec<(Flight, usize)>,
}

impl Model {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Lookup(key, next) => self.lookup(key, next),
            Step::Commit(at) if !self.fills.is_empty() => {
                let (mut fill, stamp) = self.fills.remove(at % self.fills.len());
                write(&mut fill, stamp as u64);
                self.held.push((fill.commit(), stamp));
                self.readings[stamp].bytes = Bytes::Ready;
            }
            Step::Abort(at) if !self.fills.is_empty() => {
                let (mut fill, stamp) = self.fills.remove(at % self.fills.len());
                write(&mut fill, 999);
                self.readings[stamp].bytes = Bytes::Aborted;
            }
            Step::LetGo(at) if !self.held.is_empty() => {
                drop(self.held.remove(at % self.held.len()));
            }
            Step::Again(at) if !self.held.is_empty() => {
                let (held, stamp) = &self.held[at % self.held.len()];
                let again = (held.clone(), *stamp);
                self.held.push(again);
            }
            Step::SetNext(at, next) if !self.held.is_empty() => {
                let at = at % self.held.len();
                self.held[at].0.set_next(next);
            }
            Step::Wait(at) if !self.flights.is_empty() => {
                let (flight, stamp) = &self.flights[at % self.flights.len()];
                match (flight.wait(Duration::ZERO), self.readings[*stamp].bytes) {
                    (FlightResult::Ready(held), Bytes::Ready) => self.held.push((held, *stamp)),
                    (FlightResult::Failed, Bytes::Aborted) => {}
                    (FlightResult::TimedOut, Bytes::Filling) => {}
                    other => panic!("{other:?}"),
                }
            }
            Step::LeaveFlight(at) if !self.flights.is_empty() => {
                drop(self.flights.remove(at % self.flights.len()));
            }
            Step::Forget(key) => {
                self.tier.forget(key);
                self.forget(|reading| reading.key == key);
            }
            Step::Advance(now) => self.tier.advance(now),
            Step::Clear => {
                self.tier.clear();
                self.forget(|_| true);
            }
            _ => {}
        }
    }

    fn forget(&mut self, which: impl Fn(&Reading) -> bool) {
        for reading in self.readings.iter_mut().filter(|reading| which(reading)) {
            reading.known = false;
        }
    }

    /// The readings that somebody holds, fills or waits for.
    fn in_hand(&self) -> Vec<usize> {
        let mut stamps: Vec<usize> = self.held.iter().map(|&(_, stamp)| stamp).collect();
        stamps.extend(self.fills.iter().map(|&(_, stamp)| stamp));
        let flights = self.flights.iter().map(|&(_, stamp)| stamp);
        stamps.extend(flights.filter(|&stamp| self.readings[stamp].bytes != Bytes::Aborted));
        stamps.sort_unstable();
        stamps.dedup();
        stamps
    }

    fn held_blocks(&self) -> u64 {
        self.in_hand()
            .iter()
            .map(|&stamp| blocks(self.readings[stamp].key))
            .sum()
    }

    /// The reading that a lookup of this key may find.
    fn known(&self, key: u64) -> Option<usize> {
        self.readings.iter().rposition(|reading| {
            reading.key == key && reading.known && reading.bytes != Bytes::Aborted
        })
    }

    fn lookup(&mut self, key: u64, next: Next) {
        let there = self.tier.contains(key);
        let known = self.known(key);
        match self.tier.lookup(key, len(key), next).unwrap() {
            Lookup::Hit(held) => {
                let stamp = known.expect("a hit was read in before");
                assert!(there && held.was_hit());
                self.held.push((held, stamp));
            }
            Lookup::Busy(flight) => {
                let stamp = known.expect("a fill goes on");
                assert_eq!(self.readings[stamp].bytes, Bytes::Filling);
                self.flights.push((flight, stamp));
            }
            Lookup::Fill(fill) => {
                assert!(!there);
                self.forget(|reading| reading.key == key);
                self.fills.push((fill, self.readings.len()));
                self.readings.push(Reading {
                    key,
                    bytes: Bytes::Filling,
                    known: true,
                });
            }
            Lookup::Full => {
                let held = self.held_blocks();
                assert!(!there && held > 0, "full needs a holder");
                if blocks(key) <= self.reserve {
                    assert!(
                        held + blocks(key) > self.reserve,
                        "the reserve is for transit"
                    );
                }
            }
        }
    }

    fn check(&self) {
        for (held, stamp) in &self.held {
            assert!(is(held, *stamp as u64), "a held sample changed");
        }
        let stats = self.tier.stats();
        assert!(stats.used <= stats.capacity);
        assert_eq!(stats.used, stats.kept_bytes + stats.held_bytes);
        assert_eq!(stats.held_bytes, self.held_blocks() * BLOCK);
        assert!(stats.kept_bytes <= (BLOCKS - self.reserve) * BLOCK);

        let in_hand = self.in_hand();
        let mut used: HashMap<usize, u64> = in_hand
            .iter()
            .map(|&stamp| (stamp, blocks(self.readings[stamp].key)))
            .collect();
        for key in 0..12 {
            let ready = self
                .known(key)
                .filter(|&stamp| self.readings[stamp].bytes == Bytes::Ready);
            match (self.tier.contains(key), ready) {
                (true, Some(stamp)) => drop(used.insert(stamp, blocks(key))),
                (true, None) => panic!("{key} is there and should not be"),
                (false, Some(stamp)) => {
                    assert!(!in_hand.contains(&stamp), "{key} is held and lost");
                }
                (false, None) => {}
            }
        }
        assert_eq!(stats.used, used.values().sum::<u64>() * BLOCK);
        assert_eq!(stats.entries, used.len() as u64);
    }

    /// Everything let go: not a block is lost.
    fn end(mut self) {
        self.fills.clear();
        self.flights.clear();
        self.held.clear();
        self.tier.clear();
        assert_eq!((self.tier.stats().used, self.tier.stats().entries), (0, 0));
        assert!(matches!(
            self.tier.lookup(99, BLOCKS * BLOCK, None).unwrap(),
            Lookup::Fill(_)
        ));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 600 }))]

    #[test]
    fn a_tier_does_as_its_model(
        name in prop::sample::select(&forebay_policy::NAMES[..]),
        reserve in 0..=BLOCKS,
        steps in steps(),
    ) {
        let mut model = Model {
            tier: tier(name, BLOCKS, reserve),
            reserve,
            readings: Vec::new(),
            fills: Vec::new(),
            held: Vec::new(),
            flights: Vec::new(),
        };
        // Miri takes seconds for each.
        for step in steps.iter().take(if cfg!(miri) { 40 } else { usize::MAX }) {
            model.run(step);
            model.check();
        }
        model.end();
    }
}
