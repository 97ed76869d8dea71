//! libjpeg-turbo's handle, safe to call: every `unsafe` of the decoders is here.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use turbojpeg_sys as tj;

use super::{Rect, Size};

/// What libjpeg-turbo has against an image.
#[derive(Debug)]
pub(super) enum Complaint {
    /// It decoded nevertheless.
    Warning,
    Fatal(String),
}

/// What the header tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) size: Size,
    /// Whether libjpeg-turbo can decode a part of it.
    pub(super) can_crop: bool,
    /// CMYK or YCCK.
    pub(super) four_inks: bool,
}

/// Of the decoded pixels. The fourth byte of `Rgbx` means nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    Rgb,
    Rgbx,
    /// For images of four inks only, and the only one for them.
    Cmyk,
}

/// What bounds and directs a decode.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) fast: bool,
    pub(super) scans: i32,
    pub(super) mebibytes: i32,
}

/// A decoder of one image.
#[derive(Debug)]
pub(super) struct Turbo {
    handle: NonNull<c_void>,
    /// Of what the next decode writes, in pixels; set by `aim`.
    extent: Option<Size>,
}

impl Drop for Turbo {
    fn drop(&mut self) {
        // SAFETY: made by tj3Init, and this is its last use.
        unsafe { tj::tj3Destroy(self.handle.as_ptr()) };
    }
}

impl Turbo {
    pub(super) fn new() -> Result<Turbo, Complaint> {
        // SAFETY: a call without preconditions.
        let made = unsafe { tj::tj3Init(tj::TJINIT_TJINIT_DECOMPRESS as c_int) };
        let no_memory = || Complaint::Fatal("there is no memory for a decoder".into());
        let handle = NonNull::new(made).ok_or_else(no_memory)?;
        let mut turbo = Turbo {
            handle,
            extent: None,
        };
        // Colour profiles are not used: not copying them saves an allocation an image.
        turbo.set(tj::TJPARAM_TJPARAM_SAVEMARKERS, 0)?;
        Ok(turbo)
    }

    /// Reads the header. After a fatal complaint libjpeg may be left in the middle of it.
    pub(super) fn header(&mut self, encoded: &[u8]) -> (Header, Result<(), Complaint>) {
        self.extent = None;
        // SAFETY: the pointer covers `len` readable bytes; libjpeg reads none of them after this
        // call, since every later call gives its own.
        let code = unsafe {
            tj::tj3DecompressHeader(self.handle.as_ptr(), encoded.as_ptr(), encoded.len() as _)
        };
        let colour = self.get(tj::TJPARAM_TJPARAM_COLORSPACE);
        let header = Header {
            size: Size {
                width: u32::try_from(self.get(tj::TJPARAM_TJPARAM_JPEGWIDTH)).unwrap_or(0),
                height: u32::try_from(self.get(tj::TJPARAM_TJPARAM_JPEGHEIGHT)).unwrap_or(0),
            },
            can_crop: self.get(tj::TJPARAM_TJPARAM_SUBSAMP) != tj::TJSAMP_TJSAMP_UNKNOWN
                && self.get(tj::TJPARAM_TJPARAM_LOSSLESS) == 0,
            four_inks: [tj::TJCS_TJCS_CMYK, tj::TJCS_TJCS_YCCK].contains(&(colour as tj::TJCS)),
        };
        (header, self.complaint(code))
    }

    pub(super) fn configure(&mut self, settings: Settings) -> Result<(), Complaint> {
        self.set(tj::TJPARAM_TJPARAM_SCANLIMIT, settings.scans)?;
        self.set(tj::TJPARAM_TJPARAM_MAXMEMORY, settings.mebibytes)?;
        self.set(tj::TJPARAM_TJPARAM_FASTDCT, settings.fast.into())?;
        self.set(tj::TJPARAM_TJPARAM_FASTUPSAMPLE, settings.fast.into())
    }

    /// Says what to decode: at scale `num / denom`, at which the image has the size `scaled`,
    /// only `crop` or all.
    pub(super) fn aim(
        &mut self,
        (num, denom): (i32, i32),
        scaled: Size,
        crop: Option<Rect>,
    ) -> Result<(), Complaint> {
        self.extent = None;
        let none = tj::tjregion {
            x: 0,
            y: 0,
            w: 0,
            h: 0,
        };
        let region = crop.map_or(none, |crop| tj::tjregion {
            x: crop.left as c_int,
            y: crop.top as c_int,
            w: crop.width as c_int,
            h: crop.height as c_int,
        });
        let handle = self.handle.as_ptr();
        // SAFETY: both calls only check and store numbers. The region of the image before goes
        // first: it would outlive this call if the scale were refused.
        let code = unsafe {
            match tj::tj3SetCroppingRegion(handle, none)
                | tj::tj3SetScalingFactor(handle, tj::tjscalingfactor { num, denom })
            {
                0 => tj::tj3SetCroppingRegion(handle, region),
                refused => refused,
            }
        };
        self.complaint(code)?;
        self.extent = Some(crop.map_or(scaled, Rect::size));
        Ok(())
    }

    /// Decodes the bytes whose header was read last.
    ///
    /// # Panics
    /// If `out` is not as large as what `aim` was last told.
    pub(super) fn decode(
        &mut self,
        encoded: &[u8],
        format: Format,
        out: &mut [u8],
    ) -> Result<(), Complaint> {
        let (format, channels) = match format {
            Format::Rgb => (tj::TJPF_TJPF_RGB, 3),
            Format::Rgbx => (tj::TJPF_TJPF_RGBX, 4),
            Format::Cmyk => (tj::TJPF_TJPF_CMYK, 4),
        };
        let nothing = Size {
            width: 0,
            height: 0,
        };
        let extent = self.extent.take().unwrap_or(nothing);
        let pitch = extent.width as usize * channels;
        assert!(
            pitch > 0 && out.len() == pitch * extent.height as usize,
            "aim comes first"
        );
        // SAFETY: libjpeg writes rows of `pitch` bytes, as many as the region it was given is
        // high, or as the scaled image is high where it was given none: `out` has been checked to
        // be of that length. It scales by the sizes in the header of these same bytes, whose
        // scaled size the caller gave. Test: `every_box_has_the_pixels_of_the_whole`.
        let code = unsafe {
            tj::tj3Decompress8(
                self.handle.as_ptr(),
                encoded.as_ptr(),
                encoded.len() as _,
                out.as_mut_ptr(),
                pitch as c_int,
                format,
            )
        };
        self.complaint(code)
    }

    fn complaint(&mut self, code: c_int) -> Result<(), Complaint> {
        if code == 0 {
            return Ok(());
        }
        let handle = self.handle.as_ptr();
        // SAFETY: the text is the handle's own, ends in a zero, and is copied at once.
        let (kind, text) = unsafe {
            let text = CStr::from_ptr(tj::tj3GetErrorStr(handle));
            (
                tj::tj3GetErrorCode(handle),
                text.to_string_lossy().into_owned(),
            )
        };
        match kind == tj::TJERR_TJERR_WARNING as c_int {
            true => Err(Complaint::Warning),
            false => Err(Complaint::Fatal(text)),
        }
    }

    fn set(&mut self, name: tj::TJPARAM, value: c_int) -> Result<(), Complaint> {
        // SAFETY: the call checks and stores a number.
        let code = unsafe { tj::tj3Set(self.handle.as_ptr(), name as c_int, value) };
        self.complaint(code)
    }

    fn get(&self, name: tj::TJPARAM) -> c_int {
        // SAFETY: the call reads a number.
        unsafe { tj::tj3Get(self.handle.as_ptr(), name as c_int) }
    }
}
