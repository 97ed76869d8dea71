//! Reading: what is wanted soon, sorted by place, neighbours in one request, a deep queue.
//!
//! ```text
//!   ask --> queue --up to ROUND bytes, in plan order--> sort, join --> device --> check --> deliver
//!                           |                                            |
//!                           +-- lies in a chunk that was read ---- kept -+
//! ```
//!
//! Samples are handed on as slices of the buffer that they were read into. Rounds keep the order
//! of the plan: nothing waits for more than the requests of its own round and the one before.
//!
//! Every want is answered or dropped. It is dropped when the reader ends, or its thread broke, which
//! is a bug: from then on all are dropped, so a payload that somebody waits for tells them so when
//! it goes.
//!
//! A chunk of a reordered log is read as a whole when the first of its samples is wanted, whoever
//! asks for the others, and when: they join the request while it is under way, or are cut from its
//! buffer, which is kept until all were or others need the memory.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_format::chunk::BLOCK;

use super::buffer::{Buffer, Pool, Slice};
use super::core::Figures;
use super::device::{Device, Done, Op};
use super::kept::{Kept, Whole};
use super::layout::{Check, Extent, Sample, Spot};
use super::log::Log;
use super::record;

/// Requests under way.
const DEPTH: usize = 128;
/// Bytes that are sorted together.
const ROUND: u64 = 32 << 20;
/// Bytes between two samples that are read along rather than asked around.
const GAP: u64 = 16 << 10;

/// A sample that somebody wants.
#[derive(Debug)]
pub struct Want<T> {
    /// Which.
    pub sample: Sample,
    /// Where it lies.
    pub spot: Spot,
    /// What the asker knows it by.
    pub payload: T,
}

/// What came of a want: the bytes, or nothing if they are not there or not whole.
pub type Answer<T> = (T, Option<Slice>);

/// See the module's text.
pub struct Reader<T> {
    queue: Arc<Queue<T>>,
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
    name: &'static str,
}

struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    wants: VecDeque<Want<T>>,
    closing: bool,
}

impl<T> Queue<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // A thread that broke while it had it has left wants that are whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send + 'static> Reader<T> {
    /// A reader of a log; answers go to `deliver`, in its thread.
    pub fn start(
        log: Arc<Log>,
        deliver: impl Fn(Vec<Answer<T>>) + Send + 'static,
    ) -> io::Result<Self> {
        let pool = log.read_pool().clone();
        let device = log.core().device.open(DEPTH, &pool)?;
        let name = device.name();
        let queue = Arc::new(Queue {
            state: Mutex::new(State {
                wants: VecDeque::new(),
                closing: false,
            }),
            changed: Condvar::new(),
        });
        let mut work = Work {
            queue: queue.clone(),
            log: log.clone(),
            kept: Kept::new(pool.bytes() / 2),
            pool,
            device,
            again: Vec::new(),
            round: Vec::new(),
            under_way: Vec::new(),
            deliver: Box::new(deliver),
        };
        let thread = std::thread::Builder::new()
            .name("forebay-log-read".into())
            .spawn(move || {
                if catch_unwind(AssertUnwindSafe(|| work.run())).is_err() {
                    work.give_up(); // the panic has said why
                }
            })?;
        Ok(Self {
            queue,
            log,
            thread: Some(thread),
            name,
        })
    }

    /// The log that it reads.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The device that it reads with.
    pub fn device(&self) -> &'static str {
        self.name
    }

    /// Asks for samples, the one first that is wanted first.
    pub fn ask(&self, wants: Vec<Want<T>>) {
        if wants.is_empty() {
            return;
        }
        let mut state = self.queue.lock();
        if state.closing {
            drop(state); // before the payloads, which may ask for something else
            return;
        }
        self.log.core().traffic.add_reads(wants.len());
        state.wants.extend(wants);
        drop(state);
        self.queue.changed.notify_one();
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.queue.lock().closing = true;
        self.queue.changed.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("device", &self.name)
            .finish_non_exhaustive()
    }
}

/// Neighbours that are read together.
struct Request<T> {
    dir: u8,
    segment: u32,
    range: Range<u64>,
    wants: Vec<Want<T>>,
    /// Samples of the chunk that it reads, if it reads a whole one.
    chunk: Option<usize>,
}

