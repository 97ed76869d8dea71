//! The inverse DCT: of all 64 coefficients, or of the lowest, to a smaller block.
//!
//! The large one is Arai, Agui and Nakajima's: five multiplications a row, the rest of them done
//! beforehand to the steps. The small ones are the plain sums.

use wide::{i16x8, u8x16};

use super::huffman::{Block, place};

/// cos(k pi / 16) times the root of 2, but 1 for k = 0: what the large transform leaves to the
/// steps, across and down.
const LEFT_OVER: [f64; 8] = [
    1.0,
    1.387_039_845_322_147_5,
    1.306_562_964_876_376_6,
    1.175_875_602_419_358_6,
    1.0,
    0.785_694_958_387_102,
    0.541_196_100_146_197,
    0.275_899_379_282_943,
];

/// Bits behind the point: of the values, and of the prepared steps beyond that.
const POINT: i32 = 2;
const FINE: u32 = 4;

/// What coefficients are multiplied by.
#[derive(Debug)]
pub(super) struct Steps {
    prepared: [i16x8; 8],
    plain: [i32; 64],
}

impl Steps {
    /// Of the steps as coded.
    pub(super) fn new(coded: &[u8; 64]) -> Steps {
        let mut plain = [0; 64];
        for (at, &step) in coded.iter().enumerate() {
            plain[place(at)] = i32::from(step);
        }
        let prepared = std::array::from_fn(|y| {
            let step = |x: usize| {
                let scale = LEFT_OVER[y] * LEFT_OVER[x] * f64::from(1 << (POINT as u32 + FINE));
                (f64::from(plain[8 * y + x]) * scale).round() as i16
            };
            i16x8::from(std::array::from_fn(step))
        });
        Steps { prepared, plain }
    }
}

/// Number of the last coefficient, as coded, that a block of `edge` samples uses.
pub(super) fn last(edge: usize) -> usize {
    match edge {
        8 => 63,
        4 => 24,
        2 => 4,
        _ => 0,
    }
}

/// Writes a block of `edge` samples a side to the start of `out`, whose rows are `stride` long.
#[inline(always)]
pub(super) fn write(block: &Block, steps: &Steps, edge: usize, out: &mut [u8], stride: usize) {
    match edge {
        8 => put(eight(block, steps), out, stride),
        4 => put(four(block, steps), out, stride),
        2 => put(two(block, steps), out, stride),
        _ => put(one(block, steps), out, stride),
    }
}

#[inline(always)]
fn put<const N: usize>(samples: [[u8; N]; N], out: &mut [u8], stride: usize) {
    for (row, out) in samples.iter().zip(out.chunks_mut(stride)) {
        if let Some(out) = out.first_chunk_mut() {
            *out = *row;
        }
    }
}

#[inline(always)]
fn eight(block: &Block, steps: &Steps) -> [[u8; 8]; 8] {
    let (rows, _) = block.as_chunks::<8>();
    let values = std::array::from_fn(|y| {
        let (coefficients, steps) = (i16x8::from(rows[y]), steps.prepared[y]);
        let (high, low) = (coefficients.mul_keep_high(steps), coefficients * steps);
        (high << (16 - FINE)) | ((low >> FINE) & i16x8::splat((1 << (16 - FINE)) - 1))
    });
    let turned = i16x8::transpose(columns(values));
    let values = i16x8::transpose(columns(turned).map(|value| {
        // The sums are eight times the samples.
        let half = i16x8::splat(1 << (POINT + 2));
        ((value + half) >> (POINT + 3)) + i16x8::splat(128)
    }));
    let mut samples = [[0; 8]; 8];
    for (pair, values) in samples
        .as_chunks_mut::<2>()
        .0
        .iter_mut()
        .zip(values.as_chunks::<2>().0)
    {
        let bytes = u8x16::narrow_i16x8(values[0], values[1]).to_array();
        pair.as_flattened_mut().copy_from_slice(&bytes);
    }
    samples
}

/// Eight columns at once.
#[inline(always)]
fn columns(v: [i16x8; 8]) -> [i16x8; 8] {
    // A factor is a whole number and what is missing, in 65536ths.
    let root = |value: i16x8| value + value.mul_keep_high(i16x8::splat(27_146));
    let (sum, difference) = (v[0] + v[4], v[0] - v[4]);
    let middle = v[2] + v[6];
    let turned = root(v[2] - v[6]) - middle;
    let even = [
        sum + middle,
        difference + turned,
        difference - turned,
        sum - middle,
    ];
    let (inner, inner_difference) = (v[5] + v[3], v[5] - v[3]);
    let (outer, outer_difference) = (v[1] + v[7], v[1] - v[7]);
    let both = inner_difference + outer_difference;
    let both = both + both + both.mul_keep_high(i16x8::splat(-9_977));
    let first = outer + inner;
    let second =
        both - {
            let thrice = inner_difference + inner_difference + inner_difference;
            thrice + inner_difference.mul_keep_high(i16x8::splat(-25_354))
        } - first;
    let third = root(outer - inner) - second;
    let fourth =
        outer_difference + outer_difference.mul_keep_high(i16x8::splat(5_400)) - both + third;
    let odd = [first, second, third, -fourth];
    std::array::from_fn(|at| match at {
        0..4 => even[at] + odd[at],
        _ => even[7 - at] - odd[7 - at],
    })
}

