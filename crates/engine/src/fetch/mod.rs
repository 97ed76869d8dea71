//! Bringing samples in: from the tier, else from the origin, into a slab.
//!
//! Local files are read by the crew's own threads and placed at once, while they are hot in the
//! core's cache ([`local`]). Remote objects are asked for ahead by [`pump`], many at a time, and
//! arrive in the tier by network tasks ([`remote`]); the crew places them later. So do samples that
//! the log has ([`logged`]), wherever they came from at first. What cannot be read or decoded is
//! replaced or fails its batch ([`bad`]).

mod bad;
mod local;
mod logged;
mod one;
mod remote;

use std::io::IoSliceMut;

use forebay_origin::View;

pub(crate) use local::local;
pub(crate) use logged::{Logged, arrived, never_came, used};
pub(crate) use one::read_one;
#[cfg(test)]
pub(crate) use remote::guarded;
pub(crate) use remote::pump;

use crate::job::Desk;
use crate::lending;
use crate::preparation::{self, Stock};
use crate::stats::Counters;
use crate::task::{Outcome, Place, Placing, Task};

/// Brings samples of the tier into their slab.
pub(crate) fn place(desk: &Desk, placing: Placing) {
    let mut outcomes = Vec::with_capacity(placing.samples.len());
    for (task, stock) in placing.samples {
        let stock = match lending::lend(lending::develop(desk, &task, stock)) {
            Ok(image) => {
                outcomes.push((task, Outcome::Lent(image)));
                continue;
            }
            Err(stock) => stock,
        };
        let placed = preparation::place(desk, &placing.slab, &task, &stock);
        if placed.is_ok() {
            logged::used(desk, &task, &stock);
            if let Stock::Logged(slice) = &stock {
                logged::keep_copy(desk, &task, slice);
            }
        }
        drop(stock); // lets the tier have its room back before the user is told
        let outcome = match placed {
            Ok(()) => Outcome::Placed,
            Err(error) if desk.dataset.is_local() => local::bad(desk, &task, error.into()),
            Err(error) => remote::bad_in_crew(desk, &task, error.into()),
        };
        outcomes.push((task, outcome));
    }
    if desk.window().placed(placing.place, outcomes) {
        desk.tell_user();
    }
    // What was placed no longer counts as fetched ahead: more can be asked for.
    if desk.dataset.is_local() {
        desk.plant.board.wake_loaders();
    } else if let Some(desk) = desk.me.upgrade() {
        pump(&desk);
    }
}

fn finish(
    desk: &Desk,
    place: Place,
    into_slab: bool,
    outcomes: impl IntoIterator<Item = (Task, Outcome)>,
) {
    let mut window = desk.window();
    let (mut complete, mut held, mut postponed) = (false, false, false);
    for (task, outcome) in outcomes {
        held |= matches!(outcome, Outcome::Held(_));
        postponed |= matches!(outcome, Outcome::Postponed);
        complete |= window.finish(place, task, into_slab, outcome);
    }
    // The slab may have been opened since the fetch was taken, and whoever was told of that, or of
    // room in the tier, has looked before this was noted: all is asked for as it is now.
    let placing = held && window.has_placing();
    let again = postponed && window.has_postponed();
    drop(window);
    if complete {
        desk.tell_user();
    }
    if placing || again {
        desk.plant.board.wake();
    }
}

fn read_local(
    dataset: &View,
    id: u32,
    into: &mut [&mut [u8]],
) -> Result<(), forebay_origin::Error> {
    match into {
        [whole] => dataset.read_local(id, &mut [IoSliceMut::new(whole)]),
        parts => {
            let mut parts: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            dataset.read_local(id, &mut parts)
        }
    }
}

/// The image that a sample decodes to, if it is in the tier.
fn decoded(desk: &Desk, task: &Task) -> Option<Stock> {
    if desk.preparation.is_none() && desk.lending.is_none() {
        return None;
    }
    let key = desk.decoded_key(task.id);
    let held = desk.plant.tier.find(key, task.next)?;
    count_hit(desk, task);
    Some(match desk.lending {
        Some(_) => Stock::Image(held),
        None => Stock::Decoded(held),
    })
}

fn count_hit(desk: &Desk, task: &Task) {
    Counters::add(&desk.counters.hits, 1);
    Counters::add(&desk.counters.hit_bytes, task.len);
}

fn count_read(desk: &Desk, task: &Task) {
    Counters::add(&desk.counters.reads, 1);
    Counters::add(&desk.counters.read_bytes, task.len);
}
