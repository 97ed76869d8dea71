//! What goes wrong, and to which requests.
//!
//! A [`Rule`] is a line of comma-separated words: when it fires, to whom, and what happens.
//! The line is the same on the command line, in JSON and in Rust tests:
//!
//! ```text
//! every=3,status=503,retry-after=1    each third GET is refused
//! share=0.1,seed=7,truncate=4000      a tenth of the GETs end after 4,000 bytes
//! each=1,drop                         the first GET of every path loses its connection
//! path=/b/x.jpg,etag="new"            x.jpg has another ETag
//! ```
//!
//! A rule counts the requests that it matches by itself, so it fires at the same request
//! numbers in every run. Of several rules the first that fires wins.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Everything the proxy does to the traffic. The default passes it on untouched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Added to each request before it is sent on; concurrent requests wait side by side.
    pub delay_ms: u64,
    /// Megabits a second of response bodies, over all connections together.
    pub mbps: Option<f64>,
    /// Tried in order; the first that fires wins.
    pub rules: Vec<Rule>,
}

impl Faults {
    /// Passes everything on after `delay_ms`.
    pub fn delay(delay_ms: u64) -> Self {
        Self {
            delay_ms,
            ..Self::default()
        }
    }

    /// Parses one rule a line.
    pub fn rules(lines: &[&str]) -> Result<Self, RuleError> {
        let rules = lines
            .iter()
            .map(|line| line.parse())
            .collect::<Result<_, _>>()?;
        Ok(Self {
            rules,
            ..Self::default()
        })
    }
}

/// One kind of fault and the requests that meet it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    /// Requests of this method only; `GET` unless said otherwise, `*` for all.
    pub method: String,
    /// Requests whose path and query contain this.
    pub path: String,
    /// Which of those.
    pub when: When,
    /// What happens to them.
    pub action: Action,
}

/// Which of the requests that match a rule meet its fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// All of them.
    Always,
    /// Number n, 2n, 3n, ... counted from one.
    Every(u64),
    /// The first n.
    First(u64),
    /// The first n of each path and query.
    Each(u64),
    /// A share of them, drawn by a hash of the seed and the request's number.
    Share(f64, u64),
}

/// What happens to a request that meets a fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Answered with this status, the server is not asked.
    Status(u16, Option<u64>),
    /// The connection is closed without an answer.
    Drop,
    /// The connection is closed after this many bytes of the body.
    Truncate(u64),
    /// The body pauses after this many bytes: for a time, or until the client gives up.
    Stall(u64, Option<Duration>),
    /// Sent on after this time.
    Delay(Duration),
    /// The answer's `ETag` is replaced.
    Etag(String),
}

/// A rule that cannot be read.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum RuleError {
    /// No such word.
    #[error("rule \"{rule}\": unknown word \"{word}\"")]
    Word { rule: String, word: String },
    /// The word needs another value.
    #[error("rule \"{rule}\": \"{word}\" needs {needs}")]
    Value {
        rule: String,
        word: String,
        needs: &'static str,
    },
    /// A rule without a fault.
    #[error("rule \"{rule}\": names no fault (status, drop, truncate, stall, delay or etag)")]
    NoFault { rule: String },
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(rule: &str) -> Result<Self, RuleError> {
        let (mut method, mut path) = ("GET".to_owned(), String::new());
        let (mut when, mut action) = (When::Always, None);
        let (mut seed, mut retry_after, mut pause) = (0, None, None);
        for word in rule.split(',').map(str::trim) {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let wrong = |needs| RuleError::Value {
                rule: rule.to_owned(),
                word: word.to_owned(),
                needs,
            };
            let number = || value.parse::<u64>().map_err(|_| wrong("a whole number"));
            match key {
                "method" => value.clone_into(&mut method),
                "path" => value.clone_into(&mut path),
                "every" => match number()? {
                    0 => return Err(wrong("a number of at least 1")),
                    n => when = When::Every(n),
                },
                "first" => when = When::First(number()?),
                "each" => when = When::Each(number()?),
                "share" => match value.parse() {
                    Ok(share) if (0.0..=1.0).contains(&share) => when = When::Share(share, 0),
                    _ => return Err(wrong("a number from 0 to 1")),
                },
                "seed" => seed = number()?,
                "status" => match value.parse() {
                    Ok(code @ 200..=599) => action = Some(Action::Status(code, None)),
                    _ => return Err(wrong("a status from 200 to 599")),
                },
                "retry-after" => retry_after = Some(number()?),
                "drop" => action = Some(Action::Drop),
                "truncate" => action = Some(Action::Truncate(number()?)),
                "stall" => action = Some(Action::Stall(number()?, None)),
                "for-ms" => pause = Some(Duration::from_millis(number()?)),
                "delay" => action = Some(Action::Delay(Duration::from_millis(number()?))),
                "etag" => action = Some(Action::Etag(value.to_owned())),
                _ => {
                    return Err(RuleError::Word {
                        rule: rule.to_owned(),
                        word: word.to_owned(),
                    });
                }
            }
        }
        if let When::Share(_, drawn) = &mut when {
            *drawn = seed;
        }
        match &mut action {
            Some(Action::Status(_, after)) => *after = retry_after,
            Some(Action::Stall(_, time)) => *time = pause,
            _ => {}
        }
        let action = action.ok_or_else(|| RuleError::NoFault {
            rule: rule.to_owned(),
        })?;
        Ok(Self {
            method,
            path,
            when,
            action,
        })
    }
}

impl TryFrom<String> for Rule {
    type Error = RuleError;

