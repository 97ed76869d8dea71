//! Gaussian blur as torchvision's for PIL images: weights and sums in single precision, mirrored at
//! the edges, rounded half to even. Its two passes, across and down, are one kernel's product.

use serde::Deserialize;

use super::canvas::{Canvas, Seen};
use super::check;
use crate::decode::Size;
use crate::scratch::room;

/// Kernel widths across and down, and the range of sigma.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GaussianBlur {
    pub(super) kernel: [u32; 2],
    pub(super) sigma: [f64; 2],
}

impl GaussianBlur {
    pub(super) fn check(&self) -> Result<(), String> {
        for width in self.kernel {
            check::edge("kernel", width)?;
            if width % 2 == 0 {
                return Err(format!("kernel holds {width}, but must be odd"));
            }
        }
        check::positive_range("sigma", self.sigma)
    }

    /// Mirroring takes pixels from inside, and there must be so many.
    pub(super) fn fits(&self, size: Size) -> Result<(), String> {
        let [across, down] = self.kernel;
        if across / 2 < size.width && down / 2 < size.height {
            return Ok(());
        }
        Err(format!(
            "it is {}x{} where a blur with a kernel of {across}x{down} (width x height) is made",
            size.width, size.height
        ))
    }
}

impl Canvas<'_> {
    pub(crate) fn blur(&mut self, kernel: [u32; 2], sigma: f64) {
        self.narrow();
        let (size, channels) = (self.size(), self.channels);
        let (width, height) = (size.width as usize * channels, size.height as usize);
        self.replace(size, channels, |seen, out, tools| {
            let [across, down] = tools.taps;
            weights(kernel[0], sigma, across);
            weights(kernel[1], sigma, down);
            let blurred = room(tools.floats, width * height);
            for (y, to) in blurred.chunks_exact_mut(width).enumerate() {
                blur_across(seen, y, across, tools.line, to);
            }
            let sums = room(tools.line, width);
            for (y, to) in out.chunks_exact_mut(width).enumerate() {
                blur_down(blurred, y, down, sums, to);
            }
        });
    }
}

fn weights(width: u32, sigma: f64, out: &mut Vec<f32>) {
    let (half, sigma) = ((width as f32 - 1.0) * 0.5, sigma as f32);
    out.clear();
    out.extend((0..width).map(|at| (-0.5 * ((at as f32 - half) / sigma).powi(2)).exp()));
    let sum: f32 = out.iter().sum();
    out.iter_mut().for_each(|weight| *weight /= sum);
}

fn blur_across(seen: Seen<'_>, y: usize, taps: &[f32], line: &mut Vec<f32>, to: &mut [f32]) {
    let (row, channels, half) = (seen.row(y), seen.channels, taps.len() / 2);
    let width = row.len() / channels;
    let line = room(line, (width + 2 * half) * channels);
    for (at, pixel) in line.chunks_exact_mut(channels).enumerate() {
        let from = &row[mirrored(at as isize - half as isize, width) * channels..];
        pixel
            .iter_mut()
            .zip(from)
            .for_each(|(to, &from)| *to = f32::from(from));
    }
    to.fill(0.0);
    for (tap, &weight) in taps.iter().enumerate() {
        add(to, &line[tap * channels..], weight);
    }
}

fn blur_down(image: &[f32], y: usize, taps: &[f32], sums: &mut [f32], to: &mut [u8]) {
    let (width, half) = (sums.len(), taps.len() / 2);
    let height = image.len() / width;
    sums.fill(0.0);
    for (tap, &weight) in taps.iter().enumerate() {
        let y = mirrored((y + tap) as isize - half as isize, height);
        add(sums, &image[y * width..], weight);
    }
    to.iter_mut()
        .zip(sums)
        .for_each(|(to, sum)| *to = sum.round_ties_even() as u8);
}

fn add(sums: &mut [f32], values: &[f32], weight: f32) {
    sums.iter_mut()
        .zip(values)
        .for_each(|(sum, value)| *sum += weight * value);
}

/// At most one turn: the kernel reaches less than the image's length beyond it.
fn mirrored(at: isize, len: usize) -> usize {
    let last = len as isize - 1;
    (last - (last - at.abs()).abs()) as usize
}

#[cfg(test)]
mod tests {
    use super::super::canvas::tests::painted;
    use super::*;

    #[test]
    fn weights_are_even_and_sum_to_one() {
        let mut taps = Vec::new();
        weights(3, 1.0, &mut taps);
        // exp(-0.5) = 0.60653: 1 / (1 + 2 * 0.60653) = 0.45186.
        assert!((taps[1] - 0.45186).abs() < 1e-5);
        assert_eq!(taps[0], taps[2]);
        assert!((taps.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn edges_are_mirrored_without_the_edge_itself() {
        assert_eq!(
            [-2, -1, 0, 3, 4, 5].map(|at| mirrored(at, 4)),
            [2, 1, 0, 3, 2, 1]
        );
        assert_eq!(mirrored(0, 1), 0);
    }

    #[test]
    fn a_row_blurs_across_only() {
        // Sigma so wide that the three weights are equal: rows 0 1 2 and 10 11 12.
        let blurred = painted(3, 2, |canvas| canvas.blur([3, 1], 1e4));
        assert_eq!(blurred, [[1, 1, 1], [11, 11, 11]]);
        let down = painted(3, 2, |canvas| canvas.blur([1, 3], 1e4));
        // (10 + 0 + 10) / 3 = 6.67 and (0 + 10 + 0) / 3 = 3.33.
        assert_eq!(down, [[7, 8, 9], [3, 4, 5]]);
    }

    #[test]
    fn a_kernel_wider_than_the_image_is_an_error() {
        let step = GaussianBlur {
            kernel: [7, 3],
            sigma: [1.0, 1.0],
        };
        assert!(
            step.fits(Size {
                width: 4,
                height: 2
            })
            .is_ok()
        );
        let error = step
            .fits(Size {
                width: 3,
                height: 9,
            })
            .unwrap_err();
        assert!(error.contains("3x9") && error.contains("7x3"), "{error}");
    }
}
