//! How long a thread of the crew reads, and how much of that it stands still.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::stats::Counters;

/// One run of samples on one thread.
#[derive(Debug)]
pub(crate) struct Watch {
    begun: Instant,
    before: Usage,
    reading: Cell<Duration>,
    reads: Cell<u64>,
}

/// What the kernel says of this thread.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    on_processor: Duration,
    /// How often it gave the processor up by itself, to wait.
    waits: u64,
}

impl Watch {
    pub(crate) fn begin() -> Self {
        Self {
            begun: Instant::now(),
            before: usage(),
            reading: Cell::default(),
            reads: Cell::default(),
        }
    }

    /// Times one read of the origin.
    pub(crate) fn read<T>(&self, read: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = read();
        self.reading.set(self.reading.get() + begun.elapsed());
        self.reads.set(self.reads.get() + 1);
        done
    }

    /// Counts the run. Tells whether its reads stood still, if there were any.
    pub(crate) fn end(self, counters: &Counters) -> Option<bool> {
        let reading = self.reading.get();
        if self.reads.get() == 0 {
            return None;
        }
        let after = usage();
        let wall = self.begun.elapsed();
        let off = wall.saturating_sub(after.on_processor.saturating_sub(self.before.on_processor));
        // A thread that never waited was off the processor because others had it.
        let waited = (after.waits - self.before.waits) * 2 >= self.reads.get();
        let still = if waited { off } else { Duration::ZERO };
        Counters::add(&counters.reading, reading.as_nanos() as u64);
        Counters::add(
            &counters.reading_on_processor,
            reading.saturating_sub(still).as_nanos() as u64,
        );
        Some(still * 2 > reading)
    }
}

#[allow(unsafe_code)]
fn usage() -> Usage {
    // SAFETY: the call fills a local of plain numbers; if it fails they stay zero.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    Usage {
        on_processor: time(usage.ru_utime) + time(usage.ru_stime),
        waits: usage.ru_nvcsw as u64,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_read_that_stands_still_is_told_from_one_that_works() {
        let counters = Counters::default();
        let watch = Watch::begin();
        watch.read(|| std::thread::sleep(Duration::from_millis(20)));
        assert_eq!(watch.end(&counters), Some(true));
        let reading = counters.reading.load(Ordering::Relaxed);
        let busy = counters.reading_on_processor.load(Ordering::Relaxed);
        assert!(
            reading >= 20_000_000 && busy < reading / 2,
            "{busy} of {reading}"
        );

        let counters = Counters::default();
        let watch = Watch::begin();
        watch.read(|| (0..5_000_000u64).fold(0, |sum, number| std::hint::black_box(sum ^ number)));
        assert_eq!(watch.end(&counters), Some(false));
        assert_eq!(Watch::begin().end(&counters), None);
        let reading = counters.reading.load(Ordering::Relaxed);
        let busy = counters.reading_on_processor.load(Ordering::Relaxed);
        assert!(busy > reading / 2, "{busy} of {reading}");
    }
}
