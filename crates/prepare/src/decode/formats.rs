//! Every format but JPEG, by `image`; and which format it is.
//!
//! `image` gives the samples as they are stored. Pillow's `convert("RGB")` then does this:
//!
//! | stored | RGB |
//! |---|---|
//! | grey, with or without alpha | the grey three times |
//! | colour with alpha, or transparency by palette or key | the colour; alpha is dropped, not blended |
//! | 16-bit grey without alpha | **clipped** at 255, since Pillow takes it for an integer image |
//! | 16-bit colour, or grey with alpha | the high byte; rounded in PNM |

use std::io::Cursor;

use image::codecs::{bmp, png, pnm, tiff, webp};
use image::{ColorType, ImageDecoder, ImageError, Limits};

use super::exif;
use super::orientation::Orientation;
use super::webp::frames_fit;
use super::{Options, Raster, Size, corrupt, resize};
use crate::Error;

/// What a decoder may take besides the pixels themselves: profiles, palettes, texts, rows.
const BESIDES: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Jpeg,
    Png,
    WebP,
    Bmp,
    Pnm,
    Tiff,
}

impl Format {
    /// By the first bytes: names lie.
    pub(super) fn of(encoded: &[u8]) -> Result<Format, Error> {
        match encoded {
            [] => Err(corrupt("the file is empty")),
            [0xff, 0xd8, 0xff, ..] => Ok(Format::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Ok(Format::Png),
            [
                b'R',
                b'I',
                b'F',
                b'F',
                _,
                _,
                _,
                _,
                b'W',
                b'E',
                b'B',
                b'P',
                ..,
            ] => Ok(Format::WebP),
            [b'B', b'M', ..] => Ok(Format::Bmp),
            [b'P', b'1'..=b'6', b'\t'..=b'\r' | b' ' | b'#', ..] => Ok(Format::Pnm),
            [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Ok(Format::Tiff),
            _ => Err(corrupt("no image format is known that starts so")),
        }
    }
}

/// An image whose header was read.
pub(super) struct Opened<'a> {
    decoder: Box<dyn ImageDecoder + 'a>,
    format: Format,
    /// 16-bit grey without an alpha channel of its own.
    clips: bool,
}

/// Reads the header.
pub(super) fn open(encoded: &[u8], format: Format) -> Result<Opened<'_>, Error> {
    let bytes = Cursor::new(encoded);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(BESIDES);
    let decoder: Box<dyn ImageDecoder + '_> = match format {
        Format::Png => Box::new(png::PngDecoder::with_limits(bytes, limits).map_err(bad)?),
        Format::WebP => Box::new(webp::WebPDecoder::new(bytes).map_err(bad)?),
        Format::Bmp => Box::new(bmp::BmpDecoder::new(bytes).map_err(bad)?),
        Format::Pnm => Box::new(pnm::PnmDecoder::new(bytes).map_err(bad)?),
        Format::Tiff if !exif::is_sound(encoded) => {
            return Err(corrupt("its directory points past its end"));
        }
        Format::Tiff => Box::new(tiff::TiffDecoder::new(bytes).map_err(bad)?),
        Format::Jpeg => return Err(corrupt("JPEG has its own decoder")),
    };
    let (width, height) = decoder.dimensions();
    if format == Format::WebP && !frames_fit(encoded, Size { width, height }) {
        return Err(corrupt("it has a frame that is larger than the image"));
    }
    let clips = match decoder.color_type() {
        ColorType::L16 => true,
        // A key (tRNS) became an alpha channel; in the file (colour type 0) there is none.
        ColorType::La16 => format == Format::Png && encoded.get(25) == Some(&0),
        _ => false,
    };
    Ok(Opened {
        decoder,
        format,
        clips,
    })
}

impl Opened<'_> {
    pub(super) fn size(&self) -> Size {
        let (width, height) = self.decoder.dimensions();
        Size { width, height }
    }

    /// TIFF is turned without being asked: Pillow does it while loading.
    pub(super) fn orientation(&mut self, options: Options) -> Orientation {
        if !options.orient && self.format != Format::Tiff {
            return Orientation::default();
        }
        let found = self
            .decoder
            .orientation()
            .map(|found| Orientation::of_exif(found.to_exif()));
        found.unwrap_or_default()
    }

    /// Decodes; the size has been checked by the caller.
    pub(super) fn read(mut self, scratch: &mut Vec<u8>, out: &mut Raster) -> Result<(), Error> {
        let (size, color) = (self.size(), self.decoder.color_type());
        let mut limits = Limits::no_limits();
        let bytes = u64::from(color.bytes_per_pixel());
        // Twice: some decoders hold the samples as stored beside those they give.
        limits.max_alloc = Some(2 * size.pixels() * bytes.max(4) + BESIDES);
        self.decoder.set_limits(limits).map_err(bad)?;
        out.reshape(size, 3)?;
        if color == ColorType::Rgb8 {
            return self.decoder.read_image_boxed(&mut out.rgb).map_err(bad);
        }
        resize(scratch, size, bytes)?;
        self.decoder.read_image_boxed(scratch).map_err(bad)?;
        let wide: fn(u16) -> u8 = match (self.clips, self.format) {
            (true, _) => |value| value.min(255) as u8,
            (_, Format::Pnm) => |value| ((u32::from(value) * 255 + 32_767) / 65_535) as u8,
            _ => |value| (value >> 8) as u8,
        };
        let word = |pair: &[u8]| wide(u16::from_ne_bytes([pair[0], pair[1]]));
        match color {
            ColorType::L8 => narrow::<1>(scratch, out, |p| [p[0]; 3]),
            ColorType::La8 => narrow::<2>(scratch, out, |p| [p[0]; 3]),
            ColorType::Rgba8 => narrow::<4>(scratch, out, |p| [p[0], p[1], p[2]]),
            ColorType::L16 => narrow::<2>(scratch, out, |p| [word(p); 3]),
            ColorType::La16 => narrow::<4>(scratch, out, |p| [word(p); 3]),
            ColorType::Rgb16 => {
                narrow::<6>(scratch, out, |p| [word(p), word(&p[2..]), word(&p[4..])]);
            }
            ColorType::Rgba16 => {
                narrow::<8>(scratch, out, |p| [word(p), word(&p[2..]), word(&p[4..])]);
            }
            other => {
                return Err(corrupt(format!(
                    "pixels of kind {other:?} are not supported"
                )));
            }
        }
        Ok(())
    }
}

/// Pixels of `N` bytes to RGB.
fn narrow<const N: usize>(stored: &[u8], out: &mut Raster, rgb: impl Fn(&[u8; N]) -> [u8; 3]) {
    let (pixels, _) = stored.as_chunks::<N>();
    let (targets, _) = out.rgb.as_chunks_mut::<3>();
    for (pixel, target) in pixels.iter().zip(targets) {
        *target = rgb(pixel);
    }
}

fn bad(error: ImageError) -> Error {
    corrupt(error.to_string())
}
