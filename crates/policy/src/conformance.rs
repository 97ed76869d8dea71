//! What every policy must do, as one suite: call [`run`] with a constructor.
//!
//! It panics at the first breach, with the policy's name. Policies of other crates use it too.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Candidate, Key, Next, Policy, Verdict};

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

fn filled(make: Make<'_>, samples: u64) -> Box<dyn Policy> {
    let mut policy = make();
    for key in 0..samples {
        policy.insert(key, 1, Some(100 + key));
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
    for key in 0..50 {
        policy.hit(key, Some(200 + key));
    }
    let odd = |key: Key| key % 2 == 1;
    while let Verdict::Evict(key) = policy.decide(URGENT, &odd) {
        assert!(!odd(key), "{}: {key} is held", policy.name());
        policy.remove(key);
    }
}

fn each_kept_sample_goes_at_most_once(make: Make<'_>) {
    let mut policy = filled(make, 50);
    let mut gone = BTreeSet::new();
    while let Verdict::Evict(key) = policy.decide(URGENT, &|_| false) {
        let again = policy.decide(URGENT, &|_| false);
        assert_eq!(
            again,
            Verdict::Evict(key),
            "{}: deciding evicts nothing by itself",
            policy.name()
        );
        policy.remove(key);
        assert!(key < 50, "{}: {key} was never kept", policy.name());
        assert!(gone.insert(key), "{}: {key} went twice", policy.name());
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
    for key in 5..15 {
        policy.hit(key, None);
        policy.remove(key);
    }
    let mut expired = Vec::new();
    policy.advance(1_000, &mut expired);
    for key in expired {
        assert!(!(5..15).contains(&key), "{}: {key} had left", policy.name());
        policy.remove(key);
    }
    while let Verdict::Evict(key) = policy.decide(URGENT, &|_| false) {
        assert!(!(5..15).contains(&key), "{}: {key} had left", policy.name());
        policy.remove(key);
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
    if let Verdict::Evict(key) = policy.decide(URGENT, &|_| false) {
        assert_eq!(key, 1, "{}", policy.name());
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
    kept: BTreeMap<Key, u64>,
    held: BTreeSet<Key>,
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

    /// All samples that left, in order.
    fn run(mut self, steps: u64) -> Vec<Key> {
        for _ in 0..steps {
            self.now += 1;
            let key = self.below(60);
            match self.below(10) {
                0 => self.advance(),
                1 => self.forget(key),
                2 | 3 => {
                    if self.kept.contains_key(&key) {
                        self.held.insert(key);
                    }
                }
                4 => self.let_go(),
                _ => self.use_one(key),
            }
            assert!(self.used <= CAPACITY, "{}: over budget", self.policy.name());
        }
        self.log
    }

    fn remove(&mut self, key: Key) {
        let Some(size) = self.kept.remove(&key) else {
            panic!("{}: {key} is not kept", self.policy.name());
        };
        self.used -= size;
        self.policy.remove(key);
        self.log.push(key);
    }

    fn advance(&mut self) {
        loop {
            let mut expired = Vec::new();
            self.policy.advance(self.now, &mut expired);
            if expired.is_empty() {
                break;
            }
            for key in expired {
                self.held.remove(&key);
                self.remove(key);
            }
        }
    }

    fn forget(&mut self, key: Key) {
        if self.kept.contains_key(&key) && !self.held.contains(&key) {
            self.remove(key);
        }
    }

    fn let_go(&mut self) {
        if let Some(key) = self.held.pop_first() {
            let next = self.next();
            self.policy.hit(key, next);
        }
    }

    fn use_one(&mut self, key: Key) {
        let next = self.next();
        if self.kept.contains_key(&key) {
            if !self.held.contains(&key) {
                self.policy.hit(key, next);
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
            match self.policy.decide(incoming, &|key| held.contains(&key)) {
                Verdict::Refuse => return,
                Verdict::Evict(victim) => {
                    assert!(
                        !self.held.contains(&victim),
                        "{}: {victim} is held",
                        self.policy.name()
                    );
                    assert_ne!(
                        victim,
                        key,
                        "{}: the newcomer is not kept yet",
                        self.policy.name()
                    );
                    self.remove(victim);
                }
            }
        }
        self.policy.insert(key, incoming.size, next);
        self.kept.insert(key, incoming.size);
        self.used += incoming.size;
    }
}
