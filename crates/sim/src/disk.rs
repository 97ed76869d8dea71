//! The logs of all nodes, without their bytes: which samples are there.

use crate::scenario::{Layout, Log};

/// A node's log.
#[derive(Debug)]
pub(crate) struct Disk {
    layout: Layout,
    /// Bytes that one copy of the dataset may take.
    capacity: u64,
    used: u64,
    /// Everything fits.
    whole: bool,
    /// Packed: by sample, whether it is there.
    there: Vec<u64>,
}

impl Disk {
    /// For datasets of `samples` and `bytes` in all.
    pub(crate) fn new(log: &Log, samples: usize, bytes: u64) -> Self {
        let capacity = match log.layout {
            Layout::Packed => log.capacity,
            Layout::Reorder => log.capacity / 2,
        };
        let words = match log.layout {
            Layout::Packed => samples.div_ceil(64),
            Layout::Reorder => 0,
        };
        Self {
            layout: log.layout,
            capacity,
            used: 0,
            whole: bytes <= capacity,
            there: vec![0; words],
        }
    }

    /// Whether everything is there, or will be.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether a sample is there: for a log in the order of the epoch, by the bytes that are used
    /// before it.
    pub(crate) fn has(&self, sample: u32, leg: u32, before: u64) -> bool {
        match self.layout {
            Layout::Packed => self.there[sample as usize / 64] >> (sample % 64) & 1 == 1,
            // The first epoch writes; from then on the first samples of each are there.
            Layout::Reorder => leg > 0 && (self.whole || before < self.capacity),
        }
    }

    /// Offers a sample that was read; true if it is there from now on.
    pub(crate) fn offer(&mut self, sample: u32, len: u32) -> bool {
        match self.layout {
            Layout::Reorder => false,
            Layout::Packed => {
                let fits = self.whole || self.used + u64::from(len) <= self.capacity;
                if fits {
                    self.used += u64::from(len);
                    self.there[sample as usize / 64] |= 1 << (sample % 64);
                }
                fits
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(capacity: u64, layout: Layout) -> Log {
        Log {
            capacity,
            layout,
            together: 1,
            requests: 1,
            by_threads: false,
        }
    }

    #[test]
    fn a_packed_log_takes_what_fits_and_stays_as_it_is() {
        let mut disk = Disk::new(&log(100, Layout::Packed), 70, 1000);
        assert!(disk.offer(65, 60) && !disk.offer(2, 60) && disk.offer(3, 40));
        assert!(disk.has(65, 0, 0) && disk.has(3, 9, 0) && !disk.has(2, 0, 0));
        assert!(!disk.is_whole());
    }

    #[test]
    fn a_reordered_log_has_the_first_of_every_epoch_but_the_first() {
        let disk = Disk::new(&log(100, Layout::Reorder), 70, 1000);
        assert!(!disk.has(0, 0, 0) && disk.has(0, 1, 49) && !disk.has(0, 1, 50));
    }
}
