//! Samples that cannot be read, and who stands in for them.
//!
//! The stand-in depends on the bad sample's id and the size of the dataset alone, so
//! every rank, every epoch and every resumed run picks the same one. A stand-in that
//! is bad as well gives way to the next candidate.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::Error;

/// How many candidates are tried before the sample is given up.
pub const CANDIDATES: u32 = 64;

/// A sample that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSample {
    /// Its id.
    pub sample: u32,
    /// Its object's name.
    pub name: String,
    /// Why it could not be read.
    pub reason: String,
}

/// The bad samples of one job, at most `limit` of them.
#[derive(Debug)]
pub(crate) struct Quarantine {
    limit: usize,
    bad: Mutex<BTreeMap<u32, Entry>>,
}

#[derive(Debug)]
struct Entry {
    sample: BadSample,
    /// It cannot be read, so a stand-in is read in its place. What can be read but not
    /// decoded is found to be bad anew each time, and replaced by who finds it.
    unreadable: bool,
}

impl Quarantine {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            bad: Mutex::default(),
        }
    }

    /// Takes note of a sample that cannot be read; an error once there are too many.
    pub(crate) fn admit(&self, sample: u32, name: String, reason: String) -> Result<(), Error> {
        self.add(sample, name, reason, true)
    }

    /// Takes note of a sample that can be read, but not used.
    pub(crate) fn note(&self, sample: u32, name: String, reason: String) -> Result<(), Error> {
        self.add(sample, name, reason, false)
    }

    fn add(
        &self,
        sample: u32,
        name: String,
        reason: String,
        unreadable: bool,
    ) -> Result<(), Error> {
        let mut bad = self.bad.lock().expect("the quarantine's lock");
        if bad.contains_key(&sample) {
            return Ok(());
        }
        if bad.len() >= self.limit {
            let last = format!("{name}: {reason}");
            return Err(Error::TooManyBad {
                count: bad.len() + 1,
                limit: self.limit,
                last,
            });
        }
        let entry = Entry {
            sample: BadSample {
                sample,
                name,
                reason,
            },
            unreadable,
        };
        bad.insert(sample, entry);
        Ok(())
    }

    /// Whether the sample is known to be unreadable.
    pub(crate) fn holds(&self, sample: u32) -> bool {
        let bad = self.bad.lock().expect("the quarantine's lock");
        bad.get(&sample).is_some_and(|entry| entry.unreadable)
    }

    /// The bad samples so far, by id.
    pub(crate) fn list(&self) -> Vec<BadSample> {
        let bad = self.bad.lock().expect("the quarantine's lock");
        bad.values().map(|entry| entry.sample.clone()).collect()
    }
}

/// The candidate to stand in for `sample` at the `attempt`-th try, never itself.
pub fn candidate(sample: u32, attempt: u32, samples: u32) -> Option<u32> {
    if samples < 2 {
        return None;
    }
    let mixed = mix(u64::from(sample) << 32 | u64::from(attempt));
    let step = 1 + (mixed % u64::from(samples - 1)) as u32;
    Some(((u64::from(sample) + u64::from(step)) % u64::from(samples)) as u32)
}

/// splitmix64's finaliser: spreads neighbouring ids over the dataset.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_is_never_the_sample_itself_and_always_in_the_dataset() {
        for samples in [2, 3, 7, 1000] {
            for sample in 0..samples {
                for attempt in 0..CANDIDATES {
                    let other = candidate(sample, attempt, samples).unwrap();
                    assert!(other < samples && other != sample);
                }
            }
        }
        assert_eq!(candidate(0, 0, 1), None);
    }

    #[test]
    fn stand_ins_are_the_same_in_every_release() {
        // Computed apart from this code: a resumed run must find the same ones.
        let stand_ins: Vec<_> = (0..4)
            .map(|attempt| candidate(5, attempt, 1_281_167).unwrap())
            .collect();
        assert_eq!(stand_ins, [538812, 738636, 384843, 14505]);
    }

    #[test]
    fn one_sample_too_many_is_an_error_that_names_it() {
        let quarantine = Quarantine::new(1);
        quarantine
            .admit(3, "a.jpg".into(), "truncated".into())
            .unwrap();
        quarantine
            .admit(3, "a.jpg".into(), "truncated".into())
            .unwrap();
        let error = quarantine
            .admit(4, "b.jpg".into(), "gone".into())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "2 samples could not be read, at most 1 are allowed; the last: b.jpg: gone"
        );
    }
}
