//! The handle of a memory tier: a budget, a policy, and `lookup`.
//!
//! The budget is kept by construction. Each block is charged with its share of everything that
//! can grow: its link, one slot and two buckets of the table, and the policy's memory for one
//! sample. There are never more samples than blocks, so
//!
//! ```text
//!   blocks = (budget - fixed) / (block + link + slot + buckets + policy's overhead)
//! ```
//!
//! and nothing has to be watched. All of it is reserved at once and touched only as it is used.

use std::fmt;
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use forebay_policy::{Key, Next, Policy};

use super::arena::{Arena, LINK_BYTES, MOST_BLOCKS};
use super::flight::Flight;
use super::ledger::{Afterwards, Found, Ledger};
use super::row::{Row, Sealed, Wanted};
use super::sample::{Fill, Held};
use super::stats::Stats;
use super::table::BYTES_PER_BLOCK;
use crate::Error;

/// The size of a page: a sample wastes half of one on average, and no smaller piece of memory
/// comes from the kernel anyway.
const BLOCK: u64 = 4096;

/// For what does not grow: the tier itself, the small first tables of a policy, and the rounding
/// of each table to whole pages.
const FIXED: u64 = 32 << 10;

/// How a memory tier is made.
#[derive(Debug)]
pub struct Settings {
    /// Bytes of memory, all overhead included; never passed.
    pub budget: u64,
    /// Bytes for samples on their way, which kept ones never take: as much as is fetched ahead.
    /// With all of the budget, nothing is kept.
    pub reserve: u64,
    pub policy: Box<dyn Policy>,
    /// Whether other processes may map the memory, to read samples that are held for them.
    pub shared: bool,
}

/// A memory tier. Cloning gives another handle of the same one.
#[derive(Clone)]
pub struct MemoryTier {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) arena: Arc<Arena>,
    ledger: Mutex<Ledger>,
    /// Some fill has ended.
    pub(super) fill_ended: Condvar,
    budget: u64,
    bytes_per_block: u64,
}

/// What a lookup found.
#[derive(Debug)]
#[must_use]
pub enum Lookup {
    /// The sample is there.
    Hit(Held),
    /// It is not: whoever has this reads it. Dropped without a commit, another may.
    Fill(Fill),
    /// Somebody else reads it.
    Busy(Flight),
    /// There is no room now, or the sample is in a row: look again when something was let go.
    Full,
}

impl MemoryTier {
    pub fn new(settings: Settings) -> Result<MemoryTier, Error> {
        MemoryTier::with_block_size(settings, BLOCK)
    }

    /// With blocks of another size, rounded up to a power of two from 64 on: smaller ones for
    /// samples of a few hundred bytes, at more overhead for each byte.
    pub fn with_block_size(settings: Settings, block: u64) -> Result<MemoryTier, Error> {
        let block = block.clamp(64, 1 << 30).next_power_of_two();
        let Settings {
            budget,
            reserve,
            policy,
            shared,
        } = settings;
        let bytes_per_block = block + LINK_BYTES + BYTES_PER_BLOCK + policy.overhead();
        let blocks = (budget.saturating_sub(FIXED) / bytes_per_block).min(MOST_BLOCKS);
        if blocks == 0 {
            return Err(Error::TooSmall {
                budget,
                least: FIXED + bytes_per_block,
            });
        }
        let bytes = blocks * (block + LINK_BYTES);
        let (arena, free) = Arena::new(blocks as u32, block as usize, shared)
            .map_err(|source| Error::Reserve { bytes, source })?;
        let arena = Arc::new(arena);
        let ledger = Ledger::new(Arc::clone(&arena), free, policy, reserve, budget);
        let inner = Inner {
            arena,
            ledger: Mutex::new(ledger),
            fill_ended: Condvar::new(),
            budget,
            bytes_per_block,
        };
        Ok(MemoryTier {
            inner: Arc::new(inner),
        })
    }

    /// Looks for a sample of `len` bytes whose next use after this one is `next`.
    ///
    /// When several look for it at once, one fills it and the last one's `next` counts. A sample
    /// that is there with another length has changed: it is dropped and counts as missing.
    pub fn lookup(&self, key: Key, len: u64, next: Next) -> Result<Lookup, Error> {
        self.check_fits(len)?;
        loop {
            match self.look(len, |ledger| ledger.lookup(key, len, next)) {
                Ok(lookup) => return Ok(lookup),
                Err(sealed) => {
                    if let Some(held) = sealed.check() {
                        return Ok(Lookup::Hit(held));
                    }
                }
            }
        }
    }

