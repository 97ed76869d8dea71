//! Tar shards: each scanned for its samples, those that did not change not again.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_format::{Index, IndexBuilder, Sample};
use futures_util::{StreamExt, TryStreamExt, stream};
use rustix::fs::AtFlags;

use super::class_folders::Rules;
use super::walk::walk;
use super::{Listing, Source, block_on, stat};
use crate::Error;
use crate::local::open_file;
use crate::remote::{Object, Remote, Want};
use crate::tar::{Scan, TarError};

/// Shards scanned at a time.
const THREADS: usize = 8;
const STREAMS: usize = 16;

/// A header and what may come before it: read at once from a local shard.
const LOCAL_WINDOW: u64 = 2048;
/// Small members are walked through in windows, large ones are jumped over.
const REMOTE_WINDOW: u64 = 256 << 10;

/// A shard and its samples.
struct Scanned {
    shard: Object,
    samples: Vec<Range<u64>>,
}

pub(crate) fn list(listing: &Listing<'_>) -> Result<IndexBuilder, Error> {
    let mut builder = listing.builder();
    builder.ranged(true);
    let known = known(listing.old)?;
    let scanned = match &listing.source {
        Source::Local(local) => {
            let shards = local_shards(listing, local.fd(), &mut builder)?;
            scan_local(listing, local.fd(), shards, &known)?
        }
        Source::Remote(remote) => block_on(async {
            let shards = remote_shards(listing, remote).await?;
            scan_remote(listing, remote, shards, &known).await
        })?,
    };
    for Scanned { shard, samples } in &scanned {
        for range in samples {
            let length = range.end - range.start;
            let (offset, validator) = (range.start, shard.validator);
            builder.push(Sample {
                object: &shard.name,
                offset,
                length,
                label: -1,
                validator,
            })?;
        }
    }
    if builder.is_empty() {
        let what = "no sample in its tar shards".to_owned();
        return Err(Error::NoSamples {
            url: listing.url.to_owned(),
            what,
        });
    }
    Ok(builder)
}

/// The samples of each shard of the index before, by name and validator.
type Known = HashMap<(String, u64), Vec<Range<u64>>>;

fn known(old: Option<&Index>) -> Result<Known, Error> {
    let mut known = Known::new();
    let Some(old) = old else { return Ok(known) };
    for i in 0..old.len() {
        let validator = old.validator(i)?;
        if validator != 0 {
            let start = old.offset(i)?;
            known
                .entry((old.name(i)?, validator))
                .or_default()
                .push(start..start + old.length(i)?);
        }
    }
    Ok(known)
}

fn recall(known: &Known, shard: &Object) -> Option<Vec<Range<u64>>> {
    known.get(&(shard.name.clone(), shard.validator)).cloned()
}

fn none_found(listing: &Listing<'_>) -> Error {
    Error::NoSamples {
        url: listing.url.to_owned(),
        what: "no *.tar file in it".to_owned(),
    }
}

