//! Batches that lie in the memory tier itself: see [`forebay_cache::Row`].
//!
//! They spare the copy from the tier, or into it, while it fills. What is in a row is out of
//! reach for others until the user is done with it, and is read by them from the origin once more.
//! So there are rows only where one job has the engine to itself, and memory for its dataset.

use std::sync::Arc;

use forebay_cache::{MemoryTier, Row, Wanted};
use forebay_origin::View;

use crate::batch::Layout;
use crate::crew::Board;
use crate::engine::Plant;
use crate::job::key;
use crate::task::cost;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Rows {
    tier: MemoryTier,
    board: Arc<Board>,
    dataset: Arc<View>,
}

impl Rows {
    /// Rows for a dataset that fits into the tier as a whole, with a block's gap behind each
    /// sample at most. Else they would soon end, and what is kept would depend on how long the
    /// user has a batch.
    pub(crate) fn for_all_of(plant: &Plant, dataset: &Arc<View>) -> Option<Self> {
        let gaps = cost(1) * u64::from(dataset.len());
        let fits = plant.tier.has_row(dataset.total_bytes() + gaps);
        fits.then(|| Self {
            tier: plant.tier.clone(),
            board: plant.board.clone(),
            dataset: dataset.clone(),
        })
    }

    /// A row for a batch, if none of its samples is in the tier and there is room. `next`: the
    /// next use of the sample in a slot.
    pub(crate) fn take(&self, layout: &Layout, next: impl Fn(usize) -> Option<u64>) -> Option<Row> {
        if !self.tier.has_row(layout.total as u64) || self.board.is_shared() {
            return None;
        }
        let samples = layout.ids.iter().zip(&layout.lengths).enumerate();
        let wanted: Vec<_> = samples
            .map(|(slot, (&id, &len))| Wanted {
                key: key(&self.dataset, id),
                len,
                next: next(slot),
            })
            .collect();
        self.tier.take_row(&wanted)
    }
}