    /// Copies a sample that is here to `target`, which has its length: then there is nothing left
    /// to do. Else as [`MemoryTier::lookup`].
    pub fn copy(&self, key: Key, next: Next, target: &mut [u8]) -> Result<Option<Lookup>, Error> {
        let len = target.len() as u64;
        self.check_fits(len)?;
        loop {
            match self.look(len, |ledger| ledger.lookup(key, len, next)) {
                Ok(Lookup::Hit(held)) => {
                    held.copy_to(target);
                    return Ok(None);
                }
                Ok(lookup) => return Ok(Some(lookup)),
                Err(sealed) => {
                    if sealed.copy_to(target).is_some() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// What there is; an error if it is yet to be compared with what was read.
    fn look(&self, len: u64, look: impl FnOnce(&mut Ledger) -> Found) -> Result<Lookup, Sealed> {
        let inner = &self.inner;
        let mut ledger = inner.lock();
        let found = look(&mut ledger);
        let (generation, seal) = match found {
            Found::Filling(slot) => (ledger.generation(slot), 0),
            Found::Ready(slot, _) => (0, ledger.table.seal(slot)),
            _ => (0, 0),
        };
        drop(ledger);
        Ok(match found {
            Found::Ready(slot, reader) => {
                let held = Held::new(Arc::clone(inner), slot, reader, true);
                if seal != 0 {
                    return Err(Sealed::new(held, seal));
                }
                Lookup::Hit(held)
            }
            Found::New(slot, span) => Lookup::Fill(Fill::new(Arc::clone(inner), slot, len, span)),
            Found::Filling(slot) => Lookup::Busy(Flight::new(Arc::clone(inner), slot, generation)),
            Found::Full => Lookup::Full,
        })
    }

    /// Room for samples side by side: for as long as there is memory that was never used, beside
    /// the reserve, none of them is here, and all may be kept.
    pub fn take_row(&self, samples: &[Wanted]) -> Option<Row> {
        Row::take(&self.inner, samples)
    }

    /// Whether there could be a row of so many bytes.
    pub fn has_row(&self, bytes: u64) -> bool {
        self.inner.lock().has_row(bytes / self.inner.arena.block())
    }

    /// Nothing is kept any more, and the memory of what nobody holds goes back to the system:
    /// somebody may have a row for long.
    pub fn close(&self) {
        let mut ledger = self.inner.lock();
        ledger.closed = true;
        let after = ledger.clear();
        self.inner.arena.discard_free(&ledger.free);
        drop(ledger);
        self.inner.finish(after);
    }

    /// The sample if its bytes are here, whatever their length; wanted again at `next`.
    pub fn find(&self, key: Key, next: Next) -> Option<Held> {
        let inner = &self.inner;
        let mut ledger = inner.lock();
        let (slot, reader) = ledger.find(key, next)?;
        let seal = ledger.table.seal(slot);
        drop(ledger);
        let held = Held::new(Arc::clone(inner), slot, reader, true);
        match seal {
            0 => Some(held),
            seal => Sealed::new(held, seal).check(),
        }
    }

    /// An error if a sample of `len` bytes can never be here, whatever else leaves.
    pub fn check_fits(&self, len: u64) -> Result<(), Error> {
        let inner = &self.inner;
        let blocks = inner.arena.blocks_of(len);
        if blocks <= u64::from(inner.arena.blocks()) {
            return Ok(());
        }
        let least = blocks
            .saturating_mul(inner.bytes_per_block)
            .saturating_add(FIXED);
        Err(Error::TooLarge {
            len,
            budget: inner.budget,
            least,
        })
    }

    /// Drops what is known of a sample, because it changed at its origin; true if there was
    /// anything. Those who hold it keep the bytes they have; the next lookup reads it again.
    pub fn forget(&self, key: Key) -> bool {
        let (known, after) = self.inner.lock().forget(key);
        self.inner.finish(after);
        known
    }

    /// Forgets all samples.
    pub fn clear(&self) {
        let after = self.inner.lock().clear();
        self.inner.finish(after);
    }

    /// Whether the sample's bytes are here.
    pub fn contains(&self, key: Key) -> bool {
        self.inner.lock().contains(key)
    }

    /// Tells the policy the time on the job's clock.
    pub fn advance(&self, now: u64) {
        let after = self.inner.lock().advance(now);
        self.inner.finish(after);
    }

    /// Whether a sample that is not here would be kept, so that a copy of it is worth making.
    pub fn wants(&self, key: Key, len: u64, next: Next) -> bool {
        self.check_fits(len).is_ok() && self.inner.lock().wants(key, len, next)
    }

    /// Sets what is called when something was let go after a lookup found the tier full.
    ///
    /// It runs without the lock in the thread that let go, perhaps before that lookup has
    /// returned: it should leave a mark (a permit, a counter) rather than wake only who waits.
    pub fn set_on_room(&self, on_room: Box<dyn Fn() + Send + Sync>) {
        self.inner.lock().set_on_room(Arc::from(on_room));
    }

    /// The file in which the samples lie, if the tier is a shared one; see [`Held::extents`].
    pub fn file(&self) -> Option<&File> {
        self.inner.arena.file()
    }

    pub fn stats(&self) -> Stats {
        self.inner.lock().stats()
    }
}

impl Inner {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        // A panic under the lock is a bug that was reported once; holders must still let go.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called without the lock.
    pub(super) fn finish(&self, after: Afterwards) {
        if after.wake {
            self.fill_ended.notify_all();
        }
        after.run();
    }
}

impl fmt::Debug for MemoryTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTier")
            .field("budget", &self.inner.budget)
            .finish_non_exhaustive()
    }
}
