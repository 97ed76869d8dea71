//! A log that this process only reads: another one writes it, or nobody can.

use std::sync::{Arc, OnceLock};

use super::core::Core;
use super::index::SampleIndex;
use super::kind::Kind;
use super::layout::{Check, Layout, Order, Parts, Sample, Spot};
use super::layout_packed;
use super::ordered::Ordered;
use super::recover_ordered;

/// See the module's text.
#[derive(Debug)]
pub(super) enum ReadOnly {
    /// Nothing of it can be read.
    Nothing(Kind),
    /// By the table, which the writer goes on with.
    Packed(SampleIndex),
    /// As the last writer has left it.
    Reorder(Left),
}

/// A reordered log's records, looked for when the first of them is wanted.
#[derive(Debug)]
pub(super) struct Left {
    core: Arc<Core>,
    logs: OnceLock<Vec<Ordered>>,
}

impl Left {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self {
            core,
            logs: OnceLock::new(),
        }
    }

    fn logs(&self) -> &[Ordered] {
        self.logs.get_or_init(|| recover_ordered::logs(&self.core))
    }
}

impl Layout for ReadOnly {
    fn name(&self) -> &'static str {
        match self {
            ReadOnly::Nothing(kind) => kind.name(),
            ReadOnly::Packed(_) => Kind::Packed.name(),
            ReadOnly::Reorder(_) => Kind::Reorder.name(),
        }
    }

    fn find(&self, sample: u32) -> Option<Spot> {
        match self {
            ReadOnly::Nothing(_) => None,
            ReadOnly::Packed(index) => layout_packed::find(index, sample),
            ReadOnly::Reorder(left) => {
                let at = left.logs().iter().find_map(|log| log.find(sample))?;
                let check = Check::Record;
                Some(Spot { at, check })
            }
        }
    }

    fn offer(&self, _sample: &Sample, _parts: Parts<'_, '_>) -> bool {
        false
    }

    fn lost(&self, sample: u32, spot: &Spot) {
        if let ReadOnly::Reorder(left) = self {
            for log in left.logs() {
                log.lose(sample, spot.at);
            }
        }
    }

    fn begin(&self, _order: Option<&Order>) {}

    fn seal(&self) {}

    fn flush(&self) {}

    fn is_full(&self) -> bool {
        false
    }
}
