//! Padding: constant as Pillow's `ImageOps.expand`, the others as `numpy.pad`, which mirrors again
//! and again where the padding is wider than the image.

use serde::Deserialize;

use super::canvas::{Canvas, Seen};
use super::check;
use crate::decode::Size;

/// What stands outside of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Constant,
    Edge,
    /// Mirrored at the middle of the edge pixel: `c b | a b c | b a`.
    Reflect,
    /// Mirrored at the border: `b a | a b c | c b`.
    Symmetric,
}

/// Left, top, right, bottom, in pixels.
pub(crate) type Margins = [u32; 4];

/// Widens the image.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pad {
    pub(super) padding: Margins,
    pub(super) fill: Vec<f64>,
    pub(super) mode: Mode,
}

impl Pad {
    pub(super) fn check(&self, channels: usize) -> Result<(), String> {
        check_margins(self.padding)?;
        check_fill(&self.fill, channels)
    }
}

pub(super) fn check_margins(padding: Margins) -> Result<(), String> {
    padding
        .iter()
        .filter(|&&edge| edge > 0)
        .try_for_each(|&edge| check::edge("padding", edge))
}

/// A grey image takes a colour whose values are equal.
pub(super) fn check_fill(fill: &[f64], channels: usize) -> Result<(), String> {
    let equal = fill.windows(2).all(|pair| pair[0] == pair[1]);
    check::per_channel(
        "fill",
        if equal && !fill.is_empty() {
            &fill[..1]
        } else {
            fill
        },
        channels,
    )
}

/// As Pillow takes colours: cut off to whole numbers, then to bytes.
pub(super) fn ink(fill: &[f64]) -> [u8; 3] {
    std::array::from_fn(|channel| {
        fill.get(channel)
            .or(fill.first())
            .map_or(0, |&value| value as u8)
    })
}

pub(super) fn padded(size: Size, [left, top, right, bottom]: Margins) -> Size {
    Size {
        width: size.width.saturating_add(left).saturating_add(right),
        height: size.height.saturating_add(top).saturating_add(bottom),
    }
}

impl Canvas<'_> {
    pub(crate) fn pad(&mut self, margins: Margins, mode: Mode, ink: [u8; 3]) {
        if margins == [0; 4] {
            return;
        }
        self.narrow();
        let (to, channels) = (padded(self.size(), margins), self.channels);
        self.replace(to, channels, |seen, out, tools| {
            let columns = (0..to.width).map(|x| source(x, margins[0], seen.view.width, mode));
            tools.places.clear();
            tools
                .places
                .extend(columns.map(|x| x.unwrap_or(usize::MAX)));
            for (y, out) in out
                .chunks_exact_mut(to.width as usize * channels)
                .enumerate()
            {
                match source(y as u32, margins[1], seen.view.height, mode) {
                    Some(y) => pad_row(seen, y, tools.places, &ink, out),
                    None => fill(out, &ink[..channels]),
                }
            }
        });
    }
}

fn pad_row(seen: Seen<'_>, y: usize, columns: &[usize], ink: &[u8], out: &mut [u8]) {
    let (row, channels) = (seen.row(y), seen.channels);
    for (out, &x) in out.chunks_exact_mut(channels).zip(columns) {
        let from = if x == usize::MAX {
            &ink[..channels]
        } else {
            &row[x * channels..][..channels]
        };
        out.copy_from_slice(from);
    }
}

fn fill(out: &mut [u8], ink: &[u8]) {
    out.chunks_exact_mut(ink.len())
        .for_each(|pixel| pixel.copy_from_slice(ink));
}

/// Which pixel of the image stands at `at` of the padded one; `None` is the fill.
fn source(at: u32, margin: u32, len: u32, mode: Mode) -> Option<usize> {
    let (at, len) = (i64::from(at) - i64::from(margin), i64::from(len));
    if (0..len).contains(&at) {
        return Some(at as usize);
    }
    let place = match mode {
        Mode::Constant => return None,
        Mode::Edge => at.clamp(0, len - 1),
        Mode::Reflect if len == 1 => 0,
        Mode::Reflect => fold(at, len, 2 * (len - 1), 0),
        Mode::Symmetric => fold(at, len, 2 * len, 1),
    };
    Some(place as usize)
}

/// There and back again with the given period; `twice` is 1 if the turning pixels come twice.
fn fold(at: i64, len: i64, period: i64, twice: i64) -> i64 {
    let at = at.rem_euclid(period);
    if at < len { at } else { period - twice - at }
}

#[cfg(test)]
mod tests {
    use super::super::canvas::tests::painted;
    use super::*;

    fn row(mode: Mode, margin: u32) -> Vec<u8> {
        painted(3, 1, |canvas| {
            canvas.pad([margin, 0, margin, 0], mode, [9; 3]);
        })
        .remove(0)
    }

    #[test]
    fn each_mode_is_numpys() {
        assert_eq!(row(Mode::Constant, 2), [9, 9, 0, 1, 2, 9, 9]);
        assert_eq!(row(Mode::Edge, 2), [0, 0, 0, 1, 2, 2, 2]);
        assert_eq!(row(Mode::Reflect, 2), [2, 1, 0, 1, 2, 1, 0]);
        assert_eq!(row(Mode::Symmetric, 2), [1, 0, 0, 1, 2, 2, 1]);
    }

    #[test]
    fn padding_wider_than_the_image_mirrors_again() {
        assert_eq!(
            row(Mode::Reflect, 5),
            [1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1]
        );
        assert_eq!(row(Mode::Symmetric, 4), [2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0]);
        let single = painted(1, 1, |canvas| {
            canvas.pad([2, 0, 0, 0], Mode::Reflect, [9; 3]);
        });
        assert_eq!(single, [[0, 0, 0]]);
    }

    #[test]
    fn margins_are_left_top_right_bottom() {
        let image = painted(1, 1, |canvas| {
            canvas.pad([1, 2, 0, 1], Mode::Constant, [9; 3]);
        });
        assert_eq!(image, [[9, 9], [9, 9], [9, 0], [9, 9]]);
    }

    #[test]
    fn colours_are_cut_off_and_limited_as_pillow_does() {
        assert_eq!(ink(&[1.9, 300.0, -4.0]), [1, 255, 0]);
        assert_eq!(ink(&[7.0]), [7; 3]);
        assert_eq!(ink(&[]), [0; 3]);
    }
}
