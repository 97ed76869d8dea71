//! From rows of luma and chroma to pixels.

/// In 8192ths: what chroma adds to red, takes from green (twice), adds to blue.
const RED: i16 = 11_485;
const GREEN: [i16; 2] = [2_819, 5_850];
const BLUE: i16 = 14_516;

/// A row of pixels, of four bytes each. The rows are of equal length.
pub(super) fn pixels(luma: &[u8], blue: &[u8], red: &[u8], out: &mut [[u8; 4]]) {
    let rows = luma.iter().zip(blue).zip(red).zip(out);
    for (((&luma, &blue), &red), out) in rows {
        let luma = i16::from(luma) << 4 | 8;
        let (blue, red) = (centred(blue), centred(red));
        *out = [
            byte(luma + share(red, RED)),
            byte(luma - share(blue, GREEN[0]) - share(red, GREEN[1])),
            byte(luma + share(blue, BLUE)),
            0,
        ];
    }
}

pub(super) fn grey(luma: &[u8], out: &mut [[u8; 4]]) {
    for (&luma, out) in luma.iter().zip(out) {
        *out = [luma, luma, luma, 0];
    }
}

/// Each twice.
pub(super) fn double(row: &[u8], out: &mut [u8]) {
    for (&sample, out) in row.iter().zip(out.as_chunks_mut::<2>().0) {
        *out = [sample; 2];
    }
}

fn centred(chroma: u8) -> i16 {
    (i16::from(chroma) - 128) << 7
}

/// In sixteenths.
fn share(chroma: i16, factor: i16) -> i16 {
    ((i32::from(chroma) * i32::from(factor)) >> 16) as i16
}

fn byte(sixteenths: i16) -> u8 {
    (sixteenths >> 4).clamp(0, 255) as u8
}
