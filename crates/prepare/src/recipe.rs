//! A recipe: the user's transform, read and checked once, followed for every sample.
//!
//! ```text
//!   header -> size -> draw all steps -> lead: flips and crops that come first
//!                                         |
//!            canvas <- pixels <- decode only their box (in `fast`, scaled to the resize after it)
//!               |
//!               +-> the other steps -> last pass -> out
//! ```

use serde_json::{Value as Json, json};

use crate::decode::{Options, Rect, Size};
use crate::output::Finish;
use crate::random::Stream;
use crate::scratch::Scratch;
use crate::steps::{Canvas, Drawn, Image, PixelStep, within};
use crate::{Draw, Error, Pixels, Shape};

/// From an encoded image to a finished sample.
#[derive(Debug)]
pub struct Recipe {
    options: Options,
    /// With their numbers in the recipe.
    steps: Vec<(usize, PixelStep)>,
    finish: Finish,
    /// Names of all steps, for [`Recipe::trace`].
    names: Vec<String>,
    /// Most pixels that an image may have between two steps.
    limit: u64,
}

/// What flips and crops at the start of a recipe come to: a box of the image as it is encoded.
#[derive(Debug)]
struct Lead {
    rect: Rect,
    mirrored: bool,
    upended: bool,
    /// The size to which the next step, or the rest of it, resizes.
    target: Option<Size>,
    /// How many steps are done with the crop. The last may still have to resize.
    done: usize,
    resizes: bool,
}

impl Recipe {
    /// Reads and checks; [`Error::Invalid`] names the step and what is wrong with it.
    pub fn from_json(text: &str) -> Result<Recipe, Error> {
        crate::reading::read(text)
    }

    pub(crate) fn new(
        options: Options,
        steps: Vec<(usize, PixelStep)>,
        finish: Finish,
        names: Vec<String>,
    ) -> Recipe {
        let Shape { height, width, .. } = finish.shape();
        let limit = options.max_pixels.max(height as u64 * width as u64);
        Recipe {
            options,
            steps,
            finish,
            names,
            limit,
        }
    }

    /// Numbers, below 4, the ways in which an image is decoded whole: recipes that share a number
    /// can share the image.
    pub fn decoding(&self) -> u8 {
        u8::from(self.options.fast) | u8::from(self.options.orient) << 1
    }

    /// Of one finished sample.
    pub fn shape(&self) -> Shape {
        self.finish.shape()
    }

