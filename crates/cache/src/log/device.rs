//! The way to the disk: reads and writes that are under way together.
//!
//! A deep queue is what makes an SSD fast: thirty reads of 100 KB at a time come as fast as one
//! long one. io_uring keeps it deep from one thread; where it is not allowed (many containers
//! forbid it) a few threads with `pread` and `pwrite` do nearly as well.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::buffer::{Buffer, Pool};
use super::uring::Uring;

/// Threads of the fallback.
const THREADS: usize = 8;

/// A read or a write of a part of a buffer, which it owns until it is done.
#[derive(Debug)]
pub struct Op {
    /// For the caller to know it by.
    pub token: u64,
    /// Whether bytes go to the disk.
    pub write: bool,
    /// Where.
    pub file: Arc<File>,
    /// Where in it.
    pub offset: u64,
    /// The memory.
    pub buffer: Buffer,
    /// The part of it.
    pub range: Range<usize>,
}

/// An operation that has ended; if well, all of its range was transferred.
#[derive(Debug)]
pub struct Done {
    /// The operation, with its buffer.
    pub op: Op,
    /// How it ended.
    pub result: io::Result<()>,
}

/// See the module's text.
pub trait Device: Send {
    /// What it is, for the stats.
    fn name(&self) -> &'static str;

    /// Begins an operation.
    fn start(&mut self, op: Op);

    /// Waits until at least one operation has ended, and appends those that have.
    /// Must not be called with none under way.
    fn wait(&mut self, done: &mut Vec<Done>);

    /// Operations under way.
    fn in_flight(&self) -> usize;
}

/// Which device a log works with.
#[derive(Clone, Default)]
pub enum DeviceChoice {
    /// io_uring where it is allowed, else threads.
    #[default]
    Auto,
    /// Threads.
    Threads,
    /// The caller's own, made for each thread that uses one.
    Own(Arc<dyn Fn() -> Box<dyn Device> + Send + Sync>),
}

impl fmt::Debug for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceChoice::Auto => "Auto",
            DeviceChoice::Threads => "Threads",
            DeviceChoice::Own(_) => "Own",
        })
    }
}

impl DeviceChoice {
    /// A device for at most `depth` operations at a time, on buffers of `pool`.
    pub(super) fn open(&self, depth: usize, pool: &Pool) -> io::Result<Box<dyn Device>> {
        match self {
            DeviceChoice::Own(make) => Ok(make()),
            DeviceChoice::Threads => Ok(Box::new(Threads::new(depth.min(THREADS))?)),
            DeviceChoice::Auto => match Uring::new(depth, pool) {
                Ok(uring) => Ok(Box::new(uring)),
                Err(_) => Ok(Box::new(Threads::new(depth.min(THREADS))?)),
            },
        }
    }
}

/// Transfers all of an operation's range, by as many calls as it takes.
pub fn transfer(op: &mut Op) -> io::Result<()> {
    let (file, mut offset, mut range) = (op.file.clone(), op.offset, op.range.clone());
    while !range.is_empty() {
        let count = if op.write {
            rustix::io::pwrite(file.as_fd(), &op.buffer[range.clone()], offset)
        } else {
            rustix::io::pread(
                file.as_fd(),
                &mut op.buffer.bytes_mut()[range.clone()],
                offset,
            )
        };
        match count {
            Ok(0) => return Err(cut_short(op.write)),
            Ok(count) => {
                range.start += count;
                offset += count as u64;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// The error of an operation that ended before its range.
pub(super) fn cut_short(write: bool) -> io::Error {
    match write {
        true => io::ErrorKind::WriteZero.into(),
        false => io::ErrorKind::UnexpectedEof.into(),
    }
}

/// The fallback: threads that each do one operation at a time.
struct Threads {
    jobs: Option<Sender<Op>>,
    done: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
    in_flight: usize,
}

impl Threads {
    fn new(count: usize) -> io::Result<Self> {
        let (jobs, inbox) = channel::<Op>();
        let (outbox, done) = channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let mut device = Self {
            jobs: Some(jobs),
            done,
            threads: Vec::new(),
            in_flight: 0,
        };
        for number in 0..count.max(1) {
            let (inbox, outbox) = (inbox.clone(), outbox.clone());
            let thread = std::thread::Builder::new()
                .name(format!("forebay-disk-{number}"))
                .spawn(move || {
                    loop {
                        let next = inbox.lock().expect("the device's lock").recv();
                        let Ok(mut op) = next else { return };
                        let result = transfer(&mut op);
                        if outbox.send(Done { op, result }).is_err() {
                            return;
                        }
                    }
                })?;
            device.threads.push(thread);
        }
        Ok(device)
    }
}

impl Device for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn start(&mut self, op: Op) {
        let jobs = self.jobs.as_ref().expect("there until dropped");
        jobs.send(op)
            .expect("the threads live as long as the device");
        self.in_flight += 1;
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        let first = self.done.recv().expect("the threads live as long");
        done.push(first);
        done.extend(self.done.try_iter());
        self.in_flight = self.in_flight.saturating_sub(done.len());
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
