//! The image between two steps: a view of some buffer, so that crops and flips cost nothing.
//!
//! ```text
//!   buffer (decoded image, or front)      view: a box of it, perhaps to be read
//!   +------------------+                  right to left (mirrored) or bottom up (upended)
//!   |    +-------+     |
//!   |    | view  |     |   crop, flip:    change the view, touch no pixel
//!   |    +-------+     |   resize, pad:   read the view, write `back`, swap
//!   +------------------+   colours:       copy the view to the front once, then in place
//! ```

use crate::decode::{Rect, Size};
use crate::scratch::{Buffers, room};

/// Decoded pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image<'a> {
    pub(crate) bytes: &'a [u8],
    /// Bytes a pixel: 3 (RGB), or 4 of which the last means nothing.
    pub(crate) channels: usize,
    pub(crate) size: Size,
}

/// The image as the steps so far have left it.
#[derive(Debug)]
pub(crate) struct Canvas<'a> {
    /// The decoded image, which is never written to; until a step has written the front.
    source: Option<&'a [u8]>,
    /// Size of the buffer that is viewed.
    whole: Size,
    view: Rect,
    /// Bytes a pixel: 1 (grey), 3 (RGB), or 4 of which the last means nothing.
    pub(super) channels: usize,
    mirrored: bool,
    upended: bool,
    /// Resize with the cheaper pass first, rather than in Pillow's order.
    pub(super) fast: bool,
    pub(super) buffers: &'a mut Buffers,
}

impl<'a> Canvas<'a> {
    /// A view of a decoded image. With `fast`, pixels may differ a little from Pillow's.
    pub(crate) fn new(
        image: Image<'a>,
        view: Rect,
        fast: bool,
        buffers: &'a mut Buffers,
    ) -> Canvas<'a> {
        let (mirrored, upended) = (false, false);
        Canvas {
            source: Some(image.bytes),
            whole: image.size,
            view,
            channels: image.channels,
            mirrored,
            upended,
            fast,
            buffers,
        }
    }

    pub(crate) fn size(&self) -> Size {
        self.view.size()
    }

    pub(crate) fn channels(&self) -> usize {
        self.channels
    }

    pub(crate) fn mirrored(&self) -> bool {
        self.mirrored
    }

    pub(crate) fn mirror(&mut self) {
        self.mirrored = !self.mirrored;
    }

    pub(crate) fn upend(&mut self) {
        self.upended = !self.upended;
    }

    /// Keeps a box of what is seen.
    pub(crate) fn crop(&mut self, wanted: Rect) {
        self.view = within(self.view, wanted, self.mirrored, self.upended);
    }

    /// The rows as seen, from the top; each still from left to right as in the buffer
    /// ([`Canvas::mirrored`] says if that is to be turned).
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.view.height).map(|y| self.row(y))
    }

    fn row(&self, y: u32) -> &[u8] {
        let y = if self.upended {
            self.view.height - 1 - y
        } else {
            y
        };
        let (stride, channels) = (self.whole.width as usize, self.channels);
        let first = (self.view.top + y) as usize * stride + self.view.left as usize;
        let bytes = self.source.unwrap_or(&self.buffers.front);
        &bytes[first * channels..(first + self.view.width as usize) * channels]
    }

    /// Lets a step read the view (of a buffer with the given size) and write an image of another
    /// size and other channels, which is then the canvas. Flips that are due happen before.
    pub(super) fn replace(
        &mut self,
        size: Size,
        channels: usize,
        write: impl FnOnce(Seen<'_>, &mut [u8], Tools<'_>),
    ) {
        self.settle();
        let Buffers {
            front,
            back,
            middle,
            floats,
            line,
            taps,
            places,
            resizer,
        } = &mut *self.buffers;
        let bytes = self.source.unwrap_or(front);
        let seen = Seen {
            bytes,
            whole: self.whole,
            view: self.view,
            channels: self.channels,
        };
        let len = size.width as usize * size.height as usize * channels;
        write(
            seen,
            room(back, len),
            Tools {
                middle,
                floats,
                line,
                taps,
                places,
                resizer,
            },
        );
        self.channels = channels;
        self.swapped(size);
    }

    /// Leaves out the byte that means nothing, for steps that know grey and RGB only.
    pub(super) fn narrow(&mut self) {
        if self.channels != 4 {
            return;
        }
        let size = self.size();
        self.replace(size, 3, |seen, out, _| {
            let rows = out.as_chunks_mut::<3>().0;
            for (y, out) in rows.chunks_exact_mut(size.width as usize).enumerate() {
                for (out, [rgb @ .., _]) in out.iter_mut().zip(seen.row(y).as_chunks::<4>().0) {
                    *out = *rgb;
                }
            }
        });
    }

    /// The seen pixels, alone in a buffer, to be changed in place. Flips that are due stay due:
    /// this is for steps that treat each pixel by itself.
    pub(super) fn own(&mut self) -> &mut [u8] {
        let size = self.size();
        if self.source.is_some() || size != self.whole {
            self.copy(false);
        }
        let len = size.width as usize * size.height as usize * self.channels;
        &mut self.buffers.front[..len]
    }

    /// Carries out flips that are due.
    fn settle(&mut self) {
        if self.mirrored || self.upended {
            self.copy(true);
            self.mirrored = false;
            self.upended = false;
        }
    }

    fn copy(&mut self, flip: bool) {
        let (size, channels) = (self.size(), self.channels);
        let line = size.width as usize * channels;
        let mut back = std::mem::take(&mut self.buffers.back);
        let to = room(&mut back, line * size.height as usize);
        // Without `flip` the rows keep the buffer's order, whatever is due.
        let turned = !flip && self.upended;
        for (at, to) in to.chunks_exact_mut(line).enumerate() {
            let y = if turned {
                size.height - 1 - at as u32
            } else {
                at as u32
            };
            let from = self.row(y);
            if flip && self.mirrored {
                mirror_row(from, channels, to);
            } else {
                to.copy_from_slice(from);
            }
        }
        self.buffers.back = back;
        self.swapped(size);
    }

    fn swapped(&mut self, size: Size) {
        std::mem::swap(&mut self.buffers.front, &mut self.buffers.back);
        self.source = None;
        self.whole = size;
        self.view = Rect::whole(size);
    }
}

