//! Batch buffers: taken from a pool, lent to the user, returned when the last
//! tensor on them dies.
//!
//! ```text
//!   pool --take--> SlabWriter (filled by the crew) --lend--> SlabLease (tensors)
//!     ^                                                            |
//!     +---------------------- last lease dropped ------------------+
//! ```
//!
//! A slab is an anonymous mapping, so a large batch costs no page faults once the
//! pool is warm. While the memory tier fills for the first time, it may be a row of the
//! tier instead: what the user has had then stays there, and was never copied. A user who keeps
//! every batch gets more slabs: the pool never blocks, it only remembers how many are out so that
//! the door can warn once.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use forebay_cache::Row;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::Error;

/// A huge page.
const STEP: usize = 2 << 20;

/// One anonymous mapping.
#[derive(Debug)]
struct Mapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: the mapping is plain memory with no thread affinity; who may touch which
// bytes is decided by `SlabWriter` and `SlabLease`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Result<Self, Error> {
        let len = len.max(1).next_multiple_of(STEP);
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .map_err(|errno| Error::System {
            what: "mapping memory for a batch",
            source: errno.into(),
        })?;
        // Miri does not know advice.
        if !cfg!(miri) {
            // SAFETY: the range was just mapped. Huge pages are a wish: refusal is fine.
            let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        }
        Ok(Self {
            base: base.cast(),
            len,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and nobody refers to it any more.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

#[derive(Debug, Default)]
struct Shelf {
    free: Mutex<Vec<Mapping>>,
    /// How many free slabs are worth keeping.
    keep: usize,
    out: AtomicUsize,
    out_bytes: AtomicU64,
    made: AtomicU64,
    peak_bytes: AtomicU64,
    /// How many times the system is to have refused.
    #[cfg(test)]
    refusals: AtomicUsize,
}

/// The pool of one job's slabs.
#[derive(Debug, Clone)]
pub(crate) struct SlabPool(Arc<Shelf>);

impl SlabPool {
    /// A pool that keeps up to `keep` free slabs for reuse.
    pub(crate) fn new(keep: usize) -> Self {
        Self(Arc::new(Shelf {
            keep,
            ..Shelf::default()
        }))
    }

    /// The next `times` no slab can be had.
    #[cfg(test)]
    pub(crate) fn refuse(&self, times: usize) {
        self.0.refusals.store(times, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn check_refusal(&self) -> Result<(), Error> {
        let less = |left: usize| left.checked_sub(1);
        let order = Ordering::Relaxed;
        match self.0.refusals.fetch_update(order, order, less) {
            Err(_) => Ok(()),
            Ok(_) => Err(Error::System {
                what: "mapping memory for a batch",
                source: std::io::ErrorKind::OutOfMemory.into(),
            }),
        }
    }

    /// A slab of at least `len` bytes, reused where one is free and large enough.
    pub(crate) fn take(&self, len: usize) -> Result<Slab, Error> {
        #[cfg(test)]
        self.check_refusal()?;
        let shelf = &self.0;
        let found = {
            let mut free = shelf.free.lock().expect("the slab pool's lock");
            match free.iter().position(|mapping| mapping.len >= len) {
                Some(at) => Some(free.swap_remove(at)),
                None => {
                    // Sizes grew: a slab that is too small now will be so again.
                    free.pop();
                    None
                }
            }
        };
        let fresh = found.is_none();
        let mapping = match found {
            Some(mapping) => mapping,
            None => {
                shelf.made.fetch_add(1, Ordering::Relaxed);
                // A little slack, so that the next batch, a bit larger, fits as well.
                Mapping::new(len + len / 8)?
            }
        };
        shelf.out.fetch_add(1, Ordering::Relaxed);
        let out = shelf
            .out_bytes
            .fetch_add(mapping.len as u64, Ordering::Relaxed)
            + mapping.len as u64;
        shelf.peak_bytes.fetch_max(out, Ordering::Relaxed);
        Ok(Slab {
            memory: Some(Memory::Own(mapping, fresh)),
            len,
            shelf: Arc::downgrade(shelf),
        })
    }

    /// A slab that is a row of the memory tier; its bytes count there.
    pub(crate) fn adopt(&self, row: Row) -> Slab {
        self.0.out.fetch_add(1, Ordering::Relaxed);
        Slab {
            len: row.len(),
            memory: Some(Memory::Tier(row)),
            shelf: Arc::downgrade(&self.0),
        }
    }

    /// Slabs that are filling, ready or with the user.
    pub(crate) fn out(&self) -> usize {
        self.0.out.load(Ordering::Relaxed)
    }

    /// Slabs ever mapped.
    pub(crate) fn made(&self) -> u64 {
        self.0.made.load(Ordering::Relaxed)
    }

    /// The most bytes that were ever out at one time.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.0.peak_bytes.load(Ordering::Relaxed)
    }
}

/// A buffer of the pool, or beside it; goes back when dropped.
#[derive(Debug)]
pub struct Slab {
    memory: Option<Memory>,
    len: usize,
    shelf: Weak<Shelf>,
}

#[derive(Debug)]
enum Memory {
    /// And whether nobody has used it yet.
    Own(Mapping, bool),
    Tier(Row),
    /// For the columns of a batch whose samples are in a row: kept by themselves, they hold nothing
    /// of the tier.
    Columns(Box<[AtomicU64]>),
}

impl Slab {
    /// Memory of `len` bytes that is no pool's.
    pub(crate) fn beside(len: usize) -> Self {
        // Atomic only in that it may be written to through what is shared.
        let cells = (0..len.div_ceil(8)).map(|_| AtomicU64::new(0));
        Self {
            memory: Some(Memory::Columns(cells.collect())),
            len,
            shelf: Weak::new(),
        }
    }

    fn base(&self) -> *mut u8 {
        match &self.memory {
            Some(Memory::Own(mapping, _)) => mapping.base,
            Some(Memory::Tier(row)) => row.as_ptr(),
            Some(Memory::Columns(cells)) => cells.as_ptr().cast_mut().cast(),
            None => unreachable!("a slab has its memory until it drops"),
        }
    }

    /// Bytes in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a batch without bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let memory = self.memory.take();
        // The pool may be gone before the user's last tensor: then the memory just goes.
        let Some(shelf) = self.shelf.upgrade() else {
            return;
        };
        shelf.out.fetch_sub(1, Ordering::Relaxed);
        let Some(Memory::Own(mapping, _)) = memory else {
            return; // a row goes back to its tier
        };
        shelf
            .out_bytes
            .fetch_sub(mapping.len as u64, Ordering::Relaxed);
        let mut free = shelf.free.lock().expect("the slab pool's lock");
        if free.len() < shelf.keep {
            free.push(mapping);
        }
    }
}

/// A slab while the crew fills it: many threads write disjoint parts.
#[derive(Debug, Clone)]
pub(crate) struct SlabWriter(Arc<Slab>);

impl SlabWriter {
    pub(crate) fn new(slab: Slab) -> Self {
        Self(Arc::new(slab))
    }

    /// The bytes `offset..offset + len`, to write to.
    ///
    /// # Safety
    /// No other part handed out of this slab may overlap it while it lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.0.len),
            "a part inside its slab"
        );
        // SAFETY: inside the mapping (asserted), alive as long as `self`, and not
        // aliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.base().add(offset), len) }
    }

    /// The row of the memory tier that this is, if it is one.
    pub(crate) fn row(&self) -> Option<&Row> {
        match &self.0.memory {
            Some(Memory::Tier(row)) => Some(row),
            _ => None,
        }
    }

    /// Whether nobody has used its memory yet. The kernel clears it by huge pages as they are
    /// touched, and two threads that come to one at once both clear it.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(self.0.memory, Some(Memory::Own(_, true) | Memory::Tier(_)))
    }

    /// Which huge page of memory a byte lies in.
    pub(crate) fn huge_page(&self, offset: usize) -> usize {
        (self.0.base() as usize + offset) / STEP
    }

    /// Ends the filling. The caller has seen every part's writer finish.
    pub(crate) fn finish(self) -> SlabLease {
        SlabLease(self.0)
    }
}

