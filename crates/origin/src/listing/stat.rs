//! What the file system says about a file, as the index keeps it.

use std::time::{SystemTime, UNIX_EPOCH};

use forebay_format::hash;
use rustix::fs::Stat;

/// The mtime of a directory that may still change within the same clock tick: equal
/// to none, so that the next open looks again.
pub(crate) const UNSETTLED: i64 = i64::MIN;

/// Coarse enough for file systems that keep whole seconds (or two).
const SETTLED_AFTER: i64 = 2_100_000_000;

pub(crate) fn mtime(stat: &Stat) -> i64 {
    stat.st_mtime
        .wrapping_mul(1_000_000_000)
        .wrapping_add(stat.st_mtime_nsec as i64)
}

/// A hash of mtime and size; never 0, which means none.
pub(crate) fn validator(stat: &Stat) -> u64 {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&mtime(stat).to_le_bytes());
    both[8..].copy_from_slice(&stat.st_size.to_le_bytes());
    hash(&both).max(1)
}

/// The mtime to remember for a path that was looked at after `now`.
pub(crate) fn settled(mtime: i64, now: i64) -> i64 {
    if now.saturating_sub(mtime) < SETTLED_AFTER {
        UNSETTLED
    } else {
        mtime
    }
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_changed_just_now_is_not_trusted() {
        assert_eq!(settled(1_000_000_000, 2_000_000_000), UNSETTLED);
        assert_eq!(settled(1_000_000_000, 4_000_000_000), 1_000_000_000);
        assert_eq!(settled(i64::MAX, 0), UNSETTLED);
    }
}
