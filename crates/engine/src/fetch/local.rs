//! Local files: read by the thread that places them.

use std::time::{Duration, Instant};

use forebay_cache::{Fill, Flight, FlightResult, Held, Lookup};

use super::bad::{self, Cause};
use super::{count_hit, count_read, decoded, finish, read_local};
use crate::Error;
use crate::job::Desk;
use crate::lending;
use crate::preparation::{self, Preparation, Stock, in_slot};
use crate::slab::SlabWriter;
use crate::task::{Fetch, Outcome, Task};

/// How long a thread waits for another's read before it looks whether all is over.
const PATIENCE: Duration = Duration::from_millis(100);

/// Fetches a run of local samples on this thread.
pub(crate) fn local(desk: &Desk, fetch: Fetch) {
    let outcomes: Vec<_> = fetch
        .tasks
        .iter()
        .map(|task| (*task, sample(desk, task, fetch.slab.as_ref())))
        .collect();
    finish(desk, fetch.place, fetch.slab.is_some(), outcomes);
}

fn sample(desk: &Desk, task: &Task, slab: Option<&SlabWriter>) -> Outcome {
    if bad::is_known(desk, task) {
        return stand_in(desk, task);
    }
    let found = match find(desk, task) {
        Ok(found) => found,
        Err(error) => return Outcome::Failed(error),
    };
    let found = match found {
        Found::Fill(fill) if lending::wants_images(desk) => match fill_image(desk, task, fill) {
            Ok(stock) => Found::There(stock),
            Err(cause) => return bad(desk, task, cause),
        },
        Found::There(stock) => Found::There(lending::develop(desk, task, stock)),
        found => found,
    };
    let done = match (slab, found) {
        (Some(slab), Found::There(stock)) => match lending::lend(desk, stock) {
            Ok(image) => return Outcome::Lent(image),
            Err(stock) => preparation::place(desk, slab, task, &stock).map_err(Cause::from),
        },
        (None, Found::There(stock)) => return Outcome::Held(stock),
        (Some(slab), Found::Fill(fill)) => match &desk.preparation {
            None => copy_through(desk, task, slab, fill),
            Some(_) => fill_tier(desk, task, fill)
                .and_then(|stock| Ok(preparation::place(desk, slab, task, &stock)?)),
        },
        (None, Found::Fill(fill)) => match fill_tier(desk, task, fill) {
            Ok(stock) => return Outcome::Held(stock),
            Err(cause) => Err(cause),
        },
        (Some(slab), Found::NoRoom) => past_the_tier(desk, task, slab),
        (None, Found::NoRoom) => return Outcome::Postponed,
    };
    match done {
        Ok(()) => Outcome::Placed,
        Err(cause) => bad(desk, task, cause),
    }
}

/// What the tier has for a task.
enum Found {
    There(Stock),
    /// Nothing: it is this thread's to read.
    Fill(Fill),
    /// Everything in it is held.
    NoRoom,
}

fn find(desk: &Desk, task: &Task) -> Result<Found, Error> {
    if let Some(image) = decoded(desk, task) {
        return Ok(Found::There(image));
    }
    loop {
        let lookup = desk
            .plant
            .tier
            .lookup(desk.key(task.id), task.len, task.next)?;
        let held = match lookup {
            Lookup::Hit(held) => held,
            Lookup::Fill(fill) => {
                // Its image may have come, and its bytes gone, in between.
                let image = decoded(desk, task);
                return Ok(image.map_or(Found::Fill(fill), Found::There));
            }
            Lookup::Full => return Ok(Found::NoRoom),
            Lookup::Busy(flight) => match wait(desk, &flight) {
                Some(held) => held,
                None if desk.plant.board.is_closing() => return Err(Error::Closed),
                None => continue,
            },
        };
        count_hit(desk, task);
        return Ok(Found::There(Stock::encoded(held)));
    }
}

fn wait(desk: &Desk, flight: &Flight) -> Option<Held> {
    loop {
        match flight.wait(PATIENCE) {
            FlightResult::Ready(held) => return Some(held),
            FlightResult::Failed => return None,
            FlightResult::TimedOut if desk.plant.board.is_closing() => return None,
            FlightResult::TimedOut => {}
        }
    }
}

/// By way of the slab: it is memory that was used before, in one piece, and hot when it is
/// copied on into the tier.
fn copy_through(desk: &Desk, task: &Task, slab: &SlabWriter, mut fill: Fill) -> Result<(), Cause> {
    in_slot(slab, task, |slot| {
        read_local(&desk.dataset, task.id, &mut [&mut *slot])?;
        fill.write_at(0, slot);
        Ok::<_, forebay_origin::Error>(())
    })?;
    count_read(desk, task);
    drop(fill.commit());
    Ok(())
}

fn fill_tier(desk: &Desk, task: &Task, mut fill: Fill) -> Result<Stock, Cause> {
    let begun = Instant::now();
    read_local(&desk.dataset, task.id, &mut fill.slices_mut())?;
    took(desk.preparation.as_ref(), begun);
    count_read(desk, task);
    Ok(Stock::encoded(fill.commit()))
}

fn fill_image(desk: &Desk, task: &Task, fill: Fill) -> Result<Stock, Cause> {
    lending::develop_from(desk, task, fill, |bytes| {
        let begun = Instant::now();
        read_local(&desk.dataset, task.id, &mut [bytes])?;
        if let Some(lending) = &desk.lending {
            lending.form.saw_read(begun.elapsed());
        }
        count_read(desk, task);
        Ok(())
    })
}

fn past_the_tier(desk: &Desk, task: &Task, slab: &SlabWriter) -> Result<(), Cause> {
    let read = |bytes: &mut [u8]| {
        let begun = Instant::now();
        read_local(&desk.dataset, task.id, &mut [bytes])?;
        took(desk.preparation.as_ref(), begun);
        count_read(desk, task);
        Ok::<_, Cause>(())
    };
    in_slot(slab, task, |slot| match &desk.preparation {
        None => read(slot),
        Some(preparation) => preparation::make_from(desk, preparation, task, slot, read),
    })
}

fn took(preparation: Option<&Preparation>, begun: Instant) {
    if let Some(preparation) = preparation {
        preparation.form.saw_read(begun.elapsed());
    }
}

/// A sample that is of no use.
pub(super) fn bad(desk: &Desk, task: &Task, cause: Cause) -> Outcome {
    match bad::quarantine(desk, task, cause) {
        Ok(()) => stand_in(desk, task),
        Err(error) => Outcome::Failed(error),
    }
}

fn stand_in(desk: &Desk, task: &Task) -> Outcome {
    bad::candidates(desk, task)
        .find_map(|(id, length, label)| {
            let mut bytes = vec![0; length as usize];
            let read = read_local(&desk.dataset, id, &mut [&mut bytes]).map(|()| bytes);
            bad::try_candidate(desk, task, (id, label), read)
        })
        .unwrap_or_else(|| bad::no_stand_in(task))
}
