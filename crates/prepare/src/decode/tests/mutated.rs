//! Thousands of damaged files: pixels or an error, soon, and never more memory than is allowed.
//!
//! `FOREBAY_SLOW_TESTS=1` makes them a hundred thousand.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use image::ImageFormat;

use super::make::{Jpeg, PLAIN, SAMPLINGS, Xorshift, rgb, rgba};
use super::*;

/// Notes the largest block that a thread asked for.
struct Watched;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(bytes: usize) {
    // A thread that is ending has no cell any more, and nothing to note.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

const LIMIT: Options = Options {
    max_pixels: 1 << 20,
    ..EXACT
};

/// Eight bytes a pixel (16-bit RGBA) at most, and 16 MiB besides: what the three bytes that tell
/// the length of a partition of a lossy WebP can ask for.
const LARGEST_BLOCK: usize = (8 << 20) + (16 << 20);

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = SAMPLINGS
        .map(|sampling| Jpeg { sampling, ..PLAIN }.encode(47, 35))
        .to_vec();
    seeds.push(
        Jpeg {
            progressive: true,
            ..PLAIN
        }
        .encode(47, 35),
    );
    seeds.push(
        Jpeg {
            restart: 2,
            ..PLAIN
        }
        .encode(47, 35),
    );
    seeds.push(
        Jpeg {
            arithmetic: true,
            ..PLAIN
        }
        .encode(47, 35),
    );
    let golden = [
        &include_bytes!("../../../tests/golden/cmyk.jpg")[..],
        include_bytes!("../../../tests/golden/ycck.jpg"),
        include_bytes!("../../../tests/golden/turned6.jpg"),
        include_bytes!("../../../tests/golden/palettekeys.png"),
        include_bytes!("../../../tests/golden/grey16.png"),
        include_bytes!("../../../tests/golden/animated.png"),
        include_bytes!("../../../tests/golden/alpha.webp"),
        include_bytes!("../../../tests/golden/lossy.webp"),
        include_bytes!("../../../tests/golden/lossless.webp"),
        include_bytes!("../../../tests/golden/animated.webp"),
        include_bytes!("../../../tests/golden/palette.bmp"),
        include_bytes!("../../../tests/golden/lzw.tif"),
        include_bytes!("../../../tests/golden/grey16.pgm"),
    ];
    seeds.extend(golden.map(<[u8]>::to_vec));
    let formats = [ImageFormat::Png, ImageFormat::WebP];
    seeds.extend(formats.map(|format| rgb(29, 23, format)));
    seeds.extend(formats.map(|format| rgba(29, 23, format)));
    seeds
}

/// Flips bits, overwrites bytes (most near the start, where sizes are), cuts, repeats.
fn mutate(bytes: &mut Vec<u8>, random: &mut Xorshift) {
    for _ in 0..=random.below(6) {
        let length = bytes.len() as u64;
        let reach = if random.below(2) == 0 {
            length
        } else {
            length.min(200)
        };
        let at = random.below(reach.max(1)) as usize;
        match random.below(10) {
            0..=3 => bytes[at] ^= 1 << random.below(8),
            4 | 5 => bytes[at] = random.next() as u8,
            6 => bytes[at] = [0, 0xff, 0x7f, 0x80][random.below(4) as usize],
            7 => {
                let end = (at + 4).min(bytes.len());
                bytes[at..end].fill(if random.below(2) == 0 { 0xff } else { 0 });
            }
            8 => {
                let end = at + random.below(length - at as u64 + 1) as usize;
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => bytes.truncate(at.max(1)),
        }
    }
}

#[test]
fn damaged_files_yield_pixels_or_an_error() {
    let slow = std::env::var_os("FOREBAY_SLOW_TESTS").is_some_and(|value| value == "1");
    let rounds = if slow { 100_000 } else { 3_000 };
    let (seeds, mut random) = (seeds(), Xorshift(0x9e37_79b9_7f4a_7c15));
    let (mut decoders, mut out) = (Decoders::default(), Raster::default());
    let (mut decoded, mut longest) = (0, Duration::ZERO);
    for round in 0..rounds {
        let mut bytes = seeds[round % seeds.len()].clone();
        mutate(&mut bytes, &mut random);
        let options = Options {
            fast: random.below(2) == 0,
            orient: random.below(5) == 0,
            ..LIMIT
        };
        LARGEST.set(0);
        let began = Instant::now();
        let size = decoders.size(&bytes, options);
        let result = decoders.whole(&bytes, options, &mut out);
        decoded += usize::from(result.is_ok());
        if result.is_ok() {
            assert_eq!(size, Ok(out.size()), "round {round}");
            assert_eq!(
                out.rgb.len() as u64,
                3 * out.size().pixels(),
                "round {round}"
            );
        }
        if let Ok(size) = size {
            let wanted = Rect {
                left: size.width / 3,
                top: size.height / 3,
                width: size.width.div_ceil(2),
                height: size.height.div_ceil(2),
            };
            let target = Size {
                width: size.width / 9,
                height: size.height / 9,
            };
            let found = decoders.region(&bytes, wanted, Some(target), options, &mut out);
            assert!(found.is_ok_and(|found| found.lies_in(out.size())) || result.is_err());
        }
        longest = longest.max(began.elapsed());
        assert!(
            LARGEST.get() <= LARGEST_BLOCK,
            "round {round} took {} bytes",
            LARGEST.get()
        );
        // Three decodes; an hour-long hang is the enemy here, not a busy machine.
        assert!(began.elapsed() < Duration::from_secs(30), "round {round}");
    }
    let summary = format!("{decoded} of {rounds} decode, the longest took {longest:?}");
    assert!(
        decoded > rounds / 20 && decoded < rounds - rounds / 20,
        "{summary}"
    );
    if slow {
        std::io::Write::write_all(&mut std::io::stderr(), summary.as_bytes()).expect("is open");
    }
}
