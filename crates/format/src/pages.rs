//! Checksums of the body, one for each 64 KiB page, checked when first touched.
//!
//! Hashing a whole index at open would read hundreds of megabytes for a job that
//! may want a thousand samples. So each page is hashed once, by whoever touches it
//! first, and a bit remembers that it was right:
//!
//! ```text
//! pages   | 0 | 1 | 2 | 3 |     get(sample) touches page 2:
//! seen      1   0   0   0  ->     1   0   1   0
//! ```
//!
//! About 10 us for the first touch of a page, one relaxed load afterwards. Two
//! threads may both hash a page; they come to the same answer.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::Xxh3;

use crate::{Error, hash};

pub(crate) const PAGE: usize = 64 * 1024;

/// The checksums of a body that is the parts one after the other.
pub(crate) fn checksums<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<u64> {
    let mut sums = Vec::new();
    let mut page = Xxh3::new();
    let mut room = PAGE;
    for mut part in parts {
        while !part.is_empty() {
            let (now, later) = part.split_at(part.len().min(room));
            if now.len() == PAGE {
                sums.push(hash(now));
            } else {
                page.update(now);
                room -= now.len();
                if room == 0 {
                    sums.push(page.digest());
                    page.reset();
                    room = PAGE;
                }
            }
            part = later;
        }
    }
    if room < PAGE {
        sums.push(page.digest());
    }
    sums
}

#[derive(Debug)]
pub(crate) struct Pages {
    checksums: Vec<u64>,
    seen: Vec<AtomicU64>,
}

impl Pages {
    pub(crate) fn new(checksums: Vec<u64>) -> Self {
        let seen = (0..checksums.len().div_ceil(64))
            .map(|_| AtomicU64::new(0))
            .collect();
        Self { checksums, seen }
    }

    /// The bytes of a range of the body, from pages that are as they were written.
    pub(crate) fn get<'a>(&self, body: &'a [u8], range: Range<usize>) -> Result<&'a [u8], Error> {
        let bytes = body
            .get(range.clone())
            .ok_or_else(|| Error::corrupt("a section ends outside the file"))?;
        if !bytes.is_empty() {
            for page in range.start / PAGE..=(range.end - 1) / PAGE {
                self.check(body, page)?;
            }
        }
        Ok(bytes)
    }

    pub(crate) fn check_all(&self, body: &[u8]) -> Result<(), Error> {
        (0..self.checksums.len()).try_for_each(|page| self.check(body, page))
    }

    fn check(&self, body: &[u8], page: usize) -> Result<(), Error> {
        let missing = || Error::corrupt("a page has no checksum");
        let seen = self.seen.get(page / 64).ok_or_else(missing)?;
        let bit = 1 << (page % 64);
        if seen.load(Ordering::Relaxed) & bit != 0 {
            return Ok(());
        }
        let expected = *self.checksums.get(page).ok_or_else(missing)?;
        let end = body.len().min((page + 1) * PAGE);
        let found = hash(body.get(page * PAGE..end).ok_or_else(missing)?);
        if found != expected {
            return Err(Error::Checksum {
                page,
                found,
                expected,
            });
        }
        seen.fetch_or(bit, Ordering::Relaxed);
        Ok(())
    }
}
