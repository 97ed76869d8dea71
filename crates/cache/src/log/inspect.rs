//! Logs as their files show them: what is there, without the datasets that they are of.
//!
//! ```text
//!   <cache dir>/log/<name>/about, lease, samples.map  -> a log
//!   <another>  /log/<name>/00000001.segment           -> a part of it: has no lease of its own
//!   <cache dir>/log/<name>/notes.txt                  -> not ours: shown, never touched
//! ```
//!
//! Looking changes nothing: no lease is taken, no file made, and a log does not count as used by
//! it. Whatever cannot be read is said, and the rest is shown.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use super::budget::{RESERVED, used};
use super::index::{HEAD_BYTES, SampleIndex, Subject};
use super::lease::{Lease, holder};
use super::log::{ABOUT, FOLDER, MAP};
use super::reclaim::{LEASE, PART};
use super::verify::chunks;

/// The longest address that is read from a file that should have one.
const LONGEST_ABOUT: u64 = 1 << 16;
const SEGMENT: &str = "segment";

/// A folder among the logs of some cache directories.
#[derive(Debug, Clone)]
pub struct Found {
    /// The folder's name: the dataset's, in short, with a hash of its address.
    pub name: String,
    /// Its folders, the one with lease and table first. More than one if the log is spread over
    /// several cache directories.
    pub folders: Vec<PathBuf>,
    /// The dataset's address.
    pub about: Option<String>,
    /// What is wrong with it.
    pub problem: Option<String>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Has a lease, a table or an address.
    Log,
    /// Has segments only.
    Part,
    /// Nothing in it is a log's.
    Foreign,
}

/// What a log holds, as far as its files say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// How samples are laid out; `None` if there are none.
    pub layout: Option<&'static str>,
    /// Samples that can be read from it; `None` where only its writer knows.
    pub held: Option<u64>,
    /// Samples that its table has in cache directories that were not looked at.
    pub elsewhere: u64,
    /// Samples of the dataset, where the table says so.
    pub samples: Option<u32>,
    /// Files with chunks.
    pub segments: u64,
    /// Other files, whose samples are not counted, and their bytes.
    pub others: Vec<(String, u64)>,
}

