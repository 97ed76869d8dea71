//! Memory maps of index files.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// Maps an index file for reading.
pub(crate) fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: an index file is written under another name and renamed into place; it
    // is never written to again, only replaced, and a replaced file lives on as long
    // as it is mapped. The checksums of its pages catch one that was damaged before.
    unsafe { Mmap::map(&file) }
}
