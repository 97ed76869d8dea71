//! The yardstick for the loader: decode, crop, resize and normalise, and nothing else.
//!
//! ```text
//! bare_loop DIR THREADS [--fast] [--uint8] [--whole] [--recipe] [--seconds S]
//! ```
//!
//! All files of DIR's class folders are read into memory first; then each thread takes one after
//! the other, draws a box as RandomResizedCrop(224) does, and calls libjpeg-turbo and
//! fast_image_resize straight. Samples go to a slab of 64, as a batch does not fit the caches
//! either. `--whole` decodes all of the image instead of the box, `--recipe` goes through this
//! crate's own `Recipe` instead, and `--uint8` leaves the values bytes.

#![allow(unsafe_code, clippy::print_stdout, clippy::print_stderr)]

use std::ffi::{CStr, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fast_image_resize::images::{CroppedImage, Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use forebay_prepare::{Draw, Recipe, Scratch};
use turbojpeg_sys as tj;

const EDGE: usize = 224;
const SLAB: usize = 64;
/// Bytes of a pixel: four are resized more quickly than three.
const PIXEL: usize = 4;
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Copy)]
struct Settings {
    fast: bool,
    uint8: bool,
    whole: bool,
    recipe: bool,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let [root, threads, ..] = &arguments[..] else {
        return Err(
            "bare_loop DIR THREADS [--fast] [--uint8] [--whole] [--recipe] [--seconds S]".into(),
        );
    };
    let threads: usize = threads.parse()?;
    let seconds = match arguments
        .iter()
        .position(|argument| argument == "--seconds")
    {
        Some(at) => arguments
            .get(at + 1)
            .ok_or("--seconds needs a number")?
            .parse()?,
        None => 10.0,
    };
    let settings = Settings {
        fast: has("--fast"),
        uint8: has("--uint8"),
        whole: has("--whole"),
        recipe: has("--recipe"),
    };
    let files = read_all(Path::new(root))?;
    let (samples, wall, cpu) = run(&files, threads, seconds, settings)?;
    println!(
        "{samples} samples, {threads} threads: {:.1} samples/s, {:.4} CPU ms a sample",
        samples as f64 / wall,
        cpu * 1e3 / samples as f64,
    );
    Ok(())
}

fn read_all(root: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let mut files = Vec::new();
    for class in std::fs::read_dir(root)? {
        let class = class?.path();
        if class.is_dir() {
            for file in std::fs::read_dir(class)? {
                files.push(std::fs::read(file?.path())?);
            }
        }
    }
    match files.is_empty() {
        true => Err(format!("{}: there are no class folders with files", root.display()).into()),
        false => Ok(files),
    }
}

/// Samples, seconds and CPU seconds of all threads together.
fn run(
    files: &[Vec<u8>],
    threads: usize,
    seconds: f64,
    settings: Settings,
) -> Result<(usize, f64, f64), Failure> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let done = std::thread::scope(|scope| {
        let work = || -> Result<usize, Failure> {
            let mut maker = Maker::new(settings)?;
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                let position = next.fetch_add(1, Ordering::Relaxed);
                maker.make(&files[position % files.len()], position)?;
                done += 1;
            }
            Ok(done)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"));
        joined.sum::<Result<usize, Failure>>()
    })?;
    Ok((done, start.elapsed().as_secs_f64(), cpu_seconds() - cpu))
}

fn cpu_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes to the one timespec it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// One thread's buffers and handles.
struct Maker {
    settings: Settings,
    handle: *mut c_void,
    resizer: Resizer,
    decoded: Vec<u8>,
    resized: Vec<u8>,
    tables: [[f32; 256]; 3],
    recipe: Recipe,
    scratch: Scratch,
    slab: Vec<u8>,
}

impl Drop for Maker {
    fn drop(&mut self) {
        // SAFETY: made by tj3Init, and this is its last use.
        unsafe { tj::tj3Destroy(self.handle) };
    }
}

#[derive(Clone, Copy)]
struct Rect {
    left: usize,
    top: usize,
    width: usize,
    height: usize,
}

