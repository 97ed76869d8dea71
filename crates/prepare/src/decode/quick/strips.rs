//! One row of MCUs: first as samples of each component, then as rows of pixels.

use super::super::Raster;
use super::huffman::Block;
use super::scan::Reader;
use super::{Layout, Plane, Tables, colour, transform};

/// Samples of the wanted MCUs of a row, by component; and chroma of one row of pixels, each
/// sample twice.
#[derive(Debug, Default)]
pub(super) struct Strips {
    samples: [Vec<u8>; 3],
    doubled: [Vec<u8>; 2],
}

impl Strips {
    pub(super) fn make_room(&mut self, layout: &Layout) {
        for (samples, plane) in self.samples.iter_mut().zip(&layout.planes) {
            samples.resize(plane.stride * plane.down * plane.edge, 0);
        }
        for doubled in &mut self.doubled {
            doubled.resize(layout.planes[0].stride, 0);
        }
    }

    /// Decodes the next MCU, which is the one of `column`.
    pub(super) fn decode(
        &mut self,
        reader: &mut Reader<'_>,
        tables: &[Tables; 3],
        layout: &Layout,
        column: u32,
    ) -> Option<()> {
        let column = (column - layout.columns.first) as usize;
        let planes = layout.planes.iter().zip(tables).zip(&mut reader.dc);
        for (((plane, tables), dc), samples) in planes.zip(&mut self.samples) {
            let last = transform::last(plane.edge);
            for place in places(plane, column) {
                let mut block: Block = [0; 65];
                let bits = &mut reader.bits;
                let difference = bits.block(&tables.dc, &tables.ac, last, &mut block)?;
                *dc = dc.wrapping_add(difference);
                block[0] = *dc as i16;
                let out = &mut samples[place..];
                transform::write(&block, &plane.steps, plane.edge, out, plane.stride);
            }
        }
        Some(())
    }

    /// Writes the rows of pixels that are wanted of this row of MCUs.
    pub(super) fn paint(&mut self, layout: &Layout, row: u32, out: &mut Raster) {
        let Layout { wanted, unit, .. } = *layout;
        let width = wanted.width as usize;
        let left = (wanted.left - layout.columns.first * unit.width) as usize;
        let top = row * unit.height;
        let end = (top + unit.height).min(wanted.top + wanted.height);
        let (pixels, _) = out.rgb.as_chunks_mut::<4>();
        for y in top.max(wanted.top)..end {
            let out = &mut pixels[(y - wanted.top) as usize * width..][..width];
            let line = |number: usize| {
                let plane: &Plane = &layout.planes[number];
                let y = (y - top) as usize * plane.down * plane.edge / unit.height as usize;
                &self.samples[number][y * plane.stride..][..plane.stride]
            };
            let luma = &line(0)[left..][..width];
            let [_, chroma, _] = &layout.planes[..] else {
                colour::grey(luma, out);
                continue;
            };
            if chroma.stride == layout.planes[0].stride {
                let [blue, red] = [1, 2].map(|number| &line(number)[left..][..width]);
                colour::pixels(luma, blue, red, out);
            } else {
                for (number, doubled) in (1..).zip(&mut self.doubled) {
                    colour::double(line(number), doubled);
                }
                let [blue, red] = &self.doubled;
                let [blue, red] = [blue, red].map(|row| &row[left..][..width]);
                colour::pixels(luma, blue, red, out);
            }
        }
    }
}

/// Where the blocks of an MCU begin.
#[inline(always)]
fn places(plane: &Plane, column: usize) -> impl Iterator<Item = usize> {
    let &Plane {
        across,
        down,
        edge,
        stride,
        ..
    } = plane;
    (0..down).flat_map(move |y| {
        (0..across).map(move |x| y * edge * stride + (column * across + x) * edge)
    })
}
