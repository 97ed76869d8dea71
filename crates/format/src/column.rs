//! A column of unsigned integers, as narrow as its values allow.
//!
//! A dataset's offsets are all 0, its labels fit two bytes, its lengths four. So a
//! column starts as a constant that costs nothing a row, and widens on the first
//! value that does not fit:
//!
//! ```text
//! push 7 7 7      -> constant 7, no bytes
//! push 9          -> width 1: 07 07 07 09
//! push 300        -> width 2: 0700 0700 0700 0900 2c01
//! ```
//!
//! A push is amortised O(1): a column is rewritten at most four times in its life.
//! Little endian. Reading is one bounds-checked load.

/// A column being written.
#[derive(Debug, Default)]
pub(crate) struct ColumnBuilder {
    /// 0 while every value equals `constant`, then 1, 2, 4 or 8 bytes a row.
    width: u8,
    constant: u64,
    rows: usize,
    bytes: Vec<u8>,
}

impl ColumnBuilder {
    pub(crate) fn push(&mut self, value: u64) {
        if self.width == 0 {
            if self.rows == 0 {
                self.constant = value;
            }
            if value == self.constant {
                self.rows += 1;
                return;
            }
            self.widen(width_of(value).max(width_of(self.constant)));
        } else if width_of(value) > self.width {
            self.widen(width_of(value));
        }
        match self.width {
            1 => self.bytes.push(value as u8),
            2 => self.bytes.extend_from_slice(&(value as u16).to_le_bytes()),
            4 => self.bytes.extend_from_slice(&(value as u32).to_le_bytes()),
            _ => self.bytes.extend_from_slice(&value.to_le_bytes()),
        }
        self.rows += 1;
    }

    fn widen(&mut self, width: u8) {
        let old = Column {
            width: self.width,
            constant: self.constant,
        };
        let mut bytes =
            Vec::with_capacity((self.rows + 1).next_power_of_two() * usize::from(width));
        for row in 0..self.rows {
            let value = old.get(&self.bytes, row).unwrap_or_default();
            bytes.extend_from_slice(&value.to_le_bytes()[..usize::from(width)]);
        }
        self.bytes = bytes;
        self.width = width;
        self.constant = 0;
    }

    /// How to read the column, and its bytes.
    pub(crate) fn parts(&self) -> (Column, &[u8]) {
        (
            Column {
                width: self.width,
                constant: self.constant,
            },
            &self.bytes,
        )
    }
}

fn width_of(value: u64) -> u8 {
    match value {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// How to read a column's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) width: u8,
    pub(crate) constant: u64,
}

impl Column {
    /// The bytes that `rows` rows take, or `None` for a width that does not exist.
    pub(crate) fn size(&self, rows: u64) -> Option<u64> {
        matches!(self.width, 0 | 1 | 2 | 4 | 8).then(|| rows.checked_mul(u64::from(self.width)))?
    }

    /// The value of a row, or `None` past the end of `bytes`.
    pub(crate) fn get(&self, bytes: &[u8], row: usize) -> Option<u64> {
        let width = usize::from(self.width);
        if width == 0 {
            return Some(self.constant);
        }
        let cell = bytes.get(row.checked_mul(width)?..)?.get(..width)?;
        let mut wide = [0; 8];
        wide.get_mut(..width)?.copy_from_slice(cell);
        Some(u64::from_le_bytes(wide))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_column_gives_back_what_was_pushed(values in proptest::collection::vec(
            prop_oneof![Just(7u64), 0..256u64, 0..70_000u64, any::<u64>()], 0..200)) {
            let mut builder = ColumnBuilder::default();
            for &value in &values {
                builder.push(value);
            }
            let (column, bytes) = builder.parts();
            prop_assert_eq!(column.size(values.len() as u64), Some(bytes.len() as u64));
            for (row, &value) in values.iter().enumerate() {
                prop_assert_eq!(column.get(bytes, row), Some(value));
            }
        }
    }

    #[test]
    fn equal_values_cost_no_bytes() {
        let mut builder = ColumnBuilder::default();
        (0..1000).for_each(|_| builder.push(u64::MAX));
        assert_eq!(
            builder.parts(),
            (
                Column {
                    width: 0,
                    constant: u64::MAX
                },
                &[][..]
            )
        );
    }

    #[test]
    fn a_column_is_as_wide_as_its_widest_value() {
        for (value, width) in [(1, 1), (256, 2), (65_536, 4), (1 << 32, 8)] {
            let mut builder = ColumnBuilder::default();
            builder.push(0);
            builder.push(value);
            assert_eq!(builder.parts().0.width, width);
        }
    }
}
