//! Grey, as Pillow converts to "L".

use serde::Deserialize;

use super::canvas::Canvas;
use super::check;

/// Always, to one or three channels.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grayscale {
    pub(super) channels: usize,
}

impl Grayscale {
    pub(super) fn check(&self) -> Result<(), String> {
        match self.channels {
            1 | 3 => Ok(()),
            other => Err(format!("channels is {other}, but must be 1 or 3")),
        }
    }
}

/// With probability `p`, the number of channels stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RandomGrayscale {
    pub(super) p: f64,
}

impl RandomGrayscale {
    pub(super) fn check(&self) -> Result<(), String> {
        check::probability(self.p)
    }
}

/// ITU-R 601 in Pillow's fixed point.
pub(super) fn luma(red: u8, green: u8, blue: u8) -> u8 {
    let sum = u32::from(red) * 19595 + u32::from(green) * 38470 + u32::from(blue) * 7471;
    ((sum + 0x8000) >> 16) as u8
}

impl Canvas<'_> {
    /// To so many channels, or to as many as there are.
    pub(crate) fn gray(&mut self, channels: Option<usize>) {
        self.narrow();
        match (self.channels, channels.unwrap_or(self.channels)) {
            (1, 1) => {}
            (3, 3) => self.own().chunks_exact_mut(3).for_each(|pixel| {
                let gray = luma(pixel[0], pixel[1], pixel[2]);
                pixel.fill(gray);
            }),
            (_, channels) => self.change_channels(channels),
        }
    }

    fn change_channels(&mut self, channels: usize) {
        let size = self.size();
        self.replace(size, channels, |seen, out, _| {
            let rows = out.chunks_exact_mut(size.width as usize * channels);
            for (y, out) in rows.enumerate() {
                let from = seen.row(y).chunks_exact(seen.channels);
                for (out, pixel) in out.chunks_exact_mut(channels).zip(from) {
                    out.fill(match *pixel {
                        [red, green, blue] => luma(red, green, blue),
                        _ => pixel[0],
                    });
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::canvas::tests::seen;
    use super::*;

    #[test]
    fn weights_are_pillows() {
        assert_eq!(
            (luma(255, 0, 0), luma(0, 255, 0), luma(0, 0, 255)),
            (76, 150, 29)
        );
        assert!((0..=255).all(|value| luma(value, value, value) == value));
    }

    #[test]
    fn channels_go_to_one_and_back() {
        let rgb = [255, 0, 0, 0, 255, 0];
        for steps in [&[1][..], &[3], &[1, 3], &[1, 1]] {
            let gray = seen(2, 1, &rgb, |canvas| {
                steps.iter().for_each(|&n| canvas.gray(Some(n)));
            });
            assert_eq!(gray, [[76, 150]], "{steps:?}");
        }
    }

    #[test]
    fn a_flip_that_is_due_is_kept() {
        let gray = seen(2, 1, &[255, 0, 0, 0, 255, 0], |canvas| {
            canvas.mirror();
            canvas.gray(Some(3));
        });
        assert_eq!(gray, [[150, 76]]);
    }
}
