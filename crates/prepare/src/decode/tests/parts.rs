//! A part of a JPEG, exact and fast.

use super::make::{Jpeg, PLAIN, SAMPLINGS, Xorshift, any_box};
use super::*;

const SIZES: [(u32, u32); 6] = [(1, 1), (7, 5), (16, 16), (33, 17), (97, 61), (130, 101)];

/// One decoder for all: what one image left behind would show in the next.
#[test]
fn every_box_has_the_pixels_of_the_whole() {
    let mut random = Xorshift(7);
    let mut decoders = Decoders::default();
    let mut out = Raster::default();
    for sampling in SAMPLINGS {
        for (progressive, restart) in [(false, 0), (true, 0), (false, 3)] {
            let jpeg = Jpeg {
                sampling,
                progressive,
                restart,
                ..PLAIN
            };
            for (width, height) in SIZES {
                let encoded = jpeg.encode(width, height);
                let all = whole(&encoded, EXACT);
                for _ in 0..60 {
                    let wanted = any_box(&mut random, all.size());
                    let found = decoders.region(&encoded, wanted, None, EXACT, &mut out);
                    let found = found.expect("decodes");
                    let same = pixels_of(&out, found) == pixels_of(&all, wanted);
                    assert!(same, "{jpeg:?} {width}x{height} {wanted:?}");
                }
            }
        }
    }
}

/// AddressSanitizer sees what libjpeg would touch of the image before.
#[test]
fn a_fast_part_is_the_same_whatever_was_decoded_before() {
    let part = Rect {
        left: 20,
        top: 21,
        width: 50,
        height: 40,
    };
    let progressive = Jpeg {
        progressive: true,
        ..PLAIN
    };
    let encoded = progressive.encode(97, 101);
    let mut alone = Raster::default();
    let expected = Decoders::default().region(&encoded, part, None, FAST, &mut alone);
    let expected = pixels_of(&alone, expected.expect("decodes"));
    for sampling in SAMPLINGS {
        let other = Jpeg { sampling, ..PLAIN }.encode(64, 64);
        for options in [EXACT, FAST] {
            let (mut decoders, mut out) = (Decoders::default(), Raster::default());
            for _ in 0..2 {
                let whole = decoders.whole(&other, options, &mut out);
                whole.expect("decodes");
                let found = decoders.region(&encoded, part, None, FAST, &mut out);
                let found = found.expect("decodes");
                assert!(pixels_of(&out, found) == expected, "{sampling} {options:?}");
            }
        }
    }
}

#[test]
fn rows_and_columns_outside_are_not_in_the_output() {
    let encoded = PLAIN.encode(400, 300);
    let mut out = Raster::default();
    let wanted = Rect {
        left: 200,
        top: 100,
        width: 50,
        height: 40,
    };
    Decoders::default()
        .region(&encoded, wanted, None, EXACT, &mut out)
        .expect("decodes");
    assert_eq!(out.height, 40);
    assert!(out.width < 50 + 16 + 2 * 4 + 4, "{}", out.width);
}

/// The upper part of a picture of 400x300.
const UPPER: Rect = Rect {
    left: 10,
    top: 10,
    width: 300,
    height: 80,
};

#[test]
fn rows_below_are_not_read() {
    let mut encoded = PLAIN.encode(400, 300);
    let all = whole(&encoded, EXACT);
    let (half, end) = (encoded.len() / 2, encoded.len() - 2);
    encoded[half..end].fill(0x55);
    let mut out = Raster::default();
    let found = Decoders::default()
        .region(&encoded, UPPER, None, EXACT, &mut out)
        .expect("is all there");
    assert!(pixels_of(&out, found) == pixels_of(&all, UPPER));
    assert!(
        whole(&encoded, EXACT).rgb != all.rgb,
        "the lower part is damaged"
    );
}

#[test]
fn a_file_that_is_cut_off_is_an_error_whatever_part_is_wanted() {
    let mut encoded = PLAIN.encode(400, 300);
    encoded.truncate(encoded.len() / 2);
    let mut decoders = Decoders::default();
    let mut out = Raster::default();
    for wanted in [UPPER, Rect { top: 200, ..UPPER }] {
        let error = decoders
            .region(&encoded, wanted, None, EXACT, &mut out)
            .expect_err("is cut off");
        assert!(error.to_string().contains("cut off"), "{error}");
    }
    let error = decoders
        .whole(&encoded, EXACT, &mut out)
        .expect_err("is cut off");
    assert!(error.to_string().contains("cut off"), "{error}");
}

