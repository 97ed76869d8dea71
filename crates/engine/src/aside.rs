//! Memory beside the tier, for images of open batches that find it full.
//!
//! Whatever holds the tier may be waiting for the very batch that finds it full: ranks that are
//! asked in turn wait for each other. So a batch with a slab never waits for room. Raw samples go
//! straight into the slab. An image has to be whole before it is made into what lies there, so its
//! bytes are kept here from the first of them until it is placed, which the crew does whoever
//! waits. The requests of one engine wait for each other here, and for nobody else.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a permit stands for.
const UNIT: u64 = 4096;
/// The most that lies here at a time, and the part of the engine's memory.
const MOST: u64 = 16 << 20;
const SHARE: u64 = 8;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Aside {
    room: Arc<Semaphore>,
    units: u32,
}

/// A right to some bytes.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// A sample's bytes, on their way or whole.
#[derive(Debug)]
pub(crate) struct AsideBytes {
    pub(crate) bytes: Vec<u8>,
    /// Shared by all that were asked for together.
    _room: Room,
}

impl Aside {
    /// For an engine with so much memory.
    pub(crate) fn new(memory: u64) -> Self {
        let units = ((memory / SHARE).min(MOST) / UNIT).max(1) as u32;
        Self {
            room: Arc::new(Semaphore::new(units as usize)),
            units,
        }
    }

    /// Waits for room for so many bytes; what is larger than all of it has it to itself.
    pub(crate) async fn enter(&self, bytes: u64) -> Room {
        let units = bytes.div_ceil(UNIT).clamp(1, u64::from(self.units)) as u32;
        let permit = self.room.clone().acquire_many_owned(units).await;
        Room {
            _permit: Arc::new(permit.expect("it is never closed")),
        }
    }
}

impl AsideBytes {
    /// Memory for `len` bytes, which fit into the tier, in a room that was entered for them.
    pub(crate) fn new(room: &Room, len: u64) -> Self {
        Self {
            bytes: vec![0; len as usize],
            _room: room.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn what_is_beside_the_tier_is_bounded_and_the_largest_sample_still_gets_in() {
        let aside = Aside::new(8 * 10 * UNIT);
        let first = aside.enter(6 * UNIT).now_or_never().unwrap();
        let second = aside.enter(4 * UNIT - 1).now_or_never().unwrap();
        assert!(aside.enter(1).now_or_never().is_none());
        let (a, b) = (AsideBytes::new(&first, 9), AsideBytes::new(&first, 1));
        drop((first, a));
        assert!(aside.enter(1).now_or_never().is_none(), "the room of two");
        drop(b);
        assert!(aside.enter(6 * UNIT).now_or_never().is_some());
        assert!(aside.enter(1 << 40).now_or_never().is_none());
        drop(second);
        assert!(aside.enter(1 << 40).now_or_never().is_some());
    }
}
