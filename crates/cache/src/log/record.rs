//! A record: one sample by itself at a place of its own, as the reordered log has them.
//!
//! ```text
//!   | magic | length | key | validator | check |  the sample's bytes  | up to the block |
//!     4       4        8     8           8
//! ```
//!
//! Where a record lies follows from the order; its head tells whether it is there.

use forebay_format::chunk::{BLOCK, Identity};

use super::layout::Sample;

/// Bytes before the sample's.
pub(super) const HEAD: usize = 32;
const MAGIC: [u8; 4] = *b"FBr\x01";

/// Bytes that a sample of `length` takes.
pub(super) fn room(length: u64) -> u64 {
    (length + HEAD as u64).next_multiple_of(BLOCK as u64)
}

/// Writes a sample's record to the front of `into`; returns its bytes.
pub(super) fn write<'a>(
    sample: &Sample,
    parts: impl Iterator<Item = &'a [u8]>,
    into: &mut [u8],
) -> usize {
    let mut at = HEAD;
    for part in parts {
        into[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let check = sample.identity.check(&into[HEAD..at]);
    into[..4].copy_from_slice(&MAGIC);
    into[4..8].copy_from_slice(&((at - HEAD) as u32).to_le_bytes());
    into[8..16].copy_from_slice(&sample.identity.key.to_le_bytes());
    into[16..24].copy_from_slice(&sample.identity.validator.to_le_bytes());
    into[24..32].copy_from_slice(&check.to_le_bytes());
    let end = at.next_multiple_of(BLOCK);
    into[at..end].fill(0);
    end
}

/// The bytes of a record and the check that they should have, if it is this sample's.
pub(super) fn split<'a>(sample: &Sample, read: &'a [u8]) -> Option<(&'a [u8], u64)> {
    let (head, bytes) = read.split_at_checked(HEAD)?;
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let found = Identity {
        key: word(8),
        validator: word(16),
    };
    let length = u32::from_le_bytes(head[4..8].try_into().expect("four bytes"));
    let right = head[..4] == MAGIC
        && found == sample.identity
        && u64::from(length) == sample.length
        && bytes.len() as u64 == sample.length;
    right.then(|| (bytes, word(24)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Check, Location, Spot};

    #[test]
    fn every_flipped_bit_of_a_record_is_found_or_harmless() {
        let sample = Sample {
            id: 3,
            identity: Identity {
                key: 0x0123_4567_89ab_cdef,
                validator: 99,
            },
            length: 1000,
        };
        let bytes: Vec<u8> = (0..sample.length).map(|at| (at * 7) as u8).collect();
        let mut whole = vec![0xaa; 2 * BLOCK];
        assert_eq!(write(&sample, bytes.chunks(33), &mut whole), BLOCK);
        whole.truncate(BLOCK);
        let spot = Spot {
            at: Location {
                dir: 0,
                segment: 0,
                offset: 0,
            },
            check: Check::Record,
        };
        let span = spot.span(sample.length) as usize;
        assert_eq!(spot.verify(&sample, &whole[..span]), Some(&bytes[..]));
        let mut harmless = 0;
        for bit in 0..whole.len() * 8 {
            let mut record = whole.clone();
            record[bit / 8] ^= 1 << (bit % 8);
            if let Some(found) = spot.verify(&sample, &record[..span]) {
                assert!(found == bytes, "bit {bit}");
                harmless += 1;
            }
        }
        assert_eq!(harmless, (BLOCK - span) * 8, "what is behind the sample");
    }

    #[test]
    fn a_record_of_another_sample_another_state_or_another_length_does_not_pass() {
        let sample = Sample {
            id: 3,
            identity: Identity {
                key: 5,
                validator: 6,
            },
            length: 100,
        };
        let mut record = vec![0; BLOCK];
        write(&sample, [&[7; 100][..]].into_iter(), &mut record);
        let passes = |sample: &Sample| split(sample, &record[..HEAD + sample.length as usize]);
        assert!(passes(&sample).is_some());
        let (key, validator) = (5, 6);
        for identity in [
            Identity { key: 4, validator },
            Identity { key, validator: 7 },
        ] {
            assert!(passes(&Sample { identity, ..sample }).is_none());
        }
        for length in [99, 101] {
            assert!(passes(&Sample { length, ..sample }).is_none());
        }
    }
}
