//! Files made to hurt: each is an error, soon, and without memory for what it claims.

use std::time::{Duration, Instant};

use image::ImageFormat;

use super::make::{Jpeg, PLAIN, rgb};
use super::*;
use crate::Error;

/// A guard against hangs, not a measure of speed.
const SOON: Duration = Duration::from_secs(20);

fn refused(encoded: &[u8]) -> Error {
    refused_with(encoded, EXACT)
}

fn refused_with(encoded: &[u8], options: Options) -> Error {
    let began = Instant::now();
    let error = Decoders::default().whole(encoded, options, &mut Raster::default());
    assert!(began.elapsed() < SOON);
    error.expect_err("is refused")
}

/// Overwrites the size in the frame header (of marker `sof`).
fn claim(encoded: &mut [u8], sof: u8, height: u16, width: u16) {
    let at = encoded
        .windows(3)
        .position(|w| w == [0xff, sof, 0])
        .expect("has a frame header");
    encoded[at + 5..at + 7].copy_from_slice(&height.to_be_bytes());
    encoded[at + 7..at + 9].copy_from_slice(&width.to_be_bytes());
}

#[test]
fn nothing_and_the_unknown_are_named() {
    assert_eq!(refused(b""), Error::Corrupt("the file is empty".into()));
    for unknown in [
        &b"GIF89a"[..],
        b"\xff",
        b"\xff\xd8",
        b"P",
        b"P7\n",
        b"RIFF\0\0\0\0WAVE",
    ] {
        let error = Error::Corrupt("no image format is known that starts so".into());
        assert_eq!(refused(unknown), error);
    }
}

#[test]
fn an_image_over_the_limit_is_refused_by_its_header() {
    let limit = 1000;
    let options = Options {
        max_pixels: limit,
        ..EXACT
    };
    let jpeg = PLAIN.encode(40, 30);
    let mut files = vec![jpeg];
    let formats = [
        ImageFormat::Png,
        ImageFormat::WebP,
        ImageFormat::Bmp,
        ImageFormat::Tiff,
    ];
    files.extend(formats.map(|format| rgb(40, 30, format)));
    for file in files {
        let too_large = Error::TooLarge {
            pixels: 1200,
            limit,
        };
        let mut decoders = Decoders::default();
        let mut out = Raster::default();
        assert_eq!(decoders.size(&file, options), Err(too_large.clone()));
        assert_eq!(
            decoders.whole(&file, options, &mut out),
            Err(too_large.clone())
        );
        let wanted = Rect {
            left: 0,
            top: 0,
            width: 1,
            height: 1,
        };
        assert_eq!(
            decoders.region(&file, wanted, None, options, &mut out),
            Err(too_large)
        );
        assert_eq!(out.rgb.capacity(), 0);
        assert!(
            decoders
                .whole(
                    &file,
                    Options {
                        max_pixels: 1200,
                        ..EXACT
                    },
                    &mut out
                )
                .is_ok()
        );
    }
}

#[test]
fn a_small_file_that_claims_a_huge_image_is_refused_at_once() {
    for (jpeg, sof) in [
        (PLAIN, 0xc0),
        (
            Jpeg {
                progressive: true,
                ..PLAIN
            },
            0xc2,
        ),
    ] {
        let mut encoded = jpeg.encode(64, 64);
        claim(&mut encoded, sof, 13_000, 13_000);
        let mut out = Raster::default();
        let error = Decoders::default()
            .whole(&encoded, EXACT, &mut out)
            .expect_err("is refused");
        assert!(error.to_string().contains("too short"), "{error}");
        assert_eq!(out.rgb.capacity(), 0);
        claim(&mut encoded, sof, 65_535, 65_535);
        assert!(matches!(refused(&encoded), Error::TooLarge { .. }));
    }
}

/// The last scan of a progressive file, again and again.
#[test]
fn thousands_of_scans_are_refused() {
    let encoded = Jpeg {
        progressive: true,
        ..PLAIN
    }
    .encode(256, 256);
    let scans: Vec<usize> = encoded
        .windows(2)
        .enumerate()
        .filter(|(_, w)| *w == [0xff, 0xda])
        .map(|(at, _)| at)
        .collect();
    let last = &encoded[*scans.last().expect("has scans")..encoded.len() - 2];
    let mut hostile = encoded[..encoded.len() - 2].to_vec();
    for _ in 0..5000 {
        hostile.extend_from_slice(last);
    }
    hostile.extend_from_slice(&[0xff, 0xd9]);
    let error = refused(&hostile);
    assert!(error.to_string().contains("scans"), "{error}");
}

#[test]
fn the_decoder_is_well_after_a_bad_image() {
    let good = PLAIN.encode(60, 50);
    let expected = whole(&good, EXACT).rgb;
    let mut decoders = Decoders::default();
    let mut out = Raster::default();
    for length in (3..good.len()).step_by(7) {
        // Cut inside the header, then inside the pixels.
        decoders
            .whole(&good[..length], EXACT, &mut out)
            .expect_err("is cut off");
        decoders.whole(&good, EXACT, &mut out).expect("is whole");
        assert!(out.rgb == expected, "{length}");
    }
}

/// libjpeg keeps tables for files that come without: those of another image would do harm.
#[test]
fn a_file_without_tables_is_not_decoded_with_those_of_the_image_before() {
    let full = PLAIN.encode(60, 50);
    for marker in [0xc4, 0xdb] {
        let mut lacking = full.clone();
        while let Some(at) = lacking.windows(2).position(|two| two == [0xff, marker]) {
            let length = u16::from_be_bytes([lacking[at + 2], lacking[at + 3]]);
            lacking.drain(at..at + 2 + usize::from(length));
        }
        let (mut alone, mut after) = (Raster::default(), Raster::default());
        let mut decoders = Decoders::default();
        for options in [EXACT, FAST] {
            let expected = Decoders::default().whole(&lacking, options, &mut alone);
            decoders.whole(&full, EXACT, &mut after).expect("is sound");
            let found = decoders.whole(&lacking, options, &mut after);
            assert_eq!(found, expected, "{marker:x}");
            assert!(found.is_err() || after.rgb == alone.rgb, "{marker:x}");
        }
    }
}

#[test]
fn what_libjpeg_only_warns_of_is_let_pass() {
    let mut encoded = PLAIN.encode(60, 50);
    let end = encoded.len() - 2;
    encoded.splice(end..end, [0x12, 0x34]);
    encoded.extend_from_slice(b"junk after the end");
    whole(&encoded, EXACT);
}

#[test]
fn arithmetic_coding_is_known() {
    let encoded = Jpeg {
        arithmetic: true,
        ..PLAIN
    }
    .encode(60, 50);
    let plain = whole(&PLAIN.encode(60, 50), EXACT);
    assert!(whole(&encoded, EXACT).rgb == plain.rgb);
}
