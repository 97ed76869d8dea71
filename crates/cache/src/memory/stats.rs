//! The figures of a memory tier.

/// A snapshot. Bytes of room are whole blocks; `hit_bytes` and `miss_bytes` are the samples' own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The budget as it was set: `capacity`, the tables and the policy's memory are within it.
    pub budget: u64,
    /// The room for samples.
    pub capacity: u64,
    /// `kept_bytes` and `held_bytes` together.
    pub used: u64,
    /// Samples that nobody holds.
    pub kept_bytes: u64,
    /// Samples being filled or in somebody's hand.
    pub held_bytes: u64,
    pub entries: u64,
    /// Lookups that found the sample there.
    pub hits: u64,
    pub hit_bytes: u64,
    /// Lookups that have to read it.
    pub misses: u64,
    pub miss_bytes: u64,
    /// Lookups that met somebody else's read.
    pub joined: u64,
    /// Lookups that found no room, or the sample in a row.
    pub full: u64,
    /// Samples that left to make room.
    pub evictions: u64,
    /// Samples that left because the policy wanted so as the clock went on.
    pub expired: u64,
    /// Samples that were used and not kept.
    pub refused: u64,
    /// Fills that were given up.
    pub aborted: u64,
    /// Samples that were changed in a row, and forgotten.
    pub spoiled: u64,
    pub peak_used: u64,
}
