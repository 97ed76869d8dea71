//! What a new listing has that the old one had not.
//!
//! Each sample becomes two hashes: who it is (name, offset) and what it is (length,
//! label, validator). Both listings are sorted by the first and walked together.
//! O(n log n), 32 bytes a sample for the moment.

use forebay_format::{Index, hash};

use crate::Error;

/// How a listing differs from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Difference {
    /// Samples that are new.
    pub added: u64,
    /// Samples that have another size, label or validator.
    pub changed: u64,
    /// Samples that are gone.
    pub removed: u64,
}

impl Difference {
    pub(crate) fn between(old: &Index, new: &Index) -> Result<Self, Error> {
        let (old, new) = (hashes(old)?, hashes(new)?);
        let mut difference = Self::default();
        let (mut at_old, mut at_new) = (0, 0);
        loop {
            match (old.get(at_old), new.get(at_new)) {
                (None, None) => return Ok(difference),
                (Some(a), Some(b)) if a.0 == b.0 => {
                    difference.changed += u64::from(a.1 != b.1);
                    (at_old, at_new) = (at_old + 1, at_new + 1);
                }
                (Some(a), b) if b.is_none_or(|b| a.0 < b.0) => {
                    difference.removed += 1;
                    at_old += 1;
                }
                _ => {
                    difference.added += 1;
                    at_new += 1;
                }
            }
        }
    }
}

fn hashes(index: &Index) -> Result<Vec<(u64, u64)>, Error> {
    let mut name = String::new();
    let mut hashes = Vec::with_capacity(index.len() as usize);
    for i in 0..index.len() {
        index.name_into(i, &mut name)?;
        let who = hash(name.as_bytes()) ^ index.offset(i)?.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut what = [0; 24];
        what[..8].copy_from_slice(&index.length(i)?.to_le_bytes());
        what[8..16].copy_from_slice(&index.label(i)?.to_le_bytes());
        what[16..].copy_from_slice(&index.validator(i)?.to_le_bytes());
        hashes.push((who, hash(&what)));
    }
    hashes.sort_unstable();
    Ok(hashes)
}
