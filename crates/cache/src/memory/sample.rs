//! A sample in somebody's hands: `Held` by its readers, `Fill` by its one writer.
//!
//! Neither takes the lock to touch bytes, only to come and go.

use std::fmt;
use std::io::IoSliceMut;
use std::sync::Arc;

use forebay_policy::Next;

use super::arena::{Reader, Span};
use super::tier::Inner;

/// A sample that stays where it is, unchanged, for as long as this lives.
pub struct Held {
    inner: Arc<Inner>,
    slot: u32,
    /// `None` only while dropping.
    reader: Option<Reader>,
    hit: bool,
}

impl Held {
    pub(super) fn new(inner: Arc<Inner>, slot: u32, reader: Reader, hit: bool) -> Held {
        Held {
            inner,
            slot,
            reader: Some(reader),
            hit,
        }
    }

    fn reader(&self) -> &Reader {
        self.reader.as_ref().expect("a reader until dropped")
    }

    pub fn len(&self) -> u64 {
        self.reader().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes in order, in as few slices as they lie in.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.inner.arena.read(self.reader())
    }

    /// The bytes as one slice, if they lie so.
    pub fn as_slice(&self) -> Option<&[u8]> {
        let mut slices = self.inner.arena.read(self.reader());
        let first = slices.next().unwrap_or_default();
        slices.next().is_none().then_some(first)
    }

    /// Where the bytes lie in the tier's file, if it has one: offsets and lengths, in order.
    pub fn extents(&self) -> impl Iterator<Item = (u64, u64)> {
        self.inner.arena.extents(self.reader())
    }

    /// Copies all bytes. Panics unless `target` has the sample's length.
    pub fn copy_to(&self, target: &mut [u8]) {
        assert_eq!(
            target.len() as u64,
            self.len(),
            "the target's length is not the sample's"
        );
        let mut rest = target;
        for slice in self.slices() {
            let (part, beyond) = rest.split_at_mut(slice.len());
            part.copy_from_slice(slice);
            rest = beyond;
        }
    }

    /// Says when the sample is wanted next; counts when the last holder lets go.
    pub fn set_next(&self, next: Next) {
        self.inner.lock().set_next(self.slot, next);
    }

    /// The bytes were seen to be those that were read, or not: then no lookup finds them again.
    pub(super) fn judge(&self, is_as_read: bool) {
        let mut ledger = self.inner.lock();
        if is_as_read {
            ledger.table.set_seal(self.slot, 0);
        } else {
            ledger.spoil(self.slot);
        }
    }

    /// Whether the lookup found it there, from an earlier use.
    pub fn was_hit(&self) -> bool {
        self.hit
    }
}

impl Clone for Held {
    fn clone(&self) -> Held {
        let reader = self
            .inner
            .lock()
            .hold(self.slot)
            .expect("a held sample has bytes");
        Held::new(Arc::clone(&self.inner), self.slot, reader, self.hit)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.inner.arena.release(reader);
        }
        let after = self.inner.lock().let_go(self.slot);
        self.inner.finish(after);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("len", &self.len())
            .field("hit", &self.hit)
            .finish_non_exhaustive()
    }
}

/// The right to write a sample. Dropped without a commit, the room is given back and those who
/// wait are told.
///
/// Bytes that are not written before the commit are whatever lay there: write them all.
pub struct Fill {
    inner: Arc<Inner>,
    slot: u32,
    len: u64,
    /// `None` only while committing.
    span: Option<Span>,
}

impl Fill {
    pub(super) fn new(inner: Arc<Inner>, slot: u32, len: u64, span: Span) -> Fill {
        Fill {
            inner,
            slot,
            len,
            span: Some(span),
        }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes to write, in order, in as few slices as they lie in.
    pub fn slices_mut(&mut self) -> Vec<&mut [u8]> {
        self.parts().collect()
    }

    /// The same for `readv` and its like. The kernel takes at most 1024 of them a call.
    pub fn io_slices_mut(&mut self) -> Vec<IoSliceMut<'_>> {
        self.parts().map(IoSliceMut::new).collect()
    }

    fn parts(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.inner
            .arena
            .write(self.span.as_mut().expect("a span until committed"))
    }

    /// Writes a part. Panics beyond the sample's end.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) {
        let span = self.span.as_mut().expect("a span until committed");
        self.inner.arena.write_at(span, offset, bytes);
    }

    /// The bytes are complete: they can be read from now on, by this holder first.
    pub fn commit(mut self) -> Held {
        let span = self.span.take().expect("a span until committed");
        let (reader, after) = self.inner.lock().commit(self.slot, span);
        self.inner.finish(after);
        Held::new(Arc::clone(&self.inner), self.slot, reader, false)
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            let after = self.inner.lock().abort(self.slot, span);
            self.inner.finish(after);
        }
    }
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fill")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
