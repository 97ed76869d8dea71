//! Objects of a store: asked for ahead, many at a time; they arrive in the tier.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_cache::log::Want;
use forebay_cache::{Fill, Flight, FlightResult, Lookup};
use forebay_origin::{Group, Sink, View};
use futures_util::FutureExt;

use super::bad::{self, Cause};
use super::{count_hit, count_read, decoded, finish, logged};
use crate::Error;
use crate::aside::AsideBytes;
use crate::crew::Board;
use crate::disk::Arrival;
use crate::job::Desk;
use crate::preparation::{Stock, in_slot, words};
use crate::slab::SlabWriter;
use crate::stats::Counters;
use crate::task::{Outcome, Place, Task};

/// Where a remote sample's bytes go.
enum Target {
    Tier(Fill),
    Slab(SlabWriter, Task),
    /// Beside the tier, once there is room.
    Aside(Option<AsideBytes>),
}

impl Sink for Target {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        match self {
            Target::Tier(fill) => fill.write_at(offset, bytes),
            Target::Slab(slab, task) => {
                let range = offset as usize..offset as usize + bytes.len();
                in_slot(slab, task, |slot| slot[range].copy_from_slice(bytes));
            }
            Target::Aside(aside) => {
                let aside = aside.as_mut().expect("room is made before it is read");
                aside.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

impl Target {
    /// All bytes have come.
    fn done(self, desk: &Desk, task: &Task) -> Outcome {
        match self {
            Target::Tier(fill) => {
                let held = fill.commit();
                if logged::offer_new(desk, task, held.slices()) {
                    held.set_next(None);
                }
                Outcome::Held(Stock::Encoded(held))
            }
            Target::Slab(slab, task) => {
                in_slot(&slab, &task, |slot| {
                    logged::offer(desk, &task, [&*slot].into_iter());
                });
                Outcome::Placed
            }
            Target::Aside(aside) => {
                let aside = aside.expect("room is made before it is read");
                logged::offer_new(desk, task, [&aside.bytes[..]].into_iter());
                Outcome::Held(Stock::Aside(aside))
            }
        }
    }
}

/// Waits for the room that targets beside the tier need.
async fn make_room(desk: &Desk, tasks: &[Task], targets: &mut [Target]) {
    let needs_room = |target: &Target| matches!(target, Target::Aside(None));
    let needed = tasks.iter().zip(targets.iter());
    let bytes: u64 = needed
        .filter_map(|(task, target)| needs_room(target).then_some(task.len))
        .sum();
    if !targets.iter().any(needs_room) {
        return;
    }
    let room = desk.plant.aside.enter(bytes).await;
    for (task, target) in tasks.iter().zip(targets) {
        if needs_room(target) {
            *target = Target::Aside(Some(AsideBytes::new(&room, task.len)));
        }
    }
}

/// What the tier has for a task.
enum Found {
    Done(Outcome),
    Read(Target),
    Joined(Flight),
    Logged(Want<Arrival>),
}

fn find(desk: &Desk, place: Place, task: &Task, slab: Option<&SlabWriter>) -> Found {
    if let Some(image) = decoded(desk, task) {
        return Found::Done(Outcome::Held(image));
    }
    let tier = &desk.plant.tier;
    if !desk.logs.is_empty() {
        if let Some(held) = tier.find(desk.key(task.id), task.next) {
            count_hit(desk, task);
            return Found::Done(Outcome::Held(Stock::Encoded(held)));
        }
        if let Some(want) = logged::want(desk, place, task, slab.is_some()) {
            return Found::Logged(want);
        }
    }
    match tier.lookup(desk.key(task.id), task.len, task.next) {
        Err(error) => Found::Done(Outcome::Failed(error.into())),
        Ok(Lookup::Hit(held)) => {
            count_hit(desk, task);
            Found::Done(Outcome::Held(Stock::Encoded(held)))
        }
        // Its image may have come, and its bytes gone, in between.
        Ok(Lookup::Fill(fill)) => match decoded(desk, task) {
            Some(image) => Found::Done(Outcome::Held(image)),
            None => Found::Read(Target::Tier(fill)),
        },
        Ok(Lookup::Busy(flight)) => Found::Joined(flight),
        // An open batch goes past the tier: who holds that may wait for this batch.
        Ok(Lookup::Full) => match slab {
            Some(_) if desk.preparation.is_some() => Found::Read(Target::Aside(None)),
            Some(slab) => Found::Read(Target::Slab(slab.clone(), *task)),
            None => Found::Done(Outcome::Postponed),
        },
    }
}

/// Asks for remote samples ahead until the budget is used.
pub(crate) fn pump(desk: &Arc<Desk>) {
    // Called from threads of all kinds, and what it has taken from the window nobody else knows of.
    desk.plant.board.guard(|| ask(desk));
}

fn ask(desk: &Arc<Desk>) {
    let mut wants = Vec::new();
    loop {
        let Some(fetch) = desk.window().take_fetch() else {
            break;
        };
        let (place, into_slab) = (fetch.place, fetch.slab.is_some());
        let mut at_once = Vec::new();
        let mut reads = Vec::new();
        for task in fetch.tasks {
            if bad::is_known(desk, &task) {
                spawn(desk, stand_in_later(desk.clone(), place, task, into_slab));
                continue;
            }
            match find(desk, place, &task, fetch.slab.as_ref()) {
                Found::Done(outcome) => at_once.push((task, outcome)),
                Found::Read(target) => reads.push((task, target)),
                Found::Logged(want) => wants.push(want),
                Found::Joined(flight) => {
                    spawn(desk, join(desk.clone(), place, task, flight, into_slab));
                }
            }
        }
        let is_postponed = |(_, outcome): &(Task, Outcome)| matches!(outcome, Outcome::Postponed);
        let postponed = at_once.iter().any(is_postponed);
        finish(desk, place, into_slab, at_once);
        spawn_reads(desk, place, into_slab, reads);
        if postponed {
            break; // the tier is full of what is held: more would only be postponed too
        }
    }
    logged::ask(desk, wants);
}

/// Starts a network task that a batch will wait for.
fn spawn(desk: &Desk, task: impl Future<Output = ()> + Send + 'static) {
    let board = desk.plant.board.clone();
    desk.plant.runtime().spawn(guarded(board, task));
}

/// A panic is a bug: it ends the engine, or the batch would wait for ever.
pub(crate) async fn guarded(board: Arc<Board>, task: impl Future<Output = ()>) {
    if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
        board.broke(&*panic);
    }
}

fn spawn_reads(desk: &Arc<Desk>, place: Place, into_slab: bool, reads: Vec<(Task, Target)>) {
    if reads.is_empty() {
        return;
    }
    let ids: Vec<_> = reads.iter().map(|(task, _)| task.id).collect();
    let mut reads: Vec<_> = reads.into_iter().map(Some).collect();
    for group in desk.dataset.groups(&ids) {
        let (tasks, mut targets): (Vec<_>, Vec<_>) = group
            .members()
            .map(|at| reads[at].take().expect("each sample is in one group"))
            .unzip();
        let desk = desk.clone();
        spawn(&desk.clone(), async move {
            make_room(&desk, &tasks, &mut targets).await;
            let _ticket = desk.lane.enter().await;
            let begun = Instant::now();
            let reading = read_group(&desk, &group, tasks.clone(), targets);
            // A panic is a bug, but one of these samples alone.
            let outcomes = AssertUnwindSafe(reading)
                .catch_unwind()
                .await
                .unwrap_or_else(|panic| broken(tasks, &*panic));
            let reading = begun.elapsed().as_nanos() as u64;
            Counters::add(&desk.counters.reading, reading);
            finish(&desk, place, into_slab, outcomes);
            settle(&desk);
        });
    }
}

async fn read_group(
    desk: &Arc<Desk>,
    group: &Group,
    tasks: Vec<Task>,
    mut targets: Vec<Target>,
) -> Vec<(Task, Outcome)> {
    match desk.dataset.read_group(group, &mut targets).await {
        Ok(()) => {
            tasks.iter().for_each(|task| count_read(desk, task));
            let done = |(task, target): (Task, Target)| {
                let outcome = target.done(desk, &task);
                (task, outcome)
            };
            tasks.into_iter().zip(targets).map(done).collect()
        }
        // One bad member must not take the others with it: each on its own.
        Err(error) if tasks.len() > 1 && error.blames_the_sample() => {
            one_by_one(desk, tasks, targets).await
        }
        Err(error) => {
            drop(targets);
            group_failed(desk, tasks, error).await
        }
    }
}

fn broken(tasks: Vec<Task>, panic: &(dyn Any + Send)) -> Vec<(Task, Outcome)> {
    let failed = |task| {
        let source = std::io::Error::other(words(panic).to_owned());
        let what = "a network task broke";
        (task, Outcome::Failed(Error::System { what, source }))
    };
    tasks.into_iter().map(failed).collect()
}

/// The road failed for all of a group: its first slot tells why, which is the one that
/// speaks for the batch.
async fn group_failed(
    desk: &Desk,
    mut tasks: Vec<Task>,
    error: forebay_origin::Error,
) -> Vec<(Task, Outcome)> {
    tasks.sort_by_key(|task| task.slot);
    let mut outcomes = vec![(tasks[0], bad(desk, &tasks[0], error.into()).await)];
    outcomes.extend(
        tasks[1..]
            .iter()
            .map(|task| (*task, Outcome::Failed(Error::Closed))),
    );
    outcomes
}

/// After something arrived: more may be asked for, and there may be placing to do.
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
                target.done(desk, &task)
            }
            Err(error) => {
                drop(target);
                bad(desk, &task, error.into()).await
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
            Outcome::Held(Stock::Encoded(held))
        }
        // The other one failed: this one tries for itself, and finds out why.
        _ => Outcome::Postponed,
    };
    finish(&desk, place, into_slab, [(task, outcome)]);
    settle(&desk);
}

