//! In which form images stay in memory: as they came, or decoded.
//!
//! A decoded image takes five or six times the memory and saves its decoding; an encoded one
//! saves its read alone, but more of them fit, and what is not kept need be decoded no further
//! than its crop. So a sample takes on average, with room for a share e of all encoded or d of
//! all decoded,
//!
//! ```text
//!   encoded   prepare + (1 - e) * read
//!   decoded   crop    + (1 - d) * (read + whole)
//! ```
//!
//! where *prepare* decodes as far as the crop needs and augments, *whole* decodes all and *crop*
//! does the rest: seconds, measured on the job's first samples. The first epoch decodes all images
//! whole, and that must be won back soon. Results are the same bytes either way.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::job::Desk;

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheForm {
    /// Whichever saves more time, by measurement.
    #[default]
    Auto,
    /// The bytes of the dataset.
    Encoded,
    /// The pixels.
    Decoded,
}

/// The way that one sample goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// Decoded as far as its crop needs.
    Encoded,
    /// Decoded whole, and not kept: only to see what it costs.
    Trial,
    /// Decoded whole and kept.
    Decoded,
}

/// Samples that are measured on each path before the choice.
const TRIALS: usize = 32;
/// Epochs in which the first one's work must be won back; where the forms are about equal, what is
/// measured on so few samples says nothing, and the encoded one spares the origin.
const WON_BACK: f64 = 2.0;

/// What the trials took, on either path. Of each the median counts: one that lost the processor
/// for a while would outweigh all others.
#[derive(Debug, Default)]
struct Trials {
    prepare: Vec<Duration>,
    whole: Vec<Duration>,
    crop: Vec<Duration>,
    reads: Vec<Duration>,
    decoded_bytes: u64,
}

/// In seconds.
fn median(times: &[Duration]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .map_or(0.0, Duration::as_secs_f64)
}

const UNDECIDED: u8 = 0;
const ENCODED: u8 = 1;
const DECODED: u8 = 2;

/// The form of one job's images, decided once.
#[derive(Debug)]
pub(crate) struct FormChoice {
    chosen: AtomicU8,
    /// Turns: every second sample is tried decoded.
    turn: AtomicU64,
    /// Nobody looks at it any more once it is decided.
    trials: Mutex<Trials>,
    since: Instant,
}

impl FormChoice {
    pub(crate) fn new(form: CacheForm) -> Self {
        let chosen = match form {
            CacheForm::Auto => UNDECIDED,
            CacheForm::Encoded => ENCODED,
            CacheForm::Decoded => DECODED,
        };
        Self {
            chosen: AtomicU8::new(chosen),
            turn: AtomicU64::new(0),
            trials: Mutex::default(),
            since: Instant::now(),
        }
    }

    /// The way of the next sample.
    pub(crate) fn path(&self) -> Path {
        match self.chosen.load(Ordering::Relaxed) {
            ENCODED => Path::Encoded,
            DECODED => Path::Decoded,
            _ if self.turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => Path::Encoded,
            _ => Path::Trial,
        }
    }

    /// The choice, if it was made.
    pub(crate) fn chosen(&self) -> Option<CacheForm> {
        match self.chosen.load(Ordering::Relaxed) {
            ENCODED => Some(CacheForm::Encoded),
            DECODED => Some(CacheForm::Decoded),
            _ => None,
        }
    }

    pub(crate) fn saw_read(&self, time: Duration) {
        self.saw(|trials| trials.reads.push(time));
    }

    pub(crate) fn saw_encoded(&self, prepare: Duration) {
        self.saw(|trials| trials.prepare.push(prepare));
    }

    pub(crate) fn saw_decoded(&self, whole: Duration, crop: Duration, bytes: u64) {
        self.saw(|trials| {
            trials.decoded_bytes += bytes;
            trials.whole.push(whole);
            trials.crop.push(crop);
        });
    }

    fn saw(&self, note: impl FnOnce(&mut Trials)) {
        if self.chosen.load(Ordering::Relaxed) == UNDECIDED {
            note(&mut self.trials.lock().expect("the trials' lock"));
        }
    }

