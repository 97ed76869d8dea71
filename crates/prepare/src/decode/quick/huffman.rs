//! Huffman codes, several bits at a time.
//!
//! The bits at hand stand at the top of a 64-bit word. Its first eleven are looked up at once. They
//! nearly always hold a whole coefficient, code and value, and the entry has what becomes of it:
//!
//! ```text
//!   word   110 10 | 1010 ...      entry   value 2, after no zeros, 5 bits
//!          code value
//! ```
//!
//! Where coefficients are only passed over, the entry of another table takes all that are whole in
//! the bits at once. Nothing here branches on a value: it would be foretold wrong half of the time.

/// So many bits are looked at.
const LOOK: u32 = 11;

/// Bytes that are looked at behind the last one.
pub(super) const BEHIND: usize = 8;

/// A run that ends the block, from wherever it begins.
const END: usize = 64;

/// Where the coefficients of a block stand, in the order in which they are coded. A damaged file
/// may go past the end: what it puts there is not looked at.
const PLACES: [u8; 128] = {
    let mut places = [64; 128];
    let (mut x, mut y, mut at) = (0, 0, 0);
    while at < 64 {
        places[at] = (8 * y + x) as u8;
        // Up and to the right on even diagonals, down and to the left on odd ones.
        if (x + y) % 2 == 0 {
            if x == 7 {
                y += 1;
            } else {
                x += 1;
                y = if y == 0 { 0 } else { y - 1 };
            }
        } else if y == 7 {
            x += 1;
        } else {
            y += 1;
            x = if x == 0 { 0 } else { x - 1 };
        }
        at += 1;
    }
    places
};

/// Row of 8 after row of 8, and a place for what does not count.
pub(super) type Block = [i16; 65];

pub(super) fn place(at: usize) -> usize {
    PLACES[at].into()
}

/// A coefficient: its value, the zeros before it, and the bits of both code and value.
#[derive(Debug, Clone, Copy)]
struct Entry(u32);

impl Entry {
    /// Not in the table: it has more bits than are looked at.
    const NONE: Entry = Entry(0);

    fn new(value: i32, run: usize, bits: u32) -> Entry {
        Entry((value as u32) << 16 | (run as u32) << 8 | bits)
    }

    fn value(self) -> i32 {
        self.0 as i32 >> 16
    }

    fn run(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    fn bits(self) -> u32 {
        self.0 & 0xff
    }
}

/// Some coefficients to pass over: how far that goes, how far without the last of them, and their
/// bits.
#[derive(Debug, Clone, Copy)]
struct Leap(u32);

impl Leap {
    const NONE: Leap = Leap(0);

    fn then(self, entry: Entry) -> Leap {
        let far = self.far();
        Leap(
            ((far + entry.run() + 1) as u32) << 16
                | (far as u32) << 8
                | (self.bits() + entry.bits()),
        )
    }

    fn far(self) -> usize {
        (self.0 >> 16) as usize
    }

    fn before_last(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    fn bits(self) -> u32 {
        self.0 & 0xff
    }
}

/// As it stands in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Code<'a> {
    /// How many codes there are of each length, from 1 on.
    pub(super) counts: &'a [u8; 16],
    pub(super) symbols: &'a [u8],
}

/// One code: for DC coefficients (differences of them), or for AC ones.
#[derive(Debug)]
pub(super) struct Table {
    look: Box<[Entry; 1 << LOOK]>,
    leap: Box<[Leap; 1 << LOOK]>,
    symbols: [u8; 256],
    /// For each length: the first code that is longer, at the top of 16 bits; and what takes a
    /// code of it to the place of its symbol.
    ends: [u32; 17],
    shift: [i32; 17],
    dc: bool,
}

impl Table {
    pub(super) fn dc() -> Table {
        Table::new(true)
    }

    pub(super) fn ac() -> Table {
        Table::new(false)
    }

    fn new(dc: bool) -> Table {
        Table {
            look: Box::new([Entry::NONE; 1 << LOOK]),
            leap: Box::new([Leap::NONE; 1 << LOOK]),
            symbols: [0; 256],
            ends: [0; 17],
            shift: [0; 17],
            dc,
        }
    }

    /// `None` where that is no code, or one with larger values than 8-bit images have.
    pub(super) fn load(&mut self, Code { counts, symbols }: Code<'_>) -> Option<()> {
        self.look.fill(Entry::NONE);
        self.symbols
            .get_mut(..symbols.len())?
            .copy_from_slice(symbols);
        let (mut code, mut at) = (0_u32, 0_usize);
        for (length, &count) in (1..).zip(counts) {
            self.shift[length as usize] = at as i32 - code as i32;
            for &symbol in symbols.get(at..at + usize::from(count))? {
                let (run, size) = self.meaning(symbol)?;
                if length + size <= LOOK {
                    let left = LOOK - length - size;
                    for raw in 0..1 << size {
                        let start = ((code << size | raw) << left) as usize;
                        let entry = Entry::new(signed(raw, size), run, length + size);
                        self.look.get_mut(start..start + (1 << left))?.fill(entry);
                    }
                }
                code += 1;
                at += 1;
            }
            // All ones is no code.
            if code >= 1 << length {
                return None;
            }
            self.ends[length as usize] = code << (16 - length);
            code <<= 1;
        }
        if !self.dc {
            self.find_leaps();
        }
        (at == symbols.len()).then_some(())
    }

