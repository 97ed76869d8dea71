//! Turning pixels as EXIF says, which is what `PIL.ImageOps.exif_transpose` does.
//!
//! Each of the eight values says, for a pixel of the turned image, where it is stored: the axes
//! are swapped or not, then each stored axis is counted from its other end or not.

use super::{Raster, Rect, Size, resize};
use crate::Error;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Orientation {
    swap: bool,
    from_right: bool,
    from_bottom: bool,
}

impl Orientation {
    /// Values other than 2 to 8 leave the image as it is.
    pub(super) fn of_exif(value: u8) -> Orientation {
        let (swap, from_right, from_bottom) = match value {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, false, true),
            7 => (true, true, true),
            8 => (true, true, false),
            _ => (false, false, false),
        };
        Orientation {
            swap,
            from_right,
            from_bottom,
        }
    }

    /// Its own inverse.
    pub(super) fn turn_size(self, size: Size) -> Size {
        match self.swap {
            true => Size {
                width: size.height,
                height: size.width,
            },
            false => size,
        }
    }

    /// Where a box of the stored image of `stored` size lies in the turned one.
    pub(super) fn turn_rect(self, rect: Rect, stored: Size) -> Rect {
        let flipped = self.flip(rect, stored);
        if self.swap {
            transposed(flipped)
        } else {
            flipped
        }
    }

    /// Where a box of the turned image lies in the stored one of `stored` size.
    pub(super) fn unturn_rect(self, rect: Rect, stored: Size) -> Rect {
        self.flip(if self.swap { transposed(rect) } else { rect }, stored)
    }

    fn flip(self, mut rect: Rect, stored: Size) -> Rect {
        if self.from_right {
            rect.left = stored.width - rect.left - rect.width;
        }
        if self.from_bottom {
            rect.top = stored.height - rect.top - rect.height;
        }
        rect
    }

    /// Turns the pixels, through `scratch`.
    pub(super) fn turn(self, raster: &mut Raster, scratch: &mut Vec<u8>) -> Result<(), Error> {
        if self == Orientation::default() {
            return Ok(());
        }
        match raster.channels {
            4 => self.turn_pixels::<4>(raster, scratch),
            _ => self.turn_pixels::<3>(raster, scratch),
        }
    }

    fn turn_pixels<const N: usize>(
        self,
        raster: &mut Raster,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let stored = raster.size();
        let turned = self.turn_size(stored);
        resize(scratch, turned, N as u64)?;
        let (width, height) = (stored.width as usize, stored.height as usize);
        let (source, _) = raster.rgb.as_chunks::<N>();
        let (target, _) = scratch.as_chunks_mut::<N>();
        for (y, row) in target.chunks_exact_mut(turned.width as usize).enumerate() {
            for (x, pixel) in row.iter_mut().enumerate() {
                let (column, line) = if self.swap { (y, x) } else { (x, y) };
                let column = if self.from_right {
                    width - 1 - column
                } else {
                    column
                };
                let line = if self.from_bottom {
                    height - 1 - line
                } else {
                    line
                };
                *pixel = source[line * width + column];
            }
        }
        std::mem::swap(&mut raster.rgb, scratch);
        raster.width = turned.width;
        raster.height = turned.height;
        Ok(())
    }
}

fn transposed(rect: Rect) -> Rect {
    Rect {
        left: rect.top,
        top: rect.left,
        width: rect.height,
        height: rect.width,
    }
}
