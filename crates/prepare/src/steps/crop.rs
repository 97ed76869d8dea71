//! Crops, with torchvision's boxes and roundings.

use serde::Deserialize;

use super::check;
use super::pad::{Margins, Mode, check_fill, check_margins, padded};
use super::resize::Filter;
use crate::decode::{Rect, Size};
use crate::random::Stream;

/// The middle; of an image that is too small, the middle of it padded with black.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CenterCrop {
    height: u32,
    width: u32,
}

impl CenterCrop {
    pub(super) fn check(&self) -> Result<(), String> {
        check::size(self.height, self.width)
    }

    pub(super) fn size(&self) -> Size {
        Size {
            width: self.width,
            height: self.height,
        }
    }

    /// The padding, and the box of the padded image.
    pub(super) fn place(&self, of: Size) -> (Margins, Rect) {
        let missing = [
            self.width.saturating_sub(of.width),
            self.height.saturating_sub(of.height),
        ];
        let [across, down] = missing;
        let margins = [across / 2, down / 2, across.div_ceil(2), down.div_ceil(2)];
        let of = padded(of, margins);
        let start = |have: u32, want: u32| (f64::from(have - want) / 2.0).round_ties_even() as u32;
        let (left, top) = (start(of.width, self.width), start(of.height, self.height));
        (
            margins,
            Rect {
                left,
                top,
                width: self.width,
                height: self.height,
            },
        )
    }
}

/// A box of fixed size at any place, perhaps of the padded image.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RandomCrop {
    height: u32,
    width: u32,
    padding: Option<Margins>,
    pad_if_needed: bool,
    pub(super) fill: Vec<f64>,
    pub(super) mode: Mode,
}

impl RandomCrop {
    pub(super) fn check(&self, channels: usize) -> Result<(), String> {
        check::size(self.height, self.width)?;
        check_margins(self.padding.unwrap_or_default())?;
        check_fill(&self.fill, channels)
    }

    pub(super) fn size(&self) -> Size {
        Size {
            width: self.width,
            height: self.height,
        }
    }

    /// torchvision pads both sides by all that is missing.
    fn margins(&self, of: Size) -> Margins {
        let mut margins = self.padding.unwrap_or_default();
        if self.pad_if_needed {
            let of = padded(of, margins);
            let (across, down) = (
                self.width.saturating_sub(of.width),
                self.height.saturating_sub(of.height),
            );
            for (margin, more) in margins.iter_mut().zip([across, down, across, down]) {
                *margin += more;
            }
        }
        margins
    }

    /// The padding, and the box of the padded image; an error says what is too small.
    pub(super) fn draw(&self, of: Size, stream: &mut Stream) -> Result<(Margins, Rect), String> {
        let margins = self.margins(of);
        let of = padded(of, margins);
        if of.height < self.height || of.width < self.width {
            return Err(format!(
                "it is {}x{} where a crop of {}x{} (width x height) is taken",
                of.width, of.height, self.width, self.height
            ));
        }
        let top = stream.below(u64::from(of.height - self.height) + 1) as u32;
        let left = stream.below(u64::from(of.width - self.width) + 1) as u32;
        Ok((
            margins,
            Rect {
                left,
                top,
                width: self.width,
                height: self.height,
            },
        ))
    }
}

/// A box of random area and shape, resized.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RandomResizedCrop {
    height: u32,
    width: u32,
    scale: [f64; 2],
    ratio: [f64; 2],
    pub(super) filter: Filter,
}

impl RandomResizedCrop {
    pub(super) fn check(&self) -> Result<(), String> {
        check::size(self.height, self.width)?;
        check::range("scale", self.scale, [0.0, f64::MAX])?;
        check::positive_range("ratio", self.ratio)
    }

    pub(super) fn target(&self) -> Size {
        Size {
            width: self.width,
            height: self.height,
        }
    }

    pub(super) fn draw(&self, of: Size, stream: &mut Stream) -> Rect {
        for _ in 0..10 {
            let [height, width] = shape(of, self.scale, self.ratio, stream);
            let fits = (1..=of.width).contains(&width) && (1..=of.height).contains(&height);
            if fits {
                let top = stream.below(u64::from(of.height - height) + 1) as u32;
                let left = stream.below(u64::from(of.width - width) + 1) as u32;
                return Rect {
                    left,
                    top,
                    width,
                    height,
                };
            }
        }
        self.middle(of)
    }

    /// The largest box in the middle whose shape is allowed.
    fn middle(&self, of: Size) -> Rect {
        let (width, height) = (f64::from(of.width), f64::from(of.height));
        let [least, most] = self.ratio;
        let rounded = |edge: f64, most: u32| (edge.round_ties_even() as u32).clamp(1, most);
        let (width, height) = if width / height < least {
            (of.width, rounded(width / least, of.height))
        } else if width / height > most {
            (rounded(height * most, of.width), of.height)
        } else {
            (of.width, of.height)
        };
        Rect {
            left: (of.width - width) / 2,
            top: (of.height - height) / 2,
            width,
            height,
        }
    }
}

