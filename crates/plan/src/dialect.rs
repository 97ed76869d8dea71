//! Where versions of torch draw differently.
//!
//! Two fixes against the bias of a 32-bit remainder changed what large ranges draw.
//! Below 214,748,364 samples every torch agrees, so most jobs never notice.
//!
//! ```text
//!                 randperm of u32::MAX / 20 and more    randint draws 64 bits from
//!   before 2.6    as any other                          2^32
//!   2.6           inside out, 64 bits a draw            2^32
//!   2.7 and on    inside out, 64 bits a draw            2^28
//! ```

/// Which torch the draws have to agree with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// torch before 2.6.
    Before2_6,
    /// torch 2.6.
    V2_6,
    /// torch 2.7 and later.
    #[default]
    Current,
}

impl Dialect {
    /// The dialect of torch `major.minor`.
    pub fn of_torch(major: u32, minor: u32) -> Self {
        match (major, minor) {
            (0..=1, _) | (2, 0..=5) => Self::Before2_6,
            (2, 6) => Self::V2_6,
            _ => Self::Current,
        }
    }

    /// Whether a permutation of `n` is built inside out, from 64-bit draws.
    pub(crate) fn inside_out(self, n: usize) -> bool {
        self != Self::Before2_6 && n >= (u32::MAX / 20) as usize
    }

    /// Whether a number below `n` takes 64 bits.
    pub(crate) fn wide(self, n: u64) -> bool {
        let from = match self {
            Self::Before2_6 | Self::V2_6 => 1 << 32,
            Self::Current => 1 << 28,
        };
        n >= from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_speaks_its_own_dialect() {
        for (major, minor, dialect) in [
            (1, 13, Dialect::Before2_6),
            (2, 5, Dialect::Before2_6),
            (2, 6, Dialect::V2_6),
            (2, 7, Dialect::Current),
            (2, 15, Dialect::Current),
            (3, 0, Dialect::Current),
        ] {
            assert_eq!(Dialect::of_torch(major, minor), dialect);
        }
    }

    #[test]
    fn the_changes_start_where_torch_starts_them() {
        assert!(!Dialect::Current.inside_out(214_748_363));
        assert!(Dialect::Current.inside_out(214_748_364));
        assert!(Dialect::V2_6.inside_out(214_748_364));
        assert!(!Dialect::Before2_6.inside_out(u32::MAX as usize));
        assert!(!Dialect::Current.wide((1 << 28) - 1) && Dialect::Current.wide(1 << 28));
        assert!(!Dialect::V2_6.wide((1 << 32) - 1) && Dialect::V2_6.wide(1 << 32));
    }
}
