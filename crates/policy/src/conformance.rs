//! What every policy must do, as one suite: call [`run`] with a constructor.
//!
//! It panics at the first breach, with the policy's name. Policies of other crates use it too.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Candidate, Key, Next, Policy, Slot, Verdict};

/// Makes a new, empty policy.
pub type Make<'a> = &'a dyn Fn() -> Box<dyn Policy>;

/// Runs the whole suite.
pub fn run(make: Make<'_>) {
    an_empty_policy_refuses(make);
    what_is_held_never_goes(make);
    each_kept_sample_goes_at_most_once(make);
    a_removed_sample_is_never_named(make);
    a_sample_may_come_back(make);
    the_same_calls_give_the_same_answers(make);
    for seed in 0..20 {
        Walk::new(make, seed).run(2_000);
    }
}

/// A newcomer that every evicting policy makes room for: wanted at once.
const URGENT: Candidate = Candidate {
    key: Key::MAX,
    size: 1,
    next: Some(0),
};

fn filled(make: Make<'_>, samples: Slot) -> Box<dyn Policy> {
    let mut policy = make();
    for slot in 0..samples {
        policy.insert(slot, 1, Some(100 + u64::from(slot)));
    }
    policy
}

fn an_empty_policy_refuses(make: Make<'_>) {
    let mut policy = make();
    assert_eq!(
        policy.decide(URGENT, &|_| false),
        Verdict::Refuse,
        "{}: nothing is kept",
        policy.name()
    );
    policy.insert(1, 1, Some(5));
    policy.remove(1);
    assert_eq!(
        policy.decide(URGENT, &|_| false),
        Verdict::Refuse,
        "{}: nothing is kept again",
        policy.name()
    );
}

fn what_is_held_never_goes(make: Make<'_>) {
    let mut policy = filled(make, 50);
    assert_eq!(
        policy.decide(URGENT, &|_| true),
        Verdict::Refuse,
        "{}: all are held",
        policy.name()
    );
    for slot in 0..50 {
        policy.hit(slot, Some(200 + u64::from(slot)));
    }
    let odd = |slot: Slot| slot % 2 == 1;
    while let Verdict::Evict(slot) = policy.decide(URGENT, &odd) {
        assert!(!odd(slot), "{}: {slot} is held", policy.name());
        policy.remove(slot);
    }
}

fn each_kept_sample_goes_at_most_once(make: Make<'_>) {
    let mut policy = filled(make, 50);
    let mut gone = BTreeSet::new();
    while let Verdict::Evict(slot) = policy.decide(URGENT, &|_| false) {
        let again = policy.decide(URGENT, &|_| false);
        assert_eq!(
            again,
            Verdict::Evict(slot),
            "{}: deciding evicts nothing by itself",
            policy.name()
        );
        policy.remove(slot);
        assert!(slot < 50, "{}: {slot} was never kept", policy.name());
        assert!(gone.insert(slot), "{}: {slot} went twice", policy.name());
    }
    assert!(
        gone.is_empty() || gone.len() == 50,
        "{}: evicts some, then stops at {}",
        policy.name(),
        gone.len()
    );
}

fn a_removed_sample_is_never_named(make: Make<'_>) {
    let mut policy = filled(make, 20);
    for slot in 5..15 {
        policy.hit(slot, None);
        policy.remove(slot);
    }
    let mut expired = Vec::new();
    policy.advance(1_000, &mut expired);
    for slot in expired {
        assert!(
            !(5..15).contains(&slot),
            "{}: {slot} had left",
            policy.name()
        );
        policy.remove(slot);
    }
    while let Verdict::Evict(slot) = policy.decide(URGENT, &|_| false) {
        assert!(
            !(5..15).contains(&slot),
            "{}: {slot} had left",
            policy.name()
        );
        policy.remove(slot);
    }
}

fn a_sample_may_come_back(make: Make<'_>) {
    let mut policy = make();
    for round in 0..10 {
        policy.insert(1, 1, Some(10 * round + 5));
        policy.hit(1, Some(10 * round + 7));
        policy.remove(1);
    }
    policy.insert(1, 1, Some(1_000));
    if let Verdict::Evict(slot) = policy.decide(URGENT, &|_| false) {
        assert_eq!(slot, 1, "{}", policy.name());
        policy.remove(1);
    }
    policy.insert(2, 1, None);
    let verdict = policy.decide(URGENT, &|_| false);
    assert!(
        matches!(verdict, Verdict::Refuse | Verdict::Evict(_)),
        "{}",
        policy.name()
    );
}

