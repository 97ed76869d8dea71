//! Bringing samples in: from the tier, else from the origin, into a slab.
//!
//! Local files are read by the crew's own threads and copied on at once, while they
//! are hot in the core's cache. Remote objects are asked for ahead by [`pump`], many
//! at a time, and arrive in the tier by network tasks; the crew copies them later.

use std::io::IoSliceMut;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::{Fill, Flight, FlightResult, Held, Lookup};
use forebay_origin::{Dataset, Sink};

use crate::Error;
use crate::batch::StandIn;
use crate::engine::Plant;
use crate::job::{Desk, OnError, key};
use crate::quarantine::{CANDIDATES, candidate};
use crate::slab::SlabWriter;
use crate::stats::Counters;
use crate::window::{Copy, Fetch, Outcome, Place, Task};

/// How long a thread waits for another's read before it looks whether all is over.
const PATIENCE: Duration = Duration::from_millis(100);

/// Copies samples of the tier into their slab.
pub(crate) fn copy(desk: &Desk, copy: Copy) {
    for (task, held) in &copy.samples {
        place(&copy.slab, task, held);
    }
    let count = copy.samples.len();
    drop(copy.samples); // lets the tier have its room back before the user is told
    if desk.window().copied(copy.place, count) {
        desk.tell_user();
    }
    // What was copied no longer counts as fetched ahead: more can be asked for.
    if !desk.dataset.is_local()
        && let Some(desk) = desk.me.upgrade()
    {
        pump(&desk);
    }
}

/// Lets `write` have the bytes of a task's slot.
#[allow(unsafe_code)]
fn in_slot<T>(slab: &SlabWriter, task: &Task, write: impl FnOnce(&mut [u8]) -> T) -> T {
    // SAFETY: slots are disjoint by layout, and the window gives each slot to one
    // task at a time.
    write(unsafe { slab.part(task.offset, task.len as usize) })
}

fn place(slab: &SlabWriter, task: &Task, held: &Held) {
    in_slot(slab, task, |bytes| held.copy_to(bytes));
}

/// Fetches a run of local samples on this thread.
pub(crate) fn local(desk: &Desk, fetch: Fetch) {
    let outcomes: Vec<_> = fetch
        .tasks
        .iter()
        .map(|task| (*task, local_sample(desk, task, fetch.slab.as_ref())))
        .collect();
    finish(desk, fetch.place, fetch.slab.is_some(), outcomes);
}

fn finish(
    desk: &Desk,
    place: Place,
    into_slab: bool,
    outcomes: impl IntoIterator<Item = (Task, Outcome)>,
) {
    let mut window = desk.window();
    let mut complete = false;
    for (task, outcome) in outcomes {
        complete |= window.finish(place, task, into_slab, outcome);
    }
    drop(window);
    if complete {
        desk.tell_user();
    }
}

