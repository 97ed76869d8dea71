//! Fast mode's own decoder, for the kind of JPEG that nearly all photos are.
//!
//! libjpeg-turbo takes two thirds of an image's time for its Huffman codes, which a smaller scale
//! or a rougher transform does not change, so those save little. Here they take half as long: see
//! [`huffman`]. What is decoded is the box that is wanted and nothing else.
//!
//! ```text
//!   header   sizes, steps, codes; a kind that is not known here is left to libjpeg
//!   scan     the coded bytes, without stuffing, from restart to restart
//!   huffman  bits -> coefficients, or past those that are not wanted
//!   transform  coefficients -> samples, at 8/8, 4/8, 2/8 or 1/8
//!   strips   one row of MCUs as samples of each component -> rows of pixels (colour)
//! ```
//!
//! Whatever is not as it should be is left to libjpeg as well, which then decides what becomes of
//! the file.

mod colour;
mod header;
mod huffman;
mod scan;
mod strips;
mod transform;

use header::{Component, Header};
use huffman::Table;
use scan::{Reader, Scan};
use strips::Strips;
use transform::Steps;

use super::scale::Scale;
use super::{Raster, Rect, Size};

/// What is kept from image to image.
#[derive(Debug)]
pub(super) struct Quick {
    scan: Scan,
    tables: [Tables; 3],
    strips: Strips,
}

/// The codes of one component.
#[derive(Debug)]
struct Tables {
    dc: Table,
    ac: Table,
}

impl Default for Quick {
    fn default() -> Quick {
        let tables = || Tables {
            dc: Table::dc(),
            ac: Table::ac(),
        };
        Quick {
            scan: Scan::default(),
            tables: [tables(), tables(), tables()],
            strips: Strips::default(),
        }
    }
}

impl Quick {
    /// Decodes `wanted` (in scaled pixels). `None`: libjpeg is to do it.
    pub(super) fn region(
        &mut self,
        encoded: &[u8],
        scale: Scale,
        wanted: Rect,
        out: &mut Raster,
    ) -> Option<()> {
        let Quick {
            scan,
            tables,
            strips,
        } = self;
        let header = Header::read(encoded)?;
        for (tables, component) in tables.iter_mut().zip(&header.components) {
            let [dc, ac] = component.codes;
            tables.dc.load(dc)?;
            tables.ac.load(ac)?;
        }
        let layout = Layout::new(&header, scale, wanted);
        scan.take(header.scan, layout.intervals(header.restart));
        strips.make_room(&layout);
        out.reshape(wanted.size(), 4).ok()?;
        let mut reader = scan.read(header.restart)?;
        for row in 0..layout.rows.end {
            let seen = layout.rows.contains(row);
            for column in 0..layout.units_of(row) {
                reader.next_unit()?;
                if seen && layout.columns.contains(column) {
                    strips.decode(&mut reader, tables, &layout, column)?;
                } else {
                    skip(&mut reader, tables, &layout)?;
                }
            }
            if reader.is_used_up() {
                return None;
            }
            if seen {
                strips.paint(&layout, row, out);
            }
        }
        Some(())
    }
}

/// Reads past an MCU.
fn skip(reader: &mut Reader<'_>, tables: &[Tables; 3], layout: &Layout) -> Option<()> {
    let planes = layout.planes.iter().zip(tables).zip(&mut reader.dc);
    for ((plane, tables), dc) in planes {
        for _ in 0..plane.across * plane.down {
            let difference = reader.bits.skip(&tables.dc, &tables.ac)?;
            *dc = dc.wrapping_add(difference);
        }
    }
    Some(())
}

/// What lies where, in scaled pixels and in MCUs.
#[derive(Debug)]
struct Layout {
    wanted: Rect,
    /// Of an MCU, in pixels.
    unit: Size,
    /// The MCUs in which something is wanted, and how many there are in a row.
    columns: Span,
    rows: Span,
    in_row: u32,
    planes: Vec<Plane>,
}

/// How one component is decoded.
#[derive(Debug)]
struct Plane {
    /// Blocks of an MCU.
    across: usize,
    down: usize,
    /// Samples of a block, each way, and of a row of the strip.
    edge: usize,
    stride: usize,
    steps: Steps,
}

impl Layout {
    fn new(header: &Header<'_>, scale: Scale, wanted: Rect) -> Layout {
        let luma = &header.components[0];
        let whole = Size {
            width: 8 * luma.across,
            height: 8 * luma.down,
        };
        let unit = scale.size(whole);
        let columns = Span::over(wanted.left, wanted.width, unit.width);
        let rows = Span::over(wanted.top, wanted.height, unit.height);
        let components = header.components.iter();
        Layout {
            wanted,
            unit,
            columns,
            rows,
            in_row: header.size.width.div_ceil(whole.width),
            planes: components
                .map(|component| Plane::new(component, luma, unit, columns))
                .collect(),
        }
    }

    /// How many intervals between restarts the rows have that are to be read.
    fn intervals(&self, restart: u32) -> usize {
        let units = u64::from(self.in_row) * u64::from(self.rows.end);
        match restart {
            0 => 1,
            restart => units.div_ceil(restart.into()) as usize,
        }
    }

    /// How many MCUs of a row are to be read: what comes behind the last is of no use.
    fn units_of(&self, row: u32) -> u32 {
        if row + 1 == self.rows.end {
            self.columns.end
        } else {
            self.in_row
        }
    }
}

impl Plane {
    /// Chroma with half of luma's blocks each way is made as large as luma by its transform, where
    /// that is not at its largest anyway.
    fn new(part: &Component<'_>, luma: &Component<'_>, unit: Size, columns: Span) -> Plane {
        let edge = (unit.width / luma.across) as usize;
        let halved = part.across * 2 == luma.across && part.down * 2 == luma.down;
        let edge = if halved && edge < 8 { 2 * edge } else { edge };
        let across = part.across as usize;
        Plane {
            across,
            down: part.down as usize,
            edge,
            stride: columns.count() * across * edge,
            steps: Steps::new(part.steps),
        }
    }
}

/// From the first to before the end.
#[derive(Debug, Clone, Copy)]
struct Span {
    first: u32,
    end: u32,
}

impl Span {
    /// The steps that a length touches.
    fn over(start: u32, length: u32, step: u32) -> Span {
        Span {
            first: start / step,
            end: (start + length).div_ceil(step),
        }
    }

    fn contains(self, at: u32) -> bool {
        (self.first..self.end).contains(&at)
    }

    fn count(self) -> usize {
        (self.end - self.first) as usize
    }
}
