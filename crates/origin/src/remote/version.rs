//! Which version of an object a response is about, and whether parts of two may be joined.
//!
//! ```text
//! "abc"            a strong ETag: equal bytes                               joined, If-Match
//! Last-Modified    whole seconds: equal bytes once the second is long over  joined,
//!                                                                           If-Unmodified-Since
//! W/"abc" alone    a weak one: equal meaning, perhaps other bytes           read anew
//! neither          any two responses may be of two versions                 read anew
//! ```
//!
//! A version that is not told is the reason to keep nothing beyond one opening: its hash is 0.

use std::sync::{Mutex, PoisonError};

use forebay_format::hash;
use object_store::{GetOptions, ObjectMeta};

use crate::listing::stat::now;

/// A second that was over so long ago, in nanoseconds, has no second change to come, even where
/// the clocks of the two machines differ a little.
const LONG_OVER: i64 = 60_000_000_000;

/// A hash of the ETag, or of the time of the last change where there is none; 0 where there is
/// neither.
pub(super) fn version(meta: &ObjectMeta) -> u64 {
    match (&meta.e_tag, modified(meta)) {
        // Some stores quote it in a response and not in a listing.
        (Some(etag), _) => hash(etag.trim_start_matches("W/").trim_matches('"').as_bytes()).max(1),
        (None, Some(nanoseconds)) => hash(&nanoseconds.to_le_bytes()).max(1),
        (None, None) => 0,
    }
}

/// The same for an index: 0, too, for a time within which the object may still change again.
pub(super) fn validator(meta: &ObjectMeta) -> u64 {
    if meta.e_tag.is_some() || is_long_ago(meta) {
        version(meta)
    } else {
        0
    }
}

/// When it was last changed, in nanoseconds since 1970, which stands for a server that tells no time.
fn modified(meta: &ObjectMeta) -> Option<i64> {
    let nanoseconds = meta.last_modified.timestamp_nanos_opt();
    nanoseconds.filter(|&nanoseconds| nanoseconds != 0)
}

fn is_long_ago(meta: &ObjectMeta) -> bool {
    modified(meta).is_some_and(|at| now().saturating_sub(at) > LONG_OVER)
}

fn strong_etag(meta: &ObjectMeta) -> Option<&String> {
    meta.e_tag.as_ref().filter(|etag| !etag.starts_with("W/"))
}

/// What the responses of one read have told of the object.
#[derive(Debug, Default)]
pub(super) struct Seen(Mutex<Option<First>>);

/// The first of them.
#[derive(Debug)]
struct First {
    meta: ObjectMeta,
    /// Decided when it came: that its second is over later on says nothing of its bytes.
    exact: bool,
}

impl Seen {
    /// Whether a response is about the version that the first one was about, as far as they tell.
    pub(super) fn agrees(&self, meta: &ObjectMeta) -> bool {
        self.with(|seen| match seen {
            None => {
                *seen = Some(First {
                    meta: meta.clone(),
                    exact: strong_etag(meta).is_some() || is_long_ago(meta),
                });
                true
            }
            Some(First { meta: first, .. })
                if first.size != meta.size || first.e_tag != meta.e_tag =>
            {
                false
            }
            Some(First { meta: first, .. }) => {
                strong_etag(first).is_some() || first.last_modified == meta.last_modified
            }
        })
    }

    /// Whether responses that agree are parts of the same bytes. So it is before the first one.
    pub(super) fn is_exact(&self) -> bool {
        self.with(|seen| seen.as_ref().is_none_or(|first| first.exact))
    }

    /// Begins anew.
    pub(super) fn forget(&self) {
        self.with(|seen| *seen = None);
    }

    /// The version that was read; 0 if it was not told.
    pub(super) fn version(&self) -> u64 {
        self.with(|seen| seen.as_ref().map_or(0, |first| version(&first.meta)))
    }

    /// Has a request ask for no other version.
    pub(super) fn insist(&self, options: GetOptions) -> GetOptions {
        self.with(|seen| match seen {
            Some(First { meta, exact: true }) => match strong_etag(meta) {
                Some(etag) => GetOptions {
                    if_match: Some(etag.clone()),
                    ..options
                },
                None => GetOptions {
                    if_unmodified_since: Some(meta.last_modified),
                    ..options
                },
            },
            _ => options,
        })
    }

    fn with<T>(&self, look: impl FnOnce(&mut Option<First>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(etag: Option<&str>, seconds_ago: Option<i64>) -> ObjectMeta {
        let mut meta = ObjectMeta {
            location: "a".into(),
            last_modified: Default::default(),
            size: 5,
            e_tag: etag.map(str::to_owned),
            version: None,
        };
        if let Some(ago) = seconds_ago {
            let at = std::time::SystemTime::now();
            let at = at - std::time::Duration::from_secs(ago.unsigned_abs());
            meta.last_modified = at.into();
        }
        meta
    }

    #[test]
    fn a_version_is_kept_only_if_it_cannot_stand_for_other_bytes() {
        assert_ne!(validator(&meta(Some("\"x\""), None)), 0);
        assert_ne!(validator(&meta(None, Some(3600))), 0);
        assert_eq!(validator(&meta(None, Some(1))), 0);
        assert_eq!(validator(&meta(None, None)), 0);
        // In a listing and in a response the same, however it is written there.
        let quoted = version(&meta(Some("\"x\""), Some(1)));
        assert_eq!(quoted, version(&meta(Some("x"), None)));
    }

    #[test]
    fn responses_are_joined_only_where_their_bytes_are_the_same() {
        for (meta, exact) in [
            (meta(Some("\"x\""), None), true),
            (meta(None, Some(3600)), true),
            (meta(Some("W/\"x\""), Some(3600)), true),
            (meta(Some("W/\"x\""), None), false),
            (meta(None, Some(1)), false),
            (meta(None, None), false),
        ] {
            let seen = Seen::default();
            assert!(seen.is_exact() && seen.agrees(&meta) && seen.agrees(&meta));
            assert_eq!(seen.is_exact(), exact, "{meta:?}");
            let options = seen.insist(GetOptions::default());
            let insists = options.if_match.is_some() || options.if_unmodified_since.is_some();
            assert_eq!(insists, exact, "{meta:?}");
        }
    }

    #[test]
    fn another_version_does_not_agree() {
        let first = meta(None, Some(3600));
        let (mut longer, mut tagged) = (first.clone(), first.clone());
        longer.size += 1;
        tagged.e_tag = Some("\"x\"".to_owned());
        for other in [longer, tagged, meta(None, Some(4000))] {
            let seen = Seen::default();
            assert!(seen.agrees(&first) && !seen.agrees(&other), "{other:?}");
            seen.forget();
            assert!(seen.agrees(&other));
        }
    }
}
