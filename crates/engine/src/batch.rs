//! A finished batch: one slab with ids, labels and the samples.
//!
//! ```text
//!   | ids i64 x n | labels i64 x n | sample 0 | sample 1 | ... | sample n-1 |
//! ```
//!
//! Samples are their bytes as they are, end to end, or finished images, all of one size. In a row
//! of the memory tier each begins at a block, so there are gaps between them, and the columns lie
//! elsewhere.

use std::sync::Arc;

use forebay_cache::{Held, Row};
use forebay_prepare::Shape;

use crate::Error;
use crate::slab::{Slab, SlabLease, SlabPool, SlabWriter};

/// Where each part of a batch lies in its slab.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    pub(crate) ids: Vec<u32>,
    pub(crate) labels: Vec<i64>,
    /// Bytes of each sample as the dataset has it.
    pub(crate) lengths: Vec<u64>,
    pub(crate) offsets: Vec<usize>,
    /// Where the samples begin.
    data: usize,
    pub(crate) total: usize,
    /// There are gaps behind the samples.
    spread: bool,
    /// What is made of each sample, if it does not stay as it is.
    pub(crate) shape: Option<Shape>,
}

/// Tensors of any element may begin here.
const ALIGN: usize = 64;

impl Layout {
    /// Lays out samples behind the two columns.
    pub(crate) fn new(
        ids: Vec<u32>,
        labels: Vec<i64>,
        lengths: Vec<u64>,
        shape: Option<Shape>,
    ) -> Self {
        let mut layout = Self {
            ids,
            labels,
            lengths,
            shape,
            ..Self::default()
        };
        layout.data = layout.columns().next_multiple_of(ALIGN);
        layout.total = layout.data;
        for slot in 0..layout.ids.len() {
            layout.offsets.push(layout.total);
            layout.total += layout.room(slot);
        }
        layout
    }

    /// Bytes of the two columns.
    pub(crate) fn columns(&self) -> usize {
        self.ids.len() * 16
    }

    /// Lays the samples where they lie in a row; the columns are elsewhere.
    pub(crate) fn follow(&mut self, row: &Row) {
        self.offsets.clear();
        self.offsets.extend(row.offsets());
        self.data = 0;
        self.total = row.len();
        self.spread = true;
    }

    /// Bytes of a sample in the slab.
    pub(crate) fn room(&self, slot: usize) -> usize {
        self.shape
            .map_or(self.lengths[slot] as usize, |shape| shape.bytes())
    }

    /// Writes the two columns.
    #[allow(unsafe_code)]
    pub(crate) fn write_columns(&self, slab: &SlabWriter) {
        // SAFETY: the columns lie before every sample's part and are written once,
        // by whoever opens the batch, before any part is handed out.
        let columns = unsafe { slab.part(0, self.columns()) };
        let (ids, labels) = columns.split_at_mut(self.ids.len() * 8);
        for (cell, &id) in ids.chunks_exact_mut(8).zip(&self.ids) {
            cell.copy_from_slice(&i64::from(id).to_ne_bytes());
        }
        for (cell, &label) in labels.chunks_exact_mut(8).zip(&self.labels) {
            cell.copy_from_slice(&label.to_ne_bytes());
        }
    }
}

/// A stand-in that took a bad sample's place.
#[derive(Debug)]
pub(crate) struct StandIn {
    pub(crate) slot: usize,
    pub(crate) id: u32,
    pub(crate) label: i64,
    /// As they lie in the slab: the sample's own, or the finished image.
    pub(crate) bytes: Vec<u8>,
}

/// One batch, ready for the user.
#[derive(Debug)]
pub struct Batch {
    layout: Layout,
    slab: SlabLease,
    /// Where the columns are, if not in the slab: whoever keeps the labels keeps no row.
    columns: Option<SlabLease>,
    lent: Lent,
}

/// Images that stay in the memory tier for as long as somebody has this, by slot of their batch.
pub type Lent = Arc<Vec<(usize, Held)>>;

impl Batch {
    /// Joins layout and slab; stand-ins, being of other lengths, cost one more copy.
    pub(crate) fn assemble(
        layout: Layout,
        slab: SlabWriter,
        stand_ins: &[StandIn],
        pool: &SlabPool,
    ) -> Result<Self, Error> {
        let columns = layout.spread.then(|| {
            let columns = SlabWriter::new(Slab::beside(layout.columns()));
            layout.write_columns(&columns);
            columns.finish()
        });
        let batch = Self {
            layout,
            slab: slab.finish(),
            columns,
            lent: Lent::default(),
        };
        if stand_ins.is_empty() {
            Ok(batch)
        } else {
            batch.with_stand_ins(stand_ins, pool)
        }
    }