impl<T> Request<T> {
    fn covers(&self, want: &Want<T>) -> bool {
        let at = want.spot.at;
        let range = span(want);
        (self.dir, self.segment) == (at.dir, at.segment)
            && self.range.start <= range.start
            && range.end <= self.range.end
    }
}

struct Work<T> {
    queue: Arc<Queue<T>>,
    log: Arc<Log>,
    pool: Pool,
    device: Box<dyn Device>,
    /// Chunks that were read and not all delivered.
    kept: Kept,
    /// Wants that a request for more than them has not answered: they are read by themselves.
    again: Vec<Want<T>>,
    /// Sorted, the next one last.
    round: Vec<Request<T>>,
    under_way: Vec<Option<Request<T>>>,
    deliver: Box<dyn Fn(Vec<Answer<T>>) + Send>,
}

impl<T> Work<T> {
    fn run(&mut self) {
        let mut done = Vec::new();
        loop {
            if self.is_closing() {
                return; // what is under way, the device waits for
            }
            if self.round.is_empty() && !self.next_round() {
                return;
            }
            self.start_some();
            if self.device.in_flight() == 0 {
                continue;
            }
            let begun = Instant::now();
            self.device.wait(&mut done);
            let busy = begun.elapsed().as_nanos() as u64;
            Figures::add(&self.log.core().figures.busy, busy);
            let mut answers = Vec::new();
            for done in done.drain(..) {
                self.finish(done, &mut answers);
            }
            self.hand_over(answers);
        }
    }

    /// Drops all wants, now and to come.
    fn give_up(&mut self) {
        let mut state = self.queue.lock();
        state.closing = true;
        let wants = std::mem::take(&mut state.wants);
        drop(state);
        self.log.core().traffic.end_all_reads();
        self.again.clear();
        self.round.clear();
        self.under_way.clear();
        drop(wants);
    }

    fn is_closing(&self) -> bool {
        self.queue.lock().closing
    }

    fn hand_over(&self, answers: Vec<Answer<T>>) {
        if !answers.is_empty() {
            self.log.core().traffic.end_reads(answers.len());
            (self.deliver)(answers);
        }
    }

