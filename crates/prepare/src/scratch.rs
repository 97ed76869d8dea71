//! What a thread keeps from sample to sample, so that none allocates once the first few are done.

use fast_image_resize::Resizer;

use crate::decode::{Decoders, Options, Raster};
use crate::steps::Drawn;
use crate::{Error, Pixels};

/// Buffers and decoders of one thread.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) decoders: Decoders,
    pub(crate) raster: Raster,
    pub(crate) drawn: Vec<Drawn>,
    pub(crate) buffers: Buffers,
}

impl Scratch {
    /// Decodes a whole image to what Pillow's `convert("RGB")` gives, turned by nothing.
    pub fn decode(&mut self, encoded: &[u8], max_pixels: u64) -> Result<Pixels<'_>, Error> {
        let options = Options {
            fast: false,
            orient: false,
            max_pixels,
        };
        self.whole(encoded, options)
    }

    pub(crate) fn whole(&mut self, encoded: &[u8], options: Options) -> Result<Pixels<'_>, Error> {
        self.decoders.whole(encoded, options, &mut self.raster)?;
        let Raster {
            width,
            height,
            ref rgb,
            ..
        } = self.raster;
        Ok(Pixels {
            width,
            height,
            rgb: &rgb[..width as usize * height as usize * 3],
        })
    }
}

/// Buffers of the steps: each reads `front` and writes `back`, and then they swap.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) front: Vec<u8>,
    pub(crate) back: Vec<u8>,
    /// A resize between its two passes.
    pub(crate) middle: Vec<u8>,
    pub(crate) floats: Vec<f32>,
    pub(crate) line: Vec<f32>,
    pub(crate) taps: [Vec<f32>; 2],
    pub(crate) places: Vec<usize>,
    pub(crate) resizer: Resizer,
}

/// The first `len` items; the buffer only ever grows, so that this is free when it is warm.
pub(crate) fn room<T: Copy + Default>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
    &mut buffer[..len]
}
