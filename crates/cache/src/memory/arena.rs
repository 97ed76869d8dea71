//! The bytes of a memory tier: one mapping, cut into blocks, a sample being a chain of them.
//!
//! ```text
//!   blocks  | 0 | 1 | 2 | 3 | 4 | 5 |      sample  1 -> 2 -> 5
//!   links   | 3 | 2 | 5 | - |   | - |      free    0 -> 3        fresh (never used): from 4 on
//! ```
//!
//! Any free block serves any sample: nothing fragments, and nothing is allocated when warm. The
//! mapping is reserved at once and takes memory only where it is touched. Chains are freed whole
//! and taken from the front, so a chain that lay in one run mostly comes back as one. Taking n
//! blocks is O(n), giving them back O(1).
//!
//! Who may touch the bytes is in the types, so that soundness rests on this file alone, but for
//! rows, whose owner gets a pointer ([`Row::as_ptr`](super::Row::as_ptr)):
//! - a [`Span`] is the one owner of its blocks, not cloneable: `&mut Span` writes;
//! - [`Arena::share`] turns it into a [`Reader`], counted in the links: `&Reader` reads;
//! - the last reader, and only it, turns back into a span ([`Arena::reclaim`]), and only a span
//!   can be given back to the free list.
//!
//! A span or reader that is forgotten leaks its blocks and harms nothing else. They carry no
//! pointer to their arena: each tier has one, and its spans never leave the tier's own types.
//!
//! A *shared* arena lies in a file without a name, which other processes map to read samples that
//! are held for them. A fault in such a mapping costs three times one in the process's own memory,
//! so what is copied into it goes by `pwrite`, which takes no fault.

#![allow(unsafe_code)]

use std::fs::File;
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};

/// What the system gives and takes.
const PAGE: usize = 4096;

/// The end of a chain.
const END: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Arena {
    /// The blocks, then the links.
    map: MmapRaw,
    /// What is mapped, if other processes may map it too.
    file: Option<File>,
    blocks: u32,
    /// A power of two: `1 << shift`.
    block: usize,
    shift: u32,
}

/// One for each block, beyond the bytes. All zeroes is a valid value.
#[derive(Debug)]
#[repr(C)]
struct Link {
    /// The next block of the chain. Written only by the owner of the chain.
    next: AtomicU32,
    /// At a shared chain's first block: how many readers there are.
    readers: AtomicU32,
}

/// The bytes of memory that a block takes beside its own.
pub(super) const LINK_BYTES: u64 = size_of::<Link>() as u64;

/// The most blocks an arena can have.
pub(super) const MOST_BLOCKS: u64 = END as u64 - 1;

/// The blocks that nobody owns.
#[derive(Debug)]
pub(super) struct Free {
    head: u32,
    listed: u32,
    fresh: u32,
}

/// The one owner of a chain of blocks.
#[derive(Debug)]
pub(super) struct Span {
    head: u32,
    tail: u32,
    len: u64,
    /// Where the last write ended: a block and its place in the chain.
    cursor: (u32, u64),
}

/// One of the readers of a chain.
#[derive(Debug)]
pub(super) struct Reader {
    head: u32,
    tail: u32,
    len: u64,
}

impl Span {
    pub(super) fn len(&self) -> u64 {
        self.len
    }
}

impl Reader {
    pub(super) fn len(&self) -> u64 {
        self.len
    }
}

