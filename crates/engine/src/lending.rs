//! Images lent to whoever goes on with them in Python: decoded once, read from the tier.
//!
//! A transform that begins with a step of the user's own gets a PIL image of what the dataset
//! holds. Decoded there, it would be decoded anew in each epoch; so the engine decodes it, keeps
//! it, and lends it:
//!
//! ```text
//!   bytes -- decoded whole --> the tier --> lent: read where it lies, then given back
//!     \-- not a JPEG, bad, or no room for its pixels --> slot, as the dataset has it
//! ```
//!
//! Either way the user sees the same image, so what becomes of a sample may depend on chance: on
//! room in the tier, on who was first. What the engine cannot decode goes on as it is, and who
//! tries it there says what is wrong with it. Images have sizes of their own and a slab's slots
//! are laid out before these are known: hence no slot. All that is lent counts in the tier.

use std::time::Instant;

use forebay_cache::{Fill, Held, Lookup};
use forebay_prepare::{Pixels, Scratch};

use crate::cache_form::{CacheForm, FormChoice};
use crate::fetch;
use crate::job::Desk;
use crate::preparation::{HEADER, Scratches, Stock, Tools, count, with_tools};
use crate::stats::Counters;
use crate::task::Task;

/// To take a lent image over and make an object of it takes its new owner a fifth of what decoding
/// it would (0.35 of 1.7 ms for a photo of 500x375).
const TAKING_OVER: u32 = 5;

/// How images are lent.
#[derive(Debug, Clone)]
pub struct LendingSettings {
    /// No image of more pixels is decoded.
    pub max_pixels: u64,
    /// In which form images stay in memory; encoded ones are not lent.
    pub cache_form: CacheForm,
    /// How many may be out or ready at a time.
    pub most: u64,
}

/// The same, at work.
#[derive(Debug)]
pub(crate) struct Lending {
    max_pixels: u64,
    most: u64,
    pub(crate) form: FormChoice,
}

impl Lending {
    pub(crate) fn new(settings: LendingSettings) -> Self {
        Self {
            max_pixels: settings.max_pixels,
            most: settings.most,
            form: FormChoice::new(settings.cache_form),
        }
    }
}

/// The job's lending, if samples are to be decoded for it.
fn at_work(desk: &Desk) -> Option<&Lending> {
    let lending = desk.lending.as_ref()?;
    (lending.form.chosen() != Some(CacheForm::Encoded)).then_some(lending)
}

/// Whether a sample that is read now is to be decoded.
pub(crate) fn wants_images(desk: &Desk) -> bool {
    at_work(desk).is_some()
}

/// The image to be lent; the sample as it is if that is to be placed.
pub(crate) fn lend(stock: Stock) -> Result<Held, Stock> {
    match stock {
        Stock::Image(held) => Ok(held),
        stock => Err(stock),
    }
}

/// A sample's image in its place in the tier, if there is to be one and can be.
pub(crate) fn develop(desk: &Desk, task: &Task, stock: Stock) -> Stock {
    let Some(lending) = at_work(desk).filter(|_| !stock.is_image()) else {
        return stock;
    };
    // An earlier use of it, fetched before it was decoded, may have brought the image.
    if let Some(image) = desk.plant.tier.find(desk.decoded_key(task.id), task.next) {
        return Stock::Image(image);
    }
    let image = with_tools(|Tools { bytes, scratches }| {
        let encoded = stock.in_one_piece(bytes);
        Ok::<_, forebay_prepare::Error>(decode(desk, lending, task, encoded, scratches))
    });
    match image {
        Ok(Some(image)) => {
            fetch::used(desk, task, &stock);
            drop(stock);
            desk.plant.tier.forget(desk.key(task.id));
            Stock::Image(image)
        }
        _ => stock,
    }
}

/// Reads a sample by `read` into memory of this thread, and puts its image into the tier, or else
/// its bytes.
pub(crate) fn develop_from<E: From<forebay_prepare::Error>>(
    desk: &Desk,
    task: &Task,
    mut fill: Fill,
    read: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<Stock, E> {
    with_tools(|Tools { bytes, scratches }| {
        bytes.resize(task.len as usize, 0);
        read(bytes)?;
        let image = at_work(desk).and_then(|lending| decode(desk, lending, task, bytes, scratches));
        Ok(match image {
            Some(image) => Stock::Image(image),
            None => {
                fill.write_at(0, bytes);
                Stock::Encoded(fill.commit())
            }
        })
    })
}

fn decode(
    desk: &Desk,
    lending: &Lending,
    task: &Task,
    encoded: &[u8],
    Scratches { decoding, .. }: &mut Scratches,
) -> Option<Held> {
    let head = forebay_prepare::head(encoded)?;
    let begun = Instant::now();
    let image = Scratch::decode(decoding, encoded, lending.max_pixels).ok()?;
    let whole = begun.elapsed();
    Counters::add(&desk.counters.decoded, 1);
    count(desk, task, begun);
    let packed = (HEADER + image.rgb.len() + head.len()) as u64;
    // Whoever gets it encoded decodes the whole of it, too.
    lending.form.saw_encoded(whole);
    lending.form.saw_decoded(whole, whole / TAKING_OVER, packed);
    lending.form.decide(desk, lending.most);
    keep(desk, task, image, head, packed)
}

/// Puts an image and its head into the tier, if there is room.
fn keep(desk: &Desk, task: &Task, image: Pixels<'_>, head: &[u8], packed: u64) -> Option<Held> {
    let key = desk.decoded_key(task.id);
    match desk.plant.tier.lookup(key, packed, task.next).ok()? {
        Lookup::Hit(held) => Some(held),
        Lookup::Fill(mut fill) => {
            let mut size = [0; HEADER];
            size[..4].copy_from_slice(&image.width.to_le_bytes());
            size[4..].copy_from_slice(&image.height.to_le_bytes());
            let pixels = image.rgb.len() as u64;
            fill.write_at(0, &size);
            fill.write_at(HEADER as u64, image.rgb);
            fill.write_at(HEADER as u64 + pixels, head);
            Some(fill.commit())
        }
        Lookup::Busy(_) | Lookup::Full => None,
    }
}
