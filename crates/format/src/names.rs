//! Object names, front-coded in blocks of sixteen.
//!
//! Neighbours in a listing share most of their name, so each stores how much it
//! shares with the one before it and the rest:
//!
//! ```text
//! n01440764/n01440764_10026.JPEG     0  30  n01440764/n01440764_10026.JPEG
//! n01440764/n01440764_10027.JPEG    24   6  7.JPEG
//! n01440764/n01440764_1009.JPEG     22   7  09.JPEG     (shared, length, rest)
//! ```
//!
//! Each block starts afresh, so a name costs one jump and at most sixteen steps;
//! about ten bytes a name for ImageNet. Both numbers are varints. The shared part
//! ends at a character's edge, so that each rest is UTF-8 by itself.

use crate::Error;
use crate::column::ColumnBuilder;

/// Names from one full name to the next.
pub(crate) const BLOCK: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct NamesBuilder {
    last: String,
    rows: usize,
    pub(crate) starts: ColumnBuilder,
    pub(crate) bytes: Vec<u8>,
}

impl NamesBuilder {
    pub(crate) fn push(&mut self, name: &str) {
        let shared = if self.rows.is_multiple_of(BLOCK) {
            self.starts.push(self.bytes.len() as u64);
            0
        } else {
            shared_prefix(&self.last, name)
        };
        let rest = &name[shared..];
        if shared < 0x80 && rest.len() < 0x80 {
            self.bytes
                .extend_from_slice(&[shared as u8, rest.len() as u8]);
        } else {
            put_varint(&mut self.bytes, shared as u64);
            put_varint(&mut self.bytes, rest.len() as u64);
        }
        self.bytes.extend_from_slice(rest.as_bytes());
        self.last.clear();
        self.last.push_str(name);
        self.rows += 1;
    }
}

/// Bytes that both begin with, cut back to a character's edge.
fn shared_prefix(a: &str, b: &str) -> usize {
    let (left, right) = (a.as_bytes(), b.as_bytes());
    let mut shared = 0;
    // Eight bytes at a time: names of one folder differ only near their end.
    while let (Some(x), Some(y)) = (
        left[shared..].first_chunk::<8>(),
        right[shared..].first_chunk::<8>(),
    ) {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            shared += differ.trailing_zeros() as usize / 8;
            break;
        }
        shared += 8;
    }
    let rest = left[shared..].iter().zip(&right[shared..]);
    shared += rest.take_while(|(x, y)| x == y).count();
    while !(a.is_char_boundary(shared) && b.is_char_boundary(shared)) {
        shared -= 1;
    }
    shared
}

/// Reads the name of row `row`, given the bytes of its block (and what follows).
pub(crate) fn read(block: &[u8], row: usize, into: &mut String) -> Result<(), Error> {
    into.clear();
    let mut at = block;
    for _ in 0..=row % BLOCK {
        let shared = usize::try_from(take_varint(&mut at)?).unwrap_or(usize::MAX);
        let length = usize::try_from(take_varint(&mut at)?).unwrap_or(usize::MAX);
        let (rest, after) = at
            .split_at_checked(length)
            .ok_or_else(|| Error::corrupt("a name ends outside its section"))?;
        let rest = std::str::from_utf8(rest).map_err(|_| Error::corrupt("a name is not UTF-8"))?;
        if !into.is_char_boundary(shared) {
            return Err(Error::corrupt("a name shares more than there is"));
        }
        into.truncate(shared);
        into.push_str(rest);
        at = after;
    }
    Ok(())
}

pub(crate) fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

pub(crate) fn take_varint(bytes: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes
            .split_first()
            .ok_or_else(|| Error::corrupt("a number ends outside its section"))?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Error::corrupt("a number has more than 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_come_back_in_any_order(names in proptest::collection::vec("[aé漢/.]{0,40}", 1..60)) {
            let mut builder = NamesBuilder::default();
            names.iter().for_each(|name| builder.push(name));
            let (starts, start_bytes) = builder.starts.parts();
            let mut name = String::new();
            for row in (0..names.len()).rev() {
                let start = starts.get(start_bytes, row / BLOCK).unwrap() as usize;
                read(&builder.bytes[start..], row, &mut name).unwrap();
                prop_assert_eq!(&name, &names[row]);
            }
        }

        #[test]
        fn hostile_name_bytes_give_an_error_or_a_string(bytes in proptest::collection::vec(any::<u8>(), 0..80), row in 0..BLOCK) {
            let _ = read(&bytes, row, &mut String::new());
        }

        #[test]
        fn varints_come_back(value in any::<u64>()) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(take_varint(&mut &bytes[..]), Ok(value));
        }
    }
}
