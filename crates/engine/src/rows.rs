//! Batches that lie in the memory tier itself: see [`forebay_cache::Row`].
//!
//! They spare the copy from the tier, or into it, while it fills. What is in a row is out of
//! reach for others until the user is done with it, and is read by them from the origin once more.
//! So there are rows only where one job has the engine to itself.

use std::sync::Arc;

use forebay_cache::{MemoryTier, Row, Wanted};
use forebay_origin::Dataset;

use crate::batch::Layout;
use crate::crew::Board;
use crate::engine::Plant;
use crate::job::key;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Rows {
    tier: MemoryTier,
    board: Arc<Board>,
    /// The key of sample 0.
    first: u64,
}

impl Rows {
    pub(crate) fn new(plant: &Plant, dataset: &Dataset) -> Self {
        Self {
            tier: plant.tier.clone(),
            board: plant.board.clone(),
            first: key(dataset, 0),
        }
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
                key: self.first + u64::from(id),
                len,
                next: next(slot),
            })
            .collect();
        self.tier.take_row(&wanted)
    }
}