#[test]
fn a_box_outside_the_image_is_refused() {
    let encoded = PLAIN.encode(40, 30);
    let inside = Rect {
        left: 0,
        top: 0,
        width: 40,
        height: 30,
    };
    let outside = [
        Rect { left: 1, ..inside },
        Rect { top: 1, ..inside },
        Rect { width: 0, ..inside },
        Rect {
            left: u32::MAX,
            ..inside
        },
        Rect {
            height: u32::MAX,
            ..inside
        },
    ];
    let mut out = Raster::default();
    for wanted in outside {
        for target in [
            None,
            Some(Size {
                width: 1,
                height: 1,
            }),
        ] {
            let result = Decoders::default().region(&encoded, wanted, target, FAST, &mut out);
            assert!(
                matches!(result, Err(crate::Error::Invalid(_))),
                "{wanted:?}"
            );
        }
    }
}

#[test]
fn fast_takes_the_smallest_scale_that_has_the_target() {
    let encoded = PLAIN.encode(640, 480);
    let all = Rect {
        left: 0,
        top: 0,
        width: 640,
        height: 480,
    };
    let mut decoders = Decoders::default();
    let mut out = Raster::default();
    for (target, scaled) in [
        (480, 640),
        (241, 640),
        (240, 320),
        (121, 320),
        (120, 160),
        (9, 80),
    ] {
        let target = Some(Size {
            width: target,
            height: target,
        });
        let found = decoders
            .region(&encoded, all, target, FAST, &mut out)
            .expect("decodes");
        assert_eq!(
            (found.width, found.height),
            (scaled, scaled * 3 / 4),
            "{target:?}"
        );
        decoders
            .region(&encoded, all, target, EXACT, &mut out)
            .expect("decodes");
        assert_eq!(out.width, 640, "exact never scales");
    }
}

/// The part at a scale, against the mean of the full-size pixels that each of its pixels covers.
#[test]
fn a_scaled_part_shows_what_was_wanted() {
    let (width, height) = (330, 250);
    let slope = |index: u32| {
        [
            index % width * 255 / width,
            index / width * 255 / height,
            60,
        ]
    };
    let rgb: Vec<u8> = (0..width * height)
        .flat_map(slope)
        .map(|value| value as u8)
        .collect();
    let mut random = Xorshift(3);
    let mut decoders = Decoders::default();
    let mut out = Raster::default();
    for sampling in SAMPLINGS
        .into_iter()
        .filter(|&s| s != turbojpeg_sys::TJSAMP_TJSAMP_GRAY)
    {
        let encoded = Jpeg { sampling, ..PLAIN }.encode_pixels(&rgb, width, height);
        for _ in 0..100 {
            let wanted = any_box(&mut random, Size { width, height });
            let target = Size {
                width: wanted.width.div_ceil(5),
                height: wanted.height.div_ceil(5),
            };
            let found = decoders.region(&encoded, wanted, Some(target), FAST, &mut out);
            let found = found.expect("decodes");
            assert!(found.width >= target.width && found.height >= target.height);
            let pixel = pixels_of(&out, found);
            let corner = [wanted.left * 255 / width, wanted.top * 255 / height, 60];
            for (value, expected) in pixel.iter().zip(corner) {
                let off = u32::from(*value).abs_diff(expected);
                assert!(
                    off <= 10,
                    "{sampling} {wanted:?} {found:?}: {:?} {corner:?}",
                    &pixel[..3]
                );
            }
        }
    }
}

#[test]
fn a_decoder_may_change_threads() {
    let encoded = PLAIN.encode(50, 40);
    let expected = whole(&encoded, EXACT).rgb;
    let mut decoders = Decoders::default();
    for _ in 0..4 {
        let mut out = Raster::default();
        let work = std::thread::scope(|scope| {
            let thread = scope.spawn(|| decoders.whole(&encoded, EXACT, &mut out));
            thread.join().expect("no panic")
        });
        work.expect("decodes");
        assert!(out.rgb == expected);
    }
}

#[test]
fn the_head_of_a_jpeg_ends_with_the_header_of_its_first_scan_and_no_other_file_has_one() {
    let file = std::fs::read("tests/golden/420.jpg").unwrap();
    let found = crate::head(&file).unwrap();
    let scan = file.windows(2).position(|two| two == [0xff, 0xda]).unwrap();
    let length = usize::from(u16::from_be_bytes([file[scan + 2], file[scan + 3]]));
    assert_eq!(found, &file[..scan + 2 + length]);
    for cut in 0..found.len() {
        assert_eq!(crate::head(&file[..cut]), None);
    }
    let several = [&file[..2], b"\xff\xe2\0\x08MPF\0II", &file[2..]].concat();
    assert_eq!(crate::head(&several), None);
    assert_eq!(crate::head(b"\x89PNG\r\n\x1a\n"), None);
}
