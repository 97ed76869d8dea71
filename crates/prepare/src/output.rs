//! The last pass: from bytes to finished values, straight into the sample's place in the batch.
//!
//! Every value step (to float, normalise, cast) is a function of one byte and its channel, so all
//! of them together are one table of 256 finished values a channel, made once with the recipe.
//! A mirrored view is read backwards here, which costs nothing more.

use crate::decode::{Rect, Size};
use crate::random::Stream;
use crate::steps::{Canvas, Named, Number, RandomErasing, Value, ValueStep};
use crate::{Draw, Element, Order, Shape};

/// How bytes become the finished sample.
#[derive(Debug)]
pub(crate) struct Finish {
    shape: Shape,
    tables: Tables,
    erasers: Vec<Eraser>,
}

/// For each channel, the finished bytes of each byte; by how many they are.
#[derive(Debug)]
enum Tables {
    One(Vec<[[u8; 1]; 256]>),
    Two(Vec<[[u8; 2]; 256]>),
    Four(Vec<[[u8; 4]; 256]>),
}

#[derive(Debug)]
struct Eraser {
    number: usize,
    step: RandomErasing,
    /// Type of the values when the step comes.
    element: Element,
    /// Steps that come after it, to which the erased values are subject too.
    after: Vec<ValueStep>,
}

/// A step on values, or one that erases, with its number in the recipe.
#[derive(Debug)]
pub(crate) enum Last {
    Values(ValueStep),
    Erase(usize, RandomErasing),
}