/// Height and width of a box with a share of the area, uniform in `scale`, and a ratio of width to
/// height, uniform in its logarithm. Python's rounding: half to even.
pub(super) fn shape(of: Size, scale: [f64; 2], ratio: [f64; 2], stream: &mut Stream) -> [u32; 2] {
    let area = f64::from(of.width) * f64::from(of.height) * stream.uniform(scale);
    let ratio = stream.uniform(ratio.map(f64::ln)).exp();
    [area / ratio, area * ratio].map(|square| square.sqrt().round_ties_even() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Draw;

    fn stream(position: u64) -> Stream {
        Stream::new(
            Draw {
                seed: 3,
                epoch: 0,
                position,
            },
            0,
        )
    }

    fn center(edge: u32, width: u32, height: u32) -> (Margins, [u32; 2]) {
        let (margins, rect) = CenterCrop {
            height: edge,
            width: edge,
        }
        .place(Size { width, height });
        assert_eq!((rect.width, rect.height), (edge, edge));
        (margins, [rect.left, rect.top])
    }

    #[test]
    fn the_middle_is_rounded_half_to_even() {
        assert_eq!(center(4, 4, 4), ([0; 4], [0, 0]));
        assert_eq!(center(4, 5, 7), ([0; 4], [0, 2]));
        assert_eq!(center(4, 9, 11), ([0; 4], [2, 4]));
    }

    #[test]
    fn a_small_image_is_padded_more_at_the_right_and_bottom() {
        assert_eq!(center(4, 1, 2), ([1, 1, 2, 1], [0, 0]));
        assert_eq!(center(4, 1, 8), ([1, 0, 2, 0], [0, 2]));
    }

    fn random_crop(padding: Option<Margins>, pad_if_needed: bool) -> RandomCrop {
        let (fill, mode) = (vec![0.0], Mode::Constant);
        RandomCrop {
            height: 4,
            width: 6,
            padding,
            pad_if_needed,
            fill,
            mode,
        }
    }

    #[test]
    fn a_random_crop_reaches_every_place() {
        let (step, of) = (
            random_crop(None, false),
            Size {
                width: 8,
                height: 5,
            },
        );
        let mut seen = std::collections::BTreeSet::new();
        for position in 0..200 {
            let (margins, rect) = step.draw(of, &mut stream(position)).unwrap();
            assert_eq!((margins, rect.width, rect.height), ([0; 4], 6, 4));
            seen.insert((rect.left, rect.top));
        }
        assert_eq!(seen.len(), 3 * 2);
    }

    #[test]
    fn missing_pixels_are_padded_on_both_sides_if_that_is_asked_for() {
        let of = Size {
            width: 4,
            height: 9,
        };
        let error = random_crop(None, false)
            .draw(of, &mut stream(0))
            .unwrap_err();
        assert_eq!(
            error,
            "it is 4x9 where a crop of 6x4 (width x height) is taken"
        );
        let (margins, _) = random_crop(None, true).draw(of, &mut stream(0)).unwrap();
        assert_eq!(margins, [2, 0, 2, 0]);
        let (margins, _) = random_crop(Some([1, 1, 0, 0]), true)
            .draw(of, &mut stream(0))
            .unwrap();
        assert_eq!(margins, [2, 1, 1, 0]);
    }

    fn resized(scale: [f64; 2], ratio: [f64; 2]) -> RandomResizedCrop {
        RandomResizedCrop {
            height: 8,
            width: 8,
            scale,
            ratio,
            filter: Filter::Bilinear,
        }
    }

    #[test]
    fn boxes_lie_in_the_image_and_keep_to_scale_and_ratio() {
        let (step, of) = (
            resized([0.1, 0.9], [0.5, 2.0]),
            Size {
                width: 400,
                height: 300,
            },
        );
        for position in 0..2000 {
            let rect = step.draw(of, &mut stream(position));
            assert!(rect.left + rect.width <= 400 && rect.top + rect.height <= 300);
            let (width, height) = (f64::from(rect.width), f64::from(rect.height));
            let share = width * height / 120_000.0;
            assert!((0.095..0.905).contains(&share), "{rect:?}");
            assert!((0.49..2.03).contains(&(width / height)), "{rect:?}");
        }
    }

    #[test]
    fn where_no_box_fits_the_middle_is_taken() {
        // Ten times the area never fits.
        let never = |ratio, width, height| {
            resized([10.0, 10.0], ratio).draw(Size { width, height }, &mut stream(1))
        };
        let all = Rect {
            left: 0,
            top: 0,
            width: 100,
            height: 90,
        };
        assert_eq!(never([0.75, 1.5], 100, 90), all);
        let wide = Rect {
            left: 12,
            top: 0,
            width: 75,
            height: 50,
        };
        assert_eq!(never([0.75, 1.5], 100, 50), wide);
        let tall = Rect {
            left: 0,
            top: 16,
            width: 50,
            height: 67,
        };
        assert_eq!(never([0.75, 1.5], 50, 100), tall);
    }
}
