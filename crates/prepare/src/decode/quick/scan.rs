//! The coded bytes of an image, and the way through them.

use super::huffman::{BEHIND, Bits};

/// A scan without what was stuffed into it, and with room between restarts.
#[derive(Debug, Default)]
pub(super) struct Scan {
    bytes: Vec<u8>,
    /// Where each interval, from restart to restart, ends.
    ends: Vec<usize>,
}

impl Scan {
    /// Takes over the bytes of so many intervals, or up to the marker that ends them. Behind each
    /// 0xff of the codes a zero was stuffed in, so that it is not taken for a marker. Restarts are
    /// numbered: if one was lost, what follows would stand at a wrong place.
    pub(super) fn take(&mut self, mut stuffed: &[u8], intervals: usize) {
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
                Some(&marker)
                    if marker == 0xd0 + (self.ends.len() % 8) as u8
                        && self.ends.len() + 1 < intervals =>
                {
                    self.end_interval();
                    stuffed = &stuffed[at + 2..];
                }
                _ => break,
            }
        }
        self.end_interval();
    }

    fn end_interval(&mut self) {
        self.ends.push(self.bytes.len());
        self.bytes.extend_from_slice(&[0; BEHIND]);
    }

    /// From the beginning; `restart` MCUs are in an interval, 0: all.
    pub(super) fn read(&self, restart: u32) -> Option<Reader<'_>> {
        let mut reader = Reader {
            bits: Bits::new(&[]),
            dc: [0; 3],
            scan: self,
            interval: 0,
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
    /// The DC coefficient of the last block, of each component.
    pub(super) dc: [i32; 3],
    scan: &'a Scan,
    /// The next one.
    interval: usize,
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
        let end = *ends.get(self.interval)?;
        let start = match self.interval {
            0 => 0,
            interval => ends[interval - 1] + BEHIND,
        };
        self.bits = Bits::new(&bytes[start..end + BEHIND]);
        self.dc = [0; 3];
        self.interval += 1;
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

    fn taken(stuffed: &[u8], intervals: usize) -> Scan {
        let mut scan = Scan::default();
        scan.take(stuffed, intervals);
        scan
    }

    #[test]
    fn stuffing_goes_and_intervals_are_apart() {
        let scan = taken(&[1, 0xff, 0, 2, 0xff, 0xff, 0xd0, 3, 0xff, 0xd9, 4], 2);
        let bytes = [&[1, 0xff, 2][..], &[0; BEHIND], &[3], &[0; BEHIND]].concat();
        assert_eq!((scan.bytes, scan.ends), (bytes, vec![3, 3 + BEHIND + 1]));
    }

    #[test]
    fn a_scan_that_just_stops_is_taken_as_far_as_it_goes() {
        for cut in [&[7, 8][..], &[7, 8, 0xff]] {
            assert_eq!(taken(cut, 1).ends, [2]);
        }
    }

    #[test]
    fn a_restart_out_of_turn_ends_the_scan() {
        assert_eq!(taken(&[1, 0xff, 0xd1, 2], 9).ends, [1]);
        assert_eq!(taken(&[1, 0xff, 0xd0, 2, 0xff, 0xd0, 3], 9).ends.len(), 2);
    }

    #[test]
    fn restarts_beyond_the_image_take_no_memory() {
        let flood: Vec<u8> = (0..1000_u32)
            .flat_map(|at| [0xff, 0xd0 + (at % 8) as u8])
            .collect();
        assert_eq!(taken(&flood, 3).ends.len(), 3);
        assert_eq!(taken(&flood, 1).ends.len(), 1);
    }
}