/// A sample that is of no use, found by a network task.
async fn bad(desk: &Desk, task: &Task, cause: Cause) -> Outcome {
    match bad::quarantine(desk, task, cause) {
        Ok(()) => stand_in(desk, task).await,
        Err(error) => Outcome::Failed(error),
    }
}

/// The same, found by a thread of the crew; it waits for the stand-in, which is rare.
pub(super) fn bad_in_crew(desk: &Desk, task: &Task, cause: Cause) -> Outcome {
    desk.plant.runtime().block_on(bad(desk, task, cause))
}

async fn stand_in_later(desk: Arc<Desk>, place: Place, task: Task, into_slab: bool) {
    let outcome = stand_in(&desk, &task).await;
    finish(&desk, place, into_slab, [(task, outcome)]);
    settle(&desk);
}

async fn stand_in(desk: &Desk, task: &Task) -> Outcome {
    for (id, length, label) in bad::candidates(desk, task) {
        let read = read(&desk.dataset, id, length).await;
        if let Some(outcome) = bad::try_candidate(desk, task, (id, label), read) {
            return outcome;
        }
    }
    bad::no_stand_in(task)
}

struct Buffer(Vec<u8>);

impl Sink for Buffer {
    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// One sample's bytes, past the tier.
pub(super) async fn read(
    dataset: &View,
    id: u32,
    length: u64,
) -> Result<Vec<u8>, forebay_origin::Error> {
    let mut buffer = [Buffer(vec![0; length as usize])];
    let group = dataset.groups(&[id]).remove(0);
    dataset.read_group(&group, &mut buffer).await?;
    let [Buffer(bytes)] = buffer;
    Ok(bytes)
}
