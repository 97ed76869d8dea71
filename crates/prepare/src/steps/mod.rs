//! The steps of a recipe. Each one that is random draws first and is applied afterwards, from what
//! was drawn alone: so the boxes are known before anything is decoded, and can be shown.

mod blur;
mod canvas;
mod check;
mod color;
mod crop;
mod erase;
mod flip;
mod gray;
mod hue;
mod pad;
mod resize;
mod values;

use serde::Serialize;

pub(crate) use blur::GaussianBlur;
pub(crate) use canvas::{Canvas, Image, within};
pub(crate) use color::{ColorJitter, Jitter};
pub(crate) use crop::{CenterCrop, RandomCrop, RandomResizedCrop};
pub(crate) use erase::{Named, RandomErasing, Value};
pub(crate) use flip::Flip;
pub(crate) use gray::{Grayscale, RandomGrayscale};
pub(crate) use pad::{Margins, Pad};
pub(crate) use resize::{Filter, Resize, ResizeShorter};
pub(crate) use values::{Normalize, Number, ToDtype, ValueStep};

use crate::Error;
use crate::decode::{Rect, Size};
use crate::random::Stream;
use pad::{Mode, ink, padded};

/// A step on pixels.
#[derive(Debug)]
pub(crate) enum PixelStep {
    Resize(Resize),
    ResizeShorter(ResizeShorter),
    CenterCrop(CenterCrop),
    RandomCrop(RandomCrop),
    RandomResizedCrop(RandomResizedCrop),
    Pad(Pad),
    HorizontalFlip(Flip),
    VerticalFlip(Flip),
    ColorJitter(ColorJitter),
    Grayscale(Grayscale),
    RandomGrayscale(RandomGrayscale),
    GaussianBlur(GaussianBlur),
}

/// What a step will do to one image of known size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Drawn {
    Resize(To),
    Crop {
        padding: Margins,
        #[serde(flatten)]
        place: Place,
    },
    ResizedCrop {
        #[serde(flatten)]
        place: Place,
        resized: To,
    },
    Pad {
        padding: Margins,
    },
    /// For steps that happen or not.
    Happens {
        applied: bool,
    },
    Jitter(Jitter),
    Blur {
        sigma: f64,
    },
}

/// A size as torchvision names it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct To {
    height: u32,
    width: u32,
}

/// A box as torchvision's `crop` names it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Place {
    top: u32,
    left: u32,
    height: u32,
    width: u32,
}

impl From<Size> for To {
    fn from(Size { width, height }: Size) -> To {
        To { height, width }
    }
}

impl From<To> for Size {
    fn from(To { height, width }: To) -> Size {
        Size { width, height }
    }
}

impl From<Rect> for Place {
    fn from(
        Rect {
            left,
            top,
            width,
            height,
        }: Rect,
    ) -> Place {
        Place {
            top,
            left,
            height,
            width,
        }
    }
}

impl From<Place> for Rect {
    fn from(
        Place {
            top,
            left,
            height,
            width,
        }: Place,
    ) -> Rect {
        Rect {
            left,
            top,
            width,
            height,
        }
    }
}

impl PixelStep {
    /// Whether the numbers make sense, for an image with so many channels.
    pub(crate) fn check(&self, channels: usize) -> Result<(), String> {
        match self {
            PixelStep::Resize(step) => step.check(),
            PixelStep::ResizeShorter(step) => step.check(),
            PixelStep::CenterCrop(step) => step.check(),
            PixelStep::RandomCrop(step) => step.check(channels),
            PixelStep::RandomResizedCrop(step) => step.check(),
            PixelStep::Pad(step) => step.check(channels),
            PixelStep::HorizontalFlip(step) | PixelStep::VerticalFlip(step) => step.check(),
            PixelStep::ColorJitter(step) => step.check(),
            PixelStep::Grayscale(step) => step.check(),
            PixelStep::RandomGrayscale(step) => step.check(),
            PixelStep::GaussianBlur(step) => step.check(),
        }
    }

    /// Channels after the step.
    pub(crate) fn channels(&self, before: usize) -> usize {
        if let PixelStep::Grayscale(step) = self {
            step.channels
        } else {
            before
        }
    }

    /// The size after the step, if it is the same for all images of size `before`, or for all
    /// images where that is `None`.
    pub(crate) fn fixed_size(&self, before: Option<Size>) -> Option<Size> {
        match self {
            PixelStep::Resize(step) => Some(Size {
                width: step.width,
                height: step.height,
            }),
            PixelStep::CenterCrop(step) => Some(step.size()),
            PixelStep::RandomCrop(step) => Some(step.size()),
            PixelStep::RandomResizedCrop(step) => Some(step.target()),
            PixelStep::ResizeShorter(step) => before.map(|size| step.target(size)),
            PixelStep::Pad(step) => before.map(|size| padded(size, step.padding)),
            _ => before,
        }
    }