impl Maker {
    fn new(settings: Settings) -> Result<Maker, Failure> {
        let last = match settings.uint8 {
            true => r#"{"op": "to_image"}"#.to_owned(),
            false => format!(
                r#"{{"op": "to_tensor"}}, {{"op": "normalize", "mean": {MEAN:?}, "std": {STD:?}}}"#
            ),
        };
        let decode = if settings.fast { "fast" } else { "exact" };
        let recipe = Recipe::from_json(&format!(
            r#"{{"decode": "{decode}", "orient": false, "max_pixels": 178956970, "order": "chw",
            "steps": [{{"op": "random_resized_crop", "height": {EDGE}, "width": {EDGE},
            "scale": [0.08, 1.0], "ratio": [0.75, 1.3333333333333333], "filter": "bilinear"}},
            {{"op": "horizontal_flip", "p": 0.5}}, {last}]}}"#
        ))?;
        // SAFETY: a call without preconditions.
        let handle = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        Ok(Maker {
            settings,
            handle,
            resizer: Resizer::new(),
            decoded: Vec::new(),
            resized: vec![0; EDGE * EDGE * PIXEL],
            tables: std::array::from_fn(|channel| {
                std::array::from_fn(|byte| (byte as f32 / 255.0 - MEAN[channel]) / STD[channel])
            }),
            slab: vec![0; recipe.shape().bytes() * SLAB],
            recipe,
            scratch: Scratch::default(),
        })
    }

    fn make(&mut self, encoded: &[u8], position: usize) -> Result<(), Failure> {
        let bytes = self.recipe.shape().bytes();
        let mut slab = std::mem::take(&mut self.slab);
        let out = &mut slab[position % SLAB * bytes..][..bytes];
        let made = if self.settings.recipe {
            let draw = Draw {
                seed: 0,
                epoch: 0,
                position: position as u64,
            };
            let made = self.recipe.prepare(encoded, draw, &mut self.scratch, out);
            made.map_err(Failure::from)
        } else {
            self.make_bare(encoded, position, out)
        };
        self.slab = slab;
        made
    }

    fn make_bare(
        &mut self,
        encoded: &[u8],
        position: usize,
        out: &mut [u8],
    ) -> Result<(), Failure> {
        let mut random = Random(position as u64);
        let (width, height) = self.header(encoded)?;
        let crop = random.crop(width, height);
        let (decoded, seen) = self.decode(encoded, (width, height), crop)?;
        self.resize(decoded, seen)?;
        self.write(random.unit() < 0.5, out);
        Ok(())
    }

    fn header(&mut self, encoded: &[u8]) -> Result<(usize, usize), Failure> {
        // SAFETY: the pointer covers `len` bytes, and the handle is live.
        let (code, width, height) = unsafe {
            (
                tj::tj3DecompressHeader(self.handle, encoded.as_ptr(), encoded.len() as _),
                tj::tj3Get(self.handle, tj::TJPARAM_TJPARAM_JPEGWIDTH as c_int),
                tj::tj3Get(self.handle, tj::TJPARAM_TJPARAM_JPEGHEIGHT as c_int),
            )
        };
        match code {
            0 => Ok((width as usize, height as usize)),
            _ => Err("a header cannot be read".into()),
        }
    }

    /// Size of what is decoded, and where the crop is in it.
    fn decode(
        &mut self,
        encoded: &[u8],
        (width, height): (usize, usize),
        crop: Rect,
    ) -> Result<((usize, usize), Rect), Failure> {
        let eighths = if self.settings.fast { eighths(crop) } else { 8 };
        let scaled = |edge: usize| (edge * eighths).div_ceil(8);
        let (width, height) = (scaled(width), scaled(height));
        let left = crop.left * eighths / 8;
        let top = crop.top * eighths / 8;
        let seen = Rect {
            left,
            top,
            width: scaled(crop.width).min(width - left),
            height: scaled(crop.height).min(height - top),
        };
        // The left edge must be at a whole MCU; the decoder smooths chroma over a pixel or two.
        let start = seen.left.saturating_sub(2) / (2 * eighths) * (2 * eighths);
        let region = match self.settings.whole {
            true => Rect {
                left: 0,
                top: 0,
                width,
                height,
            },
            false => {
                let top = seen.top.saturating_sub(2);
                let right = (seen.left + seen.width + 2).min(width);
                let bottom = (seen.top + seen.height + 2).min(height);
                Rect {
                    left: start,
                    top,
                    width: right - start,
                    height: bottom - top,
                }
            }
        };
        let bytes = region.width * region.height * PIXEL;
        self.decoded.resize(self.decoded.len().max(bytes), 0);
        // SAFETY: libjpeg writes region.height rows of region.width pixels, for which there is
        // room, and reads the `len` bytes it is given.
        let code = unsafe { self.decompress(encoded, eighths, region) };
        if code != 0 {
            // SAFETY: the text is the handle's own, ends in a zero, and is copied at once.
            let why = unsafe { CStr::from_ptr(tj::tj3GetErrorStr(self.handle)) };
            return Err(format!("an image cannot be decoded: {}", why.to_string_lossy()).into());
        }
        let (left, top) = (seen.left - region.left, seen.top - region.top);
        Ok(((region.width, region.height), Rect { left, top, ..seen }))
    }

    /// # Safety
    /// `decoded` has room for the region, which lies in the scaled image.
    unsafe fn decompress(&mut self, encoded: &[u8], eighths: usize, region: Rect) -> c_int {
        let fast = c_int::from(self.settings.fast);
        let nothing = tj::tjregion {
            x: 0,
            y: 0,
            w: 0,
            h: 0,
        };
        let region = tj::tjregion {
            x: region.left as c_int,
            y: region.top as c_int,
            w: region.width as c_int,
            h: region.height as c_int,
        };
        // libjpeg-turbo knows its scales in lowest terms only.
        let scale = tj::tjscalingfactor {
            num: 1,
            denom: 8 / eighths as c_int,
        };
        // SAFETY: as the caller promises; the other calls only store numbers.
        unsafe {
            tj::tj3Set(self.handle, tj::TJPARAM_TJPARAM_FASTDCT as c_int, fast)
                | tj::tj3Set(self.handle, tj::TJPARAM_TJPARAM_FASTUPSAMPLE as c_int, fast)
                | tj::tj3SetCroppingRegion(self.handle, nothing)
                | tj::tj3SetScalingFactor(self.handle, scale)
                | tj::tj3SetCroppingRegion(self.handle, region)
                | tj::tj3Decompress8(
                    self.handle,
                    encoded.as_ptr(),
                    encoded.len() as _,
                    self.decoded.as_mut_ptr(),
                    region.w * PIXEL as c_int,
                    tj::TJPF_TJPF_RGBX,
                )
        }
    }

    fn resize(&mut self, (width, height): (usize, usize), seen: Rect) -> Result<(), Failure> {
        let bytes = &self.decoded[..width * height * PIXEL];
        let from = ImageRef::new(width as u32, height as u32, bytes, PixelType::U8x4)?;
        let [left, top, width, height] =
            [seen.left, seen.top, seen.width, seen.height].map(|edge| edge as u32);
        let from = CroppedImage::new(&from, left, top, width, height)?;
        let edge = EDGE as u32;
        let mut to = Image::from_slice_u8(edge, edge, &mut self.resized, PixelType::U8x4)?;
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .use_alpha(false);
        Ok(self.resizer.resize(&from, &mut to, &options)?)
    }

    fn write(&self, mirrored: bool, out: &mut [u8]) {
        if self.settings.uint8 {
            self.write_planes(mirrored, out, |_, value| value);
        } else {
            let out = out.as_chunks_mut::<4>().0;
            self.write_planes(mirrored, out, |channel, value| {
                self.tables[channel][usize::from(value)].to_ne_bytes()
            });
        }
    }

    /// All three planes in one pass over the pixels: as quick as is known here.
    fn write_planes<T>(&self, mirrored: bool, out: &mut [T], map: impl Fn(usize, u8) -> T) {
        let (reds, others) = out.split_at_mut(EDGE * EDGE);
        let (greens, blues) = others.split_at_mut(EDGE * EDGE);
        let planes = reds
            .chunks_exact_mut(EDGE)
            .zip(greens.chunks_exact_mut(EDGE))
            .zip(blues.chunks_exact_mut(EDGE));
        for (row, ((reds, greens), blues)) in self.resized.chunks_exact(EDGE * PIXEL).zip(planes) {
            let pixels = row.as_chunks::<PIXEL>().0.iter();
            let cells = reds.iter_mut().zip(greens).zip(blues);
            let put =
                |(((red, green), blue), pixel): (((&mut T, &mut T), &mut T), &[u8; PIXEL])| {
                    *red = map(0, pixel[0]);
                    *green = map(1, pixel[1]);
                    *blue = map(2, pixel[2]);
                };
            if mirrored {
                cells.zip(pixels.rev()).for_each(put);
            } else {
                cells.zip(pixels).for_each(put);
            }
        }
    }
}

/// The smallest scale, in eighths, at which the crop still has the pixels that are wanted.
fn eighths(crop: Rect) -> usize {
    let enough = |eighths: &usize| crop.width.min(crop.height) * eighths >= EDGE * 8;
    [1, 2, 4].into_iter().find(enough).unwrap_or(8)
}

/// SplitMix64: only boxes are drawn with it.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn crop(&mut self, width: usize, height: usize) -> Rect {
        let (low, high) = (0.75f64.ln(), (4.0 / 3.0f64).ln());
        for _ in 0..10 {
            let area = (width * height) as f64 * (0.08 + 0.92 * self.unit());
            let ratio = (low + (high - low) * self.unit()).exp();
            let [wide, tall] = [area * ratio, area / ratio].map(|square| square.sqrt() as usize);
            if (1..=width).contains(&wide) && (1..=height).contains(&tall) {
                let top = (self.unit() * (height - tall + 1) as f64) as usize;
                let left = (self.unit() * (width - wide + 1) as f64) as usize;
                return Rect {
                    left,
                    top,
                    width: wide,
                    height: tall,
                };
            }
        }
        Rect {
            left: 0,
            top: 0,
            width,
            height,
        }
    }
}
