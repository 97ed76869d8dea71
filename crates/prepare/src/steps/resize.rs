//! Resize as Pillow does it: a filter whose support grows with the reduction (antialiased), over
//! the seen pixels only, each pass rounded to bytes.

use fast_image_resize::images::{CroppedImage, Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use serde::Deserialize;

use super::canvas::{Canvas, Seen, Tools};
use super::check;
use crate::decode::{Rect, Size};
use crate::scratch::room;

/// Pillow's filters by Pillow's names. Not its box: where a pixel lies just at the box's edge,
/// the last bit of a float decides, in another way than in Pillow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Filter {
    Nearest,
    Bilinear,
    Hamming,
    Bicubic,
    Lanczos,
}

/// To this height and width.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resize {
    pub(super) height: u32,
    pub(super) width: u32,
    pub(super) filter: Filter,
}

impl Resize {
    pub(super) fn check(&self) -> Result<(), String> {
        check::size(self.height, self.width)
    }
}

/// The shorter edge to `size`, the longer in proportion, but at most `max_size`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResizeShorter {
    size: u32,
    #[serde(default)]
    max_size: Option<u32>,
    pub(super) filter: Filter,
}

impl ResizeShorter {
    pub(super) fn check(&self) -> Result<(), String> {
        check::edge("size", self.size)?;
        match self.max_size {
            Some(max) if max <= self.size => Err(format!(
                "max_size is {max}, but must be greater than size, {}",
                self.size
            )),
            Some(max) => check::edge("max_size", max),
            None => Ok(()),
        }
    }

    /// torchvision's arithmetic: both divisions are of floats and cut off. An edge may come out
    /// as 0 (a line of pixels with `max_size`), which cannot be resized to.
    pub(super) fn target(&self, of: Size) -> Size {
        let wide = of.width > of.height;
        let (short, long) = if wide {
            (of.height, of.width)
        } else {
            (of.width, of.height)
        };
        let scaled = |size: u32, by: u32, over: u32| {
            (f64::from(size) * f64::from(by) / f64::from(over)) as u32
        };
        let mut new = (self.size, scaled(self.size, long, short));
        if let Some(max) = self.max_size.filter(|&max| new.1 > max) {
            new = (scaled(max, new.0, new.1), max);
        }
        let (width, height) = if wide { (new.1, new.0) } else { new };
        Size { width, height }
    }
}

impl Canvas<'_> {
    /// The same size is left alone, as torchvision does.
    pub(crate) fn resize(&mut self, to: Size, filter: Filter) {
        if to == self.size() {
            return;
        }
        let (channels, fast) = (self.channels, self.fast);
        self.replace(to, channels, |seen, out, tools| {
            match filter.convolution() {
                Some(filter) => {
                    let down_first = match fast {
                        true => seen.view.height > to.height,
                        false => pillow_goes_down_first(seen.view, to),
                    };
                    convolve(seen, to, filter, down_first, out, tools);
                }
                None => nearest(seen, to, out, tools),
            }
        });
    }
}

impl Filter {
    fn convolution(self) -> Option<FilterType> {
        match self {
            Filter::Nearest => None,
            Filter::Bilinear => Some(FilterType::Bilinear),
            Filter::Hamming => Some(FilterType::Hamming),
            Filter::Bicubic => Some(FilterType::CatmullRom),
            Filter::Lanczos => Some(FilterType::Lanczos3),
        }
    }
}

/// Across and down, rounded to bytes in between: another order is another image where a filter
/// overshoots (bicubic, lanczos), and else differs by the rounding. Going down costs less a pixel
/// than going across: fast mode does it first wherever it leaves fewer rows.
fn convolve(
    seen: Seen<'_>,
    to: Size,
    filter: FilterType,
    down_first: bool,
    out: &mut [u8],
    tools: Tools<'_>,
) {
    let Seen {
        whole,
        view,
        channels,
        ..
    } = seen;
    let bytes = &seen.bytes[..whole.width as usize * whole.height as usize * channels];
    let pixel = match channels {
        1 => PixelType::U8,
        3 => PixelType::U8x3,
        _ => PixelType::U8x4,
    };
    let pass = Pass { pixel, filter };
    if to.width == view.width || to.height == view.height {
        return pass.run(bytes, whole, view, to, out, tools.resizer);
    }
    let half = match down_first {
        true => Size {
            width: view.width,
            height: to.height,
        },
        false => Size {
            width: to.width,
            height: view.height,
        },
    };
    let middle = room(
        tools.middle,
        half.width as usize * half.height as usize * channels,
    );
    pass.run(bytes, whole, view, half, middle, tools.resizer);
    pass.run(middle, half, Rect::whole(half), to, out, tools.resizer);
}

