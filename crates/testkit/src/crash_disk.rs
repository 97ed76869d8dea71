//! What a disk may hold after the power has failed.
//!
//! A disk promises little about writes that were not flushed: the last ones may be there, be
//! missing, or be there in part, sector by sector, in any order. A [`History`] has all writes of
//! a run, and the files as they were at each; [`History::crash`] makes one of the many states that
//! a disk could be in, had the power failed at some moment.
//!
//! ```text
//!   writes     1  2  3  4  5  6  7  8  9  ...          power fails after 8
//!   on disk    1  2  3  4  5  -  7/ 8                  6 is gone, 7 is torn
//!                          \__ loose __/
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What a disk writes in one piece.
pub const SECTOR: usize = 512;

/// Bytes that went to a file.
#[derive(Debug, Clone)]
pub struct Write {
    /// Relative to the history's root.
    pub file: PathBuf,
    /// Where.
    pub offset: u64,
    /// What.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Moment {
    /// The files that were there, and their lengths.
    files: HashMap<PathBuf, u64>,
    write: Write,
}

/// All writes below a folder, in their order.
#[derive(Debug)]
pub struct History {
    root: PathBuf,
    moments: Vec<Moment>,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is on the disk.
    Whole,
    /// Some of its sectors are.
    Torn,
    /// Nothing of it is.
    Gone,
}

/// One state of the disk.
#[derive(Debug)]
pub struct Image<'a> {
    /// What became of each write until the power failed; those of deleted files are left out.
    pub writes: Vec<(&'a Write, Fate)>,
    files: BTreeMap<&'a Path, u64>,
    sectors: Vec<(&'a Path, u64, &'a [u8])>,
}

impl History {
    /// The history of a folder, which begins now.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            moments: Vec::new(),
        }
    }

    /// Takes note of a write, at the moment when it is to be made.
    pub fn record(&mut self, file: &Path, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let relative = |path: &Path| path.strip_prefix(&self.root).map(Path::to_owned);
        let name = relative(file).map_err(io::Error::other)?;
        let mut files = HashMap::new();
        for entry in fs::read_dir(file.parent().unwrap_or(&self.root))? {
            let entry = entry?;
            if entry.path().extension() == file.extension() {
                let name = relative(&entry.path()).map_err(io::Error::other)?;
                files.insert(name, entry.metadata()?.len());
            }
        }
        let length = files.entry(name.clone()).or_insert(0);
        *length = (*length).max(offset + bytes.len() as u64);
        self.moments.push(Moment {
            files,
            write: Write {
                file: name,
                offset,
                bytes: bytes.to_owned(),
            },
        });
        Ok(())
    }

    /// How many writes there were.
    pub fn len(&self) -> usize {
        self.moments.len()
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    /// The disk if the power fails after `count` writes, of which the last `loose` are as chance
    /// has it. `random` gives a number below its argument.
    pub fn crash(
        &self,
        count: usize,
        loose: usize,
        random: &mut dyn FnMut(usize) -> usize,
    ) -> Image<'_> {
        let Some(last) = self.moments[..count].last() else {
            return Image {
                writes: Vec::new(),
                files: BTreeMap::new(),
                sectors: Vec::new(),
            };
        };
        let mut image = Image {
            writes: Vec::new(),
            files: last
                .files
                .iter()
                .map(|(path, &length)| (&**path, length))
                .collect(),
            sectors: Vec::new(),
        };
        for (number, moment) in self.moments[..count].iter().enumerate() {
            let write = &moment.write;
            if !image.files.contains_key(&*write.file) {
                continue;
            }
            // Of the loose ones a third is on the disk, a third in part, a third not at all.
            let fate = match number + loose >= count {
                false => Fate::Whole,
                true => [Fate::Whole, Fate::Torn, Fate::Gone][random(3)],
            };
            image.put(write, fate, random);
        }
        image
    }
}

