//! Files that a manifest names.
//!
//! Sizes that the manifest does not tell come from the file system, from one listing of
//! the bucket, or, where a server cannot list, from a HEAD request each.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use forebay_format::{IndexBuilder, Sample};
use rustix::fs::{AtFlags, FileType};

use super::manifest_rows::{Label, Row, parse};
use super::{Listing, Source, block_on, stat};
use crate::Error;
use crate::place::Place;
use crate::remote::Remote;

const THREADS: usize = 8;

/// Length and validator of each file.
type Facts = HashMap<String, (u64, u64)>;

pub(crate) fn list(
    listing: &Listing<'_>,
    manifest: &str,
    allow_outside: bool,
) -> Result<IndexBuilder, Error> {
    let mut builder = listing.builder();
    let parse = |bytes: &[u8]| {
        let rows = parse(manifest, bytes)?;
        if !allow_outside {
            check_inside(manifest, &rows)?;
        }
        Ok::<_, Error>(rows)
    };
    let (rows, facts) = match &listing.source {
        Source::Local(local) => {
            let (path, bytes) = read_local(local.path(), manifest)?;
            watch(&mut builder, &path);
            let rows = parse(&bytes)?;
            let facts = stat_all(listing, local.fd(), &rows)?;
            (rows, facts)
        }
        Source::Remote(remote) => block_on(async {
            let rows = parse(&read_remote(remote, manifest).await?)?;
            let facts = ask(listing, remote, &rows).await?;
            Ok((rows, facts))
        })?,
    };
    build(builder, manifest, &rows, &facts)
}

fn build(
    mut builder: IndexBuilder,
    manifest: &str,
    rows: &[Row],
    facts: &Facts,
) -> Result<IndexBuilder, Error> {
    let wrong = |row: &Row, what: String| Error::Manifest {
        manifest: crate::redact(manifest),
        line: row.line,
        what,
    };
    let classes = classes(rows);
    classes.iter().for_each(|class| builder.class(class));
    builder.ranged(rows.iter().any(|row| row.length.is_some()));
    for row in rows {
        let fact = facts.get(&row.path);
        let label = match &row.label {
            Label::None => -1,
            Label::Number(number) if classes.is_empty() => *number,
            Label::Number(number) => place(&classes, &number.to_string()),
            Label::Name(name) => place(&classes, name),
        };
        let offset = row.offset.unwrap_or(0);
        let length = match (row.length, fact) {
            (Some(length), Some(&(size, _))) if offset + length > size => {
                let what = format!(
                    "{} has {size} bytes, bytes {offset} to {} are asked for",
                    row.path,
                    offset + length
                );
                return Err(wrong(row, what));
            }
            (Some(length), _) => length,
            (None, Some(&(size, _))) => size,
            (None, None) => return Err(wrong(row, format!("{}: no such file", row.path))),
        };
        let validator = fact.map_or(0, |&(_, validator)| validator);
        builder.push(Sample {
            object: &row.path,
            offset,
            length,
            label,
            validator,
        })?;
    }
    Ok(builder)
}

/// An error for the first path that leads out of the dataset's root: whoever wrote the manifest
/// need not be one who may choose among all files that this process can read.
fn check_inside(manifest: &str, rows: &[Row]) -> Result<(), Error> {
    let leaves =
        |row: &&Row| row.path.starts_with('/') || row.path.split('/').any(|folder| folder == "..");
    rows.iter().find(leaves).map_or(Ok(()), |row| {
        Err(Error::Outside {
            manifest: crate::redact(manifest),
            line: row.line,
            path: row.path.clone(),
        })
    })
}

/// The classes, if a label is a name; else none.
fn classes(rows: &[Row]) -> Vec<String> {
    if !rows.iter().any(|row| matches!(row.label, Label::Name(_))) {
        return Vec::new();
    }
    let names = rows.iter().filter_map(|row| match &row.label {
        Label::None => None,
        Label::Number(number) => Some(number.to_string()),
        Label::Name(name) => Some(name.clone()),
    });
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

fn place(classes: &[String], name: &str) -> i64 {
    classes
        .binary_search_by(|class| class.as_str().cmp(name))
        .map_or(-1, |at| at as i64)
}

/// The manifest in the dataset's folder, else in the working directory.
fn read_local(root: &Path, manifest: &str) -> Result<(std::path::PathBuf, Vec<u8>), Error> {
    let path = match Place::parse(manifest)? {
        Place::Local(path) => path,
        Place::Remote(_) => {
            return Err(Error::url(
                manifest,
                "the manifest of a local dataset is a local file",
            ));
        }
    };
    let inside = root.join(&path);
    let path = if inside.exists() { inside } else { path };
    match std::fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(error) => Err(Error::io(path.display().to_string(), error)),
    }
}

