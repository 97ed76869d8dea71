//! One 512-byte header of a tar, and the extensions that may come before it.
//!
//! ```text
//! name 100 | mode 8 | uid 8 | gid 8 | size 12 | mtime 12 | checksum 8 | type 1 | link 100
//! | magic 6 | version 2 | owner 32 | group 32 | device 16 | prefix 155 | pad 12
//! ```
//!
//! ustar, GNU long names (`L`), pax `path` and `size` (`x`).

pub(crate) const BLOCK: u64 = 512;

/// The longest extension (a name, or pax records) that is taken for one.
pub(crate) const LONGEST_EXTENSION: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    File,
    LongName,
    Pax,
    /// Folders, links, devices, global pax records, long link names.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sort: Sort,
    pub(crate) size: u64,
    pub(crate) name: String,
}

/// Reads a header; `None` for a block of zeros, which ends an archive.
pub(crate) fn parse(block: &[u8; BLOCK as usize]) -> Result<Option<Header>, String> {
    if block.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let stored = octal(&block[148..156]).ok_or("not a tar header: its checksum is no number")?;
    let sum = |signed: bool| -> i64 {
        block
            .iter()
            .enumerate()
            .map(|(at, &byte)| if (148..156).contains(&at) { b' ' } else { byte })
            .map(|byte| {
                if signed {
                    i64::from(byte as i8)
                } else {
                    i64::from(byte)
                }
            })
            .sum()
    };
    if stored as i64 != sum(false) && stored as i64 != sum(true) {
        return Err(format!(
            "not a tar header: checksum is {}, it says {stored}",
            sum(false)
        ));
    }
    let size = number(&block[124..136]).ok_or("the size in the header is no number")?;
    let mut name = text(&block[..100])?;
    if &block[257..263] == b"ustar\0" && block[345] != 0 {
        name = format!("{}/{name}", text(&block[345..500])?);
    }
    let sort = match block[156] {
        // Old archives mark a folder by its name alone.
        b'\0' | b'0' | b'7' if !(block[156] == b'\0' && name.ends_with('/')) => Sort::File,
        b'L' => Sort::LongName,
        b'x' | b'X' => Sort::Pax,
        b'S' => return Err("sparse files are not supported".to_owned()),
        _ => Sort::Other,
    };
    // Links and folders may carry a size but never data.
    let dataless = matches!(block[156], b'1'..=b'6' | b'\0') && sort == Sort::Other;
    Ok(Some(Header {
        sort,
        size: if dataless { 0 } else { size },
        name,
    }))
}

/// The bytes that data of this size takes, with its padding; `None` if no file is as long.
pub(crate) fn padded(size: u64) -> Option<u64> {
    size.checked_next_multiple_of(BLOCK)
        .filter(|&padded| padded < 1 << 62)
}

fn text(field: &[u8]) -> Result<String, String> {
    let end = field
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(field.len());
    utf8(&field[..end])
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    let lossy = || {
        format!(
            "member name {:?} is not UTF-8",
            String::from_utf8_lossy(bytes)
        )
    };
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| lossy())
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let text = text.trim_matches(|c: char| c == ' ' || c == '\0');
    if text.is_empty() {
        Some(0)
    } else {
        u64::from_str_radix(text, 8).ok()
    }
}

/// Octal, or GNU's binary form for sizes of 8 GiB and more.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] == 0x80 {
        let (high, low) = field[1..].split_at(field.len() - 9);
        let low = low.first_chunk::<8>()?;
        return high
            .iter()
            .all(|&byte| byte == 0)
            .then(|| u64::from_be_bytes(*low));
    }
    octal(field)
}

/// What extensions say about the file that follows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extensions {
    pub(crate) name: Option<String>,
    pub(crate) size: Option<u64>,
}

impl Extensions {
    pub(crate) fn add(&mut self, sort: Sort, data: &[u8]) -> Result<(), String> {
        match sort {
            Sort::LongName => self.name = Some(text(data)?),
            Sort::Pax => self.add_pax(data)?,
            Sort::File | Sort::Other => {}
        }
        Ok(())
    }

    /// Records of the form `length key=value\n`, the length being the whole record's.
    fn add_pax(&mut self, mut data: &[u8]) -> Result<(), String> {
        let bad = || "a pax record is malformed".to_owned();
        while !data.is_empty() && data[0] != 0 {
            let space = data.iter().position(|&byte| byte == b' ').ok_or_else(bad)?;
            let length = std::str::from_utf8(&data[..space])
                .ok()
                .and_then(|text| text.parse::<usize>().ok());
            let length = length
                .filter(|&length| length > space + 1 && length <= data.len())
                .ok_or_else(bad)?;
            let record = data[space + 1..length]
                .strip_suffix(b"\n")
                .ok_or_else(bad)?;
            let equals = record
                .iter()
                .position(|&byte| byte == b'=')
                .ok_or_else(bad)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name = Some(utf8(value)?),
                b"size" => self.size = Some(utf8(value)?.parse().map_err(|_| bad())?),
                key if key.starts_with(b"GNU.sparse") => {
                    return Err("sparse files are not supported".to_owned());
                }
                _ => {}
            }
            data = &data[length..];
        }
        Ok(())
    }
}
