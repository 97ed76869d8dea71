//! JPEG by libjpeg-turbo, only the part that is wanted.
//!
//! ```text
//!   +--------------------------+  rows above: entropy-decoded, not transformed
//!   |......+-----------+.......|
//!   |......|  wanted   |.......|  columns beside: the same, but for whole MCUs and a margin,
//!   |......+-----------+.......|  since chroma is smoothed from its neighbours
//!   |                          |  rows below: not read at all
//!   +--------------------------+
//! ```
//!
//! Exact mode is what Pillow does: accurate DCT, smoothed chroma, full size; a pixel is the same
//! whether it was decoded with the whole or with a part. Fast mode has a rougher DCT, chroma
//! repeated instead of smoothed, a smaller scale where the target allows, and for most files a
//! decoder of our own ([`Quick`]). A part has four bytes a pixel, which are resized more quickly
//! than three.
//!
//! A file that is cut off is an error, as in Pillow, whether or not the part that is wanted lies
//! above the cut: what becomes of a sample must not depend on its crop. What else libjpeg warns of
//! is let pass, as in Pillow.

use super::markers::{self, Frame};
use super::quick::Quick;
use super::scale::Scale;
use super::turbo::{Complaint, Format, Header, Settings, Turbo};
use super::{Options, Raster, Rect, Size, corrupt, resize};
use crate::Error;

/// What is kept from image to image.
#[derive(Debug, Default)]
pub(super) struct Jpeg {
    cmyk: Vec<u8>,
    quick: Option<Box<Quick>>,
}

impl Jpeg {
    pub(super) fn whole(
        &mut self,
        encoded: &[u8],
        options: Options,
        out: &mut Raster,
    ) -> Result<(), Error> {
        let frame = check(encoded, options)?;
        self.with(|turbo, cmyk| {
            let header = open(turbo, encoded, frame, options)?;
            let all = Aim {
                scale: Scale::FULL,
                crop: None,
                channels: 3,
            };
            part(turbo, encoded, header, all, cmyk, out)
        })
    }

    /// Gives where `wanted`, which the caller has checked to lie in the image, is in `out`.
    pub(super) fn region(
        &mut self,
        encoded: &[u8],
        wanted: Rect,
        target: Option<Size>,
        options: Options,
        out: &mut Raster,
    ) -> Result<Rect, Error> {
        let frame = check(encoded, options)?;
        let scale = Scale::choose(wanted, target, options);
        let scaled = scale.size(frame.size());
        let mut found = scale.rect(wanted, scaled);
        if options.fast {
            let quick = self.quick.get_or_insert_default();
            if quick.region(encoded, scale, found, out).is_some() {
                return Ok(found.at_origin());
            }
        }
        self.with(|turbo, cmyk| {
            let header = open(turbo, encoded, frame, options)?;
            let crop = (header.can_crop && found != Rect::whole(scaled))
                .then(|| scale.crop(found, frame.step(), scaled));
            let aim = Aim {
                scale,
                crop,
                channels: 4,
            };
            part(turbo, encoded, header, aim, cmyk, out)?;
            if let Some(crop) = crop {
                found.left -= crop.left;
                found.top -= crop.top;
            }
            Ok(found)
        })
    }

    /// Every image has a handle of its own. One that has decoded another image still has that
    /// one's Huffman and quantization tables, which a damaged file that lacks them would be decoded
    /// with; and libjpeg-turbo 3.1 skips rows through that one's colour converter, which is freed.
    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Turbo, &mut Vec<u8>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let made = Turbo::new();
        let mut turbo = made.map_err(|complaint| corrupt(format!("no decoder: {complaint:?}")))?;
        work(&mut turbo, &mut self.cmyk)
    }
}

/// Which part, how large, and in how many bytes a pixel (inks always become three).
#[derive(Debug, Clone, Copy)]
struct Aim {
    scale: Scale,
    crop: Option<Rect>,
    channels: usize,
}

/// What no decoder needs to be asked for.
fn check(encoded: &[u8], options: Options) -> Result<Frame, Error> {
    let frame = markers::frame(encoded)?;
    frame.size().check(options)?;
    if !frame.is_plausible(encoded.len()) {
        return Err(corrupt(
            "it is cut off: too short for the size its header tells",
        ));
    }
    if !markers::is_complete(encoded) {
        return Err(corrupt("it is cut off: its last part is missing"));
    }
    Ok(frame)
}

/// Reads the header, checks what it tells, and sets the limits for what follows.
fn open(
    turbo: &mut Turbo,
    encoded: &[u8],
    frame: Frame,
    options: Options,
) -> Result<Header, Error> {
    let (header, complaint) = turbo.header(encoded);
    judge(complaint)?;
    if header.size != frame.size() {
        return Err(corrupt("it has two frame headers"));
    }
    let settings = Settings {
        fast: options.fast,
        scans: scan_limit(frame),
        mebibytes: memory_limit(frame),
    };
    judge(turbo.configure(settings))?;
    Ok(header)
}

fn part(
    turbo: &mut Turbo,
    encoded: &[u8],
    header: Header,
    aim: Aim,
    cmyk: &mut Vec<u8>,
    out: &mut Raster,
) -> Result<(), Error> {
    let all = aim.scale.size(header.size);
    judge(turbo.aim(aim.scale.factor(), all, aim.crop))?;
    let size = aim.crop.map_or(all, Rect::size);
    if !header.four_inks {
        out.reshape(size, aim.channels)?;
        let format = match aim.channels {
            4 => Format::Rgbx,
            _ => Format::Rgb,
        };
        return judge(turbo.decode(encoded, format, &mut out.rgb));
    }
    out.reshape(size, 3)?;
    resize(cmyk, size, 4)?;
    judge(turbo.decode(encoded, Format::Cmyk, cmyk))?;
    let (inks, _) = cmyk.as_chunks::<4>();
    let (pixels, _) = out.rgb.as_chunks_mut::<3>();
    for (ink, pixel) in inks.iter().zip(pixels) {
        *pixel = ink_to_rgb(*ink);
    }
    Ok(())
}

fn judge(complaint: Result<(), Complaint>) -> Result<(), Error> {
    match complaint {
        Err(Complaint::Fatal(text)) => Err(corrupt(text)),
        Err(Complaint::Warning) | Ok(()) => Ok(()),
    }
}

/// Each scan visits every block, and may cost a few bytes of file: the more blocks, the fewer
/// scans. Photos have ten.
fn scan_limit(frame: Frame) -> i32 {
    const VISITS: u64 = 1 << 22;
    (VISITS / frame.blocks().max(1)).clamp(20, 500) as i32
}

/// In MiB: the coefficients of a progressive file, and as much again for rows and tables.
fn memory_limit(frame: Frame) -> i32 {
    const COEFFICIENTS: u64 = 64 * 2;
    (16 + ((frame.blocks() * COEFFICIENTS * 2) >> 20)).min(i32::MAX as u64) as i32
}

/// Adobe's inks are stored inverted, and Pillow takes all for Adobe's.
fn ink_to_rgb([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let paper = u32::from(k);
    [c, m, y].map(|ink| {
        // Pillow's rounded division by 255.
        let product = (255 - u32::from(ink)) * paper + 128;
        (paper - ((product + (product >> 8)) >> 8).min(paper)) as u8
    })
}
