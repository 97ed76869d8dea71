//! Who does what.

/// What a queue loads with: threads that read files, or requests to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    Threads,
    Requests,
}

/// What one queue asks for: a batch of it, on the average.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    pub means: Means,
    /// Samples that wait to be loaded: the queue's length.
    pub waiting: f64,
    /// Samples of a batch.
    pub samples: f64,
    /// Bytes of a batch by where they come from, as [`crate::TIERS`] has them.
    pub bytes: [f64; 4],
    /// Whether its samples are prepared by a step of their own; else they are copied by who loads.
    pub prepared: bool,
    /// Seconds its consumer takes for a batch.
    pub step: f64,
}

impl Demand {
    /// Bytes of a sample, on the average.
    pub fn size(&self) -> f64 {
        self.bytes.iter().sum::<f64>() / self.samples.max(1.0)
    }
}

/// How threads and requests are shared out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Split {
    /// Threads that prepare, for whichever queue.
    pub prepare: usize,
    /// What each queue loads with: threads or requests, as its [`Means`] are.
    pub load: Vec<usize>,
}

/// What is predicted for one queue, in seconds a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    pub load: f64,
    pub prepare: f64,
    pub step: f64,
    /// Whether loading and preparing take turns: on the same threads, or the same cores.
    pub in_turns: bool,
}

impl Times {
    /// The paper's difference: positive where data comes too late.
    pub fn difference(&self) -> f64 {
        self.load + self.prepare - self.step
    }

    /// Stages work at the same time, on different batches: the slowest sets the pace.
    pub fn pace(&self) -> f64 {
        let data = match self.in_turns {
            true => self.load + self.prepare,
            false => self.load.max(self.prepare),
        };
        data.max(self.step)
    }
}

/// How many workers to begin with: as many as are needed to fetch a batch while the consumer is
/// busy with one, at most `most`.
pub fn first_guess(fetch: f64, step: f64, most: usize) -> usize {
    let most = most.max(1);
    if !(fetch > 0.0 && step > 0.0) {
        return most;
    }
    ((fetch / step).ceil() as usize).clamp(1, most)
}

/// Deals `total` in proportion to `weights`, at least one each where `total` allows; what does not
/// go evenly goes to the largest remainders, the first of equals.
pub fn proportional(weights: &[f64], total: usize) -> Vec<usize> {
    let count = weights.len();
    let mut dealt = vec![usize::from(total >= count); count];
    let rest = total - dealt.iter().sum::<usize>();
    if count == 0 || rest == 0 {
        return dealt;
    }
    let weight = |at: usize| match weights[at] {
        weight if weight.is_finite() && weight > 0.0 => weight,
        _ => 0.0,
    };
    let largest = (0..count).map(weight).fold(0.0, f64::max);
    // Scaled, so that a sum of huge weights stays finite.
    let scaled: Vec<f64> = (0..count)
        .map(|at| {
            if largest > 0.0 {
                weight(at) / largest
            } else {
                1.0
            }
        })
        .collect();
    let sum: f64 = scaled.iter().sum();
    // What is owed counts the one that everybody has already.
    let owed: Vec<f64> = scaled.iter().map(|w| w / sum * total as f64).collect();
    for _ in 0..rest {
        let most = (0..count)
            .max_by(|&a, &b| {
                let short = |at: usize| owed[at] - dealt[at] as f64;
                short(a).total_cmp(&short(b)).then(b.cmp(&a))
            })
            .expect("there are queues");
        dealt[most] += 1;
    }
    dealt
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn workers_are_first_guessed_by_what_a_step_leaves_time_for() {
        assert_eq!(first_guess(0.5, 0.1, 8), 5);
        assert_eq!(first_guess(0.5, 0.01, 8), 8);
        assert_eq!(first_guess(0.01, 0.1, 8), 1);
        assert_eq!(first_guess(0.0, 0.1, 8), 8);
        assert_eq!(first_guess(f64::NAN, 0.1, 0), 1);
    }

    #[test]
    fn threads_go_by_the_length_of_queues() {
        assert_eq!(proportional(&[1.0, 2.0, 5.0], 8), [1, 2, 5]);
        assert_eq!(proportional(&[0.0, 0.0], 5), [3, 2]);
        assert_eq!(proportional(&[9.0, 1.0, 1.0], 2).iter().sum::<usize>(), 2);
        assert_eq!(proportional(&[], 3), [0usize; 0]);
    }

    proptest! {
        #[test]
        fn all_threads_are_dealt_and_none_starves(
            weights in prop::collection::vec(prop_oneof![
                0.0..1e12f64, Just(f64::NAN), Just(f64::MAX), Just(0.0), Just(-1.0)
            ], 1..20),
            total in 0usize..64,
        ) {
            let dealt = proportional(&weights, total);
            prop_assert_eq!(dealt.iter().sum::<usize>(), total);
            prop_assert!(total < weights.len() || dealt.iter().all(|&threads| threads > 0));
        }
    }
}