    fn find_leaps(&mut self) {
        for (at, leap) in self.leap.iter_mut().enumerate() {
            *leap = Leap::NONE;
            loop {
                let next = self.look[at << leap.bits() & ((1 << LOOK) - 1)];
                let whole = next.bits() != 0 && leap.bits() + next.bits() <= LOOK;
                if !whole || leap.far() >= END {
                    break;
                }
                *leap = leap.then(next);
            }
        }
    }

    /// Zeros before the value, and its bits.
    fn meaning(&self, symbol: u8) -> Option<(usize, u32)> {
        match (self.dc, symbol >> 4, symbol & 15) {
            (true, 0, size @ 0..=11) => Some((0, size.into())),
            (true, ..) => None,
            // Sixteen zeros, or the end; no other run is without a value.
            (false, 15, 0) => Some((15, 0)),
            (false, 0, 0) => Some((END, 0)),
            (false, run, size @ 1..=10) => Some((run.into(), size.into())),
            (false, ..) => None,
        }
    }

    #[inline(always)]
    fn find(&self, word: u64) -> Option<Entry> {
        let entry = self.look[(word >> (64 - LOOK)) as usize];
        if entry.bits() != 0 {
            return Some(entry);
        }
        self.find_long(word)
    }

    #[cold]
    #[inline(never)]
    fn find_long(&self, word: u64) -> Option<Entry> {
        let code = (word >> 48) as u32;
        let length = (1..=16).find(|&length| code < self.ends[length as usize])?;
        let at = (code >> (16 - length)) as i32 + self.shift[length as usize];
        let (run, size) = self.meaning(*self.symbols.get(at as usize)?)?;
        let raw = (word << length >> 1 >> (63 - size)) as u32;
        Some(Entry::new(signed(raw, size), run, length + size))
    }
}

/// Of the values with `size` bits, the lower half is the negative ones.
fn signed(raw: u32, size: u32) -> i32 {
    match raw < (1 << size) >> 1 {
        true => raw as i32 + 1 - (1 << size),
        false => raw as i32,
    }
}

/// The bits of a scan, from which stuffed bytes have been taken out.
#[derive(Debug)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    next: usize,
    word: u64,
    /// How many of the word's bits count.
    count: u32,
}

impl<'a> Bits<'a> {
    /// `bytes` end in [`BEHIND`] zeros, which are not to be read.
    pub(super) fn new(bytes: &'a [u8]) -> Bits<'a> {
        Bits {
            bytes,
            next: 0,
            word: 0,
            count: 0,
        }
    }

    /// Whether more was read than there is.
    pub(super) fn are_used_up(&self) -> bool {
        (self.next + BEHIND) * 8 > self.bytes.len() * 8 + self.count as usize
    }

    /// At least 56 bits: two codes with their values. Behind the end come zeros.
    #[inline(always)]
    fn fill(&mut self) {
        let ahead = self
            .bytes
            .get(self.next..)
            .and_then(|rest| rest.first_chunk());
        let ahead = u64::from_be_bytes(ahead.copied().unwrap_or_default());
        self.word |= ahead >> self.count;
        self.next += ((63 - self.count) >> 3) as usize;
        self.count |= 56;
    }

    #[inline(always)]
    fn take(&mut self, bits: u32) {
        self.word <<= bits;
        self.count -= bits;
    }

    /// The next block: gives by how much its DC coefficient differs from that of the block
    /// before, and puts the others, up to the one that is coded as number `last`, where they
    /// belong among zeros.
    pub(super) fn block(
        &mut self,
        dc: &Table,
        ac: &Table,
        last: usize,
        block: &mut Block,
    ) -> Option<i32> {
        let difference = self.difference(dc)?;
        let mut at = 1;
        'block: while at <= last {
            self.fill();
            for _ in 0..2 {
                let entry = ac.find(self.word)?;
                at += entry.run();
                block[usize::from(PLACES[at & 127])] = entry.value() as i16;
                self.take(entry.bits());
                at += 1;
                if at > last {
                    break 'block;
                }
            }
        }
        self.finish(ac, at)?;
        Some(difference)
    }

    /// The next block, of which only that difference counts.
    pub(super) fn skip(&mut self, dc: &Table, ac: &Table) -> Option<i32> {
        let difference = self.difference(dc)?;
        self.finish(ac, 1)?;
        Some(difference)
    }

    #[inline(always)]
    fn difference(&mut self, dc: &Table) -> Option<i32> {
        self.fill();
        let entry = dc.find(self.word)?;
        self.take(entry.bits());
        Some(entry.value())
    }

    /// To the end of the block, from its coefficient number `at` on.
    #[inline(always)]
    fn finish(&mut self, ac: &Table, mut at: usize) -> Option<()> {
        while at < 64 {
            self.fill();
            // Two leaps and a coefficient have no more bits than were filled in, nor have three leaps.
            for _ in 0..3 {
                let leap = ac.leap[(self.word >> (64 - LOOK)) as usize];
                // What comes behind the last coefficient belongs to the next block.
                if leap.bits() == 0 || at + leap.before_last() >= 64 {
                    let entry = ac.find(self.word)?;
                    at += entry.run() + 1;
                    self.take(entry.bits());
                    break;
                }
                at += leap.far();
                self.take(leap.bits());
                if at >= 64 {
                    return Some(());
                }
            }
        }
        Some(())
    }
}
