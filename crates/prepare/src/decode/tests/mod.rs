//! What the decoders promise, on images made here and on golden files made by Pillow.

mod golden;
mod hostile;
mod make;
mod mutated;
mod parts;

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

fn pixels_of(raster: &Raster, rect: Rect) -> Vec<u8> {
    let row = |y: u32| {
        let start = 3 * (y as usize * raster.width as usize + rect.left as usize);
        &raster.rgb[start..start + 3 * rect.width as usize]
    };
    (rect.top..rect.top + rect.height)
        .flat_map(row)
        .copied()
        .collect()
}
