//! The segments of a JPEG file, walked without libjpeg.
//!
//! ```text
//!   SOI  APP1(exif)  DQT  SOF(size, sampling)  DHT  SOS entropy-coded...  [SOS ...]*  EOI
//! ```
//!
//! Three questions are answered from here, mostly for a few hundred bytes of reading: how large the
//! image is (before a decoder is given anything), where its EXIF block is, and whether the file was
//! cut off.

use super::{Size, corrupt};
use crate::Error;

const START_OF_SCAN: u8 = 0xda;
const END_OF_IMAGE: u8 = 0xd9;

/// What the frame header tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    width: u16,
    height: u16,
    arithmetic: bool,
    /// The width of one MCU in a scan of all components.
    columns: u32,
    /// 8x8 blocks of the first component, and of all.
    first: u64,
    blocks: u64,
}

impl Frame {
    pub(super) fn size(self) -> Size {
        Size {
            width: self.width.into(),
            height: self.height.into(),
        }
    }

    /// The width that a crop of the decoder must begin at a multiple of.
    pub(super) fn step(self) -> u32 {
        self.columns
    }

    /// 8x8 blocks of all components, up to whole MCUs.
    pub(super) fn blocks(self) -> u64 {
        self.blocks
    }

    /// Whether `length` bytes can hold the frame at all.
    ///
    /// Huffman codes have at least a bit, and every block of the first component has one: a
    /// file of fewer bits is cut off or hostile, and libjpeg would fill gigapixels with grey.
    /// Small images are let through to libjpeg's own verdict.
    pub(super) fn is_plausible(self, length: usize) -> bool {
        const SMALL: u64 = 1 << 16;
        let bits = 8 * length as u64;
        // An arithmetic coder spends less than a bit where nothing changes.
        let blocks = if self.arithmetic {
            self.first / 4
        } else {
            self.first
        };
        self.first <= SMALL || blocks <= bits
    }

    fn parse(marker: u8, payload: &[u8]) -> Option<Frame> {
        let &[_precision, h1, h0, w1, w0, count, ref components @ ..] = payload else {
            return None;
        };
        let components = components.get(..3 * usize::from(count))?;
        let factors = || {
            components
                .chunks_exact(3)
                .map(|part| (part[1] >> 4, part[1] & 15))
        };
        if !factors().all(|(h, v)| (1..=4).contains(&h) && (1..=4).contains(&v)) {
            return None;
        }
        let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
        let (mut h, mut v) = (factors().map(|f| f.0).max()?, factors().map(|f| f.1).max()?);
        let mut in_unit: Vec<_> = factors()
            .map(|(h, v)| u64::from(h) * u64::from(v))
            .collect();
        if count == 1 {
            // The factors of a lone component mean nothing.
            (h, v, in_unit) = (1, 1, vec![1]);
        }
        let (columns, rows) = (8 * u32::from(h), 8 * u32::from(v));
        let units = u64::from(u32::from(width).div_ceil(columns))
            * u64::from(u32::from(height).div_ceil(rows));
        Some(Frame {
            width,
            height,
            arithmetic: marker >= 0xc9,
            columns,
            first: units * in_unit[0],
            blocks: units * in_unit.iter().sum::<u64>(),
        })
    }
}

/// The frame header, from the first bytes of the file.
pub(super) fn frame(encoded: &[u8]) -> Result<Frame, Error> {
    for (marker, payload) in Segments::new(encoded) {
        match marker {
            // DHT, JPG and DAC lie among the SOF markers.
            0xc4 | 0xc8 | 0xcc => {}
            0xc0..=0xcf => {
                let frame = Frame::parse(marker, payload);
                return frame.ok_or_else(|| corrupt("its frame header is damaged"));
            }
            START_OF_SCAN | END_OF_IMAGE => break,
            _ => {}
        }
    }
    Err(corrupt(
        "it ends before the frame header that tells its size",
    ))
}

/// The EXIF block, from its TIFF header on.
pub(super) fn exif(encoded: &[u8]) -> Option<&[u8]> {
    Segments::new(encoded)
        .take_while(|(marker, _)| *marker != START_OF_SCAN)
        .filter(|(marker, _)| *marker == 0xe1)
        .find_map(|(_, payload)| payload.strip_prefix(b"Exif\0\0"))
}

/// Everything up to the first scan's own header, unless the file says that it holds more images.
pub(super) fn head(encoded: &[u8]) -> Option<&[u8]> {
    let mut segments = Segments::new(encoded);
    loop {
        match segments.next()? {
            (0xe2, payload) if payload.starts_with(b"MPF\0") => return None,
            (START_OF_SCAN, _) => return encoded.get(..encoded.len() - segments.rest().len()),
            (END_OF_IMAGE, _) => return None,
            _ => {}
        }
    }
}

/// Whether the end-of-image marker is there: a file that was cut off has none.
pub(super) fn is_complete(encoded: &[u8]) -> bool {
    // Nearly always it ends the file; what lies behind it is let pass.
    encoded.ends_with(&[0xff, END_OF_IMAGE])
        || Segments::new(encoded).any(|(marker, _)| marker == END_OF_IMAGE)
}

/// Markers with what they carry; entropy-coded data is stepped over as libjpeg does.
pub(super) struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Segments<'a> {
    pub(super) fn new(encoded: &'a [u8]) -> Self {
        Segments {
            rest: encoded.get(2..).unwrap_or_default(),
        }
    }

    /// What comes behind the last segment that was given.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Segments<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let start = self.rest.iter().position(|&byte| byte == 0xff)?;
            self.rest = &self.rest[start..];
            let code = self.rest.iter().position(|&byte| byte != 0xff)?;
            let marker = self.rest[code];
            self.rest = &self.rest[code + 1..];
            match marker {
                // A stuffed 0xff, a restart, TEM: in the entropy-coded data, carrying nothing.
                0x00 | 0x01 | 0xd0..=0xd8 => {}
                END_OF_IMAGE => return Some((marker, &[])),
                _ => {
                    let length = u16::from_be_bytes([*self.rest.first()?, *self.rest.get(1)?]);
                    let payload = self.rest.get(2..usize::from(length))?;
                    self.rest = &self.rest[usize::from(length)..];
                    return Some((marker, payload));
                }
            }
        }
    }
}
