//! What the two layouts of a log have in common.
//!
//! | layout | a sample is written | its place |
//! |---|---|---|
//! | `packed` | once | where it came to stand when it first came |
//! | `reorder` | every epoch | where the coming epoch will read it |

use std::fmt;

use forebay_format::chunk::Identity;

use super::index::Location;
use super::record;

/// A sample and who it is.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Its number in the index.
    pub id: u32,
    /// Who it is, whatever its number.
    pub identity: Identity,
    /// Its bytes.
    pub length: u64,
}

/// How to tell that bytes are the sample's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Their check.
    Sum(u64),
    /// A record's head stands before them and has the check.
    Record,
}

/// Which layout a log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LayoutChoice {
    /// The one that is faster on this disk, as far as the order is known.
    #[default]
    Auto,
    /// Written once.
    Packed,
    /// Written for each epoch, in its order.
    Reorder,
}

/// Where a sample lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// Where its bytes, or its record, begin.
    pub at: Location,
    /// What tells that it is there.
    pub check: Check,
}

impl Spot {
    /// Bytes to read for a sample of `length`.
    pub(super) fn span(&self, length: u64) -> u64 {
        match self.check {
            Check::Sum(_) => length,
            Check::Record => length + record::HEAD as u64,
        }
    }

    /// The sample's part of what was read at the spot, if it is whole.
    pub(super) fn verify<'a>(&self, sample: &Sample, read: &'a [u8]) -> Option<&'a [u8]> {
        let (bytes, sum) = match self.check {
            Check::Sum(sum) => (read, sum),
            Check::Record => record::split(sample, read)?,
        };
        (sample.identity.check(bytes) == sum).then_some(bytes)
    }
}

/// What of a chunk is there: part of a segment, and how many samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) samples: usize,
}

/// Bytes of a sample, in as many pieces as they lie in.
pub(super) type Parts<'a, 'b> = &'b mut (dyn Iterator<Item = &'a [u8]> + 'b);

/// The order of an epoch: the samples as they will be read, and how many make a chunk.
#[derive(Debug, Clone)]
pub struct Order {
    /// Sample numbers.
    pub ids: std::sync::Arc<Vec<u32>>,
    /// Samples of a batch.
    pub batch: usize,
}

/// See the module's text.
pub(super) trait Layout: Send + Sync + fmt::Debug {
    /// Its name in settings and stats.
    fn name(&self) -> &'static str;

    /// Where a sample can be read.
    fn find(&self, sample: u32) -> Option<Spot>;

    /// Takes a copy of a sample to write it, if it has a place for it.
    fn offer(&self, sample: &Sample, parts: Parts<'_, '_>) -> bool;

    /// The spot did not have the sample.
    fn lost(&self, sample: u32, spot: &Spot);

    /// An epoch begins, in this order if it is known.
    fn begin(&self, order: Option<&Order>);

    /// What it is to know of the epoch after; `forecast` if that may turn out otherwise.
    fn foresee(&self, _next: &Order, _forecast: bool) {}

    /// The chunk that is best read as a whole when a sample of it is read at this spot.
    fn extent(&self, _sample: u32, _spot: &Spot) -> Option<Extent> {
        None
    }

    /// Called by the reader before it reads a sample: waits for a moment if its record is still on
    /// its way to the disk.
    fn await_written(&self, _sample: u32) {}

    /// The user has had these samples.
    fn consumed(&self, _samples: &[u32]) {}

    /// Whether samples are to be offered each time that they are used.
    fn rewrites(&self) -> bool {
        false
    }

    /// What is half full is written as it is; does not wait for it.
    fn seal(&self);

    /// Writes out what waits to be written; returns when it is on the disk.
    fn flush(&self);

    /// Whether more samples would be taken if they came.
    fn is_full(&self) -> bool;
}
