//! What happens next: a heap of times. Of equal times, what was foreseen first comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A parcel's work ends.
    Parcel(u32),
    /// A job's step ends: its ranks ask for their next batches.
    Ask(u32),
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    foreseen: u64,
}

impl Events {
    /// `seconds` must not be negative, so that its bits sort as it does.
    pub(crate) fn at(&mut self, seconds: f64, event: Event) {
        debug_assert!(seconds >= 0.0);
        self.foreseen += 1;
        self.heap
            .push(Reverse((seconds.to_bits(), self.foreseen, event)));
    }

    pub(crate) fn next(&mut self) -> Option<(f64, Event)> {
        let Reverse((bits, _, event)) = self.heap.pop()?;
        Some((f64::from_bits(bits), event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sooner_comes_first_and_of_equals_what_was_foreseen_first() {
        let mut events = Events::default();
        events.at(2.0, Event::Ask(0));
        events.at(1e-9, Event::Parcel(1));
        events.at(2.0, Event::Parcel(2));
        let order: Vec<_> = std::iter::from_fn(|| events.next()).collect();
        assert_eq!(
            order,
            [
                (1e-9, Event::Parcel(1)),
                (2.0, Event::Ask(0)),
                (2.0, Event::Parcel(2))
            ]
        );
    }
}
