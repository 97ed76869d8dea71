//! Walking an archive from header to header, without its data.
//!
//! The walk does no I/O: it says which bytes it wants next and is fed them, with as
//! many more as the feeder has. So one walk serves a local file (headers only), a
//! bucket (windows of some size) and bytes in memory.

use std::ops::Range;

use super::TarError;
use super::header::{self, BLOCK, Extensions, Header, LONGEST_EXTENSION, Sort};
use super::key;

/// A part of a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The sample's key: the path up to the first dot of its last part.
    pub key: String,
    /// What follows that dot, in lower case.
    pub ext: String,
    /// Where its data is.
    pub range: Range<u64>,
}

/// A file of the archive, with the headers before it.
#[derive(Debug)]
struct File {
    start: u64,
    name: String,
    data: Range<u64>,
    end: u64,
}

/// The parts of a sample, found in the bytes of its range.
pub fn members(bytes: &[u8]) -> Result<Vec<Member>, TarError> {
    let mut walk = Walk::new(bytes.len() as u64);
    let mut members: Vec<Member> = Vec::new();
    walk.feed(bytes, |file| {
        if let Some((key, ext)) = key::split(&file.name) {
            members.push(Member {
                key: key.to_owned(),
                ext: ext.to_lowercase(),
                range: file.data,
            });
        }
        Ok(())
    })?;
    match walk.wants() {
        None => Ok(members),
        Some(wants) => Err(TarError {
            offset: wants.start,
            what: "bytes end in a member".to_owned(),
        }),
    }
}

/// A walk that gathers the ranges of samples.
#[derive(Debug)]
pub(crate) struct Scan {
    walk: Walk,
    samples: Vec<Range<u64>>,
    key: String,
    endings: Vec<String>,
}

impl Scan {
    /// A scan of an archive of so many bytes.
    pub(crate) fn new(length: u64) -> Self {
        Self {
            walk: Walk::new(length),
            samples: Vec::new(),
            key: String::new(),
            endings: Vec::new(),
        }
    }

    /// The bytes needed to go on; `None` at the end.
    pub(crate) fn wants(&self) -> Option<Range<u64>> {
        self.walk.wants()
    }

    /// Takes bytes that start where `wants` starts and reach at least to its end.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), TarError> {
        let (samples, last, endings) = (&mut self.samples, &mut self.key, &mut self.endings);
        self.walk.feed(bytes, |file| {
            let Some((key, ext)) = key::split(&file.name) else {
                return Ok(());
            };
            let ext = ext.to_lowercase();
            match samples.last_mut() {
                Some(sample) if last == key => {
                    if endings.contains(&ext) {
                        return Err(format!(
                            "{}: sample {key:?} has two members that end in {ext:?}",
                            file.name
                        ));
                    }
                    sample.end = file.end;
                }
                _ => {
                    samples.push(file.start..file.end);
                    key.clone_into(last);
                    endings.clear();
                }
            }
            endings.push(ext);
            Ok(())
        })
    }

    /// The range of each sample.
    pub(crate) fn samples(self) -> Vec<Range<u64>> {
        self.samples
    }
}

#[derive(Debug)]
struct Walk {
    /// Where the next header is.
    at: u64,
    /// Bytes from there that must be seen to go on.
    need: u64,
    length: u64,
    /// The first extension header of the file to come, and what they say.
    start: Option<u64>,
    extensions: Extensions,
    ended: bool,
}

impl Walk {
    fn new(length: u64) -> Self {
        Self {
            at: 0,
            need: BLOCK,
            length,
            start: None,
            extensions: Extensions::default(),
            ended: false,
        }
    }

    fn wants(&self) -> Option<Range<u64>> {
        // An archive may end without its blocks of zeros.
        let over = self.ended || (self.at == self.length && self.start.is_none());
        (!over).then(|| self.at..self.at.saturating_add(self.need))
    }

    fn feed(
        &mut self,
        bytes: &[u8],
        mut found: impl FnMut(File) -> Result<(), String>,
    ) -> Result<(), TarError> {
        let base = self.at;
        while let Some(wants) = self.wants() {
            let offset = self.at;
            let wrong = |what: String| TarError { offset, what };
            if wants.end > self.length {
                return Err(wrong(format!(
                    "archive of {} bytes is cut off in a member",
                    self.length
                )));
            }
            let skip = usize::try_from(self.at - base).unwrap_or(usize::MAX);
            let Some(rest) = bytes
                .get(skip..)
                .filter(|rest| rest.len() as u64 >= self.need)
            else {
                return Ok(());
            };
            let Some(block) = rest.first_chunk() else {
                return Ok(());
            };
            let Some(header) = header::parse(block).map_err(wrong)? else {
                self.ended = true;
                break;
            };
            if let Some(file) = self.step(header, rest).map_err(wrong)? {
                found(file).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Takes one header, with the bytes from it on; gives the file that it completes.
    fn step(&mut self, header: Header, rest: &[u8]) -> Result<Option<File>, String> {
        let beyond = || format!("member {:?} has an impossible size", header.name);
        let is_extension = matches!(header.sort, Sort::LongName | Sort::Pax);
        if is_extension {
            if header.size > LONGEST_EXTENSION {
                return Err(format!("an extension header of {} bytes", header.size));
            }
            let whole = BLOCK + header::padded(header.size).ok_or_else(beyond)?;
            let Some(data) = rest.get(BLOCK as usize..(BLOCK + header.size) as usize) else {
                self.need = whole;
                return Ok(None);
            };
            self.extensions.add(header.sort, data)?;
            self.start.get_or_insert(self.at);
            self.at += whole;
            self.need = BLOCK;
            return Ok(None);
        }
        let extensions = std::mem::take(&mut self.extensions);
        let start = self.start.take().unwrap_or(self.at);
        let size = extensions
            .size
            .filter(|_| header.sort == Sort::File)
            .unwrap_or(header.size);
        let data = self.at + BLOCK;
        let end = data + header::padded(size).ok_or_else(beyond)?;
        if data + size > self.length {
            return Err(format!(
                "archive of {} bytes is cut off in member {:?}",
                self.length, header.name
            ));
        }
        self.need = BLOCK;
        // The last member's padding may be missing.
        self.at = end.min(self.length);
        if header.sort != Sort::File {
            return Ok(None);
        }
        let name = extensions.name.unwrap_or(header.name);
        Ok(Some(File {
            start,
            name,
            data: data..data + size,
            end: self.at,
        }))
    }
}
