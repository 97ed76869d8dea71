//! The power fails: a thousand states that a disk with a packed log may then be in
//! (`log_reorder_crash` has as many of the other layout).
//!
//! A log is written through versions of a dataset, filled, closed, opened again and reclaimed; all
//! its writes are recorded. Then, again and again, the power fails at some write: the last ones
//! are there, torn or gone, files are cut or missing, and the table is as it was, older, damaged
//! or lost. Each time the log is opened, read and written on.

// What was found is said: a run that proves little is to be seen.
#![allow(clippy::print_stderr)]

mod log_rig;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use forebay_cache::log::{DeviceChoice, Log, LogSettings};
use forebay_format::chunk::{Entry, Head};
use forebay_testkit::crash_disk::{Fate, History, Image, Write};
use log_rig::{HOME, Random, Reading, Set, device, fast_folder, path_of};

const IMAGES: usize = 1000;
const SET: Set = Set {
    samples: 160,
    longest: 16_000,
    version: 0,
};
const BUDGET: u64 = 1 << 20;
const VERSIONS: u64 = 4;
const MAP: &str = "samples.map";

/// What was recorded of a log's life.
struct Life {
    history: History,
    /// At each write: the dataset's version and the table.
    at_write: Vec<(u64, Vec<u8>)>,
    /// The table as it was left each time that the log was closed.
    closed: Vec<Vec<u8>>,
}

fn settings(set: Set, root: &Path, device: DeviceChoice) -> LogSettings {
    LogSettings {
        disk: BUDGET,
        device,
        ..set.settings(&[root])
    }
}

fn live(root: &Path) -> Life {
    let life = Arc::new(Mutex::new(Life {
        history: History::new(root),
        at_write: Vec::new(),
        closed: Vec::new(),
    }));
    let map = root.join(HOME).join(MAP);
    for version in 0..VERSIONS {
        let set = SET.at(version);
        let (recorder, table) = (life.clone(), map.clone());
        let disk = device(move |op| {
            if op.write {
                let mut life = recorder.lock().unwrap();
                let bytes = &op.buffer[op.range.clone()];
                life.history.record(&path_of(op), op.offset, bytes).unwrap();
                life.at_write
                    .push((version, std::fs::read(&table).unwrap()));
            }
            None
        });
        // Twice: once it is full, once it is opened with nothing to do.
        for _ in 0..2 {
            let log = Log::open(settings(set, root, disk.clone())).unwrap();
            for id in 0..set.samples {
                set.fill(&log, [id]);
                if id % 16 == 15 {
                    log.seal();
                }
            }
            drop(log);
            let mut life = life.lock().unwrap();
            life.closed.push(std::fs::read(&map).unwrap());
        }
    }
    Arc::into_inner(life).unwrap().into_inner().unwrap()
}

/// The samples of a write that is a chunk.
fn entries(write: &Write) -> Vec<Entry> {
    let head = Head::read(&write.bytes).expect("a write is a chunk");
    head.entries(&write.bytes[head.table_range()]).unwrap()
}

/// Puts a table beside the segments; whether the log must find everything again by itself.
fn place_table(life: &Life, count: usize, root: &Path, random: &mut Random) -> bool {
    let path = root.join(HOME).join(MAP);
    let then = &life.at_write[count - 1].1;
    let mut table = match random.below(5) {
        0 => return true,
        1 | 2 => then.clone(),
        3 => life.at_write[random.below(count)].1.clone(),
        _ => life.closed[random.below(life.closed.len())].clone(),
    };
    if random.once_in(3) {
        // Some of its pages never reached the disk.
        for page in table.chunks_mut(512) {
            if random.once_in(3) {
                page.fill(0);
            }
        }
    }
    let was_open = table[64..72] != 1_u64.to_le_bytes();
    std::fs::write(path, table).unwrap();
    was_open
}

