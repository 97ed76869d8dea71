//! The engine behind every random order of torch on the CPU: mt19937.
//!
//! 624 words of state; a refill turns them all, a draw tempers one of them.
//!
//! ```text
//!   state   | w0 w1 ... w(next-1) | w(next) ... w623 |   then refill, next = 0
//!             already drawn         still to draw
//! ```
//!
//! torch seeds it with the low 32 bits of the seed. The cursor is kept as torch
//! keeps it, so that a generator's state can be taken over, advanced here and
//! handed back: 0 is an engine just seeded, 624 one that is used up; both refill
//! before the next draw. A draw costs about a nanosecond; `skip` only refills and
//! costs a fraction of that.
//!
//! Source: Matsumoto and Nishimura, "Mersenne Twister", 1998.

use crate::{Error, Result};

const WORDS: usize = 624;
const SHIFT: usize = 397;

/// The part of a torch generator's state that belongs to the engine; cached
/// normals follow and are not ours to touch.
const TORCH_STATE: usize = 24 + WORDS * 8;
const COMPACT: usize = 8 + 4 + WORDS * 4;

/// torch's random engine.
#[derive(Clone, PartialEq, Eq)]
pub struct Mt19937 {
    seed: u64,
    next: usize,
    words: [u32; WORDS],
}

impl Mt19937 {
    /// The engine of `torch.Generator().manual_seed(seed)`.
    pub fn new(seed: u64) -> Self {
        let mut words = [0; WORDS];
        words[0] = seed as u32;
        for i in 1..WORDS {
            let last: u32 = words[i - 1];
            words[i] = (last ^ (last >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(i as u32);
        }
        Self {
            seed,
            next: 0,
            words,
        }
    }

    /// The seed that it was made from (`torch.Generator.initial_seed`).
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The next 32 bits.
    #[inline]
    pub fn random(&mut self) -> u32 {
        self.refill_if_due();
        let word = temper(self.words[self.next]);
        self.next += 1;
        word
    }

    /// The next 64 bits: the first draw is the high half.
    #[inline]
    pub fn random64(&mut self) -> u64 {
        let high = u64::from(self.random());
        (high << 32) | u64::from(self.random())
    }

    /// What `torch.empty((), dtype=torch.int64).random_()` draws: never negative.
    #[inline]
    pub fn random_i64(&mut self) -> i64 {
        (self.random64() & (i64::MAX as u64)) as i64
    }

    /// Fills `out` with successive 32-bit draws; quicker than as many `random` calls.
    pub fn fill(&mut self, mut out: &mut [u32]) {
        while !out.is_empty() {
            self.refill_if_due();
            let count = out.len().min(WORDS - self.next);
            let (head, rest) = out.split_at_mut(count);
            for (slot, &word) in head.iter_mut().zip(&self.words[self.next..]) {
                *slot = temper(word);
            }
            self.next += count;
            out = rest;
        }
    }

    /// Passes over `draws` 32-bit draws.
    pub fn skip(&mut self, mut draws: u64) {
        while draws > 0 {
            self.refill_if_due();
            let count = draws.min((WORDS - self.next) as u64);
            self.next += count as usize;
            draws -= count;
        }
    }

    /// Takes over from `torch.Generator.get_state()`.
    pub fn from_torch_state(state: &[u8]) -> Result<Self> {
        check_length(state.len(), TORCH_STATE)?;
        let seed = u64_at(state, 0);
        let left = u32_at(state, 8) as i32;
        let seeded = u32_at(state, 12) as i32;
        let next = u64_at(state, 16);
        let cursor_agrees = match next {
            0 => left == 1,
            1..=624 => i64::from(left) == 625 - next as i64,
            _ => false,
        };
        if !cursor_agrees || seeded != 1 {
            return Err(Error::State { left, next, seeded });
        }
        let mut words = [0; WORDS];
        for (i, word) in words.iter_mut().enumerate() {
            *word = u32_at(state, 24 + i * 8);
        }
        Ok(Self {
            seed,
            next: next as usize,
            words,
        })
    }

    /// Writes the engine into the bytes of a `get_state()`, as torch would have left
    /// it after the same draws. The cached normals at its end stay as they are.
    pub fn store_torch_state(&self, state: &mut [u8]) -> Result<()> {
        check_length(state.len(), TORCH_STATE)?;
        let left = if self.next == 0 { 1 } else { 625 - self.next };
        state[0..8].copy_from_slice(&self.seed.to_le_bytes());
        state[8..12].copy_from_slice(&(left as u32).to_le_bytes());
        state[12..16].copy_from_slice(&1u32.to_le_bytes());
        state[16..24].copy_from_slice(&(self.next as u64).to_le_bytes());
        for (slot, &word) in state[24..].chunks_exact_mut(8).zip(&self.words) {
            slot.copy_from_slice(&u64::from(word).to_le_bytes());
        }
        Ok(())
    }

    /// The engine in 2508 bytes, for a resume state: seed, cursor, words, little endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(COMPACT);
        bytes.extend(self.seed.to_le_bytes());
        bytes.extend((self.next as u32).to_le_bytes());
        bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// Reads back what `to_bytes` wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if bytes.len() != COMPACT {
            return Err(Error::StateLength {
                found: bytes.len(),
                expected: COMPACT,
            });
        }
        let next = u32_at(bytes, 8) as usize;
        if next > WORDS {
            return Err(Error::State {
                left: 0,
                next: next as u64,
                seeded: 1,
            });
        }
        let mut words = [0; WORDS];
        for (i, word) in words.iter_mut().enumerate() {
            *word = u32_at(bytes, 12 + i * 4);
        }
        Ok(Self {
            seed: u64_at(bytes, 0),
            next,
            words,
        })
    }

