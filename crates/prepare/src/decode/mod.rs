//! From an encoded image to RGB pixels, as Pillow's `convert("RGB")` gives them.
//!
//! ```text
//!            first bytes --> format
//!   JPEG     markers: size --> caps --> libjpeg-turbo: only the rows and columns that are wanted
//!                                       (fast mode: `quick`, where that knows the file)
//!   others   header:  size --> caps --> `image`: the whole
//!                                        \--> turned by EXIF, if asked for
//! ```
//!
//! Every input is taken for hostile: the size in the header is checked before memory is taken
//! for it, and work is bounded by the length of the file. A bad image is an error, never a panic.

mod exif;
mod formats;
mod jpeg;
mod markers;
mod orientation;
mod quick;
mod scale;
#[cfg(test)]
mod tests;
mod turbo;
mod webp;

use crate::Error;
use formats::Format;
use jpeg::Jpeg;
use orientation::Orientation;

/// The part of a file that tells all of an image but its pixels (its size, EXIF, colour profile, ...),
/// if that part stands by itself: of a JPEG with one image in it, what comes before its first scan.
pub fn head(encoded: &[u8]) -> Option<&[u8]> {
    (Format::of(encoded).ok()? == Format::Jpeg)
        .then(|| markers::head(encoded))
        .flatten()
}

/// The decoders of one thread: libjpeg's handle and the buffers are kept from image to image.
#[derive(Debug, Default)]
pub(crate) struct Decoders {
    jpeg: Jpeg,
    scratch: Vec<u8>,
}

/// How to decode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Quickly instead of with Pillow's exact pixels: a rougher DCT, DCT scaling, the passes of a
    /// resize in the cheaper order.
    pub(crate) fast: bool,
    /// Turn the image as its EXIF orientation says.
    pub(crate) orient: bool,
    /// No image of more pixels is decoded.
    pub(crate) max_pixels: u64,
}

/// Width and height in pixels, after orientation if that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Size {
    fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    fn check(self, options: Options) -> Result<Size, Error> {
        match self.pixels() {
            0 => Err(corrupt("the header tells of an image without pixels")),
            pixels if pixels > options.max_pixels => Err(Error::TooLarge {
                pixels,
                limit: options.max_pixels,
            }),
            _ => Ok(self),
        }
    }
}

/// A box of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rect {
    pub(crate) left: u32,
    pub(crate) top: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Rect {
    pub(crate) fn whole(size: Size) -> Rect {
        let Size { width, height } = size;
        Rect {
            left: 0,
            top: 0,
            width,
            height,
        }
    }

    pub(crate) fn size(self) -> Size {
        let Rect { width, height, .. } = self;
        Size { width, height }
    }

    /// Of the same size.
    fn at_origin(self) -> Rect {
        Rect {
            left: 0,
            top: 0,
            ..self
        }
    }

    fn lies_in(self, size: Size) -> bool {
        let ends = |start: u32, length: u32| u64::from(start) + u64::from(length);
        self.width > 0
            && self.height > 0
            && ends(self.left, self.width) <= u64::from(size.width)
            && ends(self.top, self.height) <= u64::from(size.height)
    }
}

/// Decoded pixels, row by row. The buffer is used again by the next image.
#[derive(Debug, Default)]
pub(crate) struct Raster {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Bytes a pixel: 3 (RGB), or 4 of which the last means nothing.
    pub(crate) channels: usize,
    pub(crate) rgb: Vec<u8>,
}

impl Raster {
    /// Makes room for `size`; the pixels are whatever was there before.
    fn reshape(&mut self, size: Size, channels: usize) -> Result<(), Error> {
        resize(&mut self.rgb, size, channels as u64)?;
        self.channels = channels;
        self.width = size.width;
        self.height = size.height;
        Ok(())
    }

    pub(crate) fn size(&self) -> Size {
        Size {
            width: self.width,
            height: self.height,
        }
    }
}

