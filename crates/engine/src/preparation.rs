//! From a sample's bytes to its slot of the batch: copied, or made into a finished image.
//!
//! ```text
//!   raw      bytes ------------------------- copied ------------------------> slot
//!   image    bytes -- decoded where the crop needs it, augmented -----------> slot
//!            bytes -- decoded whole --+----- augmented ---------------------> slot
//!                                     +--> the tier, for the epochs to come
//! ```

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use forebay_cache::log::Slice;
use forebay_cache::{Held, Lookup};
use forebay_prepare::{Pixels, Recipe, Scratch, Shape};

use crate::aside::AsideBytes;
use crate::cache_form::{CacheForm, FormChoice, Path};
use crate::job::Desk;
use crate::slab::SlabWriter;
use crate::stats::Counters;
use crate::task::{Task, cost};

/// What a job makes of its samples.
#[derive(Debug, Clone)]
pub struct PreparationSettings {
    /// How an image becomes a sample.
    pub recipe: Arc<Recipe>,
    /// In which form images stay in memory.
    pub cache_form: CacheForm,
}

/// The same, at work.
#[derive(Debug)]
pub(crate) struct Preparation {
    pub(crate) recipe: Arc<Recipe>,
    pub(crate) form: FormChoice,
}

impl Preparation {
    pub(crate) fn shape(&self) -> Shape {
        self.recipe.shape()
    }
}

/// A sample that has come and waits to be placed.
#[derive(Debug)]
pub(crate) enum Stock {
    /// Its own bytes, in the memory tier.
    Encoded(Held),
    /// The image they decode to, in the memory tier, for the steps of a recipe.
    Decoded(Held),
    /// The same, to be lent as it is: it stays in the tier until it is given back.
    Image(Held),
    /// Its own bytes, in the buffer that they were read into from the log.
    Logged(Slice),
    /// Its own bytes, beside the tier, which was full.
    Aside(AsideBytes),
}

impl Stock {
    /// Where it lies in the memory tier; else its bytes.
    fn held(&self) -> Result<&Held, &[u8]> {
        match self {
            Stock::Encoded(held) | Stock::Decoded(held) | Stock::Image(held) => Ok(held),
            Stock::Logged(slice) => Err(slice),
            Stock::Aside(aside) => Err(&aside.bytes),
        }
    }

    /// Whether it is an image already.
    pub(crate) fn is_image(&self) -> bool {
        matches!(self, Stock::Decoded(_) | Stock::Image(_))
    }

    /// What it takes of the readahead: a lent image counts with all of its bytes.
    pub(crate) fn cost(&self, task: &Task) -> u64 {
        match self {
            Stock::Image(held) => cost(held.len()),
            _ => task.cost(),
        }
    }

    fn copy_to(&self, target: &mut [u8]) {
        match self.held() {
            Ok(held) => held.copy_to(target),
            Err(slice) => target.copy_from_slice(slice),
        }
    }

    /// The bytes as one slice, in `bytes` if they do not lie so.
    pub(crate) fn in_one_piece<'a>(&'a self, bytes: &'a mut Vec<u8>) -> &'a [u8] {
        match self.held() {
            Ok(held) => match held.as_slice() {
                Some(sample) => sample,
                None => {
                    bytes.resize(held.len() as usize, 0);
                    held.copy_to(bytes);
                    bytes
                }
            },
            Err(slice) => slice,
        }
    }
}

/// What a thread keeps between samples, so that none of it is allocated again.
#[derive(Default)]
pub(crate) struct Tools {
    /// Bytes of a sample that is not in the tier, or not in one piece there.
    pub(crate) bytes: Vec<u8>,
    pub(crate) scratches: Scratches,
}

/// Two, since a decoded image lies in the one while it is augmented with the other.
#[derive(Default)]
pub(crate) struct Scratches {
    pub(crate) decoding: Scratch,
    augmenting: Scratch,
}

thread_local! {
    static TOOLS: RefCell<Tools> = RefCell::default();
}

/// Works with the thread's tools. A panic is a bug, but one of this sample alone: without its
/// outcome the batch would wait for ever.
pub(crate) fn with_tools<T, E: From<forebay_prepare::Error>>(
    work: impl FnOnce(&mut Tools) -> Result<T, E>,
) -> Result<T, E> {
    TOOLS.with_borrow_mut(|tools| {
        catch_unwind(AssertUnwindSafe(|| work(&mut *tools))).unwrap_or_else(|panic| {
            *tools = Tools::default(); // whatever state they were left in
            let why = format!("a decoder broke on it: {}", words(&*panic));
            Err(forebay_prepare::Error::Corrupt(why).into())
        })
    })
}

/// What a panic said.
pub(crate) fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}

/// Lets `write` have the bytes of a task's slot.
pub(crate) fn in_slot<T>(slab: &SlabWriter, task: &Task, write: impl FnOnce(&mut [u8]) -> T) -> T {
    // SAFETY: slots are disjoint by layout, and the window gives each slot to one
    // task at a time.
    write(unsafe { slab.part(task.offset, task.room) })
}

