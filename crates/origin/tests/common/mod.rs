//! Trees and readers that several tests use.
#![allow(dead_code)] // each test binary uses its own part

pub(crate) mod server;

use std::fs;
use std::io::IoSliceMut;
use std::path::Path;
use std::time::{Duration, SystemTime};

use forebay_origin::{Dataset, DatasetSpec, Layout, Sink};

pub(crate) fn folders() -> Layout {
    Layout::ClassFolders {
        extensions: None,
        allow_empty: false,
    }
}

pub(crate) fn images() -> Layout {
    let extensions = Some(vec![".jpg".to_owned(), ".png".to_owned()]);
    Layout::ClassFolders {
        extensions,
        allow_empty: false,
    }
}

/// Writes files, each with its own path as content.
pub(crate) fn tree(root: &Path, files: &[&str]) {
    for file in files {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
}

/// Sets the mtime of everything beneath back by an hour, so that it counts as settled.
pub(crate) fn age(root: &Path) {
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            age(&path);
        } else if path.exists() {
            set_old(&path);
        }
    }
    set_old(root);
}

fn set_old(path: &Path) {
    set_modified(path, SystemTime::now() - Duration::from_secs(3600));
}

pub(crate) fn set_modified(path: &Path, time: SystemTime) {
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// A spec whose index lives in `cache`.
pub(crate) fn spec(url: impl AsRef<Path>, cache: &Path, layout: Layout) -> DatasetSpec {
    let mut spec = DatasetSpec::new(url.as_ref().to_str().unwrap(), layout);
    spec.index_dir = Some(cache.to_owned());
    spec
}

pub(crate) fn open(spec: &DatasetSpec) -> Dataset {
    Dataset::open(spec, &()).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn names(dataset: &Dataset) -> Vec<String> {
    (0..dataset.index().len())
        .map(|i| dataset.index().name(i).unwrap())
        .collect()
}

pub(crate) fn read(dataset: &Dataset, sample: u32) -> Result<Vec<u8>, forebay_origin::Error> {
    let mut bytes = vec![0; dataset.index().length(sample)? as usize];
    dataset.read_local(sample, &mut [IoSliceMut::new(&mut bytes)])?;
    Ok(bytes)
}

/// A sink in memory.
pub(crate) struct Buffer(pub(crate) Vec<u8>);

impl Sink for Buffer {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// Reads samples of a remote dataset through their groups.
pub(crate) async fn fetch(
    dataset: &Dataset,
    samples: &[u32],
) -> Result<Vec<Vec<u8>>, forebay_origin::Error> {
    let mut read = vec![Vec::new(); samples.len()];
    for group in dataset.groups(samples) {
        let lengths = group
            .samples()
            .map(|sample| dataset.index().length(sample).unwrap() as usize);
        let mut sinks: Vec<_> = lengths.map(|length| Buffer(vec![0; length])).collect();
        dataset.read_group(&group, &mut sinks).await?;
        for (position, sink) in group.members().zip(sinks) {
            read[position] = sink.0;
        }
    }
    Ok(read)
}