    /// Takes the next wants from the queue; waits for some if nothing is under way. False once
    /// the reader is dropped.
    fn next_round(&mut self) -> bool {
        if !self.again.is_empty() {
            let again = std::mem::take(&mut self.again);
            self.round = join(again, self.log.longest_request(), |_| None);
            return true;
        }
        let mut state = self.queue.lock();
        while state.wants.is_empty() && !state.closing && self.device.in_flight() == 0 {
            let waited = self.queue.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.closing {
            return false; // what is wanted still is wanted by nobody
        }
        let mut wants = Vec::new();
        let mut bytes = 0;
        while bytes < ROUND
            && let Some(want) = state.wants.pop_front()
        {
            bytes += want.sample.length;
            wants.push(want);
        }
        drop(state);
        let wants = self.serve(wants);
        let (log, kept) = (&self.log, &mut self.kept);
        self.round = join(wants, log.longest_request(), |want: &Want<T>| {
            kept.is_worth_it()
                .then(|| log.extent(want.sample.id, &want.spot))?
        });
        self.round.reverse();
        true
    }

    /// Answers wants whose chunk was read, and adds those whose chunk is being read to its request.
    /// Returns the others.
    fn serve(&mut self, wants: Vec<Want<T>>) -> Vec<Want<T>> {
        let (mut answers, mut others) = (Vec::new(), Vec::with_capacity(wants.len()));
        for want in wants {
            self.log.await_written(want.sample.id);
            let under_way = self.under_way.iter_mut().flatten();
            let mut under_way = under_way.filter(|request| request.chunk.is_some());
            if let Some(whole) = self.kept.find(want.spot.at, &span(&want)) {
                match self.cut(&whole.buffer, whole.start, &want) {
                    Some(slice) => {
                        self.kept.delivered(want.spot.at);
                        answers.push((want.payload, Some(slice)));
                    }
                    // Written since the chunk was read.
                    None => self.again.push(want),
                }
            } else if let Some(request) = under_way.find(|request| request.covers(&want)) {
                request.wants.push(want);
            } else {
                others.push(want);
            }
        }
        self.hand_over(answers);
        others
    }

    /// Begins requests while there are buffers and the queue is not deep enough.
    fn start_some(&mut self) {
        while self.device.in_flight() < DEPTH
            && let Some(request) = self.round.last()
        {
            let file = match self.log.core().files.segment(request.dir, request.segment) {
                Ok(file) => file,
                Err(error) => {
                    let request = self.round.pop().expect("looked at above");
                    self.failed(request, &error);
                    continue;
                }
            };
            let bytes = (request.range.end - request.range.start) as usize;
            let Some(buffer) = self.buffer(bytes) else {
                return;
            };
            let request = self.round.pop().expect("looked at above");
            if let Some(request) = self.within(request, &file) {
                self.start(request, file, buffer);
            }
        }
    }

    fn buffer(&mut self, bytes: usize) -> Option<Buffer> {
        loop {
            if let Some(buffer) = self.pool.take_run(bytes, Duration::ZERO) {
                return Some(buffer);
            }
            if !self.kept.drop_oldest() {
                break;
            }
        }
        // With nothing under way somebody else has the buffers: they come back.
        match self.device.in_flight() {
            0 => self.pool.take_run(bytes, Duration::from_millis(50)),
            _ => None,
        }
    }

    /// The request, if all of it lies in the file. Else its samples that do are asked for again
    /// without those that do not: a damaged table has those anywhere.
    fn within(&mut self, request: Request<T>, file: &File) -> Option<Request<T>> {
        let length = file.metadata().map_or(0, |meta| meta.len());
        if request.range.end <= length {
            return Some(request);
        }
        if request.chunk.is_some() {
            self.again.extend(request.wants);
            return None;
        }
        let inside = |want: &Want<T>| {
            u64::from(want.spot.at.offset) + want.spot.span(want.sample.length) <= length
        };
        let (whole, lost): (Vec<_>, Vec<_>) = request.wants.into_iter().partition(inside);
        if !lost.is_empty() {
            self.missing(lost);
            let most = self.log.longest_request();
            self.round.extend(join(whole, most, |_| None));
            return None;
        }
        // The file ends within a block: as far as it goes.
        self.missing(whole);
        None
    }

    /// Samples that are not where they should be.
    fn missing(&mut self, wants: Vec<Want<T>>) {
        let answers = wants
            .into_iter()
            .filter_map(|want| self.elsewhere(want))
            .collect();
        self.hand_over(answers);
    }

    /// A sample that is not at its spot: if there is another one it is read there, else that is
    /// the answer.
    fn elsewhere(&mut self, want: Want<T>) -> Option<Answer<T>> {
        self.log.lost(want.sample.id, &want.spot);
        match self.log.find(want.sample.id, want.sample.length) {
            Some(spot) if spot != want.spot => {
                self.again.push(Want { spot, ..want });
                None
            }
            _ => Some((want.payload, None)),
        }
    }

    fn start(&mut self, request: Request<T>, file: Arc<File>, buffer: Buffer) {
        let length = (request.range.end - request.range.start) as usize;
        let figures = &self.log.core().figures;
        Figures::add(&figures.requests, 1);
        Figures::add(&figures.request_bytes, length as u64);
        let offset = request.range.start;
        let token = match self.under_way.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.under_way.push(None);
                self.under_way.len() - 1
            }
        };
        self.under_way[token] = Some(request);
        self.device.start(Op {
            token: token as u64,
            write: false,
            file,
            offset,
            buffer,
            range: 0..length,
        });
    }

    fn finish(&mut self, done: Done, answers: &mut Vec<Answer<T>>) {
        let slot = self.under_way.get_mut(done.op.token as usize);
        let Some(request) = slot.and_then(Option::take) else {
            return;
        };
        match done.result {
            Ok(()) => {
                self.log.core().files.went_well(request.dir);
                let buffer = Arc::new(done.op.buffer);
                self.deliver_from(request, &buffer, answers);
            }
            Err(error) => {
                drop(done.op);
                self.failed(request, &error);
            }
        }
    }

    /// Cuts the samples of a request from the buffer that it was read into.
    fn deliver_from(
        &mut self,
        request: Request<T>,
        buffer: &Arc<Buffer>,
        answers: &mut Vec<Answer<T>>,
    ) {
        let mut delivered = 0;
        for want in request.wants {
            let start = request.range.start;
            match self.cut(buffer, start, &want) {
                Some(slice) => {
                    delivered += 1;
                    answers.push((want.payload, Some(slice)));
                }
                // It may have been written after this was read.
                None if request.chunk.is_some() => self.again.push(want),
                None => {
                    if !is_hole(buffer, start, &want) {
                        Figures::add(&self.log.core().figures.corrupt, 1);
                    }
                    answers.extend(self.elsewhere(want));
                }
            }
        }
        if let Some(samples) = request.chunk {
            self.kept.keep(Whole {
                dir: request.dir,
                segment: request.segment,
                start: request.range.start,
                end: request.range.end,
                buffer: buffer.clone(),
                samples,
                delivered,
            });
        }
    }

    /// A sample's slice, if its bytes are what they should be.
    fn cut(&self, buffer: &Arc<Buffer>, start: u64, want: &Want<T>) -> Option<Slice> {
        let range = bytes_of(start, want);
        let bytes = want.spot.verify(&want.sample, &buffer[range.clone()])?;
        let figures = &self.log.core().figures;
        Figures::add(&figures.reads, 1);
        Figures::add(&figures.read_bytes, want.sample.length);
        Some(Slice::new(
            buffer.clone(),
            range.end - bytes.len()..range.end,
        ))
    }

    fn failed(&mut self, request: Request<T>, error: &io::Error) {
        if error.kind() == io::ErrorKind::NotFound {
            return self.missing(request.wants); // the segment is gone, the directory is not
        }
        let core = self.log.core();
        Figures::add(&core.figures.errors, 1);
        core.files.read_failed(request.dir, error);
        let answers = request.wants.into_iter().map(|want| (want.payload, None));
        self.hand_over(answers.collect());
    }
}

