//! Patterns that name many shards: `train-{0000..0146}.tar`, `{a,b}/x.tar`.
//!
//! As webdataset expands them: a range counts with as many digits as its ends have, a
//! list stands for each of its words, several braces multiply, left ones slowest.

use crate::Error;

/// More shards than this in one pattern is a slip of the pen.
const MOST: usize = 1_000_000;

/// The folder that a url of shards is in, and the shards' names in it; `None` for
/// the names if the url is the folder itself.
pub(crate) fn split(url: &str) -> Result<(String, Option<Vec<String>>), Error> {
    let lower = url.to_ascii_lowercase();
    if [".gz", ".tgz", ".bz2", ".xz", ".zst"]
        .iter()
        .any(|ending| lower.ends_with(ending))
    {
        let what = "compressed archives cannot be read by range: unpack them to .tar";
        return Err(Error::url(url, what));
    }
    let pattern = url.find('{');
    if pattern.is_none() && !lower.ends_with(".tar") {
        return Ok((url.to_owned(), None));
    }
    let fixed = &url[..pattern.unwrap_or(url.len())];
    // The slashes of "s3://" do not part folders.
    let start = fixed.find("://").map_or(0, |at| at + 3);
    let (root, names) = match fixed[start..].rfind('/') {
        Some(slash) => (&url[..start + slash + 1], &url[start + slash + 1..]),
        None if start > 0 => return Err(Error::url(url, "names no shard in a bucket")),
        None => (".", url),
    };
    Ok((
        root.to_owned(),
        Some(expand(names).map_err(|what| Error::url(url, what))?),
    ))
}

fn expand(pattern: &str) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some(open) = rest.find('{') {
        let close = rest[open..].find('}').ok_or("a { without its }")? + open;
        let choices = choices(&rest[open + 1..close])?;
        if names.len().saturating_mul(choices.len()) > MOST {
            return Err(format!("stands for more than {MOST} shards"));
        }
        let before = &rest[..open];
        names = names
            .iter()
            .flat_map(|name| {
                choices
                    .iter()
                    .map(move |choice| format!("{name}{before}{choice}"))
            })
            .collect();
        rest = &rest[close + 1..];
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

fn choices(inside: &str) -> Result<Vec<String>, String> {
    let Some((first, last)) = inside.split_once("..") else {
        return Ok(inside.split(',').map(str::to_owned).collect());
    };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits
            .then(|| text.parse::<u64>().ok())
            .flatten()
            .ok_or(format!("{{{inside}}} is not a range of numbers"))
    };
    let (from, to) = (number(first)?, number(last)?);
    if from > to || to - from >= MOST as u64 {
        return Err(format!("{{{inside}}} is empty or too long"));
    }
    // As bash and webdataset: padded if an end is written with leading zeros.
    let padded = [first, last]
        .iter()
        .any(|text| text.len() > 1 && text.starts_with('0'));
    let width = if padded {
        first.len().max(last.len())
    } else {
        0
    };
    Ok((from..=to)
        .map(|number| format!("{number:0width$}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_split_into_folder_and_names() {
        for (url, root, names) in [
            (
                "s3://b/x/t-{08..10}.tar",
                "s3://b/x/",
                vec!["t-08.tar", "t-09.tar", "t-10.tar"],
            ),
            ("t-{8..10}.tar", ".", vec!["t-8.tar", "t-9.tar", "t-10.tar"]),
            (
                "/d/{a,b}/{0..1}.tar",
                "/d/",
                vec!["a/0.tar", "a/1.tar", "b/0.tar", "b/1.tar"],
            ),
            ("/d/one.tar", "/d/", vec!["one.tar"]),
        ] {
            let (found, shards) = split(url).unwrap();
            assert_eq!(
                (found.as_str(), shards.unwrap()),
                (root, names.iter().map(|name| (*name).to_owned()).collect())
            );
        }
        assert_eq!(
            split("s3://b/folder").unwrap(),
            ("s3://b/folder".to_owned(), None)
        );
    }

    #[test]
    fn a_pattern_that_makes_no_sense_says_why() {
        for (url, what) in [
            ("/d/x-{0..", "a { without its }"),
            ("/d/x-{b..a}.tar", "not a range"),
            ("/d/x-{9..1}.tar", "empty or too long"),
            ("/d/x-{0..999}{0..999}{0..999}.tar", "more than"),
            ("/d/x.tar.gz", "compressed"),
            ("s3://x.tar", "names no shard"),
        ] {
            let error = split(url).unwrap_err().to_string();
            assert!(error.contains(what), "{url}: {error}");
        }
    }
}