fn the_same_calls_give_the_same_answers(make: Make<'_>) {
    let first = Walk::new(make, 77).run(2_000);
    let second = Walk::new(make, 77).run(2_000);
    assert!(first == second, "{}: not deterministic", make().name());
}

/// A random walk of a small tier with holders, checked at every step.
struct Walk {
    policy: Box<dyn Policy>,
    random: u64,
    /// Which sample is in which slot, and its size.
    kept: BTreeMap<Slot, (Key, u64)>,
    held: BTreeSet<Slot>,
    /// Slots that were used before, the one freed last at the end.
    vacant: Vec<Slot>,
    used: u64,
    now: u64,
    log: Vec<Key>,
}

const CAPACITY: u64 = 100;

impl Walk {
    fn new(make: Make<'_>, seed: u64) -> Walk {
        Walk {
            policy: make(),
            random: seed,
            kept: BTreeMap::new(),
            held: BTreeSet::new(),
            vacant: Vec::new(),
            used: 0,
            now: 0,
            log: Vec::new(),
        }
    }

    /// Splitmix: the suite has no dependencies.
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % bound
    }

    fn next(&mut self) -> Next {
        (self.below(4) > 0).then(|| self.now + 1 + self.below(300))
    }

    fn find(&self, key: Key) -> Option<Slot> {
        let mut kept = self.kept.iter();
        kept.find_map(|(&slot, &(other, _))| (other == key).then_some(slot))
    }

    /// All samples that left, in order.
    fn run(mut self, steps: u64) -> Vec<Key> {
        for _ in 0..steps {
            self.now += 1;
            let key = self.below(60);
            match self.below(10) {
                0 => self.advance(),
                1 => self.forget(key),
                2 | 3 => self.held.extend(self.find(key)),
                4 => self.let_go(),
                _ => self.use_one(key),
            }
            assert!(self.used <= CAPACITY, "{}: over budget", self.policy.name());
        }
        self.log
    }

    fn remove(&mut self, slot: Slot) {
        let Some((key, size)) = self.kept.remove(&slot) else {
            panic!("{}: nothing is kept in {slot}", self.policy.name());
        };
        self.used -= size;
        self.policy.remove(slot);
        self.vacant.push(slot);
        self.log.push(key);
    }

    fn advance(&mut self) {
        loop {
            let mut expired = Vec::new();
            self.policy.advance(self.now, &mut expired);
            if expired.is_empty() {
                break;
            }
            for slot in expired {
                self.held.remove(&slot);
                self.remove(slot);
            }
        }
    }

    fn forget(&mut self, key: Key) {
        if let Some(slot) = self.find(key)
            && !self.held.contains(&slot)
        {
            self.remove(slot);
        }
    }

    fn let_go(&mut self) {
        if let Some(slot) = self.held.pop_first() {
            let next = self.next();
            self.policy.hit(slot, next);
        }
    }

    fn use_one(&mut self, key: Key) {
        let next = self.next();
        if let Some(slot) = self.find(key) {
            if !self.held.contains(&slot) {
                self.policy.hit(slot, next);
            }
            return;
        }
        let incoming = Candidate {
            key,
            size: 1 + self.below(20),
            next,
        };
        if !self.policy.admit(incoming) {
            return;
        }
        while self.used + incoming.size > CAPACITY {
            let held = &self.held;
            match self.policy.decide(incoming, &|slot| held.contains(&slot)) {
                Verdict::Refuse => return,
                Verdict::Evict(victim) => {
                    assert!(
                        !self.held.contains(&victim),
                        "{}: {victim} is held",
                        self.policy.name()
                    );
                    self.remove(victim);
                }
            }
        }
        let unused = self.kept.len() as Slot;
        let slot = self.vacant.pop().unwrap_or(unused);
        self.policy.insert(slot, incoming.size, next);
        self.kept.insert(slot, (key, incoming.size));
        self.used += incoming.size;
    }
}
