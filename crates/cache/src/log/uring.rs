//! io_uring: many operations from one thread, on buffers that the kernel knows already.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::buffer::Pool;
use super::device::{Device, Done, Op, cut_short, transfer};

/// See the module's text.
pub(super) struct Uring {
    ring: IoUring,
    /// Operations under way, by the number that the kernel returns.
    ops: Vec<Option<Op>>,
    free: Vec<usize>,
    /// The pool's memory is registered: one buffer, number 0. Its handle keeps it mapped.
    registered: Option<Pool>,
    /// Refused by a full queue (cannot be, by `depth`) or the kernel: done by hand.
    by_hand: Vec<Done>,
}

impl Uring {
    pub(super) fn new(depth: usize, pool: &Pool) -> io::Result<Self> {
        let ring = IoUring::new((depth as u32).next_power_of_two())?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if ![
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::ReadFixed::CODE,
        ]
        .iter()
        .all(|&code| probe.is_supported(code))
        {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (base, length) = pool.memory();
        let memory = libc::iovec {
            iov_base: base.cast(),
            iov_len: length,
        };
        // SAFETY: the mapping lives as long as `registered`, which is dropped after the ring.
        let registered = unsafe { ring.submitter().register_buffers(&[memory]) };
        Ok(Self {
            ring,
            ops: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            // Locked memory may be limited: then without.
            registered: registered.is_ok().then(|| pool.clone()),
            by_hand: Vec::new(),
        })
    }

    fn collect(&mut self, done: &mut Vec<Done>) {
        for entry in self.ring.completion() {
            let number = entry.user_data() as usize;
            let Some(mut op) = self.ops.get_mut(number).and_then(Option::take) else {
                continue;
            };
            self.free.push(number);
            let result = match entry.result() {
                count if count == op.range.len() as i32 => Ok(()),
                // Part of it, or interrupted: the rest the plain way, which is rare.
                count if count > 0 => {
                    let whole = (op.offset, op.range.clone());
                    op.offset += count as u64;
                    op.range.start += count as usize;
                    let rest = transfer(&mut op);
                    (op.offset, op.range) = whole;
                    rest
                }
                0 => Err(cut_short(op.write)),
                error if error == -libc::EINTR || error == -libc::EAGAIN => transfer(&mut op),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
            done.push(Done { op, result });
        }
    }
}

impl Device for Uring {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn start(&mut self, mut op: Op) {
        let Some(number) = self.free.pop() else {
            let result = transfer(&mut op);
            self.by_hand.push(Done { op, result });
            return;
        };
        let fd = types::Fd(op.file.as_raw_fd());
        let length = op.range.len() as u32;
        let fixed = self.registered.is_some();
        // SAFETY: inside the buffer: ranges are checked by `Slice` and the callers' own slots.
        let memory = unsafe { op.buffer.as_mut_ptr().add(op.range.start) };
        let entry = match (op.write, fixed) {
            (true, true) => opcode::WriteFixed::new(fd, memory, length, 0)
                .offset(op.offset)
                .build(),
            (true, false) => opcode::Write::new(fd, memory, length)
                .offset(op.offset)
                .build(),
            (false, true) => opcode::ReadFixed::new(fd, memory, length, 0)
                .offset(op.offset)
                .build(),
            (false, false) => opcode::Read::new(fd, memory, length)
                .offset(op.offset)
                .build(),
        };
        assert!(op.range.end <= op.buffer.len(), "a part of its buffer");
        // SAFETY: file and buffer are owned by `op`, which stays in `ops` until the kernel has
        // answered; dropping the device waits for that.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(number as u64)) };
        if pushed.is_err() {
            self.free.push(number);
            let result = transfer(&mut op);
            self.by_hand.push(Done { op, result });
            return;
        }
        self.ops[number] = Some(op);
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        if !self.by_hand.is_empty() {
            done.append(&mut self.by_hand);
            let _ = self.ring.submit();
            self.collect(done);
            return;
        }
        while done.is_empty() && self.free.len() < self.ops.len() {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // Full for the moment: what has ended makes room.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                // Cannot be waited for in this way: it still comes.
                Err(_) => std::thread::yield_now(),
            }
            self.collect(done);
        }
    }

    fn in_flight(&self) -> usize {
        self.ops.len() - self.free.len() + self.by_hand.len()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight() > 0 {
            self.wait(&mut done);
            done.clear();
        }
    }
}