impl Arena {
    /// Reserves the memory; none is used yet.
    pub(super) fn new(blocks: u32, block: usize, shared: bool) -> std::io::Result<(Arena, Free)> {
        assert!(block >= 8 && block.is_power_of_two() && u64::from(blocks) <= MOST_BLOCKS);
        let bytes = blocks as usize * block;
        let links = blocks as usize * size_of::<Link>();
        let file = shared.then(|| nameless(bytes + links)).transpose()?;
        let mut options = MmapOptions::new();
        options.len(bytes + links);
        // Miri knows neither this nor advice, and nothing depends on them.
        if !cfg!(miri) {
            options.no_reserve_swap();
        }
        let map: MmapRaw = match &file {
            Some(file) => options.map_raw(file)?,
            None => options.map_anon()?.into(),
        };
        // Fewer page faults where the kernel can; nothing depends on it.
        if !cfg!(miri) {
            let _ = map.advise_range(Advice::HugePage, 0, bytes);
        }
        let arena = Arena {
            map,
            file,
            blocks,
            block,
            shift: block.trailing_zeros(),
        };
        Ok((
            arena,
            Free {
                head: END,
                listed: 0,
                fresh: 0,
            },
        ))
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The file that the bytes lie in, if it is a shared arena.
    pub(super) fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Where a sample lies in the file: offsets and lengths, in order.
    pub(super) fn extents<'a>(
        &'a self,
        reader: &'a Reader,
    ) -> impl Iterator<Item = (u64, u64)> + 'a {
        let start = |run: &Run| u64::from(run.block) * self.block();
        self.runs(reader.head, reader.len)
            .map(move |run| (start(&run), run.len as u64))
    }

    pub(super) fn block(&self) -> u64 {
        self.block as u64
    }

    /// The blocks of a sample of `len` bytes. An empty one has a block too, so that there are
    /// never more samples than blocks.
    pub(super) fn blocks_of(&self, len: u64) -> u64 {
        // Not div_ceil: the divisions would be a third of a lookup.
        ((len >> self.shift) + u64::from(len & (self.block() - 1) != 0)).max(1)
    }

    pub(super) fn free_blocks(&self, free: &Free) -> u64 {
        u64::from(free.listed) + u64::from(self.blocks - free.fresh)
    }

    /// Takes the blocks for `len` bytes; `None` when there are too few.
    pub(super) fn take(&self, free: &mut Free, len: u64) -> Option<Span> {
        let wanted = self.blocks_of(len);
        if wanted > self.free_blocks(free) {
            return None;
        }
        let wanted = wanted as u32;
        let from_list = wanted.min(free.listed);
        let mut head = END;
        let mut tail = END;
        if from_list > 0 {
            head = free.head;
            tail = head;
            for _ in 1..from_list {
                tail = self.next(tail);
            }
            free.head = self.next(tail);
            free.listed -= from_list;
        }
        for _ in from_list..wanted {
            let block = free.fresh;
            free.fresh += 1;
            match tail {
                END => head = block,
                tail => self.set_next(tail, block),
            }
            tail = block;
        }
        self.set_next(tail, END);
        Some(Span {
            head,
            tail,
            len,
            cursor: (head, 0),
        })
    }

    /// Blocks that were never used.
    pub(super) fn fresh_blocks(&self, free: &Free) -> u64 {
        u64::from(self.blocks - free.fresh)
    }

    /// Takes a span for each of `lens`, one right behind the other, of blocks that were never
    /// used; `None` when there are too few.
    pub(super) fn take_row(
        &self,
        free: &mut Free,
        lens: impl Iterator<Item = u64> + Clone,
    ) -> Option<Vec<Span>> {
        let wanted: u64 = lens.clone().map(|len| self.blocks_of(len)).sum();
        if wanted > self.fresh_blocks(free) {
            return None;
        }
        let span = |len| {
            let head = free.fresh;
            free.fresh += self.blocks_of(len) as u32;
            let tail = free.fresh - 1;
            for block in head..tail {
                self.set_next(block, block + 1);
            }
            self.set_next(tail, END);
            Span {
                head,
                tail,
                len,
                cursor: (head, 0),
            }
        };
        Some(lens.map(span).collect())
    }

    /// Where a span begins among all blocks, in bytes.
    pub(super) fn offset(&self, span: &Span) -> usize {
        span.head as usize * self.block
    }

    /// Gives the memory of a span in one piece back to the system; it reads as zeroes from now on.
    pub(super) fn discard(&self, span: &Span) {
        let blocks = span.tail - span.head + 1;
        self.discard_blocks(span.head, blocks);
    }

    /// The same for all that nobody owns.
    pub(super) fn discard_free(&self, free: &Free) {
        let mut is_free = vec![false; free.fresh as usize];
        let mut at = free.head;
        for _ in 0..free.listed {
            is_free[at as usize] = true;
            at = self.next(at);
        }
        let mut block = 0;
        for run in is_free.chunk_by(|one, other| one == other) {
            if run[0] {
                self.discard_blocks(block, run.len() as u32);
            }
            block += run.len() as u32;
        }
    }

    fn discard_blocks(&self, first: u32, blocks: u32) {
        let (offset, len) = (first as usize * self.block, blocks as usize * self.block);
        assert!(first + blocks <= self.blocks);
        if self.block < PAGE || self.file.is_some() || cfg!(miri) {
            return; // not worth the trouble: smaller blocks are for tests
        }
        // SAFETY: whole pages of the mapping's bytes, and nobody refers to them: the caller owns
        // the blocks, or nobody does. Mapped zeroes are as good as what was there.
        let _ = unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::DontNeed, offset, len)
        };
    }

    /// Where a span's bytes begin; only their owner may touch them.
    pub(super) fn pointer(&self, span: &Span) -> *mut u8 {
        self.start(Run {
            block: span.head,
            len: 0,
        })
    }

    /// Gives the blocks back.
    pub(super) fn give(&self, free: &mut Free, span: Span) {
        self.set_next(span.tail, free.head);
        free.head = span.head;
        free.listed += self.blocks_of(span.len) as u32;
    }

    /// From one owner to a first reader.
    pub(super) fn share(&self, span: Span) -> Reader {
        self.link(span.head).readers.store(1, Ordering::Relaxed);
        Reader {
            head: span.head,
            tail: span.tail,
            len: span.len,
        }
    }

    /// One more reader.
    pub(super) fn again(&self, reader: &Reader) -> Reader {
        let readers = &self.link(reader.head).readers;
        if readers.fetch_add(1, Ordering::Relaxed) > u32::MAX / 2 {
            readers.fetch_sub(1, Ordering::Relaxed);
            panic!("more than {} readers of one sample", u32::MAX / 2);
        }
        Reader { ..*reader }
    }

    /// One reader less.
    pub(super) fn release(&self, reader: Reader) {
        // Release: what this reader read happens before the acquire of `reclaim`.
        self.link(reader.head)
            .readers
            .fetch_sub(1, Ordering::Release);
    }

    /// From the last reader to the owner. Not the last one: it comes back.
    pub(super) fn reclaim(&self, reader: Reader) -> Result<Span, Reader> {
        let readers = &self.link(reader.head).readers;
        match readers.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {
                let Reader { head, tail, len } = reader;
                Ok(Span {
                    head,
                    tail,
                    len,
                    cursor: (head, 0),
                })
            }
            Err(_) => Err(reader),
        }
    }

    /// The bytes, in runs of neighbouring blocks.
    pub(super) fn read<'a>(&'a self, reader: &'a Reader) -> Slices<'a> {
        Slices {
            runs: self.runs(reader.head, reader.len),
            reader: PhantomData,
        }
    }

    /// The bytes to write, in runs of neighbouring blocks.
    pub(super) fn write<'a>(&'a self, span: &'a mut Span) -> SlicesMut<'a> {
        SlicesMut {
            runs: self.runs(span.head, span.len),
            span: PhantomData,
        }
    }

    /// Writes `bytes` from `offset` on. O(blocks written) when writes follow each other.
    ///
    /// Panics when that is beyond the sample's end.
    pub(super) fn write_at(&self, span: &mut Span, offset: u64, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len() as u64);
        assert!(
            end.is_some_and(|end| end <= span.len),
            "a write of {} bytes at {offset} is beyond a sample of {} bytes",
            bytes.len(),
            span.len
        );
        let block = self.block();
        let mut offset = offset;
        let mut rest = bytes;
        if let Some(file) = &self.file {
            let written = self.write_file(span, offset, bytes, file);
            offset += written as u64;
            rest = &bytes[written..];
        }
        while !rest.is_empty() {
            self.seek(span, offset / block);
            let inside = (offset % block) as usize;
            let count = rest.len().min(self.block - inside);
            let one = Runs {
                arena: self,
                at: span.cursor.0,
                left: (inside + count) as u64,
            };
            let slices = SlicesMut {
                runs: one,
                span: PhantomData::<&mut Span>,
            };
            for slice in slices {
                slice[inside..].copy_from_slice(&rest[..count]);
            }
            rest = &rest[count..];
            offset += count as u64;
        }
    }

    /// Writes by way of the file; gives how much was written, which is less than all if the
    /// system fails at it.
    fn write_file(&self, span: &mut Span, offset: u64, bytes: &[u8], file: &File) -> usize {
        self.seek(span, offset / self.block());
        let mut inside = offset % self.block();
        let mut written = 0;
        for run in self.runs(span.cursor.0, inside + bytes.len() as u64) {
            let part = &bytes[written..written + run.len - inside as usize];
            let place = u64::from(run.block) * self.block() + inside;
            if file.write_all_at(part, place).is_err() {
                break;
            }
            written += part.len();
            inside = 0;
        }
        written
    }

    /// Puts the cursor on a block of the chain, by its place.
    fn seek(&self, span: &mut Span, place: u64) {
        if place < span.cursor.1 {
            span.cursor = (span.head, 0);
        }
        while span.cursor.1 < place {
            span.cursor = (self.next(span.cursor.0), span.cursor.1 + 1);
        }
    }

    fn runs(&self, head: u32, len: u64) -> Runs<'_> {
        Runs {
            arena: self,
            at: head,
            left: len,
        }
    }

    fn next(&self, block: u32) -> u32 {
        self.link(block).next.load(Ordering::Relaxed)
    }

    fn set_next(&self, block: u32, next: u32) {
        self.link(block).next.store(next, Ordering::Relaxed);
    }

    fn link(&self, block: u32) -> &Link {
        assert!(block < self.blocks);
        let offset = self.blocks as usize * self.block + block as usize * size_of::<Link>();
        // SAFETY: the block is one of ours, so the link lies within the mapping, beyond the bytes
        // that slices are made of; a block's size is a power of two from 8 on and the mapping begins at a
        // page, so it is aligned; it began as zeroes, which is a valid Link, and is only ever
        // reached through this function, as shared atomics.
        unsafe { &*self.map.as_mut_ptr().add(offset).cast::<Link>() }
    }

    /// Where a run of bytes begins: in range, or it panics.
    fn start(&self, run: Run) -> *mut u8 {
        let offset = run.block as usize * self.block;
        assert!(offset + run.len <= self.blocks as usize * self.block);
        // SAFETY: the run was just seen to lie within the mapping.
        unsafe { self.map.as_mut_ptr().add(offset) }
    }
}

