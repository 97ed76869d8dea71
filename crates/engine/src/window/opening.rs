//! Which memory a batch is filled in: a slab of its own, or a row of the tier.

use forebay_cache::Row;

use super::{RUN_SAMPLES, Window};
use crate::building::Building;

/// Samples of this size on average are worth a row of the tier: each begins at a block there.
const LARGE: usize = 16 << 10;
/// Most batches that the user may have before rows are no longer made: what is in a row is in
/// nobody else's reach.
const ROWS_OUT: usize = 4;

impl Window {
    /// Gives the first `depth` batches their slabs.
    pub(super) fn open_slabs(&mut self) {
        for at in 0..self.depth.min(self.batches.len()) {
            let batch = &self.batches[at];
            // One with a bad sample is filled all the same, so that its slots end well.
            if batch.slab.is_some() || batch.failed.is_some() && batch.remaining == 0 {
                continue;
            }
            if let Some(row) = self.take_row(batch) {
                self.open_row(at, row);
                continue;
            }
            match self.pool.take(batch.layout.total) {
                Ok(slab) => self.batches[at].open(slab),
                Err(error) => self.batches[at].failed = Some((0, error)),
            }
        }
    }

    /// Gives a later batch a row, if there can be one within what may be fetched ahead.
    pub(super) fn open_ahead(&mut self, at: usize) {
        let batch = &self.batches[at];
        if self.rows.is_none() || batch.slab.is_some() || batch.fetched > 0 {
            return;
        }
        let total = self.ahead() + batch.layout.total as u64;
        if total <= self.readahead
            && let Some(row) = self.take_row(batch)
        {
            self.open_row(at, row);
        }
    }

    fn open_row(&mut self, at: usize, row: Row) {
        let batch = &mut self.batches[at];
        batch.layout.follow(&row);
        batch.open(self.pool.adopt(row));
    }

    /// A row of the tier for all samples of a batch, if that is where they should be.
    fn take_row(&self, batch: &Building) -> Option<Row> {
        let rows = self.rows.as_ref()?;
        let begun = batch.fetched > 0 || batch.failed.is_some();
        if begun || !self.is_quick(batch) || self.with_user() > ROWS_OUT {
            return None;
        }
        let leg = &self.legs[(batch.leg - self.current) as usize];
        rows.take(&batch.layout, |slot| {
            leg.next_use(batch.position + slot as u64)
        })
    }

    /// Whether a batch is of large samples that are not made into anything, and come quickly.
    pub(super) fn is_quick(&self, batch: &Building) -> bool {
        let layout = &batch.layout;
        !self.arrives
            && !self.slow
            && self.run == RUN_SAMPLES
            && layout.total >= layout.ids.len() * LARGE
    }

    /// Batches that the user has.
    pub(crate) fn with_user(&self) -> usize {
        let open = self.batches.iter().filter(|batch| batch.slab.is_some());
        self.pool.out().saturating_sub(open.count())
    }
}