/// Has the next open look whether the manifest changed.
fn watch(builder: &mut IndexBuilder, path: &Path) {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let now = stat::now();
    if let (Some(text), Ok(found)) = (path.to_str(), rustix::fs::stat(&path)) {
        builder.directory(text, stat::settled(stat::mtime(&found), now));
    }
}

/// A local file of that name, else an object of the dataset.
async fn read_remote(remote: &Remote, manifest: &str) -> Result<Vec<u8>, Error> {
    if let Some(name) = manifest
        .strip_prefix(remote.url())
        .and_then(|rest| rest.strip_prefix('/'))
    {
        return remote.read_whole(name).await;
    }
    match Place::parse(manifest)? {
        Place::Remote(_) => Err(Error::url(
            manifest,
            format!(
                "the manifest must be a local file or lie in {}",
                remote.url()
            ),
        )),
        Place::Local(path) if path.exists() => {
            std::fs::read(&path).map_err(|error| Error::io(path.display().to_string(), error))
        }
        Place::Local(_) => remote.read_whole(manifest).await,
    }
}

fn stat_all(listing: &Listing<'_>, root: &OwnedFd, rows: &[Row]) -> Result<Facts, Error> {
    let next = AtomicUsize::new(0);
    let facts = Mutex::new((Facts::with_capacity(rows.len()), None));
    let (next, facts_ref) = (&next, &facts);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(move || {
                // A stretch at a time, so that the lock is rarely wanted.
                const STRETCH: usize = 256;
                loop {
                    let from = next.fetch_add(STRETCH, Ordering::Relaxed);
                    let Some(rows) = rows
                        .get(from..rows.len().min(from + STRETCH))
                        .filter(|rows| !rows.is_empty())
                    else {
                        return;
                    };
                    let found: Vec<_> = rows
                        .iter()
                        .map(|row| (row, stat_one(root, &row.path)))
                        .collect();
                    listing.progress.add(rows.len() as u64);
                    let mut facts = facts_ref.lock().unwrap_or_else(PoisonError::into_inner);
                    for (row, fact) in found {
                        match fact {
                            Ok(Some(fact)) => drop(facts.0.insert(row.path.clone(), fact)),
                            Ok(None) => {}
                            Err(error) => facts.1 = Some(error),
                        }
                    }
                    if facts.1.is_some() {
                        return;
                    }
                }
            });
        }
    });
    match facts.into_inner().unwrap_or_else(PoisonError::into_inner) {
        (_, Some(error)) => Err(error),
        (facts, None) => Ok(facts),
    }
}

fn stat_one(root: &OwnedFd, path: &str) -> Result<Option<(u64, u64)>, Error> {
    match rustix::fs::statat(root, path, AtFlags::empty()) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            Ok(Some((stat.st_size as u64, stat::validator(&stat))))
        }
        Ok(_) => Err(Error::NotAFile {
            path: path.to_owned(),
        }),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
        Err(error) => Err(Error::io(path, error)),
    }
}

async fn ask(listing: &Listing<'_>, remote: &Remote, rows: &[Row]) -> Result<Facts, Error> {
    let found = |count| listing.progress.add(count);
    let objects = if remote.is_http() {
        // A manifest that tells all lengths needs no questions.
        let unknown = rows
            .iter()
            .filter(|row| row.length.is_none())
            .map(|row| row.path.clone());
        let unknown: HashSet<_> = unknown.collect();
        remote.heads(unknown.into_iter().collect(), found).await?
    } else {
        let wanted: HashSet<_> = rows.iter().map(|row| row.path.as_str()).collect();
        let mut objects = remote.list(found).await?;
        objects.retain(|object| wanted.contains(object.name.as_str()));
        objects
    };
    Ok(objects
        .into_iter()
        .map(|object| (object.name, (object.length, object.validator)))
        .collect())
}
