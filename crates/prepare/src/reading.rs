//! Reading a recipe: which steps there are, and whether they can follow each other.
//!
//! ```text
//!   image --to_image--> tensor of bytes --to_dtype--> tensor of floats
//!     \----------------to_tensor-----------------------^
//!   pixel steps        pixel steps, erasing           normalize, to_dtype, erasing
//! ```

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

use crate::decode::{Options, Size};
use crate::output::{Finish, Last};
use crate::steps::{Normalize, PixelStep, RandomErasing, ToDtype, ValueStep};
use crate::{Element, Error, Order, Recipe, Shape};

/// No buffer could hold more, whatever the setting.
const MOST_PIXELS: u64 = 1 << 32;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    decode: Decode,
    orient: bool,
    max_pixels: u64,
    order: OrderName,
    steps: Vec<Map<String, Json>>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Decode {
    Exact,
    Fast,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum OrderName {
    Chw,
    Hwc,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

pub(crate) fn read(text: &str) -> Result<Recipe, Error> {
    let text: Text =
        serde_json::from_str(text).map_err(|error| Error::Invalid(format!("recipe: {error}")))?;
    let mut flow = Flow::default();
    let mut names = Vec::with_capacity(text.steps.len());
    for (number, mut fields) in text.steps.into_iter().enumerate() {
        let name = match fields.remove("op") {
            Some(Json::String(name)) => name,
            _ => return Err(Error::Invalid(format!("step {number}: op is missing"))),
        };
        flow.step(number, &name, Json::Object(fields))
            .map_err(|why| Error::Invalid(format!("step {number} ({name}): {why}")))?;
        names.push(name);
    }
    let Some(size) = flow.size else {
        let why =
            "the recipe's output has no fixed size: add a crop, or a resize to height and width";
        return Err(Error::Invalid(why.into()));
    };
    let shape = Shape {
        channels: flow.channels,
        height: size.height as usize,
        width: size.width as usize,
        element: flow.element.unwrap_or(Element::U8),
        order: match text.order {
            OrderName::Chw => Order::Chw,
            OrderName::Hwc => Order::Hwc,
        },
    };
    let options = Options {
        fast: text.decode == Decode::Fast,
        orient: text.orient,
        max_pixels: text.max_pixels.min(MOST_PIXELS),
    };
    Ok(Recipe::new(
        options,
        flow.pixels,
        Finish::new(shape, &flow.last),
        names,
    ))
}

/// What the image is between two steps.
struct Flow {
    pixels: Vec<(usize, PixelStep)>,
    last: Vec<Last>,
    size: Option<Size>,
    channels: usize,
    /// `None` until it is a tensor.
    element: Option<Element>,
}

impl Default for Flow {
    fn default() -> Flow {
        Flow {
            pixels: Vec::new(),
            last: Vec::new(),
            size: None,
            channels: 3,
            element: None,
        }
    }
}

fn fields<T: DeserializeOwned>(fields: Json) -> Result<T, String> {
    serde_json::from_value(fields).map_err(|error| error.to_string())
}

impl Flow {
    fn step(&mut self, number: usize, name: &str, json: Json) -> Result<(), String> {
        let step = match name {
            "resize" => PixelStep::Resize(fields(json)?),
            "resize_shorter" => PixelStep::ResizeShorter(fields(json)?),
            "center_crop" => PixelStep::CenterCrop(fields(json)?),
            "random_crop" => PixelStep::RandomCrop(fields(json)?),
            "random_resized_crop" => PixelStep::RandomResizedCrop(fields(json)?),
            "pad" => PixelStep::Pad(fields(json)?),
            "horizontal_flip" => PixelStep::HorizontalFlip(fields(json)?),
            "vertical_flip" => PixelStep::VerticalFlip(fields(json)?),
            "color_jitter" => PixelStep::ColorJitter(fields(json)?),
            "grayscale" => PixelStep::Grayscale(fields(json)?),
            "random_grayscale" => PixelStep::RandomGrayscale(fields(json)?),
            "gaussian_blur" => PixelStep::GaussianBlur(fields(json)?),
            "to_tensor" => return fields(json).and_then(|Nothing {}| self.make_floats()),
            "to_image" => return fields(json).and_then(|Nothing {}| self.make_bytes()),
            "to_dtype" => return self.convert(fields(json)?),
            "normalize" => return self.normalize(fields(json)?),
            "random_erasing" => return self.erase(number, fields(json)?),
            _ => return Err("there is no step of this name".into()),
        };
        self.pixel_step(number, step)
    }

    fn pixel_step(&mut self, number: usize, step: PixelStep) -> Result<(), String> {
        if !self.last.is_empty() {
            return Err(
                "works on bytes, but comes after the values were converted or erased".into(),
            );
        }
        step.check(self.channels)?;
        self.channels = step.channels(self.channels);
        self.size = step.fixed_size(self.size);
        if self
            .size
            .is_some_and(|size| size.width == 0 || size.height == 0)
        {
            return Err("leaves an image without pixels".into());
        }
        self.pixels.push((number, step));
        Ok(())
    }

    fn make_floats(&mut self) -> Result<(), String> {
        if self.element.is_some() {
            return Err("comes after the image became a tensor".into());
        }
        self.element = Some(Element::F32);
        self.last.push(Last::Values(ValueStep::ToTensor));
        Ok(())
    }

    fn make_bytes(&mut self) -> Result<(), String> {
        if self.element.is_some() {
            return Err("comes after the image became a tensor".into());
        }
        self.element = Some(Element::U8);
        Ok(())
    }

    fn tensor(&self) -> Result<Element, String> {
        self.element
            .ok_or_else(|| "needs a tensor: put to_image or to_tensor before it".into())
    }

    fn convert(&mut self, step: ToDtype) -> Result<(), String> {
        let to = step.dtype.element();
        // Bytes to bytes is nothing: pixel steps may still follow.
        if self.tensor()? != Element::U8 || to != Element::U8 {
            self.last.push(Last::Values(ValueStep::ToDtype(step)));
        }
        self.element = Some(to);
        Ok(())
    }

    fn normalize(&mut self, step: Normalize) -> Result<(), String> {
        match self.tensor()? {
            Element::U8 => return Err("needs floats: put to_dtype or to_tensor before it".into()),
            float => step.check(self.channels, float)?,
        }
        self.last.push(Last::Values(ValueStep::Normalize(step)));
        Ok(())
    }

    fn erase(&mut self, number: usize, step: RandomErasing) -> Result<(), String> {
        self.tensor()?;
        step.check(self.channels)?;
        self.last.push(Last::Erase(number, step));
        Ok(())
    }
}
