//! Reading: what is wanted soon, sorted by place, neighbours in one request, a deep queue.
//!
//! ```text
//!   ask --> queue --up to ROUND bytes, in plan order--> sort, join --> device --> check --> deliver
//! ```
//!
//! Samples are handed on as slices of the buffer that they were read into. Rounds keep the order
//! of the plan: nothing waits for more than the requests of its own round and the one before.
//!
//! Every want is answered or dropped. It is dropped when the reader ends, or its thread broke, which
//! is a bug: from then on all are dropped, so a payload that somebody waits for tells them so when
//! it goes.

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
use super::layout::{Sample, Spot};
use super::log::Log;

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
            pool,
            device,
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
}

struct Work<T> {
    queue: Arc<Queue<T>>,
    log: Arc<Log>,
    pool: Pool,
    device: Box<dyn Device>,
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
        self.round = join(wants, self.pool.slot() as u64);
        self.round.reverse();
        true
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
            // With nothing under way somebody else has the buffers: they come back.
            let patience = match self.device.in_flight() {
                0 => Duration::from_millis(50),
                _ => Duration::ZERO,
            };
            let Some(buffer) = self.pool.take(patience) else {
                return;
            };
            let request = self.round.pop().expect("looked at above");
            if let Some(request) = self.within(request, &file) {
                self.start(request, file, buffer);
            }
        }
    }

    /// The request, if all of it lies in the file. Else its samples that do are asked for again
    /// without those that do not: a damaged table has those anywhere.
    fn within(&mut self, request: Request<T>, file: &File) -> Option<Request<T>> {
        let length = file.metadata().map_or(0, |meta| meta.len());
        if request.range.end <= length {
            return Some(request);
        }
        let inside = |want: &Want<T>| {
            u64::from(want.spot.at.offset) + want.spot.span(want.sample.length) <= length
        };
        let (whole, lost): (Vec<_>, Vec<_>) = request.wants.into_iter().partition(inside);
        if !lost.is_empty() {
            self.missing(lost);
            self.round.extend(join(whole, self.pool.slot() as u64));
            return None;
        }
        // The file ends within a block: as far as it goes.
        self.missing(whole);
        None
    }

    /// Samples that are not where they should be.
    fn missing(&self, wants: Vec<Want<T>>) {
        for want in &wants {
            self.log.lost(want.sample.id, &want.spot);
        }
        let answers = wants.into_iter().map(|want| (want.payload, None));
        self.hand_over(answers.collect());
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
                for want in request.wants {
                    let slice = self.cut(&buffer, request.range.start, &want);
                    answers.push((want.payload, slice));
                }
            }
            Err(error) => {
                drop(done.op);
                self.failed(request, &error);
            }
        }
    }

    /// A sample's slice, if its bytes are what they should be.
    fn cut(&self, buffer: &Arc<Buffer>, start: u64, want: &Want<T>) -> Option<Slice> {
        let from = (u64::from(want.spot.at.offset) - start) as usize;
        let to = from + want.spot.span(want.sample.length) as usize;
        let figures = &self.log.core().figures;
        let Some(bytes) = want.spot.verify(&want.sample, &buffer[from..to]) else {
            Figures::add(&figures.corrupt, 1);
            self.log.lost(want.sample.id, &want.spot);
            return None;
        };
        Figures::add(&figures.reads, 1);
        Figures::add(&figures.read_bytes, want.sample.length);
        Some(Slice::new(buffer.clone(), to - bytes.len()..to))
    }

    fn failed(&self, request: Request<T>, error: &io::Error) {
        let core = self.log.core();
        if error.kind() == io::ErrorKind::NotFound {
            return self.missing(request.wants); // the segment is gone, the directory is not
        }
        Figures::add(&core.figures.errors, 1);
        core.files.read_failed(request.dir, error);
        let answers = request.wants.into_iter().map(|want| (want.payload, None));
        self.hand_over(answers.collect());
    }
}

/// Sorts wants by place and joins neighbours, up to `most` bytes a request.
fn join<T>(mut wants: Vec<Want<T>>, most: u64) -> Vec<Request<T>> {
    wants.sort_unstable_by_key(|want| want.spot.at);
    let block = BLOCK as u64;
    let mut requests: Vec<Request<T>> = Vec::new();
    for want in wants {
        let at = want.spot.at;
        let start = u64::from(at.offset) / block * block;
        let end = u64::from(at.offset) + want.spot.span(want.sample.length);
        let end = end.max(start + 1).next_multiple_of(block);
        match requests.last_mut() {
            Some(last)
                if (last.dir, last.segment) == (at.dir, at.segment)
                    && start <= last.range.end + GAP
                    && end.max(last.range.end) - last.range.start <= most =>
            {
                last.range.end = end.max(last.range.end);
                last.wants.push(want);
            }
            _ => requests.push(Request {
                dir: at.dir,
                segment: at.segment,
                range: start..end,
                wants: vec![want],
            }),
        }
    }
    requests
}
