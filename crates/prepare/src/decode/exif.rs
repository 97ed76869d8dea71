//! The first directory of a TIFF structure, which is what an EXIF block is too.
//!
//! ```text
//!   "II*\0" or "MM\0*" | offset of IFD0 ... | count | (tag, type, count, value)* | ...
//! ```
//!
//! At most 65,535 entries of 12 bytes are looked at, each inside the block: no offset is followed
//! but the first, so there is nothing to loop on.

const ORIENTATION: u32 = 0x0112;

/// The orientation, 1 to 8, if the block (from its TIFF header on) has one.
pub(super) fn orientation(block: &[u8]) -> Option<u8> {
    let directory = Directory::of(block)?;
    let entry = directory
        .entries()
        .find(|&at| directory.number(at, 2) == Some(ORIENTATION))?;
    let width = match directory.number(entry + 2, 2)? {
        1 => 1,
        3 => 2,
        4 => 4,
        _ => return None,
    };
    let value = directory.number(entry + 8, width)?;
    u8::try_from(value)
        .ok()
        .filter(|value| (1..=8).contains(value))
}

/// Whether every value of the directory lies in the file: one that does not is memory that a
/// decoder would take for nothing.
pub(super) fn is_sound(file: &[u8]) -> bool {
    let Some(directory) = Directory::of(file) else {
        return false;
    };
    let sound = |entry: usize| {
        let width = match directory.number(entry + 2, 2)? {
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 | 16..=18 => 8,
            _ => 1,
        };
        let bytes = width * u64::from(directory.number(entry + 4, 4)?);
        let offset = u64::from(directory.number(entry + 8, 4)?);
        Some(bytes <= 4 || offset + bytes <= file.len() as u64)
    };
    directory
        .entries()
        .all(|entry| sound(entry).unwrap_or(false))
}

struct Directory<'a> {
    bytes: &'a [u8],
    little: bool,
    first: usize,
    count: usize,
}

impl<'a> Directory<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let little = match bytes.get(..4)? {
            b"II*\0" => true,
            b"MM\0*" => false,
            _ => return None,
        };
        let mut directory = Directory {
            bytes,
            little,
            first: 0,
            count: 0,
        };
        let at = usize::try_from(directory.number(4, 4)?).ok()?;
        directory.count = usize::try_from(directory.number(at, 2)?).ok()?;
        directory.first = at.checked_add(2)?;
        Some(directory)
    }

    /// Where the entries begin; the last may lie past the end.
    fn entries(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.first, self.count);
        (0..count).map(move |index| first.saturating_add(12 * index))
    }

    fn number(&self, at: usize, length: usize) -> Option<u32> {
        let bytes = self.bytes.get(at..at.checked_add(length)?)?;
        let fold = |sum: u32, byte: &u8| (sum << 8) | u32::from(*byte);
        Some(match self.little {
            true => bytes.iter().rev().fold(0, fold),
            false => bytes.iter().fold(0, fold),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(little: bool, kind: u16, value: u32) -> Vec<u8> {
        let short = |n: u16| {
            if little {
                n.to_le_bytes()
            } else {
                n.to_be_bytes()
            }
        };
        let long = |n: u32| {
            if little {
                n.to_le_bytes()
            } else {
                n.to_be_bytes()
            }
        };
        let mut bytes = if little {
            b"II*\0".to_vec()
        } else {
            b"MM\0*".to_vec()
        };
        bytes.extend(long(8));
        bytes.extend(short(2));
        for (tag, kind, value) in [(0x010f, 4, 7), (0x0112, kind, value)] {
            bytes.extend(short(tag));
            bytes.extend(short(kind));
            bytes.extend(long(1));
            match kind {
                3 => bytes.extend([short(value as u16), [0, 0]].concat()),
                _ => bytes.extend(long(value)),
            }
        }
        bytes
    }

    #[test]
    fn both_byte_orders_and_widths_are_read() {
        for (little, kind) in [(true, 3), (false, 3), (true, 4), (false, 4)] {
            assert_eq!(
                orientation(&block(little, kind, 6)),
                Some(6),
                "{little} {kind}"
            );
        }
    }

    #[test]
    fn values_that_mean_nothing_are_left() {
        for value in [0, 9, 255, 256 + 6] {
            assert_eq!(orientation(&block(true, 3, value)), None, "{value}");
        }
        assert_eq!(
            orientation(&block(true, 2, 6)),
            None,
            "a text is no orientation"
        );
    }

    #[test]
    fn a_cut_block_has_no_orientation() {
        let whole = block(true, 3, 6);
        for length in 0..whole.len() - 2 {
            assert_eq!(orientation(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn an_offset_past_the_end_is_not_followed() {
        let mut hostile = block(true, 3, 6);
        hostile[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(orientation(&hostile), None);
    }

    #[test]
    fn a_value_past_the_end_is_not_sound() {
        let mut file = block(true, 3, 6);
        assert!(is_sound(&file));
        let count = file.len() - 8;
        file[count..count + 4].copy_from_slice(&1_000_000_u32.to_le_bytes());
        assert!(!is_sound(&file));
    }
}