    #[inline]
    fn refill_if_due(&mut self) {
        if self.next == WORDS || self.next == 0 {
            twist(&mut self.words);
            self.next = 0;
        }
    }
}

impl std::fmt::Debug for Mt19937 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mt19937")
            .field("seed", &self.seed)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// Three plain loops rather than one with wrapped indices, so that they vectorise.
fn twist(words: &mut [u32; WORDS]) {
    const TAIL: usize = WORDS - SHIFT;
    for i in 0..TAIL {
        words[i] = words[i + SHIFT] ^ mix(words[i], words[i + 1]);
    }
    for i in TAIL..WORDS - 1 {
        words[i] = words[i - TAIL] ^ mix(words[i], words[i + 1]);
    }
    words[WORDS - 1] = words[SHIFT - 1] ^ mix(words[WORDS - 1], words[0]);
}

#[inline]
fn mix(high: u32, low: u32) -> u32 {
    let joined = (high & 0x8000_0000) | (low & 0x7fff_ffff);
    (joined >> 1) ^ ((low & 1).wrapping_neg() & 0x9908_b0df)
}

#[inline]
fn temper(mut word: u32) -> u32 {
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c_5680;
    word ^= (word << 15) & 0xefc6_0000;
    word ^ (word >> 18)
}

fn check_length(found: usize, expected: usize) -> Result<()> {
    if found < expected {
        return Err(Error::StateLength { found, expected });
    }
    Ok(())
}

/// Lengths are checked by the callers.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | (u64::from(u32_at(bytes, at + 4)) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draws_are_those_of_the_published_reference() {
        // The 10,000th draw of mt19937 under seed 5489, as the C++ standard states it.
        let mut engine = Mt19937::new(5489);
        engine.skip(9_999);
        assert_eq!(engine.random(), 4_123_659_995);
    }

    #[test]
    fn only_the_low_half_of_a_seed_counts() {
        let mut wide = Mt19937::new((7 << 32) | 5);
        assert_eq!(wide.random(), Mt19937::new(5).random());
        assert_eq!(wide.seed(), (7 << 32) | 5);
    }

    #[test]
    fn skipping_and_filling_leave_what_drawing_leaves() {
        for count in [0, 1, 2, 623, 624, 625, 1247, 1248, 1249, 5000] {
            let mut drawn = Mt19937::new(3);
            let draws: Vec<u32> = (0..count).map(|_| drawn.random()).collect();
            let mut skipped = Mt19937::new(3);
            skipped.skip(count);
            let mut filled = Mt19937::new(3);
            let mut block = vec![0; count as usize];
            filled.fill(&mut block);
            assert_eq!(drawn, skipped, "{count}");
            assert_eq!(drawn, filled, "{count}");
            assert_eq!(draws, block, "{count}");
        }
    }

    #[test]
    fn sixty_four_bits_are_two_draws_and_an_int64_is_not_negative() {
        let mut single = Mt19937::new(9);
        let (high, low) = (single.random(), single.random());
        let wide = (u64::from(high) << 32) | u64::from(low);
        assert_eq!(Mt19937::new(9).random64(), wide);
        assert_eq!(Mt19937::new(9).random_i64() as u64, wide & (u64::MAX >> 1));
    }

    #[test]
    fn both_forms_of_the_state_carry_the_engine_on() {
        for draws in [0, 1, 300, 624, 625, 2000] {
            let mut engine = Mt19937::new(u64::MAX - 1);
            engine.skip(draws);
            let mut state = vec![0xaa; 5056];
            engine.store_torch_state(&mut state).unwrap();
            assert_eq!(Mt19937::from_torch_state(&state).unwrap(), engine);
            assert!(state[TORCH_STATE..].iter().all(|&byte| byte == 0xaa));
            assert_eq!(Mt19937::from_bytes(&engine.to_bytes()).unwrap(), engine);
        }
    }

    #[test]
    fn a_state_that_torch_cannot_have_made_is_refused() {
        let mut state = vec![0; 5056];
        assert_eq!(
            Mt19937::from_torch_state(&state),
            Err(Error::State {
                left: 0,
                next: 0,
                seeded: 0
            })
        );
        Mt19937::new(1).store_torch_state(&mut state).unwrap();
        state[16] = 200;
        assert_eq!(
            Mt19937::from_torch_state(&state),
            Err(Error::State {
                left: 1,
                next: 200,
                seeded: 1
            })
        );
        let short = Error::StateLength {
            found: 100,
            expected: 5016,
        };
        assert_eq!(Mt19937::from_torch_state(&state[..100]), Err(short.clone()));
        assert_eq!(Mt19937::new(1).store_torch_state(&mut [0; 100]), Err(short));
        assert!(Mt19937::from_bytes(&[0; 2507]).is_err());
        let mut bytes = Mt19937::new(1).to_bytes();
        bytes[8..12].copy_from_slice(&625u32.to_le_bytes());
        assert!(Mt19937::from_bytes(&bytes).is_err());
    }
}