impl<'a> Image<'a> {
    fn put(&mut self, write: &'a Write, fate: Fate, random: &mut dyn FnMut(usize) -> usize) {
        let sectors = write.bytes.len().div_ceil(SECTOR);
        let mut kept: Vec<bool> = match fate {
            Fate::Whole => vec![true; sectors],
            Fate::Gone => vec![false; sectors],
            // The front of it; all but a stretch; or each by chance.
            Fate::Torn => match random(3) {
                0 => {
                    let end = random(sectors);
                    (0..sectors).map(|at| at < end).collect()
                }
                1 => {
                    let (from, to) = (random(sectors), random(sectors));
                    (0..sectors)
                        .map(|at| at < from.min(to) || at > from.max(to))
                        .collect()
                }
                _ => (0..sectors).map(|_| random(2) == 0).collect(),
            },
        };
        if fate == Fate::Torn {
            // At least one of either, or it would not be torn.
            let at = random(sectors);
            if kept.iter().all(|&kept| kept) {
                kept[at] = false;
            } else if sectors > 1 && !kept.contains(&true) {
                kept[at] = true;
            }
        }
        let mut at = 0;
        while at < sectors {
            let run = kept[at..]
                .iter()
                .take_while(|&&other| other == kept[at])
                .count();
            if kept[at] {
                let end = ((at + run) * SECTOR).min(write.bytes.len());
                let bytes = &write.bytes[at * SECTOR..end];
                self.sectors
                    .push((&write.file, write.offset + (at * SECTOR) as u64, bytes));
            }
            at += run;
        }
        self.writes.push((write, fate));
    }

    /// The files, and how long they are.
    pub fn files(&self) -> impl Iterator<Item = (&'a Path, u64)> {
        self.files.iter().map(|(&path, &length)| (path, length))
    }

    /// A file whose length never reached the disk; `None` if not even its name did.
    pub fn cut(&mut self, file: &Path, length: Option<u64>) {
        let Some((name, _)) = self.files.remove_entry(file) else {
            return;
        };
        if let Some(length) = length {
            self.files.insert(name, length);
        }
        let end = length.unwrap_or(0);
        for (write, fate) in &mut self.writes {
            if write.file == file && write.offset + write.bytes.len() as u64 > end {
                *fate = if write.offset < end {
                    Fate::Torn
                } else {
                    Fate::Gone
                };
            }
        }
    }

    /// Makes the files below `root`, in place of those that are there.
    pub fn materialise(&self, root: &Path) -> io::Result<()> {
        let mut open: HashMap<&Path, File> = HashMap::new();
        for (&name, &length) in &self.files {
            let path = root.join(name);
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let file = File::create(path)?;
            file.set_len(length)?;
            open.insert(name, file);
        }
        for &(name, offset, bytes) in &self.sectors {
            if let Some(file) = open.get(name) {
                let left = self.files[name].saturating_sub(offset);
                file.write_all_at(&bytes[..bytes.len().min(left as usize)], offset)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loose_may_be_lost_and_what_is_not_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::new(folder.path());
        let path = folder.path().join("a.log");
        let file = File::create(&path).unwrap();
        for number in 0..8_u8 {
            let bytes = vec![number + 1; 4 * SECTOR];
            history
                .record(&path, u64::from(number) * 2048, &bytes)
                .unwrap();
            file.write_all_at(&bytes, u64::from(number) * 2048).unwrap();
        }
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % below
        };
        let (mut torn, mut gone) = (0, 0);
        for _ in 0..100 {
            let image = history.crash(8, 3, &mut random);
            image.materialise(folder.path()).unwrap();
            let bytes = fs::read(&path).unwrap();
            for (number, &(write, fate)) in image.writes.iter().enumerate() {
                let found = bytes.get(write.offset as usize..).unwrap_or(&[]);
                let same = found.starts_with(&write.bytes);
                assert_eq!(same, fate == Fate::Whole, "write {number}: {fate:?}");
                assert!(same || number >= 5);
                torn += usize::from(fate == Fate::Torn);
                gone += usize::from(fate == Fate::Gone);
            }
        }
        assert!(torn > 50 && gone > 50, "{torn} torn, {gone} gone");
    }
}
