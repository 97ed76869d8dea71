//! At which scale to decode, and where a box lies at that scale.

use super::{Options, Rect, Size};

/// Chroma is smoothed from one neighbour, which is two pixels away at most.
const MARGIN: u32 = 4;

/// An n/8 scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale(u32);

impl Scale {
    pub(super) const FULL: Scale = Scale(8);

    #[cfg(test)]
    pub(super) fn eighths(eighths: u32) -> Scale {
        Scale(eighths)
    }

    /// The smallest at which `wanted` still has `target`'s size.
    ///
    /// Only halves: these are the scales whose inverse DCT has SIMD code. The ones between (7/8,
    /// 3/4, 5/8, 3/8) are slower than full size.
    pub(super) fn choose(wanted: Rect, target: Option<Size>, options: Options) -> Scale {
        let Some(target) = target.filter(|_| options.fast) else {
            return Scale::FULL;
        };
        let fits = |scale: &u32| {
            let scaled = |length: u32| u64::from(length) * u64::from(*scale) / 8;
            scaled(wanted.width) >= u64::from(target.width.max(1))
                && scaled(wanted.height) >= u64::from(target.height.max(1))
        };
        Scale([1, 2, 4].into_iter().find(fits).unwrap_or(8))
    }

    pub(super) fn size(self, size: Size) -> Size {
        let scaled = |length: u32| (length * self.0).div_ceil(8);
        Size {
            width: scaled(size.width),
            height: scaled(size.height),
        }
    }

    /// Each edge goes to the nearest pixel.
    pub(super) fn rect(self, rect: Rect, within: Size) -> Rect {
        let edge = |at: u32| (at * self.0 + 4) / 8;
        let span = |start: u32, length: u32, end: u32| {
            let last = edge(start + length).clamp(1, end);
            let first = edge(start).min(last - 1);
            (first, last - first)
        };
        let (left, width) = span(rect.left, rect.width, within.width);
        let (top, height) = span(rect.top, rect.height, within.height);
        Rect {
            left,
            top,
            width,
            height,
        }
    }

    /// As a fraction.
    pub(super) fn factor(self) -> (i32, i32) {
        match self.0 {
            1 => (1, 8),
            2 => (1, 4),
            4 => (1, 2),
            _ => (1, 1),
        }
    }

    /// The columns and rows to decode for `wanted` (in scaled pixels): from a whole MCU on, which
    /// is `step` wide at full size, and with the margin.
    pub(super) fn crop(self, wanted: Rect, step: u32, within: Size) -> Rect {
        let step = step * self.0 / 8;
        let left = wanted.left.saturating_sub(MARGIN) / step * step;
        let right = (wanted.left + wanted.width + MARGIN).min(within.width);
        Rect {
            left,
            width: right - left,
            ..wanted
        }
    }
}