/// Pillow goes down first where that takes off more than twice what going across would (found by
/// trying it on all kinds of sizes; Pillow 13).
fn pillow_goes_down_first(from: Rect, to: Size) -> bool {
    let across = i64::from(from.width) - i64::from(to.width);
    let down = i64::from(from.height) - i64::from(to.height);
    down > 0 && down > 2 * across
}

/// How a pass in one direction goes.
struct Pass {
    pixel: PixelType,
    filter: FilterType,
}

impl Pass {
    fn run(
        &self,
        bytes: &[u8],
        whole: Size,
        view: Rect,
        to: Size,
        out: &mut [u8],
        resizer: &mut Resizer,
    ) {
        // A view, not the library's crop option: that reads past the crop's edges.
        let from = ImageRef::new(whole.width, whole.height, bytes, self.pixel);
        let from = from.expect("sizes agree");
        let from = CroppedImage::new(&from, view.left, view.top, view.width, view.height)
            .expect("the view lies in the buffer");
        let mut to =
            Image::from_slice_u8(to.width, to.height, out, self.pixel).expect("sizes agree");
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(self.filter))
            .use_alpha(false);
        resizer
            .resize(&from, &mut to, &options)
            .expect("both have the same pixels");
    }
}

/// Pillow's: the places are summed up from the first, with that sum's rounding.
fn nearest(seen: Seen<'_>, to: Size, out: &mut [u8], tools: Tools<'_>) {
    let channels = seen.channels;
    tools.places.clear();
    tools.places.extend(places(seen.view.width, to.width));
    let rows = out.chunks_exact_mut(to.width as usize * channels);
    for (out, y) in rows.zip(places(seen.view.height, to.height)) {
        let row = seen.row(y);
        for (out, &x) in out.chunks_exact_mut(channels).zip(&*tools.places) {
            out.copy_from_slice(&row[x * channels..][..channels]);
        }
    }
}

fn places(from: u32, to: u32) -> impl Iterator<Item = usize> {
    let scale = f64::from(from) / f64::from(to);
    let mut place = scale * 0.5;
    (0..to).map(move |_| {
        let at = (place as usize).min(from as usize - 1);
        place += scale;
        at
    })
}

#[cfg(test)]
mod tests {
    use super::super::canvas::tests::painted;
    use super::*;

    fn shorter(size: u32, max_size: Option<u32>, width: u32, height: u32) -> (u32, u32) {
        let step = ResizeShorter {
            size,
            max_size,
            filter: Filter::Bilinear,
        };
        let to = step.target(Size { width, height });
        (to.width, to.height)
    }

    #[test]
    fn the_longer_edge_is_cut_off_not_rounded() {
        assert_eq!(shorter(256, None, 500, 375), (341, 256));
        assert_eq!(shorter(256, None, 375, 500), (256, 341));
        assert_eq!(shorter(256, None, 300, 300), (256, 256));
        assert_eq!(shorter(256, Some(300), 500, 250), (300, 150));
        assert_eq!(shorter(256, Some(300), 260, 250), (266, 256));
        assert_eq!(shorter(8, Some(9), 1000, 1), (9, 0));
    }

    #[test]
    fn down_goes_first_where_it_takes_off_more() {
        let order = |width, height, to_width, to_height| {
            let from = Rect {
                left: 0,
                top: 0,
                width,
                height,
            };
            let to = Size {
                width: to_width,
                height: to_height,
            };
            pillow_goes_down_first(from, to)
        };
        assert!(order(94, 279, 224, 224), "wider and lower");
        assert!(order(258, 260, 175, 93), "167 rows against 83 columns");
        assert!(!order(281, 130, 225, 18), "112 rows against 56 columns");
        assert!(!order(100, 100, 224, 224));
    }

    #[test]
    fn nearest_takes_pixels_at_the_middle() {
        let less = painted(5, 5, |canvas| {
            canvas.resize(
                Size {
                    width: 2,
                    height: 3,
                },
                Filter::Nearest,
            );
        });
        assert_eq!(less, [[1, 3], [21, 23], [41, 43]]);
    }

    #[test]
    fn a_filter_does_not_see_past_the_crop() {
        let inner = Rect {
            left: 1,
            top: 1,
            width: 2,
            height: 2,
        };
        let to = Size {
            width: 4,
            height: 4,
        };
        let cropped = painted(4, 4, |canvas| {
            canvas.crop(inner);
            canvas.resize(to, Filter::Bilinear);
        });
        // The corners are the crop's own corner pixels: nothing of row 0 or column 0 is in them.
        assert_eq!((cropped[0][0], cropped[3][3]), (11, 22));
    }

    #[test]
    fn a_flip_before_happens_before() {
        let to = Size {
            width: 2,
            height: 2,
        };
        let turned = painted(4, 4, |canvas| {
            canvas.mirror();
            canvas.resize(to, Filter::Nearest);
        });
        // Mirrored rows are 3 2 1 0: places 1 and 3 of them.
        assert_eq!(turned, [[12, 10], [32, 30]]);
    }
}
