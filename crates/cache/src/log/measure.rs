//! Which layout suits a disk: measured once, when it is first used.
//!
//! A packed log is read at random, samples at a time, with a deep queue; a reordered one from
//! front to back, but all of it is written again meanwhile. So the second is the better one where
//!
//! ```text
//!   1 / (1 / sequential + 1 / write)  >  random
//! ```
//!
//! which flash never is and a disk with few operations a second may be. It takes about a second
//! and 64 MiB of the disk, which are given back; the answer is kept beside the logs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_format::chunk::BLOCK;

use super::budget::Budget;
use super::buffer::{Buffer, Pool};
use super::device::{Device, DeviceChoice, Op};
use super::lease::Lease;

const SIZE: u64 = 64 << 20;
/// Requests at a time.
const DEPTH: usize = 32;
const REQUEST: u64 = 1 << 20;
/// Each of the three.
const TIME: Duration = Duration::from_millis(300);
/// A layout that writes all the time has to be this much better.
const WORTH: f64 = 1.2;
const KEPT: &str = "device";
/// How long another's measurement is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Speeds {
    /// Samples at random places, many at a time.
    pub(super) random: f64,
    /// Long requests one after the other.
    pub(super) sequential: f64,
    /// Samples to random places, one at a time.
    pub(super) write: f64,
}

impl Speeds {
    /// Whether samples are better written anew for each epoch.
    pub(super) fn favour_reorder(&self) -> bool {
        let both = 1.0 / (1.0 / self.sequential + 1.0 / self.write);
        both > WORTH * self.random
    }

    /// As found earlier for samples of about this size, or measured now.
    pub(super) fn of(budget: &Budget, mean: u64, device: &DeviceChoice) -> io::Result<Self> {
        let mean = mean.clamp(BLOCK as u64, REQUEST).next_power_of_two();
        let kept = budget.root().join(KEPT);
        if let Some(found) = known(&kept, mean) {
            return Ok(found);
        }
        // Two at a time would measure each other: the second takes what the first has found.
        let Some(_alone) = Lease::take(&budget.root().join("measure.lease"))? else {
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE {
                std::thread::sleep(PATIENCE / 100);
                if let Some(found) = known(&kept, mean) {
                    return Ok(found);
                }
            }
            return Err(io::ErrorKind::TimedOut.into());
        };
        if let Some(found) = known(&kept, mean) {
            return Ok(found);
        }
        let file = budget.root().join("measure.tmp");
        // One that was killed may have left it.
        let _ = fs::remove_file(&file);
        if budget.create(&file, SIZE, SIZE)?.is_none() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let measured = measure(&file, mean, device);
        let _ = fs::remove_file(&file);
        let speeds = measured?;
        let Speeds {
            random,
            sequential,
            write,
        } = speeds;
        let line = format!("{mean} {random:.0} {sequential:.0} {write:.0}\n");
        let _ = fs::write(kept, line);
        Ok(speeds)
    }
}

fn known(kept: &Path, mean: u64) -> Option<Speeds> {
    read(&fs::read_to_string(kept).ok()?, mean)
}

fn read(text: &str, mean: u64) -> Option<Speeds> {
    let numbers: Vec<f64> = text
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    match numbers[..] {
        [of, random, sequential, write]
            if of == mean as f64 && numbers.iter().all(|n| *n > 0.0) =>
        {
            Some(Speeds {
                random,
                sequential,
                write,
            })
        }
        _ => None,
    }
}

fn measure(path: &Path, mean: u64, device: &DeviceChoice) -> io::Result<Speeds> {
    let open = |flags| {
        File::options()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(path)
    };
    let file = match open(libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(0)?,
        other => other?,
    };
    let file = Arc::new(file);
    let pool = Pool::new(DEPTH, REQUEST as usize)?;
    let mut device = device.open(DEPTH, &pool)?;
    let device = &mut *device;
    let long: Vec<u64> = (0..SIZE / REQUEST).map(|at| at * REQUEST).collect();
    let scattered = scattered(SIZE / mean, mean);
    // First all of it, so that every place has blocks with something in them.
    run(device, &pool, &file, &long, REQUEST, true, 4, Duration::MAX)?;
    Ok(Speeds {
        write: run(device, &pool, &file, &scattered, mean, true, 1, TIME)?,
        sequential: run(device, &pool, &file, &long, REQUEST, false, DEPTH, TIME)?,
        random: run(device, &pool, &file, &scattered, mean, false, DEPTH, TIME)?,
    })
}

/// All multiples of `step` below `count * step`, each once, in no order.
fn scattered(count: u64, step: u64) -> Vec<u64> {
    // Both are powers of two, so an odd stride comes by every place.
    (0..count)
        .map(|at| at.wrapping_mul(0x9e37_79b1) % count * step)
        .collect()
}

/// Transfers pieces until all are done or the time is over; bytes a second.
#[allow(clippy::too_many_arguments)] // what is measured is just these
fn run(
    device: &mut dyn Device,
    pool: &Pool,
    file: &Arc<File>,
    offsets: &[u64],
    length: u64,
    write: bool,
    depth: usize,
    time: Duration,
) -> io::Result<f64> {
    let begun = Instant::now();
    let mut offsets = offsets.iter();
    let mut done = Vec::new();
    let mut bytes = 0;
    loop {
        while device.in_flight() < depth
            && begun.elapsed() < time
            && let Some(&offset) = offsets.next()
        {
            let buffer = pool
                .take(Duration::from_secs(1))
                .ok_or(io::ErrorKind::TimedOut)?;
            device.start(operation(file, buffer, offset, length, write));
        }
        if device.in_flight() == 0 {
            break;
        }
        device.wait(&mut done);
        for done in done.drain(..) {
            done.result?;
            bytes += length;
        }
    }
    Ok(bytes as f64 / begun.elapsed().as_secs_f64())
}

fn operation(file: &Arc<File>, buffer: Buffer, offset: u64, length: u64, write: bool) -> Op {
    Op {
        token: 0,
        write,
        file: file.clone(),
        offset,
        buffer,
        range: 0..length as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_measured_once() {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget::new(folder.path(), 2 * SIZE, 0);
        let measured = Speeds::of(&budget, 100_000, &DeviceChoice::Auto).unwrap();
        assert!(measured.random > 0.0 && measured.sequential > 0.0 && measured.write > 0.0);
        assert!(!folder.path().join("measure.tmp").exists());
        let kept = fs::read_to_string(folder.path().join(KEPT)).unwrap();
        let again = Speeds::of(&budget, 100_000, &DeviceChoice::Auto).unwrap();
        assert_eq!(kept, fs::read_to_string(folder.path().join(KEPT)).unwrap());
        assert!((again.random - measured.random).abs() <= 1.0);
    }

    #[test]
    fn few_operations_a_second_favour_long_reads() {
        let flash = Speeds {
            random: 2e9,
            sequential: 2.2e9,
            write: 1e9,
        };
        assert!(!flash.favour_reorder());
        let slow = Speeds {
            random: 20e6,
            sequential: 150e6,
            write: 100e6,
        };
        assert!(slow.favour_reorder());
    }

    #[test]
    fn scattered_places_are_all_places() {
        let mut places = scattered(512, 4096);
        assert!(places.windows(2).any(|pair| pair[0] > pair[1]));
        places.sort_unstable();
        assert!(
            places
                .iter()
                .enumerate()
                .all(|(at, &place)| place == at as u64 * 4096)
        );
    }
}