impl Finish {
    pub(crate) fn new(shape: Shape, steps: &[Last]) -> Finish {
        let values = |from: usize| -> Vec<ValueStep> {
            let values = steps[from..].iter().filter_map(|step| match step {
                Last::Values(step) => Some(step.clone()),
                Last::Erase(..) => None,
            });
            values.collect()
        };
        let all = values(0);
        let tables = match shape.element.bytes() {
            1 => Tables::One(tables(&all, shape.channels)),
            2 => Tables::Two(tables(&all, shape.channels)),
            _ => Tables::Four(tables(&all, shape.channels)),
        };
        let erasers = steps
            .iter()
            .enumerate()
            .filter_map(|(at, step)| match step {
                Last::Values(_) => None,
                Last::Erase(number, step) => {
                    let after = values(at);
                    let before = &all[..all.len() - after.len()];
                    let element = through(before, byte(0), 0).element;
                    Some(Eraser {
                        number: *number,
                        step: step.clone(),
                        element,
                        after,
                    })
                }
            });
        Finish {
            shape,
            tables,
            erasers: erasers.collect(),
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// `out` has exactly the shape's bytes, and the canvas its size.
    pub(crate) fn write(&self, canvas: &Canvas<'_>, draw: Draw, out: &mut [u8]) {
        match &self.tables {
            Tables::One(tables) => self.write_cells(canvas, tables, draw, out),
            Tables::Two(tables) => self.write_cells(canvas, tables, draw, out),
            Tables::Four(tables) => self.write_cells(canvas, tables, draw, out),
        }
    }

    /// The boxes that are erased, by the number of the step.
    pub(crate) fn erased(&self, draw: Draw) -> impl Iterator<Item = (usize, Option<Rect>)> {
        self.erasers
            .iter()
            .map(move |eraser| (eraser.number, eraser.draw(self.size(), draw).0))
    }

    fn size(&self) -> Size {
        Size {
            width: self.shape.width as u32,
            height: self.shape.height as u32,
        }
    }

    fn write_cells<const N: usize>(
        &self,
        canvas: &Canvas<'_>,
        tables: &[[[u8; N]; 256]],
        draw: Draw,
        out: &mut [u8],
    ) {
        let cells = out.as_chunks_mut::<N>().0;
        match canvas.channels() {
            4 => self.write_pixels::<N, 4>(canvas, tables, cells),
            _ => self.write_pixels::<N, 3>(canvas, tables, cells),
        }
        for eraser in &self.erasers {
            eraser.erase(self.shape, draw, cells);
        }
    }

    /// `P` bytes a pixel, of which the first three count, or else one.
    fn write_pixels<const N: usize, const P: usize>(
        &self,
        canvas: &Canvas<'_>,
        tables: &[[[u8; N]; 256]],
        cells: &mut [[u8; N]],
    ) {
        let Shape { width, order, .. } = self.shape;
        let mirrored = canvas.mirrored();
        match (tables, order) {
            ([red, green, blue], Order::Chw) => {
                let (reds, others) = cells.split_at_mut(cells.len() / 3);
                let (greens, blues) = others.split_at_mut(others.len() / 2);
                let planes = reds
                    .chunks_exact_mut(width)
                    .zip(greens.chunks_exact_mut(width))
                    .zip(blues.chunks_exact_mut(width));
                for (row, ((reds, greens), blues)) in canvas.rows().zip(planes) {
                    let cells = reds.iter_mut().zip(greens).zip(blues);
                    each(
                        row.as_chunks::<P>().0,
                        mirrored,
                        cells,
                        |((r, g), b), pixel| {
                            *r = red[usize::from(pixel[0])];
                            *g = green[usize::from(pixel[1])];
                            *b = blue[usize::from(pixel[2])];
                        },
                    );
                }
            }
            ([red, green, blue], Order::Hwc) => {
                let cells = cells.as_chunks_mut::<3>().0.chunks_exact_mut(width);
                for (row, cells) in canvas.rows().zip(cells) {
                    each(
                        row.as_chunks::<P>().0,
                        mirrored,
                        cells.iter_mut(),
                        |cell, pixel| {
                            *cell = [
                                red[usize::from(pixel[0])],
                                green[usize::from(pixel[1])],
                                blue[usize::from(pixel[2])],
                            ];
                        },
                    );
                }
            }
            (tables, _) => {
                for (row, cells) in canvas.rows().zip(cells.chunks_exact_mut(width)) {
                    each(row, mirrored, cells.iter_mut(), |cell, &value| {
                        *cell = tables[0][usize::from(value)];
                    });
                }
            }
        }
    }
}

/// Puts each pixel of a row, from its other end if that is mirrored, into its cell.
fn each<'p, P: 'p, C>(
    pixels: &'p [P],
    mirrored: bool,
    cells: impl Iterator<Item = C>,
    put: impl Fn(C, &P),
) {
    if mirrored {
        cells
            .zip(pixels.iter().rev())
            .for_each(|(cell, pixel)| put(cell, pixel));
    } else {
        cells.zip(pixels).for_each(|(cell, pixel)| put(cell, pixel));
    }
}

fn byte(value: u8) -> Number {
    Number {
        element: Element::U8,
        value: f32::from(value),
    }
}

fn through(steps: &[ValueStep], number: Number, channel: usize) -> Number {
    steps
        .iter()
        .fold(number, |number, step| step.apply(number, channel))
}

fn tables<const N: usize>(steps: &[ValueStep], channels: usize) -> Vec<[[u8; N]; 256]> {
    let value = |channel, value: usize| through(steps, byte(value as u8), channel).bytes();
    (0..channels)
        .map(|channel| std::array::from_fn(|at| value(channel, at)))
        .collect()
}

impl Eraser {
    fn draw(&self, size: Size, draw: Draw) -> (Option<Rect>, Stream) {
        let mut stream = Stream::new(draw, self.number);
        (self.step.draw(size, &mut stream), stream)
    }

    fn erase<const N: usize>(&self, shape: Shape, draw: Draw, cells: &mut [[u8; N]]) {
        let size = Size {
            width: shape.width as u32,
            height: shape.height as u32,
        };
        let (Some(rect), mut stream) = self.draw(size, draw) else {
            return;
        };
        for channel in 0..shape.channels {
            let finished = |value: f32| -> [u8; N] {
                through(&self.after, Number::of(self.element, value), channel).bytes()
            };
            let constant = match &self.step.value {
                Value::Constant(values) => Some(finished(
                    values[if values.len() == 1 { 0 } else { channel }] as f32,
                )),
                Value::Named(Named::Random) => None,
            };
            for (y, x) in places(rect) {
                let value = constant.unwrap_or_else(|| finished(stream.normal() as f32));
                cells[place(shape, channel, y, x)] = value;
            }
        }
    }
}

fn places(rect: Rect) -> impl Iterator<Item = (usize, usize)> {
    let rows = rect.top as usize..(rect.top + rect.height) as usize;
    rows.flat_map(move |y| {
        (rect.left as usize..(rect.left + rect.width) as usize).map(move |x| (y, x))
    })
}

fn place(shape: Shape, channel: usize, y: usize, x: usize) -> usize {
    match shape.order {
        Order::Chw => (channel * shape.height + y) * shape.width + x,
        Order::Hwc => (y * shape.width + x) * shape.channels + channel,
    }
}
