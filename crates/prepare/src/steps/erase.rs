//! Random erasing: a box of the finished values is overwritten.

use serde::Deserialize;

use super::check;
use super::crop::shape;
use crate::decode::{Rect, Size};
use crate::random::Stream;

/// With probability `p`, a box of random area and shape.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RandomErasing {
    p: f64,
    scale: [f64; 2],
    ratio: [f64; 2],
    pub(crate) value: Value,
}

/// What is written there.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// One for each channel, or one for all.
    Constant(Vec<f64>),
    Named(Named),
}

/// Values that are not numbers.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Named {
    /// Normally distributed, each by itself.
    Random,
}

impl RandomErasing {
    pub(crate) fn check(&self, channels: usize) -> Result<(), String> {
        check::probability(self.p)?;
        check::range("scale", self.scale, [0.0, 1.0])?;
        check::positive_range("ratio", self.ratio)?;
        match &self.value {
            Value::Constant(values) => check::per_channel("value", values, channels),
            Value::Named(Named::Random) => Ok(()),
        }
    }

    /// `None` if nothing is erased. torchvision's ratio is of height to width here, and a box as
    /// high or wide as the image does not count.
    pub(crate) fn draw(&self, of: Size, stream: &mut Stream) -> Option<Rect> {
        if !stream.chance(self.p) {
            return None;
        }
        for _ in 0..10 {
            let [width, height] = shape(of, self.scale, self.ratio, stream);
            if height < of.height && width < of.width {
                let top = stream.below(u64::from(of.height - height) + 1) as u32;
                let left = stream.below(u64::from(of.width - width) + 1) as u32;
                return Some(Rect {
                    left,
                    top,
                    width,
                    height,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Draw;

    fn erasing(p: f64, scale: [f64; 2], ratio: [f64; 2]) -> RandomErasing {
        RandomErasing {
            p,
            scale,
            ratio,
            value: Value::Constant(vec![0.0]),
        }
    }

    #[test]
    fn boxes_lie_inside_and_ratio_is_height_to_width() {
        let (step, of) = (
            erasing(1.0, [0.1, 0.2], [2.0, 3.0]),
            Size {
                width: 100,
                height: 100,
            },
        );
        for position in 0..500 {
            let mut stream = Stream::new(
                Draw {
                    seed: 0,
                    epoch: 0,
                    position,
                },
                0,
            );
            let Rect {
                left,
                top,
                width,
                height,
            } = step.draw(of, &mut stream).unwrap();
            assert!(left + width <= 100 && top + height <= 100);
            let ratio = f64::from(height) / f64::from(width);
            assert!((1.9..3.2).contains(&ratio), "{width}x{height}");
        }
    }

    #[test]
    fn a_box_that_cannot_fit_erases_nothing() {
        let mut stream = Stream::new(
            Draw {
                seed: 0,
                epoch: 0,
                position: 0,
            },
            0,
        );
        let of = Size {
            width: 10,
            height: 10,
        };
        assert_eq!(
            erasing(1.0, [1.0, 1.0], [1.0, 1.0]).draw(of, &mut stream),
            None
        );
        assert_eq!(
            erasing(0.0, [0.1, 0.1], [1.0, 1.0]).draw(of, &mut stream),
            None
        );
    }
}
