//! The form of a finished sample, and what it is made from.

/// Type of a finished sample's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    U8,
    F16,
    Bf16,
    F32,
}

impl Element {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Element::U8 => 1,
            Element::F16 | Element::Bf16 => 2,
            Element::F32 => 4,
        }
    }
}

/// Which axis runs slowest in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Channels first: one plane after the other.
    Chw,
    /// Channels last: one pixel after the other.
    Hwc,
}

/// The form of a finished sample, the same for all of a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    pub element: Element,
    pub order: Order,
}

impl Shape {
    /// Bytes of one sample.
    pub fn bytes(&self) -> usize {
        self.channels * self.height * self.width * self.element.bytes()
    }
}

/// What random parameters are drawn from: the same three give the same sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draw {
    pub seed: u64,
    pub epoch: u64,
    pub position: u64,
}

/// A decoded image: RGB, 8 bits each, row by row.
#[derive(Debug, Clone, Copy)]
pub struct Pixels<'a> {
    pub width: u32,
    pub height: u32,
    pub rgb: &'a [u8],
}
