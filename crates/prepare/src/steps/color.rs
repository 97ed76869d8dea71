//! Colour jitter, with Pillow's arithmetic: brightness, contrast and saturation blend with black,
//! the mean grey and the grey image in single precision and cut off; hue turns in HSV bytes.

use serde::{Deserialize, Serialize};

use super::canvas::Canvas;
use super::gray::luma;
use super::{check, hue};
use crate::random::Stream;

/// A range for each of the four, or nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ColorJitter {
    brightness: Option<[f64; 2]>,
    contrast: Option<[f64; 2]>,
    saturation: Option<[f64; 2]>,
    hue: Option<[f64; 2]>,
}

/// What was drawn: the order in which the four come (0 is brightness), and by how much.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Jitter {
    order: [u8; 4],
    brightness: Option<f64>,
    contrast: Option<f64>,
    saturation: Option<f64>,
    hue: Option<f64>,
}

impl ColorJitter {
    pub(super) fn check(&self) -> Result<(), String> {
        let least_and_most = [
            ("brightness", self.brightness, [0.0, f64::MAX]),
            ("contrast", self.contrast, [0.0, f64::MAX]),
            ("saturation", self.saturation, [0.0, f64::MAX]),
            ("hue", self.hue, [-0.5, 0.5]),
        ];
        for (name, range, limits) in least_and_most {
            range.map_or(Ok(()), |range| check::range(name, range, limits))?;
        }
        Ok(())
    }

    pub(super) fn draw(&self, stream: &mut Stream) -> Jitter {
        let order = stream.order();
        let mut factor = |range: Option<[f64; 2]>| range.map(|range| stream.uniform(range));
        Jitter {
            order,
            brightness: factor(self.brightness),
            contrast: factor(self.contrast),
            saturation: factor(self.saturation),
            hue: factor(self.hue),
        }
    }
}

impl Canvas<'_> {
    pub(crate) fn jitter(&mut self, jitter: Jitter) {
        self.narrow();
        let channels = self.channels;
        let pixels = self.own();
        for which in jitter.order {
            match which {
                0 => jitter
                    .brightness
                    .map(|factor| blend_with(pixels, 0, factor as f32)),
                1 => jitter.contrast.map(|factor| {
                    let gray = mean_gray(pixels, channels);
                    blend_with(pixels, gray, factor as f32);
                }),
                // A grey image is its own grey and has no hue.
                _ if channels == 1 => None,
                2 => jitter
                    .saturation
                    .map(|factor| saturate(pixels, factor as f32)),
                _ => jitter.hue.map(|factor| hue::turn(pixels, factor)),
            };
        }
    }
}

/// Pillow's `Image.blend` of bytes: single precision, cut off, limited beyond [0, 1].
fn blend(from: u8, to: u8, alpha: f32) -> u8 {
    // `as u8` cuts off and limits.
    (f32::from(from) + alpha * (f32::from(to) - f32::from(from))) as u8
}

fn blend_with(pixels: &mut [u8], with: u8, alpha: f32) {
    let table: [u8; 256] = std::array::from_fn(|value| blend(with, value as u8, alpha));
    pixels
        .iter_mut()
        .for_each(|value| *value = table[usize::from(*value)]);
}

fn saturate(pixels: &mut [u8], alpha: f32) {
    for pixel in pixels.chunks_exact_mut(3) {
        let gray = luma(pixel[0], pixel[1], pixel[2]);
        pixel
            .iter_mut()
            .for_each(|value| *value = blend(gray, *value, alpha));
    }
}

/// The mean of the grey image, rounded half up.
fn mean_gray(pixels: &[u8], channels: usize) -> u8 {
    let sum: u64 = if channels == 1 {
        pixels.iter().map(|&value| u64::from(value)).sum()
    } else {
        pixels
            .chunks_exact(3)
            .map(|pixel| u64::from(luma(pixel[0], pixel[1], pixel[2])))
            .sum()
    };
    let count = (pixels.len() / channels) as f64;
    (sum as f64 / count + 0.5) as u8
}

#[cfg(test)]
mod tests {
    use super::super::canvas::tests::seen;
    use super::*;
    use crate::Draw;

    const NONE: Jitter = Jitter {
        order: [0, 1, 2, 3],
        brightness: None,
        contrast: None,
        saturation: None,
        hue: None,
    };

    fn red(rgb: &[u8], jitter: Jitter) -> Vec<u8> {
        seen(rgb.len() as u32 / 3, 1, rgb, |canvas| canvas.jitter(jitter)).remove(0)
    }

    #[test]
    fn brightness_scales_and_cuts_off() {
        let rgb = [[101; 3], [200; 3]].concat();
        assert_eq!(
            red(
                &rgb,
                Jitter {
                    brightness: Some(0.5),
                    ..NONE
                }
            ),
            [50, 100]
        );
        assert_eq!(
            red(
                &rgb,
                Jitter {
                    brightness: Some(1.5),
                    ..NONE
                }
            ),
            [151, 255]
        );
        assert_eq!(
            red(
                &rgb,
                Jitter {
                    brightness: Some(0.0),
                    ..NONE
                }
            ),
            [0, 0]
        );
    }

    #[test]
    fn contrast_moves_from_the_mean_rounded_half_up() {
        // Mean 100.5 is taken as 101.
        let rgb = [[100; 3], [101; 3]].concat();
        assert_eq!(
            red(
                &rgb,
                Jitter {
                    contrast: Some(0.0),
                    ..NONE
                }
            ),
            [101, 101]
        );
        assert_eq!(
            red(
                &rgb,
                Jitter {
                    contrast: Some(3.0),
                    ..NONE
                }
            ),
            [98, 101]
        );
    }

    #[test]
    fn saturation_moves_from_grey() {
        let rgb = [200, 100, 0];
        // Its grey is 119: 119 + 0.5 * 81 = 159.5, cut off.
        assert_eq!(
            red(
                &rgb,
                Jitter {
                    saturation: Some(0.5),
                    ..NONE
                }
            ),
            [159]
        );
        assert_eq!(
            red(
                &rgb,
                Jitter {
                    saturation: Some(2.0),
                    ..NONE
                }
            ),
            [255]
        );
    }

    #[test]
    fn the_order_matters_and_is_kept() {
        let rgb = [[40; 3], [200; 3]].concat();
        let both = Jitter {
            brightness: Some(2.0),
            contrast: Some(0.5),
            ..NONE
        };
        // Twice as bright, 80 and 255, whose mean is 168; or halfway to 120 first, 80 and 160.
        assert_eq!(red(&rgb, both), [124, 211]);
        assert_eq!(
            red(
                &rgb,
                Jitter {
                    order: [1, 0, 2, 3],
                    ..both
                }
            ),
            [160, 255]
        );
    }

    #[test]
    fn factors_lie_in_their_ranges_and_none_stays_none() {
        let step = ColorJitter {
            brightness: Some([0.5, 1.5]),
            contrast: None,
            saturation: None,
            hue: Some([-0.1, 0.1]),
        };
        for position in 0..100 {
            let drawn = step.draw(&mut Stream::new(
                Draw {
                    seed: 0,
                    epoch: 0,
                    position,
                },
                0,
            ));
            assert!((0.5..=1.5).contains(&drawn.brightness.unwrap()));
            assert!((-0.1..=0.1).contains(&drawn.hue.unwrap()));
            assert_eq!((drawn.contrast, drawn.saturation), (None, None));
        }
    }
}