/// Files whose length or name did not reach the disk, if they are as young as the loose writes.
fn cut_some(image: &mut Image<'_>, loose: usize, random: &mut Random) {
    let young = image.writes.len().saturating_sub(loose);
    let old: Vec<_> = image.writes[..young]
        .iter()
        .map(|(write, _)| &write.file)
        .collect();
    let files: Vec<_> = image
        .files()
        .map(|(path, length)| (path.to_owned(), length))
        .collect();
    for (path, length) in files {
        if !old.contains(&&path) && random.once_in(3) {
            let sectors = length as usize / 512;
            let cut = random.below(3) != 0;
            image.cut(&path, cut.then(|| random.below(sectors) as u64 * 512));
        }
    }
}

#[test]
fn no_state_that_a_power_failure_leaves_gives_a_wrong_byte_or_loses_a_whole_chunk() {
    let folder = fast_folder();
    let root = folder.path().canonicalize().unwrap();
    let life = live(&root);
    assert!(life.history.len() > 60, "{} writes", life.history.len());
    let mut random = Random(7);
    let (mut torn_chunks, mut torn_images, mut corrupt, mut whole, mut held) = (0, 0, 0, 0, 0);
    for number in 0..IMAGES {
        std::fs::remove_dir_all(root.join("log")).unwrap();
        std::fs::create_dir_all(root.join(HOME)).unwrap();
        let count = 1 + random.below(life.history.len());
        let loose = random.below(12);
        let mut image = life
            .history
            .crash(count, loose, &mut |below| random.below(below));
        if random.once_in(3) {
            cut_some(&mut image, loose, &mut random);
        }
        image.materialise(&root).unwrap();
        let torn = image
            .writes
            .iter()
            .filter(|(_, fate)| *fate == Fate::Torn)
            .count();
        torn_chunks += torn;
        torn_images += usize::from(torn > 0);
        let complete = place_table(&life, count, &root, &mut random);
        let version = life.at_write[count - 1].0 + u64::from(random.once_in(4));
        let set = SET.at(version);

        let device = match number % 4 {
            0 => DeviceChoice::Auto,
            1 => DeviceChoice::Threads,
            _ => device(|_| None),
        };
        let log = Log::open(settings(set, &root, device)).unwrap();
        let reading = Reading::new(log, set);
        let found = reading.read(0..set.samples);
        let stats = reading.log().stats();
        corrupt += stats.corrupt;
        whole += found.values().filter(|&&whole| whole).count();
        if complete {
            held += check_whole_chunks(&image, set, &found, number);
        }
        // It is written on as if nothing had been.
        let missing: Vec<_> = (0..set.samples)
            .filter(|id| reading.log().find(*id, 1).is_none())
            .take(6)
            .collect();
        if set.fill(reading.log(), missing.clone()) {
            let again = reading.read(missing.clone());
            let right = again.values().filter(|&&whole| whole).count();
            assert_eq!(right, missing.len(), "image {number}");
        }
        let used = reading.log().stats().disk_bytes;
        assert!(used <= BUDGET, "image {number}: {used} bytes");
    }
    eprintln!(
        "{torn_chunks} torn chunks in {torn_images} of {IMAGES} images; {corrupt} samples found \
         corrupt, {whole} whole, {held} of them in chunks that had to be found"
    );
    assert!(
        torn_images > IMAGES / 2,
        "{torn_images} of {IMAGES} images were torn"
    );
    assert!(corrupt > 0 && whole > IMAGES * 10 && held > IMAGES * 10);
}

/// The samples of chunks that are whole on the disk were found; how many those are.
fn check_whole_chunks(
    image: &Image<'_>,
    set: Set,
    found: &HashMap<u32, bool>,
    number: usize,
) -> usize {
    let mut there: HashMap<u32, Fate> = HashMap::new();
    for (write, fate) in &image.writes {
        for entry in entries(write) {
            if entry.identity == set.identity(entry.id) {
                // The later copy is the one that counts.
                there.insert(entry.id, *fate);
            }
        }
    }
    let mut held = 0;
    for (id, fate) in there {
        if fate == Fate::Whole {
            assert_eq!(
                found.get(&id),
                Some(&true),
                "image {number}: sample {id} was whole"
            );
            held += 1;
        }
    }
    held
}
