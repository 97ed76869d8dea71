//! A queue's requests in flight: as many as the crew's pilot gives it.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Until the pilot has spoken: the origin has a limit of its own.
const OPEN: usize = 1 << 16;

/// See the module's text. Made narrower, it takes effect as requests come back.
#[derive(Debug)]
pub(crate) struct Lane {
    permits: Semaphore,
    width: AtomicUsize,
    /// Permits to be taken away as they come back.
    owed: AtomicUsize,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(OPEN),
            width: AtomicUsize::new(OPEN),
            owed: AtomicUsize::new(0),
        }
    }
}

/// The right to one request.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    lane: &'a Lane,
    permit: Option<SemaphorePermit<'a>>,
}

impl Lane {
    /// Waits for its turn.
    pub(crate) async fn enter(&self) -> Ticket<'_> {
        Ticket {
            lane: self,
            // It is never closed.
            permit: self.permits.acquire().await.ok(),
        }
    }

    /// How many may be in flight from now on; at least one. Called by one thread at a time.
    pub(crate) fn widen(&self, width: usize) {
        let width = width.clamp(1, OPEN);
        let before = self.width.swap(width, Ordering::SeqCst);
        if width >= before {
            let more = width - before;
            let forgiven = self.forgive(more);
            self.permits.add_permits(more - forgiven);
        } else {
            let less = before - width;
            let taken = self.permits.forget_permits(less);
            self.owed.fetch_add(less - taken, Ordering::SeqCst);
        }
    }

    /// Takes up to `most` off what is owed; how many it was.
    fn forgive(&self, most: usize) -> usize {
        let update = |owed: usize| Some(owed - owed.min(most));
        let owed = self
            .owed
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, update)
            .unwrap_or_default();
        owed.min(most)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take()
            && self.lane.forgive(1) == 1
        {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_narrow_lane_lets_no_more_in_and_a_wide_one_does() {
        let lane = Lane::default();
        lane.widen(2);
        let first = lane.enter().now_or_never().unwrap();
        let second = lane.enter().now_or_never().unwrap();
        assert!(lane.enter().now_or_never().is_none());
        lane.widen(1); // owed: both are under way
        drop(first);
        assert!(lane.enter().now_or_never().is_none());
        lane.widen(3);
        let third = lane.enter().now_or_never().unwrap();
        let fourth = lane.enter().now_or_never().unwrap();
        assert!(lane.enter().now_or_never().is_none());
        drop((second, third, fourth));
        assert_eq!(lane.permits.available_permits(), 3);
    }
}
