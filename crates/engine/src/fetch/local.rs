//! Local files: read by the thread that places them.

use std::time::{Duration, Instant};

use forebay_cache::log::Want;
use forebay_cache::{Fill, Flight, FlightResult, Held, Lookup, Row, Seal};

use super::bad::{self, Cause};
use super::{count_hit, count_read, decoded, finish, logged, read_local};
use crate::Error;
use crate::crew::Kind;
use crate::disk::Arrival;
use crate::job::Desk;
use crate::lending;
use crate::preparation::{self, Preparation, Stock, in_slot};
use crate::slab::SlabWriter;
use crate::task::{Fetch, Outcome, Place, Task};
use crate::watch::Watch;

/// How long a thread waits for another's read before it looks whether all is over.
const PATIENCE: Duration = Duration::from_millis(100);

/// Fetches a run of local samples on this thread.
///
/// One who is there to load leaves it to others to make something of what needs to be made.
pub(crate) fn local(desk: &Desk, fetch: Fetch, kind: Kind) {
    let Fetch { place, tasks, slab } = fetch;
    let into_slab = slab.is_some();
    let watch = Watch::begin();
    let target = Target {
        slab: slab.as_ref(),
        loads_only: kind == Kind::Load,
        straight: into_slab && is_raw(desk),
    };
    let mut wants = Vec::new();
    let mut outcomes = Vec::with_capacity(tasks.len());
    for task in &tasks {
        match from_log(desk, place, task, into_slab) {
            Some(want) => wants.push(want),
            None => outcomes.push((*task, sample(desk, task, target, &watch))),
        }
    }
    if let Some(slow) = watch.end(&desk.counters) {
        desk.window().set_slow(slow);
    }
    logged::ask(desk, wants);
    // A row ends with its last user, not with a thread that is done with it.
    drop(slab);
    finish(desk, place, into_slab, outcomes);
}

/// Where a sample goes.
#[derive(Clone, Copy)]
struct Target<'a> {
    /// Its batch's, if that is open.
    slab: Option<&'a SlabWriter>,
    /// Into the tier and no further, as long as there is room.
    loads_only: bool,
    /// Copied into the slab as it is found in the tier.
    straight: bool,
}

/// Whether samples stay as they are, and are of no use to a log.
fn is_raw(desk: &Desk) -> bool {
    desk.preparation.is_none() && desk.lending.is_none() && desk.logs.is_empty()
}

/// What to ask the log for, if the sample is there and not in memory.
fn from_log(desk: &Desk, place: Place, task: &Task, into_slab: bool) -> Option<Want<Arrival>> {
    if desk.logs.is_empty() {
        return None;
    }
    let tier = &desk.plant.tier;
    if desk.has_image(task.id) || tier.contains(desk.key(task.id)) || bad::is_known(desk, task) {
        return None;
    }
    logged::want(desk, place, task, into_slab)
}

fn sample(desk: &Desk, task: &Task, target: Target<'_>, watch: &Watch) -> Outcome {
    if bad::is_known(desk, task) {
        return stand_in(desk, task);
    }
    if let Some(slab) = target.slab
        && let Some(row) = slab.row()
    {
        return match fill_row(desk, task, slab, row, watch) {
            Ok(()) => Outcome::Placed,
            Err(cause) => bad(desk, task, cause),
        };
    }
    let straight = target.slab.filter(|_| target.straight);
    let found = match find(desk, task, straight) {
        Ok(found) => found,
        Err(error) => return Outcome::Failed(error),
    };
    let found = match found {
        Found::Fill(fill) if lending::wants_images(desk) => {
            match fill_image(desk, task, fill, watch) {
                Ok(stock) => Found::There(stock),
                Err(cause) => return bad(desk, task, cause),
            }
        }
        Found::There(stock) => Found::There(lending::develop(desk, task, stock)),
        found => found,
    };
    let slab = target.slab.filter(|_| !target.loads_only);
    let done = match (slab, found) {
        (Some(slab), Found::There(stock)) => match lending::lend(stock) {
            Ok(image) => return Outcome::Lent(image),
            Err(stock) => place(desk, slab, task, &stock),
        },
        (None, Found::There(stock)) => return Outcome::Held(stock),
        (Some(slab), Found::Fill(fill)) => match &desk.preparation {
            None => copy_through(desk, task, slab, fill, watch),
            Some(_) => {
                fill_tier(desk, task, fill, watch).and_then(|stock| place(desk, slab, task, &stock))
            }
        },
        (None, Found::Fill(fill)) => match fill_tier(desk, task, fill, watch) {
            Ok(stock) => return Outcome::Held(stock),
            Err(cause) => Err(cause),
        },
        (_, Found::Placed) => Ok(()),
        (_, Found::NoRoom) => match target.slab {
            Some(slab) => past_the_tier(desk, task, slab, watch),
            None => return Outcome::Postponed,
        },
    };
    match done {
        Ok(()) => Outcome::Placed,
        Err(cause) => bad(desk, task, cause),
    }
}

