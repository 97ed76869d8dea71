//! A short list of strings: a varint length and the bytes, one after the other.

use crate::Error;
use crate::names::{put_varint, take_varint};

pub(crate) fn put(bytes: &mut Vec<u8>, text: &str) {
    put_varint(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Result<&'a str, Error> {
    let length = usize::try_from(take_varint(bytes)?).unwrap_or(usize::MAX);
    let (text, rest) = bytes
        .split_at_checked(length)
        .ok_or_else(|| Error::corrupt("a string ends outside its section"))?;
    *bytes = rest;
    std::str::from_utf8(text).map_err(|_| Error::corrupt("a string is not UTF-8"))
}
