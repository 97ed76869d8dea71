//! Writing in the background: pieces of buffers, one thread, reads first.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::buffer::{Buffer, Pool};
use super::core::{Core, Figures};
use super::device::{Device, Op};

/// Bytes of one write: short enough that a read that comes meanwhile does not wait long.
const PIECE: usize = 512 << 10;
/// Bytes a second that are written though reads go on without a pause.
const LEAST_RATE: f64 = 256e6;

/// A device and its manners.
pub(super) struct Writer {
    core: Arc<Core>,
    device: Box<dyn Device>,
}

impl Writer {
    pub(super) fn new(core: Arc<Core>, pool: &Pool) -> io::Result<Self> {
        let device = core.device.open(4, pool)?;
        Ok(Self { core, device })
    }

    /// Writes a part of a buffer; the buffer comes back.
    pub(super) fn write(
        &mut self,
        file: &Arc<File>,
        mut buffer: Buffer,
        range: Range<usize>,
        offset: u64,
    ) -> (Buffer, io::Result<()>) {
        let mut start = range.start;
        while start < range.end {
            let end = (start + PIECE).min(range.end);
            let patience = Duration::from_secs_f64((end - start) as f64 / LEAST_RATE);
            self.core.traffic.give_way(patience);
            self.device.start(Op {
                token: 0,
                write: true,
                file: file.clone(),
                offset: offset + (start - range.start) as u64,
                buffer,
                range: start..end,
            });
            let mut done = Vec::with_capacity(1);
            self.device.wait(&mut done);
            let Some(done) = done.pop() else {
                unreachable!("one operation was under way");
            };
            buffer = done.op.buffer;
            if let Err(error) = done.result {
                return (buffer, Err(error));
            }
            let written = (end - start) as u64;
            Figures::add(&self.core.figures.written_bytes, written);
            start = end;
        }
        (buffer, Ok(()))
    }
}
