//! Fast mode's own decoder: what it decodes, and what it leaves to libjpeg.

use turbojpeg_sys as tj;

use super::super::quick::Quick;
use super::super::scale::Scale;
use super::make::{Jpeg, PLAIN, SAMPLINGS, Xorshift, any_box};
use super::*;

const KNOWN: [tj::TJSAMP; 5] = [
    tj::TJSAMP_TJSAMP_444,
    tj::TJSAMP_TJSAMP_422,
    tj::TJSAMP_TJSAMP_420,
    tj::TJSAMP_TJSAMP_GRAY,
    tj::TJSAMP_TJSAMP_440,
];
const SIZES: [(u32, u32); 7] = [
    (1, 1),
    (7, 5),
    (16, 16),
    (33, 17),
    (64, 3),
    (97, 61),
    (230, 201),
];

fn decoded(quick: &mut Quick, encoded: &[u8], scale: Scale, wanted: Rect) -> Option<Raster> {
    let mut out = Raster::default();
    quick.region(encoded, scale, wanted, &mut out).map(|()| out)
}

/// Every kind that is decoded, in every size.
fn each_known(mut look: impl FnMut(&mut Quick, Jpeg, Size, &[u8])) {
    // One decoder for all: what one image left behind would show in the next.
    let mut quick = Quick::default();
    for sampling in KNOWN {
        for restart in [0, 1, 3] {
            let jpeg = Jpeg {
                sampling,
                restart,
                ..PLAIN
            };
            for (width, height) in SIZES {
                let encoded = jpeg.encode(width, height);
                look(&mut quick, jpeg, Size { width, height }, &encoded);
            }
        }
    }
}

/// Chroma is repeated in both, and libjpeg's fast transform is the rougher one.
#[test]
fn at_full_size_pixels_are_those_of_libjpegs_fast_mode() {
    each_known(|quick, jpeg, size, encoded| {
        let all = Rect::whole(size);
        let found = decoded(quick, encoded, Scale::FULL, all).expect("is known");
        let (most, mean) = distance(&found, &whole(encoded, FAST), all);
        assert!(most <= 8 && mean < 1.6, "{jpeg:?} {size:?}: {most}, {mean}");
    });
}

#[test]
fn without_halved_chroma_pixels_are_nearly_exact() {
    each_known(|quick, jpeg, size, encoded| {
        if [tj::TJSAMP_TJSAMP_444, tj::TJSAMP_TJSAMP_GRAY].contains(&jpeg.sampling) {
            let all = Rect::whole(size);
            let found = decoded(quick, encoded, Scale::FULL, all).expect("is known");
            let (most, mean) = distance(&found, &whole(encoded, EXACT), all);
            assert!(most <= 5 && mean < 0.6, "{jpeg:?} {size:?}: {most}, {mean}");
        }
    });
}

/// The largest difference of two values, and the mean.
fn distance(a: &Raster, b: &Raster, rect: Rect) -> (u8, f64) {
    let (a, b) = (pixels_of(a, rect), pixels_of(b, rect));
    let off = || a.iter().zip(&b).map(|(a, b)| a.abs_diff(*b));
    let sum: u64 = off().map(u64::from).sum();
    (off().max().unwrap_or(0), sum as f64 / a.len() as f64)
}

#[test]
fn every_box_has_the_pixels_of_the_whole_at_every_scale() {
    let mut random = Xorshift(11);
    each_known(|quick, jpeg, size, encoded| {
        for scale in [1, 2, 4, 8].map(Scale::eighths) {
            let scaled = scale.size(size);
            let all = decoded(quick, encoded, scale, Rect::whole(scaled)).expect("is known");
            for _ in 0..10 {
                let wanted = any_box(&mut random, scaled);
                let found = decoded(quick, encoded, scale, wanted).expect("is known");
                let same = pixels_of(&found, Rect::whole(found.size())) == pixels_of(&all, wanted);
                assert!(same, "{jpeg:?} {size:?} {scale:?} {wanted:?}");
            }
        }
    });
}

/// A scaled pixel is about the mean of those it stands for, where they do not vary much.
#[test]
fn a_scaled_image_is_the_image() {
    let (width, height) = (200, 120);
    let slopes =
        |at: u32| [at % width / 2, at / width, 255 - at % width / 2].map(|value| value as u8);
    let rgb: Vec<u8> = (0..width * height).flat_map(slopes).collect();
    let mut quick = Quick::default();
    for sampling in KNOWN
        .into_iter()
        .filter(|&one| one != tj::TJSAMP_TJSAMP_GRAY)
    {
        let encoded = Jpeg { sampling, ..PLAIN }.encode_pixels(&rgb, width, height);
        for eighths in [1, 2, 4] {
            let scale = Scale::eighths(eighths);
            let all = Rect::whole(scale.size(Size { width, height }));
            let found = decoded(&mut quick, &encoded, scale, all).expect("is known");
            for (at, pixel) in (0..).zip(pixels_of(&found, all).as_chunks::<3>().0) {
                let middle = |at: u32| (at * 8 + 4) / eighths;
                let (x, y) = (middle(at % all.width), middle(at / all.width));
                let wanted = [x / 2, y, 255 - x / 2];
                let near = pixel
                    .iter()
                    .zip(wanted)
                    .all(|(&a, b)| u32::from(a).abs_diff(b) <= 6);
                assert!(near, "{sampling} {eighths}/8 {x} {y}: {pixel:?} {wanted:?}");
            }
        }
    }
}

