//! What comes before the scan: sizes, tables, and whether this decoder knows that kind of file.

use super::super::Size;
use super::super::markers::Segments;
use super::huffman::Code;

/// The longest edge that libjpeg takes.
const LONGEST: u16 = 65_500;

/// Luma, or one of the chromas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Component<'a> {
    /// Blocks of an MCU, across and down.
    pub(super) across: u32,
    pub(super) down: u32,
    /// Steps of the coefficients, in the order in which they are coded.
    pub(super) steps: &'a [u8; 64],
    /// For DC and for AC coefficients.
    pub(super) codes: [Code<'a>; 2],
}

/// A file of one scan of all components.
#[derive(Debug)]
pub(super) struct Header<'a> {
    pub(super) size: Size,
    pub(super) components: Vec<Component<'a>>,
    /// So many MCUs from restart to restart; 0: none.
    pub(super) restart: u32,
    pub(super) scan: &'a [u8],
}

#[derive(Default)]
struct Found<'a> {
    steps: [Option<&'a [u8; 64]>; 4],
    codes: [[Option<Code<'a>>; 4]; 2],
    frame: Option<&'a [u8]>,
    restart: u32,
    jfif: bool,
    adobe: bool,
}

impl<'a> Header<'a> {
    /// `None` for all but what nearly every photo is: 8 bits, Huffman codes, grey or YCbCr, one scan.
    pub(super) fn read(encoded: &'a [u8]) -> Option<Header<'a>> {
        let mut found = Found::default();
        let mut segments = Segments::new(encoded);
        while let Some((marker, payload)) = segments.next() {
            match marker {
                0xdb => found.take_steps(payload)?,
                0xc4 => found.take_codes(payload)?,
                0xc0 | 0xc1 if found.frame.is_none() => found.frame = Some(payload),
                0xc0..=0xcf => return None,
                0xdd => found.restart = u16::from_be_bytes(payload.try_into().ok()?).into(),
                0xe0 => found.jfif |= payload.starts_with(b"JFIF\0") && payload.len() >= 14,
                0xee => found.adobe |= payload.starts_with(b"Adobe"),
                0xda => return found.finish(payload, segments.rest()),
                // What applications and people wrote.
                0xe1..=0xef | 0xfe => {}
                _ => return None,
            }
        }
        None
    }
}

impl<'a> Found<'a> {
    fn take_steps(&mut self, mut payload: &'a [u8]) -> Option<()> {
        while let Some((&name, rest)) = payload.split_first() {
            let (steps, rest) = rest.split_first_chunk()?;
            *self.steps.get_mut(usize::from(name))? = Some(steps);
            payload = rest;
        }
        Some(())
    }

    fn take_codes(&mut self, mut payload: &'a [u8]) -> Option<()> {
        while let Some((&name, rest)) = payload.split_first() {
            let (counts, rest) = rest.split_first_chunk::<16>()?;
            let total = counts.iter().map(|&count| usize::from(count)).sum();
            let (symbols, rest) = rest.split_at_checked(total)?;
            let codes = self.codes.get_mut(usize::from(name >> 4))?;
            *codes.get_mut(usize::from(name & 15))? = Some(Code { counts, symbols });
            payload = rest;
        }
        Some(())
    }

    fn finish(&self, scan_header: &[u8], scan: &'a [u8]) -> Option<Header<'a>> {
        let &[8, h1, h0, w1, w0, count, ref parts @ ..] = self.frame? else {
            return None;
        };
        let (parts, []) = parts.as_chunks::<3>() else {
            return None;
        };
        let (&in_scan, rest) = scan_header.split_first()?;
        if in_scan != count || parts.len() != usize::from(count) || !matches!(count, 1 | 3) {
            return None;
        }
        let (codes, rest) = rest.split_at_checked(2 * parts.len())?;
        if *rest != [0, 63, 0] || !self.is_ycc(parts) {
            return None;
        }
        let mut found = Vec::with_capacity(parts.len());
        for (&[name, factors, steps], &[scanned, tables]) in parts.iter().zip(codes.as_chunks().0) {
            if scanned != name {
                return None;
            }
            let code = |class: usize, which: u8| *self.codes[class].get(usize::from(which))?;
            found.push(Component {
                across: (factors >> 4).into(),
                down: (factors & 15).into(),
                steps: (*self.steps.get(usize::from(steps))?)?,
                codes: [code(0, tables >> 4)?, code(1, tables & 15)?],
            });
        }
        match &mut found[..] {
            // The factors of a lone component mean nothing.
            [grey] => (grey.across, grey.down) = (1, 1),
            [luma, chroma @ ..] => {
                let known = |factor: u32| matches!(factor, 1 | 2);
                let single = |chroma: &Component<'_>| (chroma.across, chroma.down) == (1, 1);
                if !known(luma.across) || !known(luma.down) || !chroma.iter().all(single) {
                    return None;
                }
            }
            [] => return None,
        }
        let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
        if width > LONGEST || height > LONGEST {
            return None;
        }
        Some(Header {
            size: Size {
                width: width.into(),
                height: height.into(),
            },
            components: found,
            restart: self.restart,
            scan,
        })
    }

    /// As libjpeg guesses it, but for the rare cases.
    fn is_ycc(&self, parts: &[[u8; 3]]) -> bool {
        match parts {
            [_] => true,
            parts => self.jfif || (!self.adobe && parts.iter().map(|part| part[0]).eq(1..=3)),
        }
    }
}
