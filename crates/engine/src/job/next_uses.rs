//! When each sample of an epoch is wanted next, by any rank that shares the memory.

use forebay_plan::{Epoch, NextUse};

use super::Job;
use crate::sequence::Sequence;

/// Up to this many samples, next uses are computed before the epoch begins; beyond,
/// beside it, so that the first batch does not wait for the table.
const AT_ONCE: u64 = 2_000_000;

impl Job {
    pub(super) fn compute_next_uses(&self) {
        let Some((current, coming, uses)) = self.desk.window().horizon() else {
            return;
        };
        let samples = current.samples().unwrap_or(0);
        let Some(compute) = self.next_uses(current, coming) else {
            return;
        };
        let compute = move || drop(uses.set(compute()));
        if samples <= AT_ONCE {
            compute();
        } else {
            // Ends by itself within a second; holds nothing but the two epochs.
            let _ = std::thread::Builder::new()
                .name("forebay-next-use".into())
                .spawn(compute);
        }
    }

    /// How next uses are computed, if they are known and matter.
    pub(super) fn next_uses(
        &self,
        current: Sequence,
        coming: Option<Sequence>,
    ) -> Option<impl FnOnce() -> (NextUse, u32) + Send + 'static> {
        if self.desk.dataset.total_bytes() < self.desk.plant.tier.stats().capacity / 2 {
            return None; // all of it stays, whenever it is used next
        }
        let Sequence::Planned { epoch, rank } = current else {
            return None;
        };
        let coming = coming.and_then(|coming| match coming {
            Sequence::Planned { epoch, .. } => Some(epoch),
            Sequence::Listed { .. } => None,
        });
        let ranks = self.ranks(&epoch, coming.as_ref(), rank);
        let map = self.desk.dataset.map().cloned();
        Some(move || {
            let slot = ranks.iter().position(|&known| known == rank).unwrap_or(0);
            let next = NextUse::mapped(&epoch, coming.as_ref(), &ranks, map.as_deref());
            (next, slot as u32)
        })
    }

    /// The ranks whose uses of a sample count: all that share this engine's memory.
    fn ranks(&self, epoch: &Epoch, coming: Option<&Epoch>, rank: u32) -> Vec<u32> {
        let world = coming.map_or(epoch.world(), |coming| coming.world().min(epoch.world()));
        let mut ranks = self.desk.plant.board.ranks_on(self.desk.dataset.number());
        ranks.retain(|&known| known < world);
        if ranks.contains(&rank) {
            ranks
        } else {
            vec![rank]
        }
    }
}