/// Why a log was not deleted.
#[derive(Debug, thiserror::Error)]
pub enum CannotChange {
    /// A process writes it now; 0 if its number cannot be told.
    #[error("process {0} writes it now")]
    InUse(u32),
    /// The lease lies in a directory that was not named.
    #[error("it is a part of a log whose lease lies in another cache directory")]
    Part,
    /// It may be anything.
    #[error("it is not a log")]
    Foreign,
    /// A file could not be deleted.
    #[error("{}", path.display())]
    Io {
        /// Which folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The logs of cache directories, by name; directories that are not there have none.
pub fn find_logs(cache_dirs: &[PathBuf]) -> io::Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    for dir in cache_dirs {
        let entries = match fs::read_dir(dir.join(FOLDER)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(with_path(&dir.join(FOLDER), &error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| with_path(dir, &error))?;
            // Links are shown but never followed: what is behind them is not the cache's.
            match entry.file_type() {
                Ok(kind) if kind.is_file() => {}
                kind => found.push(look(entry.path(), kind.is_ok_and(|kind| kind.is_dir()))),
            }
        }
    }
    found.sort_by(|a, b| (&a.name, a.kind == Kind::Part).cmp(&(&b.name, b.kind == Kind::Part)));
    Ok(join_parts(found))
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn look(folder: PathBuf, is_folder: bool) -> Found {
    let name = folder.file_name().unwrap_or_default();
    let mut found = Found {
        name: name.to_string_lossy().into_owned(),
        about: None,
        problem: None,
        kind: Kind::Foreign,
        folders: vec![folder],
    };
    if !is_folder {
        found.problem = Some("not a folder".to_owned());
        return found;
    }
    let names = match names(&found.folders[0]) {
        Ok(names) => names,
        Err(error) => {
            found.problem = Some(format!("cannot be read: {error}"));
            return found;
        }
    };
    let has = |name: &str| names.iter().any(|(found, _)| found == name);
    let is_ours = |(name, _): &(String, u64)| {
        segment_number(name).is_some() || is_reordered(name) || name == PART
    };
    if [LEASE, ABOUT, MAP].into_iter().any(has) {
        found.kind = Kind::Log;
        match about(&found.folders[0]) {
            Ok(about) => found.about = Some(about),
            Err(error) => found.problem = Some(format!("file {ABOUT}: {error}")),
        }
        if let (true, Err(problem)) = (has(MAP), subject(&found.folders[0].join(MAP))) {
            found.problem = Some(problem);
        }
    } else if names.is_empty() || names.iter().any(is_ours) {
        found.kind = Kind::Part;
        found.problem = Some("its lease and table are not in this cache directory".to_owned());
    } else {
        found.problem = Some("not a log".to_owned());
    }
    found
}

/// Adds parts to the log that they are of, if there is just one that they can be of.
fn join_parts(sorted: Vec<Found>) -> Vec<Found> {
    let mut joined: Vec<Found> = Vec::new();
    for found in sorted {
        let same = |log: &&mut Found| log.name == found.name && log.kind == Kind::Log;
        let mut logs: Vec<_> = joined.iter_mut().filter(same).collect();
        match &mut logs[..] {
            [log] if found.kind == Kind::Part => log.folders.extend(found.folders),
            _ => joined.push(found),
        }
    }
    joined
}

/// Names and bytes of the files in a folder, by name.
fn names(folder: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let bytes = entry.metadata().map_or(0, |meta| meta.len());
        names.push((entry.file_name().to_string_lossy().into_owned(), bytes));
    }
    names.sort();
    Ok(names)
}

fn about(folder: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(folder.join(ABOUT))?
        .take(LONGEST_ABOUT)
        .read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// What the table in `path` is of.
fn subject(path: &Path) -> Result<Subject, String> {
    let mut head = [0; HEAD_BYTES];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    match read {
        Ok(()) => Subject::read(&head).ok_or_else(|| format!("file {MAP}: not a table of a log")),
        Err(error) => Err(format!("file {MAP}: {error}")),
    }
}

/// The number of a segment with chunks, by its file's name.
pub(super) fn segment_number(name: &str) -> Option<u32> {
    let number = name.strip_suffix(SEGMENT)?.strip_suffix('.')?;
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| digits)
}

/// Files of a log that is written anew for each epoch.
fn is_reordered(name: &str) -> bool {
    name.ends_with(".order") || name.ends_with(".ordered")
}

/// Bytes that are free for users on the file system of a folder, or of where it would be.
pub fn free_space(folder: &Path) -> Option<u64> {
    let there = folder.ancestors().find(|path| path.exists())?;
    let stat = statvfs(there).ok()?;
    Some(stat.f_bavail * stat.f_frsize)
}

impl Found {
    /// Whether it is a log, or a part of one.
    pub fn is_log(&self) -> bool {
        self.kind != Kind::Foreign
    }

    /// Bytes that it takes, as `du` counts.
    pub fn used(&self) -> u64 {
        // What a link leads to is not the cache's.
        let folders = self.folders.iter().filter(|folder| !folder.is_symlink());
        folders.map(|folder| used(folder)).sum()
    }

    /// The process that writes it now; 0 if its number cannot be told. `None` for a part of a log,
    /// of which that is not known.
    pub fn writer(&self) -> io::Result<Option<u32>> {
        match self.kind {
            Kind::Log => holder(&self.folders[0].join(LEASE)),
            Kind::Part | Kind::Foreign => Ok(None),
        }
    }

    /// Whether it is the log of this name, or of the dataset at this address.
    pub fn is_of(&self, name_or_address: &str) -> bool {
        self.name == name_or_address || self.about.as_deref() == Some(name_or_address)
    }

    /// The segments with chunks that are there: path, number and bytes.
    pub(super) fn segments(&self) -> Vec<(PathBuf, u32, u64)> {
        let mut segments = Vec::new();
        for folder in &self.folders {
            for (name, bytes) in names(folder).unwrap_or_default() {
                if let Some(number) = segment_number(&name) {
                    segments.push((folder.join(name), number, bytes));
                }
            }
        }
        segments
    }

    /// Files of it that are neither segments with chunks nor known, and their bytes.
    pub(super) fn others(&self) -> Vec<(String, u64)> {
        let known = [LEASE, PART, ABOUT, MAP, "samples.new", RESERVED];
        let names = self
            .folders
            .iter()
            .flat_map(|folder| names(folder).unwrap_or_default());
        names
            .filter(|(name, _)| !known.contains(&name.as_str()) && segment_number(name).is_none())
            .collect()
    }

    /// The table and its subject, if there is one that can be used.
    pub(super) fn table(&self, writable: bool) -> Option<(SampleIndex, Subject)> {
        let path = self.folders[0].join(MAP);
        let subject = subject(&path).ok().filter(|_| self.kind == Kind::Log)?;
        let table = if writable {
            SampleIndex::open_for_writing(&path, subject)
        } else {
            SampleIndex::open(&path, subject)
        };
        Some((table.ok().flatten()?, subject))
    }

    /// What it holds.
    pub fn contents(&self) -> Contents {
        if self.kind == Kind::Foreign {
            return Contents::default();
        }
        let segments = self.segments();
        let others = self.others();
        let reordered = others.iter().any(|(name, _)| is_reordered(name));
        let mut contents = Contents {
            layout: match (segments.is_empty(), reordered) {
                (true, true) => Some("reorder"),
                (true, false) => None,
                (false, false) => Some("packed"),
                (false, true) => Some("packed and reorder"),
            },
            segments: segments.len() as u64,
            others,
            ..Contents::default()
        };
        match self.table(false) {
            Some((table, subject)) => {
                contents.samples = Some(subject.samples);
                let there: HashMap<u32, u64> = segments
                    .iter()
                    .map(|(_, number, bytes)| (*number, *bytes))
                    .collect();
                let mut held = 0;
                for (_, at) in table.rows() {
                    if there
                        .get(&at.segment)
                        .is_some_and(|bytes| u64::from(at.offset) < *bytes)
                    {
                        held += 1;
                    } else if usize::from(at.dir) >= self.folders.len() {
                        contents.elsewhere += 1;
                    }
                }
                contents.held = Some(held);
            }
            None if reordered => {}
            None => {
                let mut keys = HashSet::new();
                for (path, number, _) in &segments {
                    let _ = chunks(path, *number, None, |_, _, entries| {
                        keys.extend(entries.iter().map(|entry| entry.identity.key));
                    });
                }
                contents.held = Some(keys.len() as u64);
            }
        }
        contents
    }

    /// The right to change it, unless a process has it or it lies elsewhere.
    pub(super) fn lease(&self) -> Result<Lease, CannotChange> {
        match self.kind {
            Kind::Log => {}
            Kind::Part => return Err(CannotChange::Part),
            Kind::Foreign => return Err(CannotChange::Foreign),
        }
        let path = self.folders[0].join(LEASE);
        match Lease::take(&path) {
            Ok(Some(lease)) => Ok(lease),
            Ok(None) => Err(CannotChange::InUse(
                holder(&path).ok().flatten().unwrap_or(0),
            )),
            Err(source) => Err(CannotChange::Io { path, source }),
        }
    }

    /// Deletes it, with whatever is in its folders; says how many bytes that freed. Not while a
    /// process writes it; those that only read it go on with what they have open.
    pub fn clear(&self) -> Result<u64, CannotChange> {
        let _lease = self.lease()?;
        let before = self.used();
        // The folder with the lease goes last: until then nobody begins to write here.
        for folder in self.folders.iter().rev() {
            fs::remove_dir_all(folder).map_err(|source| CannotChange::Io {
                path: folder.clone(),
                source,
            })?;
        }
        Ok(before.saturating_sub(self.used()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(FOLDER).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        dir
    }

    fn logs(dirs: &[&tempfile::TempDir]) -> Vec<Found> {
        let paths: Vec<_> = dirs.iter().map(|dir| dir.path().to_owned()).collect();
        find_logs(&paths).unwrap()
    }

    #[test]
    fn what_is_not_a_log_is_shown_and_never_deleted() {
        let dir = cache(&["mine/notes.txt", "book"]);
        std::os::unix::fs::symlink("/", dir.path().join("log/link")).unwrap();
        let found = logs(&[&dir]);
        assert_eq!(found.len(), 2);
        for found in found {
            assert!(found.used() < 1 << 20, "not what is behind the link");
            assert!(!found.is_log() && found.problem.is_some());
            assert!(matches!(found.clear(), Err(CannotChange::Foreign)));
        }
        assert!(dir.path().join("log/mine/notes.txt").exists());
    }

    #[test]
    fn a_log_with_broken_files_is_a_log_with_a_problem() {
        let dir = cache(&[
            "a/samples.map",
            "a/00000003.segment",
            "a/00000000.ordered",
            "a/x.segment",
        ]);
        let [found] = &logs(&[&dir])[..] else {
            panic!("one log")
        };
        assert!(found.problem.as_deref().unwrap().contains("samples.map"));
        let contents = found.contents();
        assert_eq!(
            (contents.segments, contents.held, contents.samples),
            (1, None, None)
        );
        assert_eq!(contents.layout, Some("packed and reorder"));
        let others: Vec<_> = contents
            .others
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(others, ["00000000.ordered", "x.segment"]);
        assert!(found.clear().unwrap() > 0);
        assert!(!dir.path().join("log/a").exists());
    }

    #[test]
    fn a_part_belongs_to_the_log_of_its_name_and_is_not_deleted_without_it() {
        let (home, other) = (cache(&["a/about"]), cache(&["a/00000001.segment"]));
        let part = &logs(&[&other])[0];
        assert!(matches!(part.clear(), Err(CannotChange::Part)));
        let found = logs(&[&other, &home]);
        let [log] = &found[..] else { panic!("one log") };
        assert!(log.folders[0].starts_with(home.path()));
        assert_eq!(log.segments().len(), 1);
        log.clear().unwrap();
        assert!(!other.path().join("log/a").exists());
    }

    #[test]
    fn looking_at_a_log_leaves_its_lease_alone() {
        let dir = cache(&["a/about"]);
        let log = &logs(&[&dir])[0];
        assert_eq!(log.writer().unwrap(), None);
        assert!(!dir.path().join("log/a/lease").exists());
        let lease = log.lease().unwrap();
        assert_eq!(log.writer().unwrap(), Some(std::process::id()));
        assert!(matches!(log.clear(), Err(CannotChange::InUse(_))));
        drop(lease);
        log.clear().unwrap();
    }
}