fn local_shards(
    listing: &Listing<'_>,
    root: &OwnedFd,
    builder: &mut IndexBuilder,
) -> Result<Vec<Object>, Error> {
    let mut shards = Vec::new();
    if let Some(names) = listing.shards {
        for name in names {
            let stat = rustix::fs::statat(root, name.as_str(), AtFlags::empty());
            let stat = stat.map_err(|error| Error::io(name.as_str(), error))?;
            shards.push(Object {
                name: name.clone(),
                length: stat.st_size as u64,
                validator: stat::validator(&stat),
            });
        }
    } else {
        let endings = [".tar".to_owned()];
        for folder in walk(root, ".", &Rules::new(Some(&endings), true))? {
            let path = folder
                .path
                .strip_prefix('.')
                .unwrap_or(&folder.path)
                .trim_start_matches('/')
                .to_owned();
            builder.directory(&path, folder.mtime);
            for (name, length, validator) in folder.files() {
                let name = if path.is_empty() {
                    name.to_owned()
                } else {
                    format!("{path}/{name}")
                };
                shards.push(Object {
                    name,
                    length,
                    validator,
                });
            }
        }
        shards.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
    if shards.is_empty() {
        return Err(none_found(listing));
    }
    let now = stat::now();
    for shard in &shards {
        let stat = rustix::fs::statat(root, shard.name.as_str(), AtFlags::empty());
        let stat = stat.map_err(|error| Error::io(shard.name.as_str(), error))?;
        builder.directory(&shard.name, stat::settled(stat::mtime(&stat), now));
    }
    Ok(shards)
}

async fn remote_shards(listing: &Listing<'_>, remote: &Remote) -> Result<Vec<Object>, Error> {
    if let Some(names) = listing.shards {
        return remote.heads(names.to_vec(), |_| {}).await;
    }
    let mut shards = remote.list(|_| {}).await?;
    shards.retain(|object| object.name.to_ascii_lowercase().ends_with(".tar"));
    shards.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if shards.is_empty() {
        Err(none_found(listing))
    } else {
        Ok(shards)
    }
}

fn scan_local(
    listing: &Listing<'_>,
    root: &OwnedFd,
    shards: Vec<Object>,
    known: &Known,
) -> Result<Vec<Scanned>, Error> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(shards.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(shard) = shards.get(at) else {
                        return;
                    };
                    let samples = recall(known, shard).map_or_else(|| scan_file(root, shard), Ok);
                    if let Ok(samples) = &samples {
                        listing.progress.add(samples.len() as u64);
                    }
                    let mut done = done
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner);
                    done.push((at, samples));
                }
            });
        }
    });
    let done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    // By place, not by name: a list may name a shard twice.
    let mut done: HashMap<_, _> = done.into_iter().collect();
    let take = |(at, shard): (usize, Object)| {
        let samples = done.remove(&at).unwrap_or_else(|| Ok(Vec::new()))?;
        Ok(Scanned { shard, samples })
    };
    shards.into_iter().enumerate().map(take).collect()
}

fn scan_file(root: &OwnedFd, shard: &Object) -> Result<Vec<Range<u64>>, Error> {
    let file = open_file(root, &shard.name)?;
    let mut scan = Scan::new(shard.length);
    let mut window = Vec::new();
    while let Some(wants) = scan.wants() {
        let end = wants.end.max(wants.start + LOCAL_WINDOW).min(shard.length);
        window.resize((end - wants.start) as usize, 0);
        let mut filled = 0;
        while filled < window.len() {
            match rustix::io::pread(&file, &mut window[filled..], wants.start + filled as u64) {
                Ok(0) => {
                    return Err(Error::Changed {
                        name: shard.name.clone(),
                    });
                }
                Ok(read) => filled += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::io(shard.name.as_str(), error)),
            }
        }
        scan.feed(&window)
            .map_err(|error| wrong(&shard.name, error))?;
    }
    Ok(scan.samples())
}

async fn scan_remote(
    listing: &Listing<'_>,
    remote: &Remote,
    shards: Vec<Object>,
    known: &Known,
) -> Result<Vec<Scanned>, Error> {
    stream::iter(shards)
        .map(|shard| async move {
            let samples = match recall(known, &shard) {
                Some(samples) => samples,
                None => scan_object(remote, &shard).await?,
            };
            listing.progress.add(samples.len() as u64);
            Ok(Scanned { shard, samples })
        })
        .buffered(STREAMS)
        .try_collect()
        .await
}

async fn scan_object(remote: &Remote, shard: &Object) -> Result<Vec<Range<u64>>, Error> {
    let mut scan = Scan::new(shard.length);
    let mut window = Vec::new();
    while let Some(wants) = scan.wants() {
        let end = wants.end.max(wants.start + REMOTE_WINDOW).min(shard.length);
        window.resize((end - wants.start) as usize, 0);
        let validator = shard.validator;
        let want = Want {
            name: shard.name.clone(),
            range: wants.start..end,
            whole: false,
            validator,
        };
        remote
            .fetch(&want, |at, bytes| {
                window[at as usize..][..bytes.len()].copy_from_slice(bytes);
            })
            .await?;
        let shown = || format!("{}/{}", remote.url(), shard.name);
        scan.feed(&window).map_err(|error| wrong(&shown(), error))?;
    }
    Ok(scan.samples())
}

fn wrong(shard: &str, error: TarError) -> Error {
    Error::Tar {
        shard: shard.to_owned(),
        offset: error.offset,
        what: error.what,
    }
}