    fn try_from(rule: String) -> Result<Self, RuleError> {
        rule.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        let mut words = vec![format!("method={}", rule.method)];
        if !rule.path.is_empty() {
            words.push(format!("path={}", rule.path));
        }
        match rule.when {
            When::Always => {}
            When::Every(n) => words.push(format!("every={n}")),
            When::First(n) => words.push(format!("first={n}")),
            When::Each(n) => words.push(format!("each={n}")),
            When::Share(share, seed) => words.push(format!("share={share},seed={seed}")),
        }
        words.push(match rule.action {
            Action::Status(code, None) => format!("status={code}"),
            Action::Status(code, Some(after)) => format!("status={code},retry-after={after}"),
            Action::Drop => "drop".to_owned(),
            Action::Truncate(after) => format!("truncate={after}"),
            Action::Stall(after, None) => format!("stall={after}"),
            Action::Stall(after, Some(time)) => {
                format!("stall={after},for-ms={}", time.as_millis())
            }
            Action::Delay(time) => format!("delay={}", time.as_millis()),
            Action::Etag(etag) => format!("etag={etag}"),
        });
        words.join(",")
    }
}

/// Faults at work: the rules with the requests they have counted.
#[derive(Debug, Default)]
pub(crate) struct Active {
    pub(crate) faults: Faults,
    tallies: Mutex<Vec<Tally>>,
}

#[derive(Debug, Default)]
struct Tally {
    matched: u64,
    by_path: HashMap<String, u64>,
}

impl Active {
    pub(crate) fn new(faults: Faults) -> Self {
        let tallies = faults.rules.iter().map(|_| Tally::default()).collect();
        Self {
            faults,
            tallies: Mutex::new(tallies),
        }
    }

    /// Counts the request with every rule that matches it; gives the first that fires.
    pub(crate) fn decide(&self, method: &str, path: &str) -> Option<&Action> {
        if self.faults.rules.is_empty() {
            return None;
        }
        let mut tallies = self.tallies.lock().expect("no panic while counting");
        let mut found = None;
        for (rule, tally) in self.faults.rules.iter().zip(tallies.iter_mut()) {
            let meant = rule.method == "*" || rule.method.eq_ignore_ascii_case(method);
            if meant && path.contains(&rule.path) {
                tally.matched += 1;
                if tally.fires(rule.when, path) {
                    found = found.or(Some(&rule.action));
                }
            }
        }
        found
    }
}

impl Tally {
    fn fires(&mut self, when: When, path: &str) -> bool {
        match when {
            When::Always => true,
            When::Every(n) => self.matched.is_multiple_of(n),
            When::First(n) => self.matched <= n,
            When::Each(n) => {
                let seen = self.by_path.entry(path.to_owned()).or_default();
                *seen += 1;
                *seen <= n
            }
            When::Share(share, seed) => {
                let mut hasher = DefaultHasher::new();
                (seed, self.matched).hash(&mut hasher);
                (hasher.finish() as f64) < share * u64::MAX as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(rule: &str, requests: u64) -> Vec<u64> {
        let active = Active::new(Faults::rules(&[rule]).expect("a good rule"));
        (1..=requests)
            .filter(|i| {
                active
                    .decide("GET", &format!("/bucket/{}", i % 4))
                    .is_some()
            })
            .collect()
    }

    #[test]
    fn a_rule_fires_at_the_requests_it_names() {
        assert_eq!(fired("every=3,drop", 10), [3, 6, 9]);
        assert_eq!(fired("first=2,drop", 10), [1, 2]);
        assert_eq!(fired("each=1,drop", 10), [1, 2, 3, 4]);
        assert_eq!(fired("path=/2,drop", 10), [2, 6, 10]);
        assert!(fired("method=PUT,drop", 10).is_empty());
        assert_eq!(fired("drop", 3), [1, 2, 3]);
    }

    #[test]
    fn a_share_is_about_that_share_and_the_same_in_every_run() {
        let first = fired("share=0.25,seed=7,drop", 4000);
        assert_eq!(first, fired("share=0.25,seed=7,drop", 4000));
        assert_ne!(first, fired("share=0.25,seed=8,drop", 4000));
        assert!((800..1200).contains(&first.len()), "{}", first.len());
    }

    #[test]
    fn the_first_rule_that_fires_wins_and_the_others_still_count() {
        let active = Active::new(Faults::rules(&["every=2,drop", "every=3,status=500"]).unwrap());
        let seen: Vec<_> = (0..6).map(|_| active.decide("GET", "/").cloned()).collect();
        let (drop, refuse) = (Some(Action::Drop), Some(Action::Status(500, None)));
        assert_eq!(seen, [None, drop.clone(), refuse, drop.clone(), None, drop]);
    }

    #[test]
    fn a_rule_survives_the_way_through_json() {
        let lines = [
            "every=3,status=503,retry-after=2",
            "share=0.5,seed=9,stall=10,for-ms=50",
            "each=1,path=/a,truncate=7",
            "first=4,method=*,delay=20",
            "etag=\"new\"",
        ];
        let faults = Faults::rules(&lines).unwrap();
        let json = serde_json::to_string(&faults).unwrap();
        assert_eq!(serde_json::from_str::<Faults>(&json).unwrap(), faults);
    }

    #[test]
    fn a_bad_rule_says_which_word_is_wrong() {
        let message = |rule: &str| rule.parse::<Rule>().unwrap_err().to_string();
        assert_eq!(
            message("every=0,drop"),
            "rule \"every=0,drop\": \"every=0\" needs a number of at least 1"
        );
        assert!(message("share=2,drop").contains("a number from 0 to 1"));
        assert!(message("status=99").contains("a status from 200 to 599"));
        assert!(message("explode").contains("unknown word \"explode\""));
        assert!(message("every=2").contains("names no fault"));
    }
}
