//! How an order is dealt to ranks.
//!
//! ```text
//!   order            a b c d e f g      two ranks, batches of two
//!   strided, pad     0: a c | e g       1: b d | f a       DistributedSampler
//!   strided, drop    0: a c | e         1: b d | f         ... with drop_last
//!   strided, keep    0: a c | e g       1: b d | f         no sample twice
//!   batches          0: a b | e f       1: c d | g a       accelerate
//! ```
//!
//! Padding takes the order from its start again, as often as it needs. Whatever the
//! deal, k batches on every rank use up one prefix of the order: that is what makes a
//! resume on another number of ranks a matter of arithmetic.

/// Which positions of the order a rank gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deal {
    /// Rank r takes positions r, r + world, r + 2 world, ... as `DistributedSampler`
    /// deals them.
    Strided {
        /// What becomes of a remainder.
        uneven: Uneven,
    },
    /// Rank r takes batches r, r + world, ... as accelerate deals them. The last round
    /// of batches is filled from the start of the order, or dropped with `drop_last`; a
    /// single rank has nothing to be filled for and ends with a short batch.
    /// accelerate's `split_batches` is the same deal with the batch size of one rank.
    Batches,
}

/// What becomes of the samples that do not go evenly into the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uneven {
    /// Every rank gets as many as the longest; samples from the start come again.
    #[default]
    Pad,
    /// Every rank gets as many as the shortest; the remainder is left out.
    Drop,
    /// No sample twice and none left out: ranks differ by at most one.
    Keep,
}