fn place(desk: &Desk, slab: &SlabWriter, task: &Task, stock: &Stock) -> Result<(), Cause> {
    preparation::place(desk, slab, task, stock)?;
    logged::used(desk, task, stock);
    Ok(())
}

/// What the tier has for a task.
enum Found {
    There(Stock),
    /// It was there, and is in the slab.
    Placed,
    /// Nothing: it is this thread's to read.
    Fill(Fill),
    /// Everything in it is held, or the user has the sample.
    NoRoom,
}

/// Looks for a task's sample; `straight`: the slab that it may be copied into at once.
fn find(desk: &Desk, task: &Task, straight: Option<&SlabWriter>) -> Result<Found, Error> {
    if let Some(image) = decoded(desk, task) {
        return Ok(Found::There(image));
    }
    loop {
        let (tier, key) = (&desk.plant.tier, desk.key(task.id));
        let lookup = match straight {
            Some(slab) => in_slot(slab, task, |slot| tier.copy(key, task.next, slot))?,
            None => Some(tier.lookup(key, task.len, task.next)?),
        };
        let Some(lookup) = lookup else {
            count_hit(desk, task);
            return Ok(Found::Placed);
        };
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
        return Ok(Found::There(Stock::Encoded(held)));
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

/// Into the slab, which is where it will stay.
fn fill_row(
    desk: &Desk,
    task: &Task,
    slab: &SlabWriter,
    row: &Row,
    watch: &Watch,
) -> Result<(), Cause> {
    in_slot(slab, task, |slot| {
        let mut seal = Seal::default();
        let dataset = &desk.dataset;
        watch.read(|| dataset.read_local_in_pieces(task.id, slot, |piece| seal.add(piece)))?;
        row.seal(task.slot, seal);
        Ok::<_, forebay_origin::Error>(())
    })?;
    count_read(desk, task);
    Ok(())
}

/// By way of the slab: it is memory that was used before, in one piece, and hot when it is
/// copied on into the tier.
fn copy_through(
    desk: &Desk,
    task: &Task,
    slab: &SlabWriter,
    mut fill: Fill,
    watch: &Watch,
) -> Result<(), Cause> {
    let logged = in_slot(slab, task, |slot| {
        watch.read(|| read_local(&desk.dataset, task.id, &mut [&mut *slot]))?;
        fill.write_at(0, slot);
        Ok::<_, forebay_origin::Error>(logged::offer(desk, task, [&*slot].into_iter()))
    })?;
    count_read(desk, task);
    let held = fill.commit();
    if logged {
        held.set_next(None);
    }
    Ok(())
}

fn fill_tier(desk: &Desk, task: &Task, mut fill: Fill, watch: &Watch) -> Result<Stock, Cause> {
    let begun = Instant::now();
    watch.read(|| read_local(&desk.dataset, task.id, &mut fill.slices_mut()))?;
    took(desk.preparation.as_ref(), begun);
    count_read(desk, task);
    let held = fill.commit();
    if logged::offer_new(desk, task, held.slices()) {
        held.set_next(None);
    }
    Ok(Stock::Encoded(held))
}

fn fill_image(desk: &Desk, task: &Task, fill: Fill, watch: &Watch) -> Result<Stock, Cause> {
    lending::develop_from(desk, task, fill, |bytes| {
        let begun = Instant::now();
        watch.read(|| read_local(&desk.dataset, task.id, &mut [&mut *bytes]))?;
        logged::offer(desk, task, [&*bytes].into_iter());
        if let Some(lending) = &desk.lending {
            lending.form.saw_read(begun.elapsed());
        }
        count_read(desk, task);
        Ok(())
    })
}

fn past_the_tier(desk: &Desk, task: &Task, slab: &SlabWriter, watch: &Watch) -> Result<(), Cause> {
    let read = |bytes: &mut [u8]| {
        let begun = Instant::now();
        watch.read(|| read_local(&desk.dataset, task.id, &mut [&mut *bytes]))?;
        logged::offer(desk, task, [&*bytes].into_iter());
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
