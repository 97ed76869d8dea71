//! Lobster's Algorithm 1: the threads that bring a difference nearest to zero.
//!
//! The difference is load + prepare - train: positive where data comes too late, negative where
//! threads are wasted; it falls as threads are added. The paper's listing keeps the larger of two
//! differences at its line 18, which would end at the worst split seen: here the smaller one stays.

/// What a search came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found {
    pub threads: usize,
    pub difference: f64,
    /// How often the difference was asked for.
    pub steps: usize,
}

/// Differences that agree with each other for so many steps end the search.
const WINDOW: usize = 3;

/// Searches from `now` within 1 to `most` threads; ends as soon as a difference is below
/// `tolerance`, or the last few agree within it. Never answers with a worse one than `now`'s.
pub fn search(
    now: usize,
    most: usize,
    tolerance: f64,
    mut difference: impl FnMut(usize) -> f64,
) -> Found {
    let most = most.max(1);
    let (mut low, mut high) = (1, most);
    let mut at = now.clamp(1, most);
    let mut history = Vec::with_capacity(WINDOW);
    let mut best = Found {
        threads: at,
        difference: f64::INFINITY,
        steps: 0,
    };
    let mut steps = 0;
    loop {
        let found = difference(at);
        steps += 1;
        // What is no number is no better than anything.
        if found.abs() < best.difference.abs() {
            best.threads = at;
            best.difference = found;
        }
        if history.len() == WINDOW {
            history.remove(0);
        }
        history.push(found);
        if found.abs() < tolerance || agree(&history, tolerance) {
            break;
        }
        if found > 0.0 {
            low = at + 1;
        } else {
            high = at - 1;
        }
        if low > high {
            break;
        }
        at = low + (high - low) / 2;
    }
    Found { steps, ..best }
}

/// More steps change nothing: a full window of differences, all alike.
fn agree(history: &[f64], tolerance: f64) -> bool {
    let most = history.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = history.iter().copied().fold(f64::INFINITY, f64::min);
    history.len() == WINDOW && most - least < tolerance
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_finds_the_threads_that_meet_the_step() {
        // 100 ms of loading shared by the threads, against a step of 20 ms.
        let found = search(1, 64, 0.0001, |threads| 0.1 / threads as f64 - 0.02);
        assert_eq!(found.threads, 5);
        assert!(found.steps <= 8);
    }

    #[test]
    fn where_threads_do_not_help_it_gives_up_early() {
        let found = search(1, 1024, 0.001, |_| 0.5);
        assert_eq!((found.threads, found.steps), (1, WINDOW));
    }

    proptest! {
        #[test]
        fn it_ends_and_is_never_worse_than_its_start(
            values in prop::collection::vec(prop_oneof![
                8 => -1e6f64..1e6,
                1 => Just(f64::NAN),
                1 => Just(f64::INFINITY),
                1 => Just(0.0),
            ], 1..200),
            now in 0usize..300,
            tolerance in prop_oneof![Just(0.0), 0.0..1e3f64],
        ) {
            let most = values.len();
            let start = values[now.clamp(1, most) - 1].abs();
            let found = search(now, most, tolerance, |threads| values[threads - 1]);
            prop_assert!((1..=most).contains(&found.threads));
            prop_assert!(found.steps <= 2 + most.ilog2() as usize);
            if start.is_finite() {
                prop_assert!(values[found.threads - 1].abs() <= start);
            }
        }
    }
}