/// Brings a sample from the tier into its slot.
pub(crate) fn place(
    desk: &Desk,
    slab: &SlabWriter,
    task: &Task,
    stock: &Stock,
) -> Result<(), forebay_prepare::Error> {
    let Some(preparation) = &desk.preparation else {
        in_slot(slab, task, |slot| stock.copy_to(slot));
        return Ok(());
    };
    let begun = Instant::now();
    with_tools(|Tools { bytes, scratches }| {
        let sample = stock.in_one_piece(bytes);
        in_slot(slab, task, |slot| {
            if let Stock::Decoded(_) = stock {
                let (recipe, scratch) = (&preparation.recipe, &mut scratches.augmenting);
                return recipe.prepare_decoded(unpack(sample)?, task.draw, scratch, slot);
            }
            develop(desk, preparation, task, sample, scratches, slot)
        })
    })?;
    count(desk, task, begun);
    Ok(())
}

/// A sample was prepared since `begun`.
pub(crate) fn count(desk: &Desk, task: &Task, begun: Instant) {
    let counters = &desk.counters;
    Counters::add(&counters.prepared, 1);
    Counters::add(&counters.prepared_bytes, task.len);
    Counters::add(&counters.preparing, begun.elapsed().as_nanos() as u64);
}

/// Reads a sample's bytes by `read` into memory of this thread and makes an image of them.
pub(crate) fn make_from<E: From<forebay_prepare::Error>>(
    desk: &Desk,
    preparation: &Preparation,
    task: &Task,
    slot: &mut [u8],
    read: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    with_tools(|Tools { bytes, scratches }| {
        bytes.resize(task.len as usize, 0);
        read(bytes)?;
        let begun = Instant::now();
        develop(desk, preparation, task, bytes, scratches, slot)?;
        count(desk, task, begun);
        Ok(())
    })
}

/// Makes an image of bytes that are not the task's own: those of a stand-in.
pub(crate) fn make(
    preparation: &Preparation,
    task: &Task,
    encoded: &[u8],
    slot: &mut [u8],
) -> Result<(), forebay_prepare::Error> {
    with_tools(|tools| {
        let recipe = &preparation.recipe;
        recipe.prepare(encoded, task.draw, &mut tools.scratches.decoding, slot)
    })
}

/// Encoded bytes to a finished sample, keeping the decoded image if that is the job's form.
fn develop(
    desk: &Desk,
    preparation: &Preparation,
    task: &Task,
    encoded: &[u8],
    Scratches {
        decoding,
        augmenting,
    }: &mut Scratches,
    slot: &mut [u8],
) -> Result<(), forebay_prepare::Error> {
    let recipe = &preparation.recipe;
    let begun = Instant::now();
    match preparation.form.path() {
        Path::Encoded => {
            recipe.prepare(encoded, task.draw, decoding, slot)?;
            preparation.form.saw_encoded(begun.elapsed());
        }
        path => {
            let image = recipe.decode(encoded, decoding)?;
            let whole = begun.elapsed();
            recipe.prepare_decoded(image, task.draw, augmenting, slot)?;
            let crop = begun.elapsed() - whole;
            preparation.form.saw_decoded(whole, crop, packed_len(image));
            if path == Path::Decoded {
                keep(desk, task, image);
            }
        }
    }
    Counters::add(&desk.counters.decoded, 1);
    preparation.form.decide(desk, 0);
    Ok(())
}

/// Width and height before the pixels of an image in the tier.
pub(crate) const HEADER: usize = 8;

fn packed_len(image: Pixels<'_>) -> u64 {
    (HEADER + image.rgb.len()) as u64
}

/// Puts a decoded image into the tier, in place of its encoded bytes, if there is room.
fn keep(desk: &Desk, task: &Task, image: Pixels<'_>) {
    let key = desk.decoded_key(task.id);
    let tier = &desk.plant.tier;
    if let Ok(Lookup::Fill(mut fill)) = tier.lookup(key, packed_len(image), task.next) {
        fill.write_at(0, &image.width.to_le_bytes());
        fill.write_at(4, &image.height.to_le_bytes());
        fill.write_at(HEADER as u64, image.rgb);
        drop(fill.commit());
        if tier.contains(key) {
            tier.forget(desk.key(task.id));
        }
    }
}

fn unpack(packed: &[u8]) -> Result<Pixels<'_>, forebay_prepare::Error> {
    let number = |at: usize| {
        packed
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_le_bytes)
    };
    match (number(0), number(4)) {
        (Some(width), Some(height)) => Ok(Pixels {
            width,
            height,
            rgb: &packed[HEADER..],
        }),
        _ => Err(forebay_prepare::Error::Corrupt(
            "the image in memory has no header".into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_its_sample_and_leaves_nothing_behind() {
        let error = with_tools::<(), forebay_prepare::Error>(|tools| {
            tools.bytes.push(1);
            panic!("row {}", 7);
        });
        let text = error.unwrap_err().to_string();
        assert!(text.ends_with("broke on it: row 7"), "{text}");
        let after = with_tools::<(), forebay_prepare::Error>(|tools| {
            assert!(tools.bytes.is_empty());
            Ok(())
        });
        assert_eq!(after, Ok(()));
    }
}
