//! Pillow's own pixels, from `tests/golden/`; `make.py` there made them.

use std::fs;
use std::path::{Path, PathBuf};

use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Name, encoded, and what Pillow made of it.
fn goldens() -> Vec<(String, Vec<u8>, Raster)> {
    let mut names: Vec<String> = fs::read_dir(folder())
        .expect("the folder is there")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some(name.strip_suffix(".ppm")?.to_owned()))
        .collect();
    names.sort();
    assert!(names.len() > 30, "{names:?}");
    let read = |name: String| {
        let encoded = fs::read(folder().join(&name)).expect("is there");
        let expected = portable(&fs::read(folder().join(format!("{name}.ppm"))).expect("is there"));
        (name, encoded, expected)
    };
    names.into_iter().map(read).collect()
}

/// Reads `P6\n<width> <height>\n255\n<pixels>`, which is how Pillow writes it.
fn portable(bytes: &[u8]) -> Raster {
    let mut parts = bytes.splitn(4, |&byte| byte == b'\n');
    let mut line = || parts.next().expect("a line");
    assert_eq!(line(), b"P6");
    let size = String::from_utf8(line().to_vec()).expect("digits");
    let (width, height) = size.split_once(' ').expect("two numbers");
    assert_eq!(line(), b"255");
    let rgb = line().to_vec();
    Raster {
        channels: 3,
        width: width.parse().expect("a number"),
        height: height.parse().expect("one"),
        rgb,
    }
}

/// By how much a value may differ; everything but this one oddity is equal.
fn tolerated(name: &str) -> u8 {
    match name {
        // A maximum that does not divide 255: `image` rounds some halves down, Pillow up.
        "grey100.pgm" => 1,
        _ => 0,
    }
}

fn options(name: &str) -> Options {
    Options {
        orient: name.starts_with("turned"),
        ..EXACT
    }
}

#[test]
fn the_whole_is_what_pillow_decodes() {
    let mut wrong = Vec::new();
    for (name, encoded, expected) in goldens() {
        let options = options(&name);
        let size = Decoders::default()
            .size(&encoded, options)
            .expect("has a size");
        assert_eq!(size, expected.size(), "{name}");
        let found = whole(&encoded, options);
        assert_eq!(found.size(), expected.size(), "{name}");
        let differ = |(a, b): (&u8, &u8)| a.abs_diff(*b);
        let most = found.rgb.iter().zip(&expected.rgb).map(differ).max();
        if most > Some(tolerated(&name)) {
            wrong.push(format!("{name} differs by up to {most:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_part_is_what_pillow_decodes_there_turned_or_not() {
    let mut decoders = Decoders::default();
    let mut out = Raster::default();
    for (name, encoded, expected) in goldens() {
        let Size { width, height } = expected.size();
        for (left, top) in [(0, 0), (3, 0), (0, 2), (width / 2, height / 2)] {
            let wanted = Rect {
                left,
                top,
                width: width / 2,
                height: height / 2,
            };
            let found = decoders.region(&encoded, wanted, None, options(&name), &mut out);
            let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
            let pairs = pixels_of(&out, found)
                .into_iter()
                .zip(pixels_of(&expected, wanted));
            let most = pairs.map(|(a, b)| a.abs_diff(b)).max();
            assert!(
                most <= Some(tolerated(&name)),
                "{name} {wanted:?}: {most:?}"
            );
        }
    }
}

#[test]
fn a_cut_file_is_an_error_as_for_pillow() {
    for (name, encoded, _) in goldens() {
        // The first frame of these is in the first half.
        if name.starts_with("animated") {
            continue;
        }
        // For a JPEG, Pillow wants the very last byte.
        let shortest = if name.ends_with(".jpg") {
            1
        } else {
            encoded.len() / 2
        };
        for cut in [shortest, encoded.len() / 2, encoded.len() - 20] {
            let part = &encoded[..encoded.len() - cut];
            let result = Decoders::default().whole(part, options(&name), &mut Raster::default());
            assert!(
                matches!(result, Err(crate::Error::Corrupt(_))),
                "{name} without {cut} bytes"
            );
        }
    }
}