    /// Chooses, once enough was seen.
    ///
    /// Beyond what is fetched ahead, `lent` samples at a time are out of the policy's hands.
    pub(crate) fn decide(&self, desk: &Desk, lent: u64) {
        if self.chosen.load(Ordering::Relaxed) != UNDECIDED {
            return;
        }
        let trials = self.trials.lock().expect("the trials' lock");
        if trials.prepare.len() < TRIALS || trials.crop.len() < TRIALS {
            return;
        }
        let mean_decoded = trials.decoded_bytes as f64 / trials.crop.len() as f64;
        let read = if trials.reads.is_empty() {
            // From a store, many at a time: what counts is how long one more takes.
            let reads = desk.counters.reads.load(Ordering::Relaxed).max(1);
            self.since.elapsed().as_secs_f64() / reads as f64
        } else {
            median(&trials.reads)
        };
        let capacity = desk.plant.tier.stats().capacity as f64;
        let in_transit = (desk.plant.readahead as f64).max(lent as f64 * mean_decoded);
        let costs = Costs {
            memory: (capacity - in_transit).max(0.0),
            encoded: desk.dataset.total_bytes() as f64,
            decoded: mean_decoded * f64::from(desk.dataset.len()),
            read,
            prepare: median(&trials.prepare),
            whole: median(&trials.whole),
            crop: median(&trials.crop),
        };
        let chosen = if costs.favour_decoded() {
            DECODED
        } else {
            ENCODED
        };
        self.chosen.store(chosen, Ordering::Relaxed);
    }
}

/// Bytes of memory and of the dataset in both forms; seconds a sample.
#[derive(Debug, Clone, Copy)]
struct Costs {
    memory: f64,
    encoded: f64,
    decoded: f64,
    read: f64,
    prepare: f64,
    whole: f64,
    crop: f64,
}

impl Costs {
    fn favour_decoded(&self) -> bool {
        let missed = |bytes: f64| (1.0 - self.memory / bytes.max(1.0)).max(0.0);
        let encoded = self.prepare + missed(self.encoded) * self.read;
        let decoded = self.crop + missed(self.decoded) * (self.read + self.whole);
        let at_first = self.whole + self.crop - self.prepare;
        (encoded - decoded) * WON_BACK > at_first.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 12,000 photos of 100 KB on a local disk.
    const LOCAL: Costs = Costs {
        memory: 8e9,
        encoded: 1.2e9,
        decoded: 6.7e9,
        read: 40e-6,
        prepare: 1.5e-3,
        whole: 1.8e-3,
        crop: 0.4e-3,
    };

    #[test]
    fn one_trial_that_stood_still_does_not_decide() {
        let trials = [1, 100, 2, 3, 2].map(Duration::from_secs);
        assert_eq!(median(&trials), 2.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn what_fits_is_kept_decoded() {
        assert!(LOCAL.favour_decoded());
    }

    #[test]
    fn where_few_fit_decoding_as_far_as_the_crop_is_less_work() {
        let tight = Costs {
            memory: 2e9,
            ..LOCAL
        };
        assert!(!tight.favour_decoded());
    }

    #[test]
    fn a_little_gain_is_not_worth_a_slow_first_epoch() {
        // Decoded gains 2 % an epoch, and costs a fifth of the first.
        let close = Costs {
            memory: 2e9,
            whole: 1.2e-3,
            crop: 0.6e-3,
            ..LOCAL
        };
        assert!(!close.favour_decoded());
        let better = Costs {
            crop: 0.4e-3,
            ..close
        };
        assert!(better.favour_decoded());
    }

    #[test]
    fn dear_reads_favour_what_fits_most_often() {
        let slow = Costs {
            memory: 5e9,
            read: 20e-3,
            ..LOCAL
        };
        assert!(!slow.favour_decoded());
        let local = Costs { read: 0.0, ..slow };
        assert!(local.favour_decoded());
    }

    #[test]
    fn both_paths_are_tried_before_the_choice() {
        let choice = FormChoice::new(CacheForm::Auto);
        assert_eq!(
            [choice.path(), choice.path(), choice.path()],
            [Path::Encoded, Path::Trial, Path::Encoded]
        );
        assert_eq!(choice.chosen(), None);
        assert_eq!(FormChoice::new(CacheForm::Decoded).path(), Path::Decoded);
    }
}
