//! What a window has fetched ahead, and how much of that it may.
//!
//! Bytes are counted for the batch that they are fetched for, so that a batch that goes, whole or
//! not, takes all that was counted for it along.

use super::Window;

impl Window {
    /// There are so many windows: each may fetch its part ahead.
    pub(crate) fn share_readahead(&mut self, windows: usize) {
        self.readahead = self.most_ahead / windows.max(1) as u64;
    }

    /// Bytes that were fetched ahead, or are being: held one by one, or in rows.
    pub(crate) fn ahead(&self) -> u64 {
        let depth = self.depth.min(self.batches.len());
        let rows = match self.rows {
            Some(_) => self.batches.range(depth..),
            None => self.batches.range(depth..depth),
        };
        let open = rows.filter(|batch| batch.slab.is_some());
        let in_rows: usize = open.map(|batch| batch.layout.total).sum();
        self.held_bytes + in_rows as u64
    }

    /// Bytes stay counted for ever: the fault that counting by batch has mended.
    #[cfg(test)]
    pub(crate) fn leak(&mut self, bytes: u64) {
        self.held_bytes += bytes;
    }

    /// Counts bytes for the batch at `at`.
    pub(super) fn charge(&mut self, at: usize, bytes: u64) {
        self.batches[at].counted += bytes;
        self.held_bytes += bytes;
    }

    /// Counts them no longer.
    pub(super) fn release(&mut self, at: usize, bytes: u64) {
        self.batches[at].counted -= bytes;
        self.held_bytes -= bytes;
    }
}
