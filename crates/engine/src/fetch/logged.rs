//! Samples of the log: asked for, many at a time; they arrive in buffers of the log's reader.
//!
//! One whose slab is open is placed straight from its buffer, which every thread of the crew can
//! do at once, so buffers come back soon. One that is fetched further ahead would keep its
//! neighbours' buffer until the user has come that far: it goes on into the memory tier.

use std::sync::Arc;

use forebay_cache::Lookup;
use forebay_cache::log::{Log, Sample, Slice, Want};

use super::{finish, pump};
use crate::disk::{Arrival, Asked};
use crate::job::Desk;
use crate::preparation::Stock;
use crate::stats::Counters;
use crate::task::{Outcome, Place, Task};

/// What the log's reader brought, or did not.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) place: Place,
    pub(crate) task: Task,
    pub(crate) into_slab: bool,
    pub(crate) slice: Option<Slice>,
}

/// The log that a task's sample belongs in, and its id there.
fn log<'a>(desk: &'a Desk, task: &Task) -> Option<(&'a Arc<Log>, u32)> {
    let (reader, id) = desk.logs.of(&desk.dataset, task.id)?;
    Some((reader.log(), id))
}

fn sample(desk: &Desk, task: &Task, id: u32) -> Option<Sample> {
    Some(Sample {
        id,
        identity: desk.dataset.identity(task.id).ok()?,
        length: task.len,
    })
}

/// What to ask the log for, if it has the task's sample.
pub(super) fn want(
    desk: &Desk,
    place: Place,
    task: &Task,
    into_slab: bool,
) -> Option<Want<Arrival>> {
    let (log, id) = log(desk, task)?;
    if task.past_log {
        return None;
    }
    let spot = log.find(id, task.len)?;
    Some(Want {
        sample: sample(desk, task, id)?,
        spot,
        payload: Arrival::from(Asked {
            desk: desk.me.upgrade()?,
            place,
            task: *task,
            into_slab,
        }),
    })
}

/// Asks for samples, the one first that is wanted first.
pub(super) fn ask(desk: &Desk, mut wants: Vec<Want<Arrival>>) {
    for (part, reader) in desk.logs.readers() {
        let others = wants
            .extract_if(.., |want| want.payload.part(&desk.dataset) != Some(part))
            .collect();
        reader.ask(std::mem::replace(&mut wants, others));
    }
}

/// Offers the log a sample that has come and is yet to be placed. True if it takes it and is not
/// to hold all: then the sample need not be in memory as well.
pub(super) fn offer_new<'a>(
    desk: &Desk,
    task: &Task,
    parts: impl Iterator<Item = &'a [u8]>,
) -> bool {
    log(desk, task).is_some_and(|(log, _)| !log.rewrites()) && offer(desk, task, parts)
}

/// A sample was placed: a log that is written anew for each epoch wants it, and any log one that
/// was in memory and is not in it, because its writer was behind when it came.
pub(crate) fn used(desk: &Desk, task: &Task, stock: &Stock) {
    let Some((log, id)) = log(desk, task) else {
        return;
    };
    match stock {
        Stock::Encoded(held) => {
            let wanted = log.rewrites() || held.was_hit() && log.find(id, task.len).is_none();
            if wanted && offer(desk, task, held.slices()) {
                held.set_next(None);
            }
        }
        Stock::Logged(slice) if log.rewrites() => {
            offer(desk, task, [&slice[..]].into_iter());
        }
        Stock::Aside(aside) if log.rewrites() => {
            offer(desk, task, [&aside.bytes[..]].into_iter());
        }
        // An image's own bytes are gone; what is beside the tier was offered when it came.
        Stock::Logged(_) | Stock::Aside(_) | Stock::Decoded(_) | Stock::Image(_) => {}
    }
}

/// Offers the log a sample that went straight from the origin into its slab; answers as
/// [`offer_new`].
pub(super) fn offer<'a>(desk: &Desk, task: &Task, parts: impl Iterator<Item = &'a [u8]>) -> bool {
    let Some((log, id)) = log(desk, task) else {
        return false;
    };
    sample(desk, task, id).is_some_and(|sample| log.offer(&sample, parts)) && !log.is_whole()
}

/// Takes in what the log's reader brought.
pub(crate) fn arrived(desk: &Arc<Desk>, samples: Vec<Logged>) {
    let outcomes: Vec<_> = samples
        .into_iter()
        .map(|mut logged| {
            let outcome = match logged.slice.take() {
                Some(slice) => {
                    Counters::add(&desk.counters.log_hits, 1);
                    Counters::add(&desk.counters.log_hit_bytes, logged.task.len);
                    stock(desk, &logged, slice)
                }
                None => {
                    logged.task.past_log = true;
                    Outcome::Postponed
                }
            };
            (logged, outcome)
        })
        .collect();
    let mut window = desk.window();
    let mut complete = false;
    for (logged, outcome) in outcomes {
        complete |= window.finish(logged.place, logged.task, logged.into_slab, outcome);
    }
    drop(window);
    if complete {
        desk.tell_user();
    }
    desk.plant.board.wake();
    if !desk.dataset.is_local() {
        pump(desk);
    }
}

/// Takes note of a sample that the log's reader will not bring, because its thread broke.
///
/// Called wherever the want was dropped, perhaps under the reader's lock: asks for nothing itself.
pub(crate) fn never_came(asked: Asked) {
    let Asked {
        desk,
        place,
        mut task,
        into_slab,
    } = asked;
    let plant = desk.plant.clone();
    if plant.board.is_closing() {
        return;
    }
    plant.warnings.say(
        "the disk cache is no longer read, because its thread broke, which is a bug of forebay's; \
         samples are read from the origin instead"
            .into(),
    );
    plant.board.guard(move || {
        task.past_log = true;
        finish(&desk, place, into_slab, [(task, Outcome::Postponed)]);
        // One whose slab is closed still was to be fetched ahead.
        desk.plant.board.wake();
    });
}

fn stock(desk: &Desk, logged: &Logged, slice: Slice) -> Outcome {
    if logged.into_slab {
        return Outcome::Held(Stock::Logged(slice));
    }
    let task = &logged.task;
    let tier = &desk.plant.tier;
    match tier.lookup(desk.key(task.id), task.len, task.next) {
        Ok(Lookup::Hit(held)) => Outcome::Held(Stock::Encoded(held)),
        Ok(Lookup::Fill(mut fill)) => {
            fill.write_at(0, &slice);
            let held = fill.commit();
            if !is_whole(desk, task) {
                held.set_next(None);
            }
            Outcome::Held(Stock::Encoded(held))
        }
        Ok(Lookup::Busy(_) | Lookup::Full) | Err(_) => Outcome::Postponed,
    }
}

/// Whether everything is in the log, or will be: memory is then for speed. Otherwise it is for
/// what the log does not have, so that the two together save the most reads of the origin.
fn is_whole(desk: &Desk, task: &Task) -> bool {
    log(desk, task).is_some_and(|(log, _)| log.is_whole())
}

/// Keeps a sample of the log in memory as well, if that is worth it.
pub(super) fn keep_copy(desk: &Desk, task: &Task, slice: &Slice) {
    let tier = &desk.plant.tier;
    let key = desk.key(task.id);
    if is_whole(desk, task)
        && tier.wants(key, task.len, task.next)
        && !desk.has_image(task.id)
        && let Ok(Lookup::Fill(mut fill)) = tier.lookup(key, task.len, task.next)
    {
        fill.write_at(0, slice);
        drop(fill.commit());
    }
}