    /// Makes a finished sample of an encoded image, in `out`, which is exactly as long as the
    /// shape says.
    pub fn prepare(
        &self,
        encoded: &[u8],
        draw: Draw,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<(), Error> {
        self.check_room(out)?;
        let Scratch {
            decoders,
            raster,
            drawn,
            buffers,
        } = scratch;
        let size = decoders.size(encoded, self.options)?;
        self.draw(size, draw, drawn)?;
        let lead = self.lead(size, drawn);
        let rect = decoders.region(encoded, lead.rect, lead.target, self.options, raster)?;
        let image = Image {
            bytes: &raster.rgb,
            channels: raster.channels,
            size: raster.size(),
        };
        let mut canvas = Canvas::new(image, rect, self.options.fast, buffers);
        if lead.mirrored {
            canvas.mirror();
        }
        if lead.upended {
            canvas.upend();
        }
        if let (true, Some(target)) = (lead.resizes, lead.target) {
            canvas.resize(target, self.steps[lead.done - 1].1.filter());
        }
        self.follow(lead.done, drawn, &mut canvas);
        self.finish.write(&canvas, draw, out);
        Ok(())
    }

    /// Decodes the whole image, for [`Recipe::prepare_decoded`].
    pub fn decode<'s>(
        &self,
        encoded: &[u8],
        scratch: &'s mut Scratch,
    ) -> Result<Pixels<'s>, Error> {
        scratch.whole(encoded, self.options)
    }

    /// Makes of a decoded image what [`Recipe::prepare`] makes of it encoded: the same bytes,
    /// unless the recipe decodes `fast`, which then takes a smaller scale or another decoder.
    pub fn prepare_decoded(
        &self,
        image: Pixels<'_>,
        draw: Draw,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<(), Error> {
        self.check_room(out)?;
        let Pixels { width, height, rgb } = image;
        if width == 0 || height == 0 || rgb.len() as u64 != u64::from(width) * u64::from(height) * 3
        {
            let found = rgb.len();
            let why = format!("{width}x{height} pixels are said to be in {found} bytes of RGB");
            return Err(Error::Corrupt(why));
        }
        let size = Size { width, height };
        let Scratch { drawn, buffers, .. } = scratch;
        self.draw(size, draw, drawn)?;
        let image = Image {
            bytes: rgb,
            channels: 3,
            size,
        };
        let mut canvas = Canvas::new(image, Rect::whole(size), self.options.fast, buffers);
        self.follow(0, drawn, &mut canvas);
        self.finish.write(&canvas, draw, out);
        Ok(())
    }

    /// All that is drawn for an image of the given width and height, as JSON: for tests that do
    /// the same with torchvision.
    #[doc(hidden)]
    pub fn trace(&self, (width, height): (u32, u32), draw: Draw) -> Result<String, Error> {
        let mut drawn = Vec::new();
        self.draw(Size { width, height }, draw, &mut drawn)?;
        let mut steps: Vec<Json> = self
            .names
            .iter()
            .map(|name| json!({ "op": name }))
            .collect();
        for ((number, _), drawn) in self.steps.iter().zip(&drawn) {
            let fields = serde_json::to_value(drawn).expect("numbers only");
            let fields = fields.as_object().expect("each has names").clone();
            steps[*number]
                .as_object_mut()
                .expect("made above")
                .extend(fields);
        }
        for (number, rect) in self.finish.erased(draw) {
            steps[number]["box"] = rect.map_or(
                Json::Null,
                |Rect {
                     left,
                     top,
                     width,
                     height,
                 }| {
                    json!({ "top": top, "left": left, "height": height, "width": width })
                },
            );
        }
        Ok(Json::Array(steps).to_string())
    }

    fn check_room(&self, out: &[u8]) -> Result<(), Error> {
        let (found, wanted) = (out.len(), self.shape().bytes());
        if found == wanted {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "a sample takes {wanted} bytes, but has {found} to go to"
        )))
    }

    fn draw(&self, mut size: Size, draw: Draw, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        drawn.clear();
        for (number, step) in &self.steps {
            let (what, after) = step.draw(size, Stream::new(draw, *number))?;
            let pixels = u64::from(after.width) * u64::from(after.height);
            if pixels > self.limit {
                return Err(Error::TooLarge {
                    pixels,
                    limit: self.limit,
                });
            }
            if pixels == 0 {
                let (name, Size { width, height }) = (&self.names[*number], size);
                let why = format!("it is {width}x{height}, of which {name} leaves no pixels");
                return Err(Error::TooSmall(why));
            }
            drawn.push(what);
            size = after;
        }
        Ok(())
    }

    fn lead(&self, size: Size, drawn: &[Drawn]) -> Lead {
        let mut lead = Lead {
            rect: Rect::whole(size),
            mirrored: false,
            upended: false,
            target: None,
            done: 0,
            resizes: false,
        };
        for ((_, step), drawn) in self.steps.iter().zip(drawn) {
            if !lead.take(step, *drawn) {
                break;
            }
            lead.done += 1;
            if lead.resizes {
                break;
            }
        }
        lead
    }

    fn follow(&self, from: usize, drawn: &[Drawn], canvas: &mut Canvas<'_>) {
        for ((_, step), drawn) in self.steps.iter().zip(drawn).skip(from) {
            step.apply(*drawn, canvas);
        }
    }
}

impl Lead {
    /// Takes a step in, if it changes nothing but what is seen; or if it first does.
    fn take(&mut self, step: &PixelStep, drawn: Drawn) -> bool {
        match (step, drawn) {
            (PixelStep::HorizontalFlip(_), Drawn::Happens { applied }) => self.mirrored ^= applied,
            (PixelStep::VerticalFlip(_), Drawn::Happens { applied }) => self.upended ^= applied,
            (_, Drawn::Happens { applied: false }) => {}
            (
                _,
                Drawn::Crop {
                    padding: [0, 0, 0, 0],
                    place,
                },
            ) => self.crop(place.into()),
            (_, Drawn::ResizedCrop { place, resized }) => {
                self.crop(place.into());
                self.target = Some(resized.into());
                self.resizes = true;
            }
            (_, Drawn::Resize(to)) => {
                self.target = Some(to.into());
                self.resizes = true;
            }
            _ => return false,
        }
        true
    }

    fn crop(&mut self, wanted: Rect) {
        self.rect = within(self.rect, wanted, self.mirrored, self.upended);
    }
}
