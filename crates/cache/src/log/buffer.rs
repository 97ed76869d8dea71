//! Memory that the device reads into and writes from: slots of one mapping, aligned for direct
//! I/O. All of it is made at once, so what a log takes of the memory budget never grows. A buffer is
//! one slot, or several side by side.
//!
//! ```text
//!   pool --take--> Buffer --device--> Buffer --share--> Slice, Slice ... --dropped--> pool
//! ```

#![allow(unsafe_code)]

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use memmap2::{MmapMut, MmapRaw};

struct Shelf {
    mapping: MmapRaw,
    slot: usize,
    /// Which slots are free.
    free: Mutex<Vec<bool>>,
    freed: Condvar,
}

/// See the module's text. Cloning gives another handle of the same pool.
#[derive(Clone)]
pub(super) struct Pool(Arc<Shelf>);

impl Pool {
    /// `count` slots of `slot` bytes, a multiple of the block.
    pub(super) fn new(count: usize, slot: usize) -> std::io::Result<Self> {
        let mapping = MmapMut::map_anon(count.max(1) * slot)?;
        Ok(Self(Arc::new(Shelf {
            mapping: mapping.into(),
            slot,
            free: Mutex::new(vec![true; count.max(1)]),
            freed: Condvar::new(),
        })))
    }

    /// Bytes of each slot.
    pub(super) fn slot(&self) -> usize {
        self.0.slot
    }

    /// All of its memory, for registration with the kernel.
    pub(super) fn memory(&self) -> (*mut u8, usize) {
        (self.0.mapping.as_mut_ptr(), self.0.mapping.len())
    }

    /// Bytes of all slots.
    pub(super) fn bytes(&self) -> usize {
        self.0.mapping.len()
    }

    /// A free slot, waiting at most `patience` for one.
    pub(super) fn take(&self, patience: Duration) -> Option<Buffer> {
        self.take_run(self.slot(), patience)
    }

    /// As many free slots side by side as hold `bytes`, waiting at most `patience` for them.
    pub(super) fn take_run(&self, bytes: usize, patience: Duration) -> Option<Buffer> {
        let count = bytes.div_ceil(self.slot()).max(1);
        let mut free = self.0.free.lock().expect("the pool's lock");
        if run(&free, count).is_none() && !patience.is_zero() {
            free = self
                .0
                .freed
                .wait_timeout_while(free, patience, |free| run(free, count).is_none())
                .expect("the pool's lock")
                .0;
        }
        let slots = run(&free, count)?;
        free[slots.clone()].fill(false);
        Some(Buffer {
            shelf: self.0.clone(),
            slots,
        })
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("slot", &self.0.slot)
            .finish_non_exhaustive()
    }
}

/// The first `count` free slots that lie side by side.
fn run(free: &[bool], count: usize) -> Option<Range<usize>> {
    let mut start = 0;
    for (at, &is_free) in free.iter().enumerate() {
        if !is_free {
            start = at + 1;
        } else if at + 1 - start == count {
            return Some(start..at + 1);
        }
    }
    None
}

/// Slots side by side, in one hand; they go back to their pool when dropped.
pub struct Buffer {
    shelf: Arc<Shelf>,
    slots: Range<usize>,
}

impl Buffer {
    fn base(&self) -> *mut u8 {
        // SAFETY: the slots lie inside the mapping, which lives as long as the shelf.
        unsafe {
            self.shelf
                .mapping
                .as_mut_ptr()
                .add(self.slots.start * self.shelf.slot)
        }
    }

    fn length(&self) -> usize {
        self.slots.len() * self.shelf.slot
    }

    /// Its address, for the kernel.
    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.base()
    }

    /// To write to.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: a slot is in one `Buffer` at a time, and this one is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base(), self.length()) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as above; nobody writes while this one is borrowed.
        unsafe { std::slice::from_raw_parts(self.base(), self.length()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = self.shelf.free.lock().expect("the pool's lock");
        free[self.slots.clone()].fill(true);
        drop(free);
        // All: one of those who wait may want more slots side by side than there are yet.
        self.shelf.freed.notify_all();
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

/// A sample in a buffer that it shares with its neighbours.
#[derive(Debug, Clone)]
pub struct Slice {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Slice {
    /// The bytes `range` of a buffer.
    pub fn new(buffer: Arc<Buffer>, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= buffer.len());
        Self { buffer, range }
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_in_one_hand_and_comes_back() {
        let pool = Pool::new(2, 8192).unwrap();
        let mut first = pool.take(Duration::ZERO).unwrap();
        let second = pool.take(Duration::ZERO).unwrap();
        assert!(pool.take(Duration::from_millis(1)).is_none());
        first.bytes_mut().fill(7);
        assert!(second.iter().all(|&byte| byte == 0));
        let slice = Slice::new(Arc::new(first), 10..20);
        assert_eq!(&slice[..], [7; 10]);
        assert!(pool.take(Duration::ZERO).is_none(), "the slice holds it");
        drop(slice);
        assert!(pool.take(Duration::ZERO).is_some());
    }

    #[test]
    fn a_long_buffer_is_slots_side_by_side() {
        let pool = Pool::new(5, 4096).unwrap();
        let mut slots: Vec<_> = (0..5).map(|_| pool.take(Duration::ZERO).unwrap()).collect();
        slots.remove(3);
        slots.remove(1);
        assert!(pool.take_run(8192, Duration::ZERO).is_none(), "two apart");
        slots.remove(1);
        let mut long = pool.take_run(9000, Duration::ZERO).unwrap();
        assert_eq!(long.len(), 3 * 4096);
        long.bytes_mut().fill(7);
        assert!(slots.iter().all(|slot| slot.iter().all(|&byte| byte == 0)));
        assert!(pool.take(Duration::ZERO).is_none());
        drop(long);
        assert!(pool.take_run(3 * 4096, Duration::ZERO).is_some());
        assert!(pool.take_run(3 * 4096 + 1, Duration::ZERO).is_none());
    }
}
