//! Images for the tests, by libjpeg-turbo's own encoder and those of `image`.

#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io::Cursor;

use image::{DynamicImage, ImageFormat, RgbImage, RgbaImage};
use turbojpeg_sys as tj;

use super::{Rect, Size};

/// Marsaglia's xorshift: the tests are the same in every run.
pub(super) struct Xorshift(pub(super) u64);

impl Xorshift {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }
}

/// A box that lies in an image of this size.
pub(super) fn any_box(random: &mut Xorshift, size: Size) -> Rect {
    let mut span = |length: u32| {
        let start = random.below(length.into()) as u32;
        (start, 1 + random.below((length - start).into()) as u32)
    };
    let ((left, width), (top, height)) = (span(size.width), span(size.height));
    Rect {
        left,
        top,
        width,
        height,
    }
}

/// What to encode a JPEG with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Jpeg {
    pub(super) sampling: tj::TJSAMP,
    pub(super) progressive: bool,
    pub(super) arithmetic: bool,
    /// In MCUs; 0 is none.
    pub(super) restart: c_int,
    pub(super) quality: c_int,
}

pub(super) const PLAIN: Jpeg = Jpeg {
    sampling: tj::TJSAMP_TJSAMP_420,
    progressive: false,
    arithmetic: false,
    restart: 0,
    quality: 90,
};

pub(super) const SAMPLINGS: [tj::TJSAMP; 7] = [
    tj::TJSAMP_TJSAMP_444,
    tj::TJSAMP_TJSAMP_422,
    tj::TJSAMP_TJSAMP_420,
    tj::TJSAMP_TJSAMP_GRAY,
    tj::TJSAMP_TJSAMP_440,
    tj::TJSAMP_TJSAMP_411,
    tj::TJSAMP_TJSAMP_441,
];

/// Colours that change from pixel to pixel, chroma too.
pub(super) fn noisy(width: u32, height: u32, channels: u32) -> Vec<u8> {
    let mut random = Xorshift(u64::from(width) << 32 | u64::from(height) | 1 << 63);
    let pixel = |index: u32| {
        let (x, y) = (index / channels % width, index / channels / width);
        let slope = x * 2 + y * 3 + (index % channels) * 50;
        (slope % 200 + random.below(56) as u32) as u8
    };
    (0..width * height * channels).map(pixel).collect()
}

impl Jpeg {
    pub(super) fn encode(self, width: u32, height: u32) -> Vec<u8> {
        self.encode_pixels(&noisy(width, height, 3), width, height)
    }

    pub(super) fn encode_pixels(self, rgb: &[u8], width: u32, height: u32) -> Vec<u8> {
        assert_eq!(rgb.len(), (width * height * 3) as usize);
        // SAFETY: a handle of this function alone; the source has the rows it is said to have;
        // libjpeg allocates the output, which is copied and freed by its own function.
        unsafe {
            let handle = tj::tj3Init(tj::TJINIT_TJINIT_COMPRESS as c_int);
            let settings = [
                (tj::TJPARAM_TJPARAM_QUALITY, self.quality),
                (tj::TJPARAM_TJPARAM_SUBSAMP, self.sampling),
                (tj::TJPARAM_TJPARAM_PROGRESSIVE, self.progressive.into()),
                (tj::TJPARAM_TJPARAM_ARITHMETIC, self.arithmetic.into()),
                (tj::TJPARAM_TJPARAM_RESTARTBLOCKS, self.restart),
            ];
            for (name, value) in settings {
                assert_eq!(
                    tj::tj3Set(handle, name as c_int, value),
                    0,
                    "{name} {value}"
                );
            }
            let (mut made, mut length) = (std::ptr::null_mut(), 0);
            let code = tj::tj3Compress8(
                handle,
                rgb.as_ptr(),
                width as c_int,
                0,
                height as c_int,
                tj::TJPF_TJPF_RGB,
                &mut made,
                &mut length,
            );
            assert_eq!(code, 0);
            let bytes = std::slice::from_raw_parts(made, length as usize).to_vec();
            tj::tj3Free(made.cast());
            tj::tj3Destroy(handle);
            bytes
        }
    }
}

pub(super) fn rgb(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let image = RgbImage::from_raw(width, height, noisy(width, height, 3)).expect("fits");
    encoded(image.into(), format)
}

pub(super) fn rgba(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let image = RgbaImage::from_raw(width, height, noisy(width, height, 4)).expect("fits");
    encoded(image.into(), format)
}

fn encoded(image: DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).expect("encodes");
    bytes.into_inner()
}
