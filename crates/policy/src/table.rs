//! A value for each slot of a tier: an array that grows by an eighth, because it counts against a
//! byte budget.

use crate::Slot;

#[derive(Debug, Clone)]
pub(crate) struct SlotTable<V> {
    values: Vec<V>,
    /// Of slots that were never set.
    empty: V,
}

impl<V: Copy> SlotTable<V> {
    /// Bytes for each slot: old and new at once while it grows.
    pub(crate) const OVERHEAD: u64 = (size_of::<V>() * 17).div_ceil(8) as u64;

    pub(crate) fn new(empty: V) -> Self {
        Self {
            values: Vec::new(),
            empty,
        }
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> V {
        self.values
            .get(slot as usize)
            .copied()
            .unwrap_or(self.empty)
    }

    /// Gives what was there.
    #[inline]
    pub(crate) fn set(&mut self, slot: Slot, value: V) -> V {
        if slot as usize >= self.values.len() {
            self.grow(slot);
        }
        std::mem::replace(&mut self.values[slot as usize], value)
    }

    #[cold]
    fn grow(&mut self, slot: Slot) {
        let wanted = slot as usize + 1;
        if wanted > self.values.capacity() {
            let room = wanted.max(self.values.len() + self.values.len() / 8 + 16);
            self.values.reserve_exact(room - self.values.len());
        }
        self.values.resize(wanted, self.empty);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, V)> {
        self.values
            .iter()
            .enumerate()
            .map(|(slot, &value)| (slot as Slot, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_was_never_set_is_empty() {
        let mut table = SlotTable::new(0u64);
        assert_eq!(table.get(1000), 0);
        assert_eq!(table.set(1000, 5), 0);
        assert_eq!(
            (table.set(1000, 6), table.get(1000), table.get(999)),
            (5, 6, 0)
        );
        assert_eq!(
            table
                .iter()
                .filter(|&(_, value)| value > 0)
                .collect::<Vec<_>>(),
            [(1000, 6)]
        );
    }
}
