//! What the decoders promise, on images made here and on golden files made by Pillow.

mod golden;
mod hostile;
mod make;
mod mutated;
mod parts;
mod quick;

use super::{Decoders, Options, Raster, Rect, Size};

/// As the recipes have it by default.
const EXACT: Options = Options {
    fast: false,
    orient: false,
    max_pixels: 178_956_970,
};
const FAST: Options = Options {
    fast: true,
    ..EXACT
};

fn whole(encoded: &[u8], options: Options) -> Raster {
    let mut out = Raster::default();
    Decoders::default()
        .whole(encoded, options, &mut out)
        .expect("decodes");
    out
}

/// Red, green and blue, pixel after pixel.
fn pixels_of(raster: &Raster, rect: Rect) -> Vec<u8> {
    let row = |y: u32| {
        let start = y as usize * raster.width as usize + rect.left as usize;
        let pixels = raster.rgb.chunks_exact(raster.channels);
        pixels.skip(start).take(rect.width as usize)
    };
    (rect.top..rect.top + rect.height)
        .flat_map(row)
        .flat_map(|pixel| &pixel[..3])
        .copied()
        .collect()
}
