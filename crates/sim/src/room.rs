//! How much a memory tier holds, computed as the tier itself does.
//!
//! ```text
//!   |<------------------------ blocks ------------------------>|
//!   |<------- limit: what may be kept ------->|<-- transit --->|
//! ```

/// A block of the tier in bytes; a sample takes whole ones.
const BLOCK: u64 = 4096;
/// What a block costs beside its own bytes: its link, a slot, its seal and two buckets of the table.
const BESIDE: u64 = 8 + 64 + 8 + 8;
/// What does not grow with the tier.
const FIXED: u64 = 32 << 10;
/// The most blocks a tier can have.
const MOST_BLOCKS: u64 = u32::MAX as u64 - 1;

/// The memory of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// As the engine has it: a budget with all overhead in it, of which `readahead` (at most a
    /// quarter) is for samples in transit.
    Engine {
        /// Bytes, never passed.
        budget: u64,
        /// Bytes that may be fetched ahead.
        readahead: u64,
    },
    /// To the byte and without overhead, as papers count: so much to keep, and what is fetched
    /// ahead lies beside it.
    Exact {
        /// Bytes that may be kept.
        kept: u64,
        /// Bytes for samples in transit.
        transit: u64,
    },
}

/// A tier's size in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    block: u64,
    blocks: u64,
    limit: u64,
}

impl Memory {
    /// The room that is left for samples, with a policy of this overhead; `None` if the budget
    /// does not hold a single block.
    pub fn room(self, overhead: u64) -> Option<Room> {
        match self {
            Memory::Exact { kept, transit } => Some(Room {
                block: 1,
                blocks: kept.saturating_add(transit),
                limit: kept,
            }),
            Memory::Engine { budget, readahead } => {
                let reserve = readahead.min(budget / 4);
                let each = BLOCK + BESIDE + overhead;
                let blocks = (budget.saturating_sub(FIXED) / each).min(MOST_BLOCKS);
                (blocks > 0).then(|| Room {
                    block: BLOCK,
                    blocks,
                    limit: blocks.saturating_sub(reserve.div_ceil(BLOCK)),
                })
            }
        }
    }

    /// What one job may fetch ahead if it asks for `readahead`.
    pub(crate) fn readahead(self, readahead: u64) -> u64 {
        match self {
            Memory::Engine { budget, .. } => readahead.min(budget / 4),
            Memory::Exact { .. } => readahead,
        }
    }
}

impl Room {
    /// All blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The blocks that kept samples may take.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// A block in bytes.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// All of it in bytes.
    pub fn capacity(&self) -> u64 {
        self.blocks * self.block
    }

    /// The blocks of a sample of `len` bytes; an empty one has one too.
    #[inline]
    pub fn blocks_of(&self, len: u64) -> u64 {
        match self.block {
            1 => len.max(1),
            _ => len.div_ceil(BLOCK).max(1),
        }
    }
}
