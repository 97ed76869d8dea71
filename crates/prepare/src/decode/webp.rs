//! The sizes of the frames in a WebP file.
//!
//! ```text
//!   RIFF | size | WEBP | VP8X(canvas)  [ALPH]  VP8 or VP8L(frame)
//!                                      ANMF(... VP8 or VP8L(frame))*
//! ```
//!
//! The canvas is what an image is measured by, but a decoder takes memory for the frame, which has
//! a size of its own: a hostile file may hold a small canvas and a frame of 268 megapixels.

use super::Size;

/// Whether no frame is larger than the canvas.
pub(super) fn frames_fit(encoded: &[u8], canvas: Size) -> bool {
    let fits = |size: Size| size.width <= canvas.width && size.height <= canvas.height;
    chunks(encoded.get(12..).unwrap_or_default())
        .flat_map(|(name, payload)| match &name {
            // A frame of an animation: 16 bytes of where and when, then chunks.
            b"ANMF" => chunks(payload.get(16..).unwrap_or_default()),
            _ => chunks(&[]).alone(name, payload),
        })
        .filter_map(|(name, payload)| frame_size(name, payload))
        .all(fits)
}

/// Chunks one after another; the last may be cut off.
struct Chunks<'a> {
    alone: Option<([u8; 4], &'a [u8])>,
    rest: &'a [u8],
}

fn chunks(rest: &[u8]) -> Chunks<'_> {
    Chunks { alone: None, rest }
}

impl<'a> Chunks<'a> {
    fn alone(self, name: [u8; 4], payload: &'a [u8]) -> Chunks<'a> {
        Chunks {
            alone: Some((name, payload)),
            ..self
        }
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = ([u8; 4], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(alone) = self.alone.take() {
            return Some(alone);
        }
        let (name, rest) = self.rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length))
            .ok()?
            .min(rest.len());
        let (payload, rest) = rest.split_at(length);
        // Chunks begin at even offsets.
        self.rest = rest.get(length % 2..).unwrap_or_default();
        Some((*name, payload))
    }
}

fn frame_size(name: [u8; 4], payload: &[u8]) -> Option<Size> {
    let (width, height) = match (&name, payload) {
        (b"VP8 ", &[_, _, _, _, _, _, w0, w1, h0, h1, ..]) => (
            u16::from_le_bytes([w0, w1]) & 0x3fff,
            u16::from_le_bytes([h0, h1]) & 0x3fff,
        ),
        (b"VP8L", &[_, b0, b1, b2, b3, ..]) => {
            let bits = u32::from_le_bytes([b0, b1, b2, b3]);
            (1 + (bits & 0x3fff) as u16, 1 + (bits >> 14 & 0x3fff) as u16)
        }
        _ => return None,
    };
    Some(Size {
        width: width.into(),
        height: height.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_every_kind_of_file() {
        let files = [
            &include_bytes!("../../tests/golden/lossy.webp")[..],
            include_bytes!("../../tests/golden/alpha.webp"),
            include_bytes!("../../tests/golden/lossless.webp"),
            include_bytes!("../../tests/golden/animated.webp"),
        ];
        for file in files {
            assert!(frames_fit(
                file,
                Size {
                    width: 23,
                    height: 17
                }
            ));
            assert!(!frames_fit(
                file,
                Size {
                    width: 22,
                    height: 17
                }
            ));
            assert!(!frames_fit(
                file,
                Size {
                    width: 23,
                    height: 16
                }
            ));
        }
    }
}