/// A finished slab, shared by the tensors that lie on it.
#[derive(Debug, Clone)]
pub struct SlabLease(Arc<Slab>);

impl SlabLease {
    /// Where its bytes begin. They live as long as any lease of the slab; the
    /// user's tensors may write to them.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.base()
    }

    /// Bytes in use.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// True for a batch without bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The bytes `offset..offset + len`, before any tensor was made of them.
    pub(crate) fn read(&self, offset: usize, len: usize) -> &[u8] {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.0.len),
            "a part inside its slab"
        );
        // SAFETY: inside the mapping (asserted), alive as long as `self`; the engine
        // only reads before the lease leaves it, when nobody writes.
        unsafe { std::slice::from_raw_parts(self.0.base().add(offset), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_slab_is_used_again() {
        let pool = SlabPool::new(2);
        let first = pool.take(1000).unwrap();
        let base = first.base();
        drop(first);
        assert_eq!(pool.take(500).unwrap().base(), base);
        assert_eq!(pool.made(), 1);
    }

    #[test]
    fn a_user_who_keeps_every_slab_gets_more() {
        let pool = SlabPool::new(2);
        let kept: Vec<_> = (0..20).map(|_| pool.take(1000).unwrap()).collect();
        assert_eq!((pool.out(), pool.made()), (20, 20));
        drop(kept);
        assert_eq!(pool.out(), 0);
        assert_eq!(
            pool.0.free.lock().unwrap().len(),
            2,
            "the rest was given back to the system"
        );
    }

    #[test]
    fn a_lease_outlives_its_pool() {
        let pool = SlabPool::new(2);
        let writer = SlabWriter::new(pool.take(16).unwrap());
        // SAFETY: the only part.
        unsafe { writer.part(0, 16) }.fill(7);
        let lease = writer.finish();
        drop(pool);
        assert_eq!(lease.read(0, 16), [7; 16]);
    }

    #[test]
    fn a_larger_batch_gets_a_larger_slab_and_the_small_one_goes() {
        let pool = SlabPool::new(2);
        drop(pool.take(100).unwrap());
        drop(pool.take(STEP * 3).unwrap());
        assert_eq!(pool.0.free.lock().unwrap().len(), 1);
    }
}