/// A file in memory, of `len` zeroes that take none yet; closed when a program is started.
fn nameless(len: usize) -> std::io::Result<File> {
    let file = File::from(rustix::fs::memfd_create(
        c"forebay-tier",
        rustix::fs::MemfdFlags::CLOEXEC,
    )?);
    file.set_len(len as u64)?;
    Ok(file)
}

/// Neighbouring blocks of one chain.
#[derive(Debug, Clone, Copy)]
struct Run {
    block: u32,
    len: usize,
}

/// A chain as runs. The chain must be owned or shared by whoever walks it.
#[derive(Debug)]
struct Runs<'a> {
    arena: &'a Arena,
    at: u32,
    left: u64,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.left == 0 {
            return None;
        }
        let first = self.at;
        let mut blocks = 1;
        while u64::from(blocks) * self.arena.block() < self.left {
            self.at = self.arena.next(first + blocks - 1);
            if self.at != first + blocks {
                break;
            }
            blocks += 1;
        }
        let len = self.left.min(u64::from(blocks) * self.arena.block());
        self.left -= len;
        Some(Run {
            block: first,
            len: len as usize,
        })
    }
}

/// A sample's bytes as shared slices.
#[derive(Debug)]
pub(super) struct Slices<'a> {
    runs: Runs<'a>,
    reader: PhantomData<&'a Reader>,
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let run = self.runs.next()?;
        // SAFETY: the run is in range and initialised (mapped zeroes or bytes written since).
        // A reader is borrowed for 'a, so the chain stays shared: writing needs a span, and
        // `reclaim` makes one only of the last reader, by value.
        Some(unsafe { std::slice::from_raw_parts(self.runs.arena.start(run), run.len) })
    }
}

/// A sample's bytes as exclusive slices.
#[derive(Debug)]
pub(super) struct SlicesMut<'a> {
    runs: Runs<'a>,
    span: PhantomData<&'a mut Span>,
}

impl<'a> Iterator for SlicesMut<'a> {
    type Item = &'a mut [u8];

    fn next(&mut self) -> Option<&'a mut [u8]> {
        let run = self.runs.next()?;
        // SAFETY: the run is in range and initialised. The one owner of the chain is mutably
        // borrowed for 'a, so nobody else reads or writes these blocks; the blocks of a chain
        // are distinct, so no two slices of one iterator overlap.
        Some(unsafe { std::slice::from_raw_parts_mut(self.runs.arena.start(run), run.len) })
    }
}

#[cfg(test)]
mod tests;
