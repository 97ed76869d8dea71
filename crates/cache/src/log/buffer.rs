//! Memory that the device reads into and writes from: slots of one mapping, aligned for direct
//! I/O. All of it is made at once, so what a log takes of the memory budget never grows.
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
    free: Mutex<Vec<usize>>,
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
            free: Mutex::new((0..count.max(1)).rev().collect()),
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

    /// A free slot, waiting at most `patience` for one.
    pub(super) fn take(&self, patience: Duration) -> Option<Buffer> {
        let mut free = self.0.free.lock().expect("the pool's lock");
        if free.is_empty() && !patience.is_zero() {
            free = self
                .0
                .freed
                .wait_timeout_while(free, patience, |free| free.is_empty())
                .expect("the pool's lock")
                .0;
        }
        let index = free.pop()?;
        Some(Buffer {
            shelf: self.0.clone(),
            index,
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

/// One slot, in one hand; goes back to its pool when dropped.
pub struct Buffer {
    shelf: Arc<Shelf>,
    index: usize,
}

impl Buffer {
    fn base(&self) -> *mut u8 {
        // SAFETY: the slot lies inside the mapping, which lives as long as the shelf.
        unsafe {
            self.shelf
                .mapping
                .as_mut_ptr()
                .add(self.index * self.shelf.slot)
        }
    }

    /// Its address, for the kernel.
    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.base()
    }

    /// To write to.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: a slot has one `Buffer` at a time, and this one is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base(), self.shelf.slot) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: as above; nobody writes while this one is borrowed.
        unsafe { std::slice::from_raw_parts(self.base(), self.shelf.slot) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = self.shelf.free.lock().expect("the pool's lock");
        free.push(self.index);
        drop(free);
        self.shelf.freed.notify_one();
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("index", &self.index)
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
}