/// A sample of a sum that is eight times it, with `point` bits behind the point.
fn sample(sum: i32, point: u32) -> u8 {
    (((sum + (4 << point)) >> (point + 3)) + 128).clamp(0, 255) as u8
}

/// Of a sound image it has 12 bits; what a damaged one has more is cut off, so that no sum
/// overflows.
fn value(block: &Block, steps: &Steps, y: usize, x: usize) -> i32 {
    let value = i32::from(block[8 * y + x]) * steps.plain[8 * y + x];
    i32::from(value as i16)
}

fn four(block: &Block, steps: &Steps) -> [[u8; 4]; 4] {
    const BITS: u32 = 9;
    // The root of 2 times the cosines of pi/8 and of 3 pi/8.
    const LONG: i32 = 669;
    const SHORT: i32 = 277;
    let line = |v: [i32; 4]| {
        let (sum, difference) = ((v[0] + v[2]) << BITS, (v[0] - v[2]) << BITS);
        let (outer, inner) = (v[1] * LONG + v[3] * SHORT, v[1] * SHORT - v[3] * LONG);
        [
            sum + outer,
            difference + inner,
            difference - inner,
            sum - outer,
        ]
    };
    let mut turned = [[0; 4]; 4];
    for (x, column) in turned.iter_mut().enumerate() {
        let column_values = line(std::array::from_fn(|y| value(block, steps, y, x)));
        *column = column_values.map(|value| value >> (BITS - 3));
    }
    std::array::from_fn(|y| {
        line(std::array::from_fn(|x| turned[x][y])).map(|sum| sample(sum, BITS + 3))
    })
}

fn two(block: &Block, steps: &Steps) -> [[u8; 2]; 2] {
    let [a, b, c, d] = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(y, x)| value(block, steps, y, x));
    let (top, bottom) = ([a + c, b + d], [a - c, b - d]);
    [top, bottom].map(|[even, odd]| [sample(even + odd, 0), sample(even - odd, 0)])
}

fn one(block: &Block, steps: &Steps) -> [[u8; 1]; 1] {
    [[sample(value(block, steps, 0, 0), 0)]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums as the standard has them, of the lowest `edge` x `edge` coefficients.
    fn plain(block: &Block, coded: &[u8; 64], edge: usize) -> Vec<f64> {
        let mut steps = [0.0; 64];
        coded
            .iter()
            .enumerate()
            .for_each(|(at, &step)| steps[place(at)] = f64::from(step));
        let wave = |at: usize, k: usize| {
            let scale = if k == 0 {
                1.0
            } else {
                std::f64::consts::SQRT_2
            };
            let turn = (2 * at + 1) as f64 * k as f64 / (2 * edge) as f64;
            scale * (turn * std::f64::consts::PI).cos()
        };
        let samples = (0..edge * edge).map(|at| {
            let mut sum = 0.0;
            for v in 0..edge {
                for u in 0..edge {
                    let value = f64::from(block[8 * v + u]) * steps[8 * v + u];
                    sum += value * wave(at / edge, v) * wave(at % edge, u);
                }
            }
            (sum / 8.0 + 128.0).clamp(0.0, 255.0)
        });
        samples.collect()
    }

    #[test]
    fn the_largest_values_do_not_overflow() {
        let steps = Steps::new(&[255; 64]);
        for value in [i16::MIN, -1023, 1023, i16::MAX] {
            for edge in [1, 2, 4, 8] {
                write(&[value; 65], &steps, edge, &mut [0; 64], edge);
            }
        }
    }

    #[test]
    fn samples_are_those_of_the_plain_sums() {
        let mut state = 1_u64;
        let mut draw = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..400 {
            let coded: [u8; 64] =
                std::array::from_fn(|at| 1 + draw(2 + at as u64 / 2 * (round % 3)) as u8);
            let mut block = [0; 65];
            let count = 1 + draw(64) as usize;
            for at in 0..count {
                let range = 1 + 400 / (1 + at as u64) / u64::from(coded[at]);
                block[place(at)] = draw(2 * range + 1) as i16 - range as i16;
            }
            let steps = Steps::new(&coded);
            for edge in [1, 2, 4, 8] {
                let mut out = vec![0; edge * (edge + 3)];
                write(&block, &steps, edge, &mut out, edge + 3);
                for (at, wanted) in plain(&block, &coded, edge).into_iter().enumerate() {
                    let found = f64::from(out[at / edge * (edge + 3) + at % edge]);
                    assert!(
                        (found - wanted).abs() < 1.6,
                        "{round} {edge} {at}: {found} {wanted}"
                    );
                }
            }
        }
    }
}