fn local_sample(desk: &Desk, task: &Task, slab: Option<&SlabWriter>) -> Outcome {
    if desk.on_error == OnError::Replace && desk.quarantine.holds(task.id) {
        return local_stand_in(desk, task);
    }
    loop {
        let held = match desk
            .plant
            .tier
            .lookup(desk.key(task.id), task.len, task.next)
        {
            Err(error) => return Outcome::Failed(error.into()),
            Ok(Lookup::Hit(held)) => {
                count_hit(desk, task);
                held
            }
            Ok(Lookup::Fill(mut fill)) => {
                // By way of the slab if there is one: it is memory that was used before,
                // in one piece, and hot when it is copied on into the tier.
                let read = match slab {
                    Some(slab) => in_slot(slab, task, |slot| {
                        read_local(&desk.dataset, task.id, &mut [&mut *slot])?;
                        fill.write_at(0, slot);
                        Ok(())
                    }),
                    None => read_local(&desk.dataset, task.id, &mut fill.slices_mut()),
                };
                match read {
                    Ok(()) if slab.is_some() => {
                        count_read(desk, task);
                        drop(fill.commit());
                        return Outcome::Copied;
                    }
                    Ok(()) => {
                        count_read(desk, task);
                        fill.commit()
                    }
                    Err(error) => return local_bad(desk, task, error),
                }
            }
            Ok(Lookup::Busy(flight)) => match wait(desk, &flight) {
                Some(held) => {
                    count_hit(desk, task);
                    held
                }
                None if desk.plant.board.is_closing() => return Outcome::Failed(Error::Closed),
                None => continue,
            },
            Ok(Lookup::Full) => {
                // Everything in the tier is held: past it, straight into the slab.
                let Some(slab) = slab else {
                    return Outcome::Postponed;
                };
                let read = |bytes: &mut [u8]| read_local(&desk.dataset, task.id, &mut [bytes]);
                return match in_slot(slab, task, read) {
                    Ok(()) => {
                        count_read(desk, task);
                        Outcome::Copied
                    }
                    Err(error) => local_bad(desk, task, error),
                };
            }
        };
        return match slab {
            Some(slab) => {
                place(slab, task, &held);
                Outcome::Copied
            }
            None => Outcome::Held(held),
        };
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

fn read_local(
    dataset: &Dataset,
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

fn count_hit(desk: &Desk, task: &Task) {
    Counters::add(&desk.counters.hits, 1);
    Counters::add(&desk.counters.hit_bytes, task.len);
}

fn count_read(desk: &Desk, task: &Task) {
    Counters::add(&desk.counters.reads, 1);
    Counters::add(&desk.counters.read_bytes, task.len);
}

/// Takes a bad sample into quarantine, or makes its error the batch's.
fn quarantine(desk: &Desk, task: &Task, error: forebay_origin::Error) -> Result<(), Error> {
    let name = desk.dataset.name(task.id);
    if desk.on_error == OnError::Raise || !error.blames_the_sample() {
        return Err(Error::Sample {
            sample: task.id,
            name,
            source: error,
        });
    }
    desk.quarantine.admit(task.id, name, describe(&error))
}

/// An error and its causes in one line.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn local_bad(desk: &Desk, task: &Task, error: forebay_origin::Error) -> Outcome {
    match quarantine(desk, task, error) {
        Ok(()) => local_stand_in(desk, task),
        Err(error) => Outcome::Failed(error),
    }
}

fn local_stand_in(desk: &Desk, task: &Task) -> Outcome {
    stand_in(desk, task, |id, bytes| {
        read_local(&desk.dataset, id, &mut [bytes])
    })
}

/// The first candidate that `read` can fill a buffer with.
fn stand_in(
    desk: &Desk,
    task: &Task,
    mut read: impl FnMut(u32, &mut [u8]) -> Result<(), forebay_origin::Error>,
) -> Outcome {
    let index = desk.dataset.index();
    for attempt in 0..CANDIDATES {
        let Some(id) = candidate(task.id, attempt, index.len()) else {
            break;
        };
        let (Ok(length), Ok(label)) = (index.length(id), index.label(id)) else {
            continue;
        };
        let mut bytes = vec![0; length as usize];
        match read(id, &mut bytes) {
            Ok(()) => {
                return Outcome::StandIn(StandIn {
                    slot: task.slot,
                    id,
                    label,
                    bytes,
                });
            }
            Err(error) if error.blames_the_sample() => {}
            Err(source) => {
                return Outcome::Failed(Error::Sample {
                    sample: id,
                    name: desk.dataset.name(id),
                    source,
                });
            }
        }
    }
    Outcome::Failed(Error::NoStandIn {
        sample: task.id,
        tried: CANDIDATES,
    })
}

/// Where a remote sample's bytes go.
enum Target {
    Tier(Fill),
    Slab(SlabWriter, Task),
}

impl Sink for Target {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        match self {
            Target::Tier(fill) => fill.write_at(offset, bytes),
            Target::Slab(slab, task) => {
                let range = offset as usize..offset as usize + bytes.len();
                in_slot(slab, task, |slot| slot[range].copy_from_slice(bytes));
            }
        }
    }
}

impl Target {
    fn done(self) -> Outcome {
        match self {
            Target::Tier(fill) => Outcome::Held(fill.commit()),
            Target::Slab(..) => Outcome::Copied,
        }
    }
}

/// Asks for remote samples ahead until the budget is used.
pub(crate) fn pump(desk: &Arc<Desk>) {
    loop {
        let Some(fetch) = desk.window().take_fetch() else {
            return;
        };
        let into_slab = fetch.slab.is_some();
        let mut at_once = Vec::new();
        let mut reads = Vec::new();
        for task in fetch.tasks {
            if desk.on_error == OnError::Replace && desk.quarantine.holds(task.id) {
                desk.plant.runtime().spawn(remote_stand_in(
                    desk.clone(),
                    fetch.place,
                    task,
                    into_slab,
                ));
                continue;
            }
            match desk
                .plant
                .tier
                .lookup(desk.key(task.id), task.len, task.next)
            {
                Err(error) => at_once.push((task, Outcome::Failed(error.into()))),
                Ok(Lookup::Hit(held)) => {
                    count_hit(desk, &task);
                    at_once.push((task, Outcome::Held(held)));
                }
                Ok(Lookup::Fill(fill)) => reads.push((task, Target::Tier(fill))),
                Ok(Lookup::Busy(flight)) => {
                    desk.plant.runtime().spawn(join(
                        desk.clone(),
                        fetch.place,
                        task,
                        flight,
                        into_slab,
                    ));
                }
                Ok(Lookup::Full) => match &fetch.slab {
                    Some(slab) => reads.push((task, Target::Slab(slab.clone(), task))),
                    None => at_once.push((task, Outcome::Postponed)),
                },
            }
        }
        let postponed = at_once
            .iter()
            .any(|(_, outcome)| matches!(outcome, Outcome::Postponed));
        let held = at_once
            .iter()
            .any(|(_, outcome)| matches!(outcome, Outcome::Held(_)));
        finish(desk, fetch.place, into_slab, at_once);
        if held {
            desk.plant.board.wake(); // there is copying to do
        }
        spawn_reads(desk, fetch.place, into_slab, reads);
        if postponed {
            return; // the tier is full of what is held: more would only be postponed too
        }
    }
}

fn spawn_reads(desk: &Arc<Desk>, place: Place, into_slab: bool, reads: Vec<(Task, Target)>) {
    if reads.is_empty() {
        return;
    }
    let ids: Vec<_> = reads.iter().map(|(task, _)| task.id).collect();
    let mut reads: Vec<_> = reads.into_iter().map(Some).collect();
    for group in desk.dataset.groups(&ids) {
        let (tasks, targets): (Vec<_>, Vec<_>) = group
            .members()
            .map(|at| reads[at].take().expect("each sample is in one group"))
            .unzip();
        let desk = desk.clone();
        desk.plant.runtime().clone().spawn(async move {
            let mut targets = targets;
            let outcomes = match desk.dataset.read_group(&group, &mut targets).await {
                Ok(()) => {
                    tasks.iter().for_each(|task| count_read(&desk, task));
                    tasks
                        .into_iter()
                        .zip(targets.into_iter().map(Target::done))
                        .collect()
                }
                // One bad member must not take the others with it: each on its own.
                Err(error) if tasks.len() > 1 && error.blames_the_sample() => {
                    one_by_one(&desk, tasks, targets).await
                }
                Err(error) => {
                    drop(targets);
                    group_failed(&desk, tasks, error).await
                }
            };
            finish(&desk, place, into_slab, outcomes);
            settle(&desk);
        });
    }
}

/// The road failed for all of a group: its first slot tells why, which is the one that
/// speaks for the batch.
async fn group_failed(
    desk: &Desk,
    mut tasks: Vec<Task>,
    error: forebay_origin::Error,
) -> Vec<(Task, Outcome)> {
    tasks.sort_by_key(|task| task.slot);
    let mut outcomes = vec![(tasks[0], remote_bad(desk, &tasks[0], error).await)];
    outcomes.extend(
        tasks[1..]
            .iter()
            .map(|task| (*task, Outcome::Failed(Error::Closed))),
    );
    outcomes
}

/// After something arrived: more may be asked for, and there may be copying to do.
fn settle(desk: &Arc<Desk>) {
    desk.plant.board.wake();
    pump(desk);
}

async fn one_by_one(
    desk: &Arc<Desk>,
    tasks: Vec<Task>,
    targets: Vec<Target>,
) -> Vec<(Task, Outcome)> {
    let mut outcomes = Vec::with_capacity(tasks.len());
    for (task, target) in tasks.into_iter().zip(targets) {
        let mut target = [target];
        let group = desk.dataset.groups(&[task.id]).remove(0);
        let outcome = match desk.dataset.read_group(&group, &mut target).await {
            Ok(()) => {
                count_read(desk, &task);
                let [target] = target;
                target.done()
            }
            Err(error) => {
                drop(target);
                remote_bad(desk, &task, error).await
            }
        };
        outcomes.push((task, outcome));
    }
    outcomes
}

/// Waits for another task's read of the same sample.
async fn join(desk: Arc<Desk>, place: Place, task: Task, flight: Flight, into_slab: bool) {
    let (tell, told) = tokio::sync::oneshot::channel();
    flight.on_done(move || {
        let _ = tell.send(());
    });
    let _ = told.await;
    let outcome = match flight.wait(Duration::ZERO) {
        FlightResult::Ready(held) => {
            count_hit(&desk, &task);
            Outcome::Held(held)
        }
        // The other one failed: this one tries for itself, and finds out why.
        _ => Outcome::Postponed,
    };
    finish(&desk, place, into_slab, [(task, outcome)]);
    settle(&desk);
}

async fn remote_bad(desk: &Desk, task: &Task, error: forebay_origin::Error) -> Outcome {
    match quarantine(desk, task, error) {
        Ok(()) => remote_candidate(desk, task).await,
        Err(error) => Outcome::Failed(error),
    }
}

async fn remote_stand_in(desk: Arc<Desk>, place: Place, task: Task, into_slab: bool) {
    let outcome = remote_candidate(&desk, &task).await;
    finish(&desk, place, into_slab, [(task, outcome)]);
    settle(&desk);
}

async fn remote_candidate(desk: &Desk, task: &Task) -> Outcome {
    let index = desk.dataset.index();
    for attempt in 0..CANDIDATES {
        let Some(id) = candidate(task.id, attempt, index.len()) else {
            break;
        };
        let (Ok(length), Ok(label)) = (index.length(id), index.label(id)) else {
            continue;
        };
        match read_remote(&desk.dataset, id, length).await {
            Ok(bytes) => {
                return Outcome::StandIn(StandIn {
                    slot: task.slot,
                    id,
                    label,
                    bytes,
                });
            }
            Err(error) if error.blames_the_sample() => {}
            Err(source) => {
                return Outcome::Failed(Error::Sample {
                    sample: id,
                    name: desk.dataset.name(id),
                    source,
                });
            }
        }
    }
    Outcome::Failed(Error::NoStandIn {
        sample: task.id,
        tried: CANDIDATES,
    })
}

struct Buffer(Vec<u8>);

impl Sink for Buffer {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

async fn read_remote(
    dataset: &Dataset,
    id: u32,
    length: u64,
) -> Result<Vec<u8>, forebay_origin::Error> {
    let mut buffer = [Buffer(vec![0; length as usize])];
    let group = dataset.groups(&[id]).remove(0);
    dataset.read_group(&group, &mut buffer).await?;
    let [Buffer(bytes)] = buffer;
    Ok(bytes)
}

/// One sample outside of any job, through the tier.
pub(crate) fn read_one(plant: &Plant, dataset: &Dataset, id: u32) -> Result<Vec<u8>, Error> {
    let samples = dataset.index().len();
    if id >= samples {
        return Err(Error::OutOfRange {
            sample: id,
            samples,
        });
    }
    let length = dataset.index().length(id)?;
    let failed = |source| Error::Sample {
        sample: id,
        name: dataset.name(id),
        source,
    };
    let read = |bytes: &mut [u8]| {
        if dataset.is_local() {
            read_local(dataset, id, &mut [bytes]).map_err(failed)
        } else {
            let read = plant
                .runtime()
                .block_on(read_remote(dataset, id, length))
                .map_err(failed)?;
            bytes.copy_from_slice(&read);
            Ok(())
        }
    };
    let mut bytes = vec![0; length as usize];
    match plant.tier.lookup(key(dataset, id), length, None) {
        Ok(Lookup::Hit(held)) => held.copy_to(&mut bytes),
        Ok(Lookup::Fill(mut fill)) => {
            read(&mut bytes)?;
            fill.write_at(0, &bytes);
            drop(fill.commit());
        }
        // Full, too large, or another thread is at it: just read.
        Ok(Lookup::Busy(_) | Lookup::Full) | Err(_) => read(&mut bytes)?,
    }
    Ok(bytes)
}