    #[allow(unsafe_code)]
    fn with_stand_ins(self, stand_ins: &[StandIn], pool: &SlabPool) -> Result<Self, Error> {
        let mut layout = self.layout.clone();
        for stand_in in stand_ins {
            layout.ids[stand_in.slot] = stand_in.id;
            layout.labels[stand_in.slot] = stand_in.label;
            layout.lengths[stand_in.slot] = stand_in.bytes.len() as u64;
        }
        let layout = Layout::new(layout.ids, layout.labels, layout.lengths, layout.shape);
        let slab = SlabWriter::new(pool.take(layout.total)?);
        layout.write_columns(&slab);
        for slot in 0..layout.ids.len() {
            let bytes = match stand_ins.iter().find(|stand_in| stand_in.slot == slot) {
                Some(stand_in) => &stand_in.bytes[..],
                None => self.sample(slot),
            };
            // SAFETY: slots are disjoint by layout, and this thread is the only writer.
            unsafe { slab.part(layout.offsets[slot], bytes.len()) }.copy_from_slice(bytes);
        }
        Ok(Self {
            layout,
            slab: slab.finish(),
            columns: None,
            lent: Lent::default(),
        })
    }

    /// With samples that are not in the slab, by slot.
    pub(crate) fn with_lent(self, lent: Vec<(usize, Held)>) -> Self {
        let lent = Arc::new(lent);
        Self { lent, ..self }
    }

    /// Images that are not in the slab; what lies there in their slots means nothing. Width and
    /// height (u32, little-endian), the pixels as RGB, and then the head of the file that they were
    /// decoded from ([`forebay_prepare::head`]).
    pub fn lent(&self) -> &Lent {
        &self.lent
    }

    /// How many samples.
    pub fn len(&self) -> usize {
        self.layout.ids.len()
    }

    /// True for a batch without samples.
    pub fn is_empty(&self) -> bool {
        self.layout.ids.is_empty()
    }

    /// The samples' ids.
    pub fn ids(&self) -> &[u32] {
        &self.layout.ids
    }

    /// The samples' labels, -1 for none.
    pub fn labels(&self) -> &[i64] {
        &self.layout.labels
    }

    /// The samples' lengths in bytes.
    pub fn lengths(&self) -> &[u64] {
        &self.layout.lengths
    }

    /// What lies in `slot`: the sample's bytes, or the finished image.
    pub fn sample(&self, slot: usize) -> &[u8] {
        self.slab
            .read(self.layout.offsets[slot], self.layout.room(slot))
    }

    /// The form of each sample, if they are finished images.
    pub fn shape(&self) -> Option<Shape> {
        self.layout.shape
    }

    /// The memory of all samples, and where they begin in it.
    pub fn data(&self) -> (&SlabLease, usize) {
        (&self.slab, self.layout.data)
    }

    /// The memory of the columns, and where ids and labels begin in it.
    pub fn columns(&self) -> (&SlabLease, [usize; 2]) {
        let lease = self.columns.as_ref().unwrap_or(&self.slab);
        (lease, [0, self.layout.ids.len() * 8])
    }

    /// Bytes from the first sample's first to the last one's last.
    pub fn data_len(&self) -> usize {
        self.layout.total - self.layout.data
    }

    /// Bytes of all samples together.
    pub fn bytes(&self) -> u64 {
        let samples = 0..self.len();
        samples.map(|slot| self.layout.room(slot) as u64).sum()
    }

    /// If there are gaps between the samples: the length of each sample, and behind each but the
    /// last that of its gap.
    pub fn cuts(&self) -> Option<Vec<usize>> {
        let layout = &self.layout;
        layout.spread.then(|| {
            let mut cuts = Vec::with_capacity(2 * self.len());
            for slot in 0..self.len() {
                let (start, room) = (layout.offsets[slot], layout.room(slot));
                cuts.push(room);
                cuts.extend(layout.offsets.get(slot + 1).map(|next| next - start - room));
            }
            cuts
        })
    }
}