    /// Draws for an image of size `of`, and says what it will be afterwards.
    pub(crate) fn draw(&self, of: Size, mut stream: Stream) -> Result<(Drawn, Size), Error> {
        let stream = &mut stream;
        let mut chance = |p: f64| Drawn::Happens {
            applied: stream.chance(p),
        };
        let drawn = match self {
            PixelStep::Resize(step) => Drawn::Resize(To {
                height: step.height,
                width: step.width,
            }),
            PixelStep::ResizeShorter(step) => Drawn::Resize(step.target(of).into()),
            PixelStep::CenterCrop(step) => {
                let (padding, rect) = step.place(of);
                Drawn::Crop {
                    padding,
                    place: rect.into(),
                }
            }
            PixelStep::RandomCrop(step) => {
                let (padding, rect) = step.draw(of, stream).map_err(Error::TooSmall)?;
                Drawn::Crop {
                    padding,
                    place: rect.into(),
                }
            }
            PixelStep::RandomResizedCrop(step) => {
                let place = step.draw(of, stream).into();
                Drawn::ResizedCrop {
                    place,
                    resized: step.target().into(),
                }
            }
            PixelStep::Pad(step) => Drawn::Pad {
                padding: step.padding,
            },
            PixelStep::HorizontalFlip(step) | PixelStep::VerticalFlip(step) => chance(step.p),
            PixelStep::ColorJitter(step) => Drawn::Jitter(step.draw(stream)),
            PixelStep::Grayscale(_) => Drawn::Happens { applied: true },
            PixelStep::RandomGrayscale(step) => chance(step.p),
            PixelStep::GaussianBlur(step) => {
                step.fits(of).map_err(Error::TooSmall)?;
                Drawn::Blur {
                    sigma: stream.uniform(step.sigma),
                }
            }
        };
        Ok((drawn, drawn.size(of)))
    }

    /// Does what was drawn.
    pub(crate) fn apply(&self, drawn: Drawn, canvas: &mut Canvas<'_>) {
        match drawn {
            Drawn::Resize(to) => canvas.resize(to.into(), self.filter()),
            Drawn::Crop { padding, place } => {
                let (mode, fill) = self.border();
                canvas.pad(padding, mode, ink(fill));
                canvas.crop(place.into());
            }
            Drawn::ResizedCrop { place, resized } => {
                canvas.crop(place.into());
                canvas.resize(resized.into(), self.filter());
            }
            Drawn::Pad { padding } => {
                let (mode, fill) = self.border();
                canvas.pad(padding, mode, ink(fill));
            }
            Drawn::Happens { applied: false } => {}
            Drawn::Happens { applied: true } => self.happen(canvas),
            Drawn::Jitter(jitter) => canvas.jitter(jitter),
            Drawn::Blur { sigma } => {
                if let PixelStep::GaussianBlur(step) = self {
                    canvas.blur(step.kernel, sigma);
                }
            }
        }
    }

    fn happen(&self, canvas: &mut Canvas<'_>) {
        match self {
            PixelStep::HorizontalFlip(_) => canvas.mirror(),
            PixelStep::VerticalFlip(_) => canvas.upend(),
            PixelStep::Grayscale(step) => canvas.gray(Some(step.channels)),
            PixelStep::RandomGrayscale(_) => canvas.gray(None),
            _ => {}
        }
    }

    /// The filter, of those that have one.
    pub(crate) fn filter(&self) -> Filter {
        match self {
            PixelStep::Resize(step) => step.filter,
            PixelStep::ResizeShorter(step) => step.filter,
            PixelStep::RandomResizedCrop(step) => step.filter,
            _ => Filter::Bilinear,
        }
    }

    /// How it pads; a crop at the centre pads with black.
    fn border(&self) -> (Mode, &[f64]) {
        match self {
            PixelStep::RandomCrop(step) => (step.mode, &step.fill),
            PixelStep::Pad(step) => (step.mode, &step.fill),
            _ => (Mode::Constant, &[]),
        }
    }
}

impl Drawn {
    /// What becomes of an image's size.
    fn size(&self, of: Size) -> Size {
        match *self {
            Drawn::Resize(to) | Drawn::ResizedCrop { resized: to, .. } => to.into(),
            Drawn::Crop { place, .. } => Size {
                width: place.width,
                height: place.height,
            },
            Drawn::Pad { padding } => padded(of, padding),
            Drawn::Happens { .. } | Drawn::Jitter(_) | Drawn::Blur { .. } => of,
        }
    }
}
