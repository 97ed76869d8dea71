//! A member's name, split into the sample's key and the part's ending.
//!
//! The rule is webdataset's, a regular expression there:
//! `^((?:.*/|)[^.]+)[.]([^/]*)$`, so `a/b.seg.png` is key `a/b`, ending `seg.png`.

/// Key and ending of a member, or `None` for one that is no part of a sample.
pub(crate) fn split(name: &str) -> Option<(&str, &str)> {
    if is_meta(name) {
        return None;
    }
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.')?;
    // A base that starts with a dot has its key in the folder's name, if that has no dot.
    let stem = if dot > base {
        &name[base..dot]
    } else {
        let folder = name[..base].strip_suffix('/')?;
        let start = folder.rfind('/').map_or(0, |slash| slash + 1);
        &name[start..base]
    };
    (!stem.contains('.')).then(|| (&name[..dot], &name[dot + 1..]))
}

/// Names like `__index__` or `__meta__/x` are webdataset's own.
fn is_meta(name: &str) -> bool {
    let first = name.split('/').next().unwrap_or_default();
    first.len() >= 4 && first.starts_with("__") && first.ends_with("__")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Python's `re` gives for webdataset's expressions.
    #[test]
    fn keys_are_those_of_webdataset() {
        for (name, expected) in [
            ("a.jpg", Some(("a", "jpg"))),
            ("a.seg.png", Some(("a", "seg.png"))),
            ("./a.jpg", Some(("./a", "jpg"))),
            ("x/y/a.jpg", Some(("x/y/a", "jpg"))),
            ("x.y/a.jpg", Some(("x.y/a", "jpg"))),
            ("README", None),
            ("x.y/README", None),
            (".hidden", None),
            (".hidden.jpg", None),
            ("x/.hidden.jpg", Some(("x/", "hidden.jpg"))),
            ("x.y/.hidden", None),
            ("./.hidden", None),
            ("a.", Some(("a", ""))),
            ("a..b", Some(("a", ".b"))),
            ("__index__", None),
            ("__meta__/a.jpg", None),
            ("__init__.py", Some(("__init__", "py"))),
            ("a/__meta__.jpg", Some(("a/__meta__", "jpg"))),
            ("", None),
        ] {
            assert_eq!(split(name), expected, "{name}");
        }
    }
}
