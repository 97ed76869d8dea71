//! Bringing samples in, in the order in which the engine does.
//!
//! With requests (a store), all that the window allows is looked up at once and what is missing is
//! asked for, as many at a time as there may be in flight; the threads place what has come. With
//! threads alone (local files), each takes a run, reads what is missing one by one, and places it
//! if the batch is open. What the log has is asked for in either case, many at a time.

use forebay_policy::Next;

use crate::curve::Load;
use crate::events::Event;
use crate::figures::Figures;
use crate::memory::Found;
use crate::parcel::{Kind, PAST, Source, Which};
use crate::window::{IN_LOG_BUFFER, Run};
use crate::world::{World, common};

/// A sample to fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    index: u32,
    sample: u32,
    len: u32,
    next: Next,
    /// The log has it.
    logged: bool,
}

impl World<'_> {
    /// A rank's threads and requests are set to what is to be done now.
    pub(crate) fn stir(&mut self, at: usize) {
        let remote = self.loading(at).requests.is_some();
        if remote {
            self.pump(at);
        }
        while self.ranks[at].idle > 0 {
            if self.place(at) {
                if remote {
                    self.pump(at); // what is being placed no longer counts as fetched ahead
                }
                continue;
            }
            if remote || !self.read_run(at) {
                break;
            }
        }
        if remote || self.scenario.log.is_some() {
            self.start_reads(at);
        }
    }

    fn loading(&self, at: usize) -> &crate::scenario::Loading {
        &self.scenario.jobs[self.ranks[at].job].loading
    }

    pub(crate) fn figures(&mut self, at: usize, leg: u32) -> &mut Figures {
        let rank = &self.ranks[at];
        &mut self.report.jobs[rank.job].epochs[leg as usize].ranks[rank.rank as usize]
    }

    /// The next run of a rank, its samples in `todo`, with the epoch that it belongs to.
    fn take_fetch(&mut self, at: usize) -> Option<(Run, u32)> {
        let rank = &mut self.ranks[at];
        let (number, node, slot) = (rank.job, rank.node, rank.slot);
        let (job, settings) = (&self.jobs[number], &self.scenario.jobs[number]);
        let first = self.tiers.sample(settings.dataset, 0);
        let tiers = &self.tiers;
        let mut lay = |batch: &mut crate::window::Building| {
            let mut touched = 0;
            for (id, len) in &mut batch.ids {
                let (length, near) = tiers.expect(first + *id);
                *len = length;
                touched ^= near;
            }
            std::hint::black_box(touched);
        };
        self.indices.clear();
        let window = &mut rank.window;
        let run = window.take_fetch(&job.epochs, job.current, &mut lay, &mut self.indices)?;
        let batch = window.batch(run.batch);
        let (leg, position) = (batch.leg, batch.position);
        let together = self.jobs.len() > 1;
        let logs = !self.disks.is_empty();
        let seat = &job.seats[node];
        self.todo.clear();
        for &index in &self.indices {
            let (id, len) = batch.ids[index as usize];
            let place = position + u64::from(index);
            let mut next = None;
            if settings.loading.foresight {
                next = seat
                    .after(leg, place, slot)
                    .map(|tick| common(tick, job.pace));
            }
            if together {
                let others = self.jobs.iter().enumerate().filter(|&(other, _)| {
                    other != number && self.scenario.jobs[other].dataset == settings.dataset
                });
                for (_, other) in others {
                    let tick = other.seats[node].next(id);
                    let tick = tick.map(|tick| common(tick, other.pace));
                    next = next.into_iter().chain(tick).min();
                }
            }
            let sample = first + id;
            let logged = logs && {
                let before = place * seat.ranks.len() as u64 * job.mean;
                self.disks[node].has(sample, leg, before)
            };
            self.todo.push(Task {
                index,
                sample,
                len,
                next,
                logged,
            });
        }
        if together {
            self.note_reached(number, node);
        }
        Some((run, leg))
    }

    /// Up to where all ranks of a job on a node have asked.
    fn note_reached(&mut self, number: usize, node: usize) {
        let job = &self.jobs[number];
        let ranks = &self.ranks[job.ranks.clone()];
        let here = ranks.iter().filter(|rank| rank.node == node);
        let reached = here.filter_map(|rank| rank.window.reached());
        let ticks = reached.map(|(leg, position)| match leg == job.current {
            true => position,
            false => u64::MAX,
        });
        let reached = ticks.min().unwrap_or(u64::MAX);
        self.jobs[number].seats[node].reached = reached;
    }

    /// Asks for samples ahead until the budget is used.
    fn pump(&mut self, at: usize) {
        let (node, prepares) = (self.ranks[at].node, self.loading(at).prepare > 0.0);
        while let Some((run, leg)) = self.take_fetch(at) {
            let todo = std::mem::take(&mut self.todo);
            let mut figures = Figures::default();
            let mut reads = [None; 3];
            let mut postponed = false;
            for task in &todo {
                let len = u64::from(task.len);
                figures.samples += 1;
                figures.bytes += len;
                if task.logged {
                    if let Some(slot) = self.tiers.find(node, task.sample, task.next) {
                        figures.hits += 1;
                        figures.hit_bytes += len;
                        self.ranks[at].window.hold(run.batch, task.index, slot);
                    } else {
                        figures.log_reads += 1;
                        figures.log_bytes += len;
                        self.add_read(at, run, &mut reads, Which::Log, task, IN_LOG_BUFFER);
                    }
                    continue;
                }
                let slot = match self.tiers.lookup(node, task.sample, len, task.next) {
                    Found::Hit(slot) => {
                        figures.hits += 1;
                        figures.hit_bytes += len;
                        self.ranks[at].window.hold(run.batch, task.index, slot);
                        continue;
                    }
                    Found::Filling(slot) => {
                        figures.hits += 1;
                        figures.hit_bytes += len;
                        self.wait(at, slot, run.batch, task.index);
                        continue;
                    }
                    Found::New(slot) => slot,
                    Found::Full if run.open && (!prepares || self.squeezed) => PAST,
                    Found::Full => {
                        figures.samples -= 1; // it is fetched later
                        figures.bytes -= len;
                        self.ranks[at]
                            .window
                            .postpone(run.batch, task.index, run.open);
                        postponed = true;
                        continue;
                    }
                };
                let which = self.whose(node, task.sample, len, &mut figures);
                self.add_read(at, run, &mut reads, which, task, slot);
            }
            self.report.events += figures.samples;
            *self.figures(at, leg) += figures;
            self.todo = todo;
            self.queue_reads(at, reads);
            if postponed {
                // Memory is full of what is held: more would only be postponed too.
                self.starved[node].push(at);
                break;
            }
        }
    }

    /// Who is asked for a sample that this node has not.
    fn whose(&self, node: usize, sample: u32, len: u64, figures: &mut Figures) -> Which {
        if self.scenario.peers && self.tiers.is_elsewhere(node, sample) {
            figures.peer_reads += 1;
            figures.peer_bytes += len;
            Which::Peer
        } else {
            figures.reads += 1;
            figures.read_bytes += len;
            Which::Origin
        }
    }

    fn add_read(
        &mut self,
        at: usize,
        run: Run,
        reads: &mut [Option<u32>; 3],
        which: Which,
        task: &Task,
        slot: u32,
    ) {
        let parcels = &mut self.parcels;
        let number = *reads[which as usize]
            .get_or_insert_with(|| parcels.add(at, run.batch, Kind::Read(which), run.open));
        let parcel = parcels.get(number);
        parcel.tasks.push((task.index, slot));
        parcel.bytes += u64::from(task.len);
    }

    fn queue_reads(&mut self, at: usize, reads: [Option<u32>; 3]) {
        for number in reads.into_iter().flatten() {
            let Kind::Read(which) = self.parcels.get(number).kind else {
                continue;
            };
            self.ranks[at].queued[which.source() as usize].push_back(number);
        }
    }

    /// Starts the reads for which there is a free request.
    fn start_reads(&mut self, at: usize) {
        for which in [Which::Log, Which::Peer, Which::Origin] {
            let source = which.source();
            while self.ranks[at].free[source as usize] > 0
                && let Some(number) = self.ranks[at].queued[source as usize].pop_front()
            {
                self.start_read(at, number, source);
            }
        }
    }

    fn start_read(&mut self, at: usize, number: u32, source: Source) {
        let together = match (&self.scenario.log, source) {
            (Some(log), Source::Log) => log.together.max(1),
            _ => 1,
        };
        let parcel = self.parcels.get(number);
        let requests = (parcel.tasks.len() as u32).div_ceil(together);
        let (batch, bytes) = (parcel.batch, parcel.bytes);
        if source == Source::Log {
            let leg = self.ranks[at].window.batch(batch).leg;
            self.figures(at, leg).log_requests += u64::from(requests);
        }
        let width = requests.min(self.ranks[at].free[source as usize]);
        self.ranks[at].free[source as usize] -= width;
        let load = Load {
            requests,
            bytes,
            width,
        };
        let seconds = self.load(at, number, source, load);
        self.events.at(self.now + seconds, Event::Parcel(number));
    }

    /// Puts a load on a source, for as long as the parcel lives; gives the seconds it takes.
    fn load(&mut self, at: usize, number: u32, source: Source, load: Load) -> f64 {
        let node = self.ranks[at].node;
        self.parcels.get(number).width[source as usize] = load.width;
        self.in_flight[source as usize][node] += load.width;
        self.total[source as usize] += load.width;
        let costs = &self.scenario.costs;
        let access = match source {
            Source::Memory => &costs.memory,
            Source::Log => &costs.log,
            Source::Peer => &costs.peer,
            Source::Origin => &costs.origin,
        };
        let busy = self.in_flight[source as usize][node];
        access.seconds(load, (busy, self.total[source as usize]))
    }

    /// A thread takes samples in memory to their place; false if there are none.
    fn place(&mut self, at: usize) -> bool {
        let number = self.parcels.add(at, 0, Kind::Placing, true);
        let parcel = self.parcels.get(number);
        let window = &mut self.ranks[at].window;
        let Some(batch) = window.take_placing(&mut parcel.tasks) else {
            let parcel = self.parcels.take(number);
            self.parcels.give(number, parcel);
            return false;
        };
        parcel.batch = batch;
        let ids = &window.batch(batch).ids;
        let bytes = parcel
            .tasks
            .iter()
            .map(|&(task, _)| u64::from(ids[task as usize].1));
        let (bytes, samples) = (bytes.sum(), parcel.tasks.len() as u32);
        self.ranks[at].idle -= 1;
        let copy = self.load(at, number, Source::Memory, copying(samples, bytes));
        let seconds = copy + f64::from(samples) * self.loading(at).prepare;
        self.events.at(self.now + seconds, Event::Parcel(number));
        true
    }

    /// A thread reads a run of local samples; false if there is none.
    fn read_run(&mut self, at: usize) -> bool {
        let Some((run, leg)) = self.take_fetch(at) else {
            return false;
        };
        let node = self.ranks[at].node;
        let number = self.parcels.add(at, run.batch, Kind::Local, run.open);
        let todo = std::mem::take(&mut self.todo);
        let by_threads = self.scenario.log.as_ref().is_some_and(|log| log.by_threads);
        let mut figures = Figures::default();
        let mut reads = [None; 3];
        for task in &todo {
            let len = u64::from(task.len);
            figures.samples += 1;
            figures.bytes += len;
            if task.logged && !by_threads && !self.tiers.contains(node, task.sample) {
                figures.log_reads += 1;
                figures.log_bytes += len;
                self.add_read(at, run, &mut reads, Which::Log, task, IN_LOG_BUFFER);
                continue;
            }
            let slot = match self.tiers.lookup(node, task.sample, len, task.next) {
                // A thread waits for what another one reads; both have it at about one time.
                Found::Hit(slot) | Found::Filling(slot) => {
                    figures.hits += 1;
                    figures.hit_bytes += len;
                    slot
                }
                Found::New(slot) => {
                    self.tiers.commit(node, slot);
                    if task.logged {
                        figures.log_reads += 1;
                        figures.log_bytes += len;
                        slot
                    } else {
                        self.whose(node, task.sample, len, &mut figures);
                        if self.offer(node, task.sample, task.len) {
                            self.tiers.set_next(node, slot, None);
                        }
                        slot
                    }
                }
                Found::Full if run.open => {
                    self.whose(node, task.sample, len, &mut figures);
                    self.offer(node, task.sample, task.len);
                    PAST
                }
                Found::Full => {
                    figures.samples -= 1;
                    figures.bytes -= len;
                    self.ranks[at]
                        .window
                        .postpone(run.batch, task.index, run.open);
                    continue;
                }
            };
            if run.open && slot != PAST {
                self.tiers.let_go(node, slot);
            }
            let slot = if run.open { PAST } else { slot };
            self.parcels.get(number).tasks.push((task.index, slot));
        }
        self.report.events += figures.samples;
        *self.figures(at, leg) += figures;
        self.todo = todo;
        self.queue_reads(at, reads);
        self.ranks[at].idle -= 1;
        let seconds = self.thread_seconds(at, number, run, figures);
        self.events.at(self.now + seconds, Event::Parcel(number));
        true
    }

    /// How long a thread is busy with a run.
    fn thread_seconds(&mut self, at: usize, number: u32, run: Run, figures: Figures) -> f64 {
        let mut seconds = 0.0;
        let by_threads = self.scenario.log.as_ref().is_some_and(|log| log.by_threads);
        let logged = if by_threads { figures.log_reads } else { 0 };
        for (source, reads, bytes) in [
            (Source::Log, logged, figures.log_bytes),
            (Source::Peer, figures.peer_reads, figures.peer_bytes),
            (Source::Origin, figures.reads, figures.read_bytes),
        ] {
            if reads > 0 {
                let load = Load {
                    requests: reads as u32,
                    bytes,
                    width: 1,
                };
                seconds += self.load(at, number, source, load);
            }
        }
        if run.open {
            let samples = self.parcels.get(number).tasks.len() as u32;
            let elsewhere = if by_threads { 0 } else { figures.log_bytes };
            let bytes = figures.bytes - elsewhere;
            seconds += self.load(at, number, Source::Memory, copying(samples, bytes));
            seconds += f64::from(samples) * self.loading(at).prepare;
        }
        seconds
    }

    /// Offers the log a sample that was read. True if it has it and is not to hold all: then the
    /// sample need not be in memory as well.
    pub(crate) fn offer(&mut self, node: usize, sample: u32, len: u32) -> bool {
        let disk = self.disks.get_mut(node);
        disk.is_some_and(|disk| disk.offer(sample, len) && !disk.is_whole())
    }

    pub(crate) fn offer_task(&mut self, at: usize, batch: u64, index: u32) -> bool {
        if self.disks.is_empty() {
            return false;
        }
        let (sample, len, _) = self.task(at, batch, index);
        self.offer(self.ranks[at].node, sample, len)
    }
}

/// The load of one thread that copies.
fn copying(samples: u32, bytes: u64) -> Load {
    Load {
        requests: samples,
        bytes,
        width: 1,
    }
}
