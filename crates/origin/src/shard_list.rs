//! Shards that are named one by one, brought under one root.
//!
//! ```text
//! s3://b/x/one.tar  s3://b/x/y/t-{0..1}.tar   ->   s3://b/x   one.tar  y/t-0.tar  y/t-1.tar
//! ```
//!
//! The root is the deepest folder that all of them lie in; their order is that of the list.

use crate::place::Place;
use crate::{Error, braces};

/// The shards of one address of the list.
struct Shards {
    /// Scheme and host; empty for local files.
    store: String,
    folders: Vec<String>,
    names: Vec<String>,
}

/// The folder that all of these addresses lie in, and the names of their shards beneath it.
pub(crate) fn together<'a>(
    urls: impl Iterator<Item = &'a str>,
) -> Result<(String, Vec<String>), Error> {
    let mut list: Vec<Shards> = Vec::new();
    for url in urls {
        let shards = parse(url)?;
        if let Some(first) = list.first()
            && first.store != shards.store
        {
            let what = "all shards of a list lie in one bucket, on one server or on this machine";
            return Err(Error::url(url, what));
        }
        list.push(shards);
    }
    let Some((first, rest)) = list.split_first() else {
        return Err(Error::url("", "an address is needed"));
    };
    let shared = |other: &Shards| {
        let both = first.folders.iter().zip(&other.folders);
        both.take_while(|(a, b)| a == b).count()
    };
    let depth = rest
        .iter()
        .map(shared)
        .fold(first.folders.len(), usize::min);
    let root = format!("{}{}/", first.store, first.folders[..depth].join("/"));
    let names = list.iter().flat_map(|shards| {
        let below = shards.folders[depth..].join("/");
        let full = move |name: &String| match below.as_str() {
            "" => name.clone(),
            below => format!("{below}/{name}"),
        };
        shards.names.iter().map(full)
    });
    Ok((root, names.collect()))
}

fn parse(url: &str) -> Result<Shards, Error> {
    let (root, Some(names)) = braces::split(url)? else {
        return Err(Error::url(
            url,
            "a list names shards: files that end in .tar, or patterns of them",
        ));
    };
    let (store, path) = match Place::parse(&root)? {
        Place::Local(path) => {
            let path = std::path::absolute(&path).unwrap_or(path);
            (String::new(), path.to_string_lossy().into_owned())
        }
        // As it was written: an address spells some characters otherwise than an object's name.
        Place::Remote(_) => {
            let host = root.find("://").map_or(0, |at| at + 3);
            let end = root[host..].find('/').map_or(root.len(), |at| host + at);
            (root[..end].to_owned(), root[end..].to_owned())
        }
    };
    Ok(Shards {
        store,
        folders: path
            .trim_end_matches('/')
            .split('/')
            .map(str::to_owned)
            .collect(),
        names,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(urls: &[&str]) -> Result<(String, Vec<String>), String> {
        together(urls.iter().copied()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_root_is_the_deepest_common_folder_and_the_order_is_the_lists() {
        for (urls, root, names) in [
            (
                &["s3://b/x/y/t-{0..1}.tar", "s3://b/x/one.tar"][..],
                "s3://b/x/",
                &["y/t-0.tar", "y/t-1.tar", "one.tar"][..],
            ),
            (
                &["s3://b/one.tar", "s3://b/a b/two.tar"],
                "s3://b/",
                &["one.tar", "a b/two.tar"],
            ),
            (
                &["/d/xy/1.tar", "/d/x/1.tar", "/d/xy/1.tar"],
                "/d/",
                &["xy/1.tar", "x/1.tar", "xy/1.tar"],
            ),
            (&["/a/1.tar", "/b/2.tar"], "/", &["a/1.tar", "b/2.tar"]),
            (&["file:///d/1.tar", "/d/2.tar"], "/d/", &["1.tar", "2.tar"]),
        ] {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            assert_eq!(list(urls), Ok((root.to_owned(), names)), "{urls:?}");
        }
    }

    #[test]
    fn relative_paths_are_of_the_working_directory() {
        let here = std::env::current_dir().unwrap();
        let (root, names) = list(&["x/1.tar", "2.tar"]).unwrap();
        assert_eq!(root, format!("{}/", here.display()));
        assert_eq!(names, ["x/1.tar", "2.tar"]);
    }

    #[test]
    fn what_does_not_go_together_is_named() {
        for (urls, what) in [
            (["s3://b/1.tar", "s3://c/2.tar"], "s3://c/2.tar: all shards"),
            (["s3://b/1.tar", "/d/2.tar"], "/d/2.tar: all shards"),
            (["/d/1.tar", "/d/folder"], "/d/folder: a list names shards"),
        ] {
            let error = list(&urls).unwrap_err();
            assert!(error.starts_with(what), "{error}");
        }
    }
}