/// Where a want's bytes are in a buffer that was read from `start` on.
fn bytes_of<T>(start: u64, want: &Want<T>) -> Range<usize> {
    let from = (u64::from(want.spot.at.offset) - start) as usize;
    from..from + want.spot.span(want.sample.length) as usize
}

/// Whether there is nothing where the record should be: its blocks were given back meanwhile.
fn is_hole<T>(buffer: &Buffer, start: u64, want: &Want<T>) -> bool {
    let from = bytes_of(start, want).start;
    want.spot.check == Check::Record && buffer[from..from + record::HEAD].iter().all(|&b| b == 0)
}

/// The blocks that a want lies in.
fn span<T>(want: &Want<T>) -> Range<u64> {
    let block = BLOCK as u64;
    let offset = u64::from(want.spot.at.offset);
    let start = offset / block * block;
    let end = offset + want.spot.span(want.sample.length);
    start..end.max(start + 1).next_multiple_of(block)
}

/// Sorts wants by place and joins neighbours, up to `most` bytes a request. A want that `chunk` has
/// a chunk for is read with all of it.
fn join<T>(
    mut wants: Vec<Want<T>>,
    most: u64,
    mut chunk: impl FnMut(&Want<T>) -> Option<Extent>,
) -> Vec<Request<T>> {
    wants.sort_unstable_by_key(|want| want.spot.at);
    let mut requests: Vec<Request<T>> = Vec::new();
    for want in wants {
        let at = want.spot.at;
        let range = span(&want);
        let last = requests.last_mut();
        let last = last.filter(|last| (last.dir, last.segment) == (at.dir, at.segment));
        if let Some(last) = last {
            let joined = range.end.max(last.range.end);
            let is_near = last.chunk.is_none()
                && range.start <= last.range.end + GAP
                && joined - last.range.start <= most;
            if last.covers(&want) || is_near {
                last.range.end = joined;
                last.wants.push(want);
                continue;
            }
        }
        let whole = chunk(&want).filter(|whole| whole.end - whole.start <= most);
        let range = match whole {
            Some(whole) => range.start.min(whole.start)..range.end.max(whole.end),
            None => range,
        };
        requests.push(Request {
            dir: at.dir,
            segment: at.segment,
            range,
            wants: vec![want],
            chunk: whole.map(|whole| whole.samples),
        });
    }
    requests
}
