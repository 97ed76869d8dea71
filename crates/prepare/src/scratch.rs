//! What a thread keeps from sample to sample, so that none allocates once the first few are done.

use fast_image_resize::Resizer;

use crate::decode::{Decoders, Raster};
use crate::steps::Drawn;

/// Buffers and decoders of one thread.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) decoders: Decoders,
    pub(crate) raster: Raster,
    pub(crate) drawn: Vec<Drawn>,
    pub(crate) buffers: Buffers,
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