/// Where a box of what is seen lies in the buffer.
pub(crate) fn within(view: Rect, wanted: Rect, mirrored: bool, upended: bool) -> Rect {
    let far = |whole: u32, start: u32, len: u32| whole - start - len;
    let left = if mirrored {
        far(view.width, wanted.left, wanted.width)
    } else {
        wanted.left
    };
    let top = if upended {
        far(view.height, wanted.top, wanted.height)
    } else {
        wanted.top
    };
    Rect {
        left: view.left + left,
        top: view.top + top,
        ..wanted
    }
}

fn mirror_row(from: &[u8], channels: usize, to: &mut [u8]) {
    for (to, from) in to
        .chunks_exact_mut(channels)
        .zip(from.chunks_exact(channels).rev())
    {
        to.copy_from_slice(from);
    }
}

/// What a step reads: `view` of `bytes`, flips done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) whole: Size,
    pub(super) view: Rect,
    pub(super) channels: usize,
}

impl<'a> Seen<'a> {
    pub(super) fn row(&self, y: usize) -> &'a [u8] {
        let first = (self.view.top as usize + y) * self.whole.width as usize;
        let first = (first + self.view.left as usize) * self.channels;
        &self.bytes[first..first + self.view.width as usize * self.channels]
    }
}

/// What else a step may use, kept warm by the scratch.
#[derive(Debug)]
pub(super) struct Tools<'a> {
    pub(super) middle: &'a mut Vec<u8>,
    pub(super) floats: &'a mut Vec<f32>,
    pub(super) line: &'a mut Vec<f32>,
    pub(super) taps: &'a mut [Vec<f32>; 2],
    pub(super) places: &'a mut Vec<usize>,
    pub(super) resizer: &'a mut fast_image_resize::Resizer,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Runs steps on a grey-coded RGB image: pixel (x, y) is `10 * y + x` in all channels.
    pub(in crate::steps) fn painted(
        width: u32,
        height: u32,
        steps: impl FnOnce(&mut Canvas<'_>),
    ) -> Vec<Vec<u8>> {
        let code = |at| (at / width * 10 + at % width) as u8;
        let rgb: Vec<u8> = (0..width * height).flat_map(|at| [code(at); 3]).collect();
        seen(width, height, &rgb, steps)
    }

    /// Runs steps on an RGB image and gives the first channel as seen.
    pub(in crate::steps) fn seen(
        width: u32,
        height: u32,
        rgb: &[u8],
        steps: impl FnOnce(&mut Canvas<'_>),
    ) -> Vec<Vec<u8>> {
        let mut buffers = Buffers::default();
        let size = Size { width, height };
        let image = Image {
            bytes: rgb,
            channels: 3,
            size,
        };
        let mut canvas = Canvas::new(image, Rect::whole(size), false, &mut buffers);
        steps(&mut canvas);
        let (channels, mirrored) = (canvas.channels, canvas.mirrored());
        canvas
            .rows()
            .map(|row| {
                let mut row: Vec<u8> = row.chunks_exact(channels).map(|pixel| pixel[0]).collect();
                if mirrored {
                    row.reverse();
                }
                row
            })
            .collect()
    }

    const BOX: Rect = Rect {
        left: 1,
        top: 0,
        width: 2,
        height: 2,
    };

    #[test]
    fn a_crop_after_a_flip_is_of_the_flipped_image() {
        let mirrored = painted(4, 3, |canvas| {
            canvas.mirror();
            canvas.crop(BOX);
        });
        assert_eq!(mirrored, [[2, 1], [12, 11]]);
        let both = painted(4, 3, |canvas| {
            canvas.mirror();
            canvas.upend();
            canvas.crop(BOX);
        });
        assert_eq!(both, [[22, 21], [12, 11]]);
    }

    #[test]
    fn owning_and_settling_change_nothing_that_is_seen() {
        let flips = |canvas: &mut Canvas<'_>| {
            canvas.crop(BOX);
            canvas.upend();
            canvas.mirror();
        };
        let plain = painted(4, 3, flips);
        assert_eq!(plain, [[12, 11], [2, 1]]);
        let owned = painted(4, 3, |canvas| {
            flips(canvas);
            canvas.own();
        });
        assert_eq!(owned, plain);
        let settled = painted(4, 3, |canvas| {
            flips(canvas);
            canvas.own();
            canvas.settle();
        });
        assert_eq!(settled, plain);
    }
}
