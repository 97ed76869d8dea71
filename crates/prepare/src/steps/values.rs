//! Steps on values alone, with torch's arithmetic: what is written for each byte of a channel.

use half::{bf16, f16};
use serde::Deserialize;

use super::check;
use crate::Element;

/// A step from one value to another.
#[derive(Debug, Clone)]
pub(crate) enum ValueStep {
    /// Byte / 255 as float32.
    ToTensor,
    ToDtype(ToDtype),
    Normalize(Normalize),
}

/// Converts, and with `scale` keeps 255 and 1.0 the same brightness.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToDtype {
    pub(crate) dtype: Dtype,
    scale: bool,
}

/// torch's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Dtype {
    Uint8,
    Float16,
    Bfloat16,
    Float32,
}

impl Dtype {
    pub(crate) fn element(self) -> Element {
        match self {
            Dtype::Uint8 => Element::U8,
            Dtype::Float16 => Element::F16,
            Dtype::Bfloat16 => Element::Bf16,
            Dtype::Float32 => Element::F32,
        }
    }
}

/// (value - mean) / std, for each channel.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Normalize {
    mean: Vec<f64>,
    std: Vec<f64>,
}

impl Normalize {
    /// `element` is what the values are when the step comes.
    pub(crate) fn check(&self, channels: usize, element: Element) -> Result<(), String> {
        check::per_channel("mean", &self.mean, channels)?;
        check::per_channel("std", &self.std, channels)?;
        if self
            .std
            .iter()
            .any(|&std| Number::of(element, std as f32).value == 0.0)
        {
            return Err("std holds a 0, by which nothing can be divided".into());
        }
        Ok(())
    }
}

/// A value and its type; it is always one that the type can hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Number {
    pub(crate) element: Element,
    pub(crate) value: f32,
}

impl Number {
    /// As torch casts: to the nearest float, or cut off to a byte that wraps round.
    pub(crate) fn of(element: Element, value: f32) -> Number {
        let value = match element {
            Element::U8 => f32::from(value as i64 as u8),
            Element::F16 => f16::from_f32(value).to_f32(),
            Element::Bf16 => bf16::from_f32(value).to_f32(),
            Element::F32 => value,
        };
        Number { element, value }
    }

    fn map(self, value: f32) -> Number {
        Number::of(self.element, value)
    }

    /// In the machine's order of bytes, as many as the type has.
    pub(crate) fn bytes<const N: usize>(self) -> [u8; N] {
        let mut bytes = [0; N];
        match self.element {
            Element::U8 => bytes.copy_from_slice(&[self.value as u8]),
            Element::F16 => bytes.copy_from_slice(&f16::from_f32(self.value).to_ne_bytes()),
            Element::Bf16 => bytes.copy_from_slice(&bf16::from_f32(self.value).to_ne_bytes()),
            Element::F32 => bytes.copy_from_slice(&self.value.to_ne_bytes()),
        }
        bytes
    }
}

impl ValueStep {
    /// What the step makes of a value in a channel.
    pub(crate) fn apply(&self, number: Number, channel: usize) -> Number {
        match self {
            ValueStep::ToTensor => Number::of(Element::F32, number.value / 255.0),
            ValueStep::ToDtype(step) => step.apply(number),
            ValueStep::Normalize(Normalize { mean, std }) => {
                let one = |values: &[f64]| {
                    let value = values[if values.len() == 1 { 0 } else { channel }];
                    number.map(value as f32).value
                };
                let centred = number.map(number.value - one(mean));
                number.map(centred.value / one(std))
            }
        }
    }
}

impl ToDtype {
    fn apply(&self, number: Number) -> Number {
        let to = self.dtype.element();
        match (number.element, to) {
            // torchvision multiplies by the inverse, which is not always the same as to divide.
            (Element::U8, Element::F16 | Element::Bf16 | Element::F32) if self.scale => {
                Number::of(to, number.value * (1.0f64 / 255.0) as f32)
            }
            (Element::F16 | Element::Bf16 | Element::F32, Element::U8) if self.scale => {
                // Not quite 256 equal parts, so that 1.0 falls into the last.
                Number::of(
                    to,
                    number.map(number.value * (256.0f64 - 1e-3) as f32).value,
                )
            }
            _ => Number::of(to, number.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(value: f32) -> Number {
        Number {
            element: Element::U8,
            value,
        }
    }

    fn to(dtype: Dtype, scale: bool) -> ValueStep {
        ValueStep::ToDtype(ToDtype { dtype, scale })
    }

    #[test]
    fn to_tensor_and_normalize_are_torchs_single_precision() {
        let step = Normalize {
            mean: vec![0.485, 0.456, 0.406],
            std: vec![0.229, 0.224, 0.225],
        };
        let step = ValueStep::Normalize(step);
        for value in 0..=255u8 {
            let tensor = ValueStep::ToTensor.apply(byte(f32::from(value)), 0);
            let expected = ((f32::from(value) / 255.0) - 0.456f32) / 0.224f32;
            assert_eq!(step.apply(tensor, 1).value.to_bits(), expected.to_bits());
        }
    }

    #[test]
    fn bytes_survive_the_way_to_floats_and_back() {
        for value in 0..=255u8 {
            let there = to(Dtype::Float32, true).apply(byte(f32::from(value)), 0);
            let back = to(Dtype::Uint8, true).apply(there, 0);
            assert_eq!(back, byte(f32::from(value)));
        }
        assert_eq!(to(Dtype::Float32, false).apply(byte(200.0), 0).value, 200.0);
        let half = Number {
            element: Element::F32,
            value: 0.5,
        };
        assert_eq!(to(Dtype::Uint8, true).apply(half, 0).value, 127.0);
        assert_eq!(to(Dtype::Uint8, false).apply(half, 0).value, 0.0);
    }

    #[test]
    fn half_floats_are_rounded_at_each_step() {
        let third = to(Dtype::Bfloat16, true).apply(byte(85.0), 0);
        assert_eq!(third.value, bf16::from_f32(1.0 / 3.0).to_f32());
        assert_eq!(third.bytes::<2>(), bf16::from_f32(1.0 / 3.0).to_ne_bytes());
        let step = ValueStep::Normalize(Normalize {
            mean: vec![0.1],
            std: vec![0.3],
        });
        let (mean, std) = (bf16::from_f32(0.1).to_f32(), bf16::from_f32(0.3).to_f32());
        let centred = bf16::from_f32(third.value - mean).to_f32();
        assert_eq!(
            step.apply(third, 2).value,
            bf16::from_f32(centred / std).to_f32()
        );
    }

    #[test]
    fn a_cast_to_bytes_cuts_off_and_wraps() {
        assert_eq!(Number::of(Element::U8, -1.5).value, 255.0);
        assert_eq!(Number::of(Element::U8, 2.9).value, 2.0);
    }
}