#[test]
fn other_kinds_are_left_to_libjpeg() {
    let rare = SAMPLINGS
        .into_iter()
        .filter(|sampling| !KNOWN.contains(sampling));
    let mut kinds: Vec<Jpeg> = rare.map(|sampling| Jpeg { sampling, ..PLAIN }).collect();
    kinds.push(Jpeg {
        progressive: true,
        ..PLAIN
    });
    kinds.push(Jpeg {
        arithmetic: true,
        ..PLAIN
    });
    let size = Size {
        width: 40,
        height: 30,
    };
    for kind in kinds {
        let encoded = kind.encode(size.width, size.height);
        let all = Rect::whole(size);
        let found = decoded(&mut Quick::default(), &encoded, Scale::FULL, all);
        assert!(found.is_none(), "{kind:?}");
        let mut out = Raster::default();
        let region = Decoders::default().region(&encoded, all, None, FAST, &mut out);
        region.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// The coarsest steps and the finest: short codes and few values, long codes and large values.
#[test]
fn every_quality_is_decoded() {
    let size = Size {
        width: 97,
        height: 61,
    };
    let all = Rect::whole(size);
    let mut quick = Quick::default();
    for quality in [1, 10, 50, 100] {
        for sampling in [tj::TJSAMP_TJSAMP_444, tj::TJSAMP_TJSAMP_GRAY] {
            let kind = Jpeg {
                sampling,
                quality,
                ..PLAIN
            };
            let encoded = kind.encode(size.width, size.height);
            let found = decoded(&mut quick, &encoded, Scale::FULL, all).expect("is known");
            let (most, mean) = distance(&found, &whole(&encoded, EXACT), all);
            assert!(most <= 7 && mean < 1.0, "{kind:?}: {most}, {mean}");
        }
    }
}

#[test]
fn an_image_is_turned_after_it_as_after_libjpeg() {
    let turned = [
        &include_bytes!("../../../tests/golden/turned2.jpg")[..],
        include_bytes!("../../../tests/golden/turned3.jpg"),
        include_bytes!("../../../tests/golden/turned5.jpg"),
        include_bytes!("../../../tests/golden/turned6.jpg"),
        include_bytes!("../../../tests/golden/turned8.jpg"),
    ];
    for encoded in turned {
        let region = |fast: bool| {
            let options = Options {
                fast,
                orient: true,
                ..EXACT
            };
            let mut out = Raster::default();
            let mut decoders = Decoders::default();
            let all = Rect::whole(decoders.size(encoded, options).expect("has a size"));
            let found = decoders.region(encoded, all, None, options, &mut out);
            assert_eq!(found, Ok(all));
            (out, all)
        };
        let ((found, all), (wanted, _)) = (region(true), region(false));
        let (_, mean) = distance(&found, &wanted, all);
        // Upside down it would be another picture.
        let mut upended = wanted;
        let pixels = upended.rgb.as_chunks_mut::<4>().0;
        pixels.reverse();
        let (_, other) = distance(&found, &upended, all);
        assert!(mean < 6.0 && other > 3.0 * mean, "{mean} {other}");
    }
}

#[test]
fn a_scan_that_ends_too_early_is_left_to_libjpeg() {
    let size = Size {
        width: 100,
        height: 80,
    };
    let mut quick = Quick::default();
    for restart in [0, 1, 4] {
        let encoded = Jpeg { restart, ..PLAIN }.encode(size.width, size.height);
        let end = encoded.len() - 2;
        for missing in [1, 2, 4, 8, 20, end / 2] {
            let cut = [&encoded[..end - missing], &encoded[end..]].concat();
            let found = decoded(&mut quick, &cut, Scale::FULL, Rect::whole(size));
            assert!(found.is_none(), "{missing} bytes, restart {restart}");
        }
        let found = decoded(&mut quick, &encoded, Scale::FULL, Rect::whole(size));
        assert!(found.is_some());
    }
}

/// Everything behind it would stand at a wrong place.
#[test]
fn a_lost_interval_is_left_to_libjpeg() {
    let size = Size {
        width: 100,
        height: 80,
    };
    let encoded = Jpeg {
        restart: 2,
        ..PLAIN
    }
    .encode(size.width, size.height);
    let marker = |number: u8| {
        let found = encoded.windows(2).position(|pair| pair == [0xff, number]);
        found.expect("there are restarts")
    };
    let lost = [&encoded[..marker(0xd2)], &encoded[marker(0xd3)..]].concat();
    let upper = Rect {
        height: 60,
        ..Rect::whole(size)
    };
    let mut quick = Quick::default();
    assert!(decoded(&mut quick, &encoded, Scale::FULL, upper).is_some());
    assert!(decoded(&mut quick, &lost, Scale::FULL, upper).is_none());
}

#[test]
fn rows_below_are_not_read() {
    let size = Size {
        width: 100,
        height: 80,
    };
    let mut encoded = PLAIN.encode(size.width, size.height);
    let upper = Rect {
        height: 20,
        ..Rect::whole(size)
    };
    let mut quick = Quick::default();
    let wanted = decoded(&mut quick, &encoded, Scale::FULL, upper).expect("is known");
    let (half, end) = (encoded.len() * 3 / 4, encoded.len() - 2);
    encoded[half..end].fill(0x55);
    let found = decoded(&mut quick, &encoded, Scale::FULL, upper).expect("is all there");
    assert!(found.rgb == wanted.rgb);
}
