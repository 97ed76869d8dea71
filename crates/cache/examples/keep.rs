//! The least that a first epoch can take, without a loader: `keep DIR [THREADS]`.
//!
//! Each file of DIR's class folders is read once, in a shuffled order, into fresh memory that is
//! its own from then on: what a cache that fills cannot do without. A thread takes as many files at
//! a time as fill a huge page, since two that come to a fresh one both clear it. Tells samples a
//! second.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use memmap2::{Advice, MmapMut};

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

fn memory(bytes: usize) -> std::io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes)?;
    // Fewer page faults where the kernel can, as in the memory tier.
    let _ = map.advise(Advice::HugePage);
    Ok(map)
}

fn files(root: &str) -> std::io::Result<Vec<(PathBuf, usize)>> {
    let mut found = Vec::new();
    for folder in std::fs::read_dir(root)? {
        let folder = folder?.path();
        if !folder.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            found.push((entry.path(), entry.metadata()?.len() as usize));
        }
    }
    // Any order that is not the directory's.
    found.sort_by_key(|(path, length)| (length.wrapping_mul(0x9e37_79b9_7f4a_7c15), path.clone()));
    Ok(found)
}

/// Files, and the memory that they are read into, side by side.
type Run<'a> = (&'a [(PathBuf, usize)], &'a mut [u8]);

/// Cuts `kept` where a file begins in another huge page than the one before.
fn runs<'a>(mut files: &'a [(PathBuf, usize)], mut kept: &'a mut [u8]) -> Vec<Run<'a>> {
    let base = kept.as_ptr() as usize;
    let (mut runs, mut start) = (Vec::new(), base);
    while !files.is_empty() {
        let (mut count, mut end) = (0, start);
        while count < files.len() && end / HUGE == start / HUGE {
            end += files[count].1.next_multiple_of(PAGE);
            count += 1;
        }
        let (own, rest) = kept.split_at_mut(end - start);
        runs.push((&files[..count], own));
        (files, kept, start) = (&files[count..], rest, end);
    }
    runs
}

fn work((files, mut own): Run<'_>) {
    for (path, length) in files {
        let (place, rest) = own.split_at_mut(length.next_multiple_of(PAGE));
        own = rest;
        let mut file = File::open(path).expect("a file that was listed");
        file.read_exact(&mut place[..*length]).expect("its bytes");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().ok_or("usage: keep DIR [THREADS]")?;
    let threads: usize = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let files = files(&root)?;
    let total: usize = files
        .iter()
        .map(|(_, len)| len.next_multiple_of(PAGE))
        .sum();
    // The machine is to have the memory already; the process is not.
    memory(2 * total)?
        .iter_mut()
        .step_by(PAGE)
        .for_each(|byte| *byte = 1);
    let mut kept = memory(total.max(PAGE))?;
    let mut runs = runs(&files, &mut kept);
    runs.reverse();
    let runs = Mutex::new(runs);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let next = || runs.lock().expect("no thread breaks").pop();
                while let Some(run) = next() {
                    work(run);
                }
            });
        }
    });
    let rate = files.len() as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} samples/s");
    Ok(())
}