impl Decoders {
    /// Width and height by the header alone.
    pub(crate) fn size(&mut self, encoded: &[u8], options: Options) -> Result<Size, Error> {
        let (stored, orientation) = match Format::of(encoded)? {
            Format::Jpeg => (
                markers::frame(encoded)?.size(),
                jpeg_orientation(encoded, options),
            ),
            format => {
                let mut image = formats::open(encoded, format)?;
                (image.size(), image.orientation(options))
            }
        };
        Ok(orientation.turn_size(stored.check(options)?))
    }

    /// Decodes the whole image at full size.
    pub(crate) fn whole(
        &mut self,
        encoded: &[u8],
        options: Options,
        out: &mut Raster,
    ) -> Result<(), Error> {
        let orientation = match Format::of(encoded)? {
            Format::Jpeg => {
                self.jpeg.whole(encoded, options, out)?;
                jpeg_orientation(encoded, options)
            }
            format => self.other(encoded, format, options, out)?,
        };
        orientation.turn(out, &mut self.scratch)
    }

    /// Decodes what `wanted` (in full-size pixels) needs; gives where it lies in `out`.
    ///
    /// With `options.fast` and a `target`, a JPEG is decoded at a scale at which `wanted` is
    /// still at least `target` in both axes.
    pub(crate) fn region(
        &mut self,
        encoded: &[u8],
        wanted: Rect,
        target: Option<Size>,
        options: Options,
        out: &mut Raster,
    ) -> Result<Rect, Error> {
        let format = Format::of(encoded)?;
        if format != Format::Jpeg {
            let orientation = self.other(encoded, format, options, out)?;
            orientation.turn(out, &mut self.scratch)?;
            return inside(wanted, out.size()).map(|()| wanted);
        }
        let orientation = jpeg_orientation(encoded, options);
        let stored = markers::frame(encoded)?.size().check(options)?;
        inside(wanted, orientation.turn_size(stored))?;
        let unturned = orientation.unturn_rect(wanted, stored);
        let target = target.map(|size| orientation.turn_size(size));
        let found = self.jpeg.region(encoded, unturned, target, options, out)?;
        let found = orientation.turn_rect(found, out.size());
        orientation.turn(out, &mut self.scratch)?;
        Ok(found)
    }

    fn other(
        &mut self,
        encoded: &[u8],
        format: Format,
        options: Options,
        out: &mut Raster,
    ) -> Result<Orientation, Error> {
        let mut image = formats::open(encoded, format)?;
        image.size().check(options)?;
        let orientation = image.orientation(options);
        image.read(&mut self.scratch, out)?;
        Ok(orientation)
    }
}

fn inside(wanted: Rect, size: Size) -> Result<(), Error> {
    if wanted.lies_in(size) {
        return Ok(());
    }
    let Size { width, height } = size;
    Err(Error::Invalid(format!(
        "the box {wanted:?} is not inside the image of {width}x{height}"
    )))
}

fn jpeg_orientation(encoded: &[u8], options: Options) -> Orientation {
    let of = |payload| exif::orientation(payload).map(Orientation::of_exif);
    let wanted = options.orient.then(|| markers::exif(encoded)).flatten();
    wanted.and_then(of).unwrap_or_default()
}

/// Makes `buffer` as long as an image of `size` is; no memory is an error, not an abort.
fn resize(buffer: &mut Vec<u8>, size: Size, channels: u64) -> Result<(), Error> {
    let length = size
        .pixels()
        .checked_mul(channels)
        .and_then(|bytes| usize::try_from(bytes).ok());
    let length = length.ok_or_else(|| corrupt("the image does not fit in the address space"))?;
    let more = length.saturating_sub(buffer.len());
    buffer
        .try_reserve_exact(more)
        .map_err(|_| corrupt("there is no memory for its pixels"))?;
    buffer.resize(length, 0);
    Ok(())
}

fn corrupt(why: impl Into<String>) -> Error {
    Error::Corrupt(why.into())
}
