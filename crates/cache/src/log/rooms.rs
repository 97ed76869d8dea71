//! What a reordered log takes of each directory, and may.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the directories.
#[derive(Debug)]
pub(super) struct Rooms(Vec<Room>);

#[derive(Debug, Default)]
struct Room {
    taken: AtomicU64,
    limit: AtomicU64,
}

impl Rooms {
    /// So many directories, none with any room yet.
    pub(super) fn new(dirs: usize) -> Self {
        Self((0..dirs).map(|_| Room::default()).collect())
    }

    /// What was counted, and what may be taken.
    pub(super) fn set(&self, dir: usize, taken: u64, limit: u64) {
        self.0[dir].limit.store(limit, Ordering::Release);
        self.0[dir].taken.store(taken, Ordering::Release);
    }

    /// What may be taken of a directory.
    pub(super) fn limit(&self, dir: u8) -> u64 {
        self.0[usize::from(dir)].limit.load(Ordering::Acquire)
    }

    /// What a directory has more than it may.
    pub(super) fn over(&self, dir: u8) -> u64 {
        let taken = self.0[usize::from(dir)].taken.load(Ordering::Acquire);
        taken.saturating_sub(self.limit(dir))
    }

    /// Takes bytes of a directory, if there are so many.
    pub(super) fn take(&self, dir: u8, bytes: u64) -> bool {
        let limit = self.limit(dir);
        let more = |taken: u64| {
            let sum = taken.checked_add(bytes)?;
            (sum <= limit).then_some(sum)
        };
        self.0[usize::from(dir)]
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }

    /// Gives bytes back.
    pub(super) fn give(&self, dir: u8, bytes: u64) {
        let less = |taken: u64| Some(taken.saturating_sub(bytes));
        let _ =
            self.0[usize::from(dir)]
                .taken
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// Whether no directory has so many bytes left.
    pub(super) fn is_full(&self, bytes: u64) -> bool {
        self.0.iter().all(|room| {
            let taken = room.taken.load(Ordering::Relaxed);
            taken.saturating_add(bytes) > room.limit.load(Ordering::Relaxed)
        })
    }
}
