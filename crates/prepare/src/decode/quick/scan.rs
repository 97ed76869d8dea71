//! The coded bytes of an image, and the way through them.

use super::huffman::Bits;

/// Bytes that the reader of bits looks at behind the last one.
const BEHIND: usize = 8;

/// A scan without what was stuffed into it, and with room between restarts.
#[derive(Debug, Default)]
pub(super) struct Scan {
    bytes: Vec<u8>,
    /// Where each part, from restart to restart, ends.
    ends: Vec<usize>,
}

impl Scan {
    /// Takes over the bytes up to the marker that ends them. Behind each 0xff of the codes a zero
    /// was stuffed in, so that it is not taken for a marker.
    pub(super) fn take(&mut self, mut stuffed: &[u8]) {
        self.bytes.clear();
        self.ends.clear();
        loop {
            let at = memchr::memchr(0xff, stuffed).unwrap_or(stuffed.len());
            self.bytes.extend_from_slice(&stuffed[..at]);
            match stuffed.get(at + 1) {
                Some(0) => {
                    self.bytes.push(0xff);
                    stuffed = &stuffed[at + 2..];
                }
                Some(0xff) => stuffed = &stuffed[at + 1..],
                Some(0xd0..=0xd7) => {
                    self.end_part();
                    stuffed = &stuffed[at + 2..];
                }
                _ => break,
            }
        }
        self.end_part();
    }

    fn end_part(&mut self) {
        self.ends.push(self.bytes.len());
        self.bytes.extend_from_slice(&[0; BEHIND]);
    }

    /// From the beginning; `restart` MCUs are in a part, 0: all.
    pub(super) fn read(&self, restart: u32) -> Option<Reader<'_>> {
        let mut reader = Reader {
            bits: Bits::new(&[]),
            first: [0; 3],
            scan: self,
            part: 0,
            restart,
            left: 0,
        };
        reader.begin()?;
        Some(reader)
    }
}

/// Where the reading of a scan is.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) bits: Bits<'a>,
    /// The first coefficient of the last block, of each colour.
    pub(super) first: [i32; 3],
    scan: &'a Scan,
    /// The next part.
    part: usize,
    restart: u32,
    /// MCUs until the next restart.
    left: u32,
}

impl Reader<'_> {
    /// Before each MCU. `None` where there is no more.
    #[inline(always)]
    pub(super) fn next_unit(&mut self) -> Option<()> {
        if self.left == 0 {
            if self.is_used_up() {
                return None;
            }
            self.begin()?;
        }
        self.left -= 1;
        Some(())
    }

    /// Whether more was read than there is: then the last blocks are made of nothing.
    pub(super) fn is_used_up(&self) -> bool {
        self.bits.are_used_up()
    }

    fn begin(&mut self) -> Option<()> {
        let Scan { bytes, ends } = self.scan;
        let end = *ends.get(self.part)?;
        let start = match self.part {
            0 => 0,
            part => ends[part - 1] + BEHIND,
        };
        self.bits = Bits::new(&bytes[start..end + BEHIND]);
        self.first = [0; 3];
        self.part += 1;
        self.left = match self.restart {
            0 => u32::MAX,
            restart => restart,
        };
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stuffing_goes_and_parts_are_apart() {
        let mut scan = Scan::default();
        scan.take(&[1, 0xff, 0, 2, 0xff, 0xff, 0xd3, 3, 0xff, 0xd9, 4]);
        let parts = [&[1, 0xff, 2][..], &[0; BEHIND], &[3], &[0; BEHIND]].concat();
        assert_eq!((scan.bytes, scan.ends), (parts, vec![3, 3 + BEHIND + 1]));
    }

    #[test]
    fn a_scan_that_just_stops_is_taken_as_far_as_it_goes() {
        for cut in [&[7, 8][..], &[7, 8, 0xff]] {
            let mut scan = Scan::default();
            scan.take(cut);
            assert_eq!(scan.ends, [2]);
        }
    }
}
