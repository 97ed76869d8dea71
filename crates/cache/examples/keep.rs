//! The least that a first epoch can take, without a loader: `keep DIR [THREADS]`.
//!
//! Each file of DIR's class folders is read once, in a shuffled order, into memory that is its own
//! from then on, and copied into a batch that is used again: what a cache that fills and hands out
//! copies cannot do without. Tells samples a second.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;

use memmap2::{Advice, MmapMut};

const BATCHES: usize = 100 << 20;
const PAGE: usize = 4096;

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

/// Reads its files into `kept`, one after another, and copies each into `batches`.
fn work(files: &[(PathBuf, usize)], mut kept: &mut [u8], batches: &mut [u8]) {
    let mut place = 0;
    for (path, length) in files {
        let (own, rest) = kept.split_at_mut(length.next_multiple_of(PAGE));
        kept = rest;
        let mut file = File::open(path).expect("a file that was listed");
        file.read_exact(&mut own[..*length]).expect("its bytes");
        if place + length > batches.len() {
            place = 0;
        }
        batches[place..place + length].copy_from_slice(&own[..*length]);
        place += length.next_multiple_of(PAGE);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().ok_or("usage: keep DIR [THREADS]")?;
    let threads: usize = arguments.next().map_or(Ok(2), |text| text.parse())?;
    let files = files(&root)?;
    let total = |files: &[(PathBuf, usize)]| -> usize {
        files
            .iter()
            .map(|(_, length)| length.next_multiple_of(PAGE))
            .sum()
    };
    // The machine is to have the memory already; the process is not.
    memory(2 * total(&files))?
        .iter_mut()
        .step_by(PAGE)
        .for_each(|byte| *byte = 1);
    let shares: Vec<_> = files.chunks(files.len().div_ceil(threads).max(1)).collect();
    let mut own = Vec::new();
    for share in &shares {
        let mut batches = memory(BATCHES)?;
        batches.fill(1);
        own.push((memory(total(share).max(PAGE))?, batches));
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (share, (kept, batches)) in shares.iter().zip(&mut own) {
            scope.spawn(|| work(share, kept, batches));
        }
    });
    let rate = files.len() as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} samples/s");
    Ok(())
}
