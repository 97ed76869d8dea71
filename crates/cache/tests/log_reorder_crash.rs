//! The power fails while a log is written anew for the next epoch: a thousand states that the disk
//! may then be in (`log_crash` has as many of the packed log).
//!
//! Epochs follow each other, runs end and begin, objects change; all writes are recorded. Then,
//! again and again, the power fails at some write: the last ones are there, torn or gone, files are
//! cut or missing, what was used has given its blocks back or not, and the orders are as they were,
//! older, damaged or lost. Each time the log is opened, read, and goes through the next epochs.

// What was found is said: a run that proves little is to be seen.
#![allow(clippy::print_stderr)]

mod log_rig;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};

use forebay_cache::log::{DeviceChoice, LayoutChoice, Log, LogSettings, Order, used};
use forebay_testkit::crash_disk::{Fate, History, Image, Write};
use log_rig::{HOME, Random, Reading, Set, device, fast_folder, path_of};
use rustix::fs::{FallocateFlags, fallocate};

const IMAGES: usize = 1000;
const SET: Set = Set {
    samples: 120,
    longest: 12_000,
    version: 0,
};
const BATCH: usize = 8;
const BUDGET: u64 = 1200 << 10;
const VERSIONS: u64 = 3;
const RUNS: u64 = 2;
const EPOCHS: u64 = 2;

/// The orders beside a log's segments, by name.
type Orders = BTreeMap<String, Vec<u8>>;

/// What was recorded of a log's life.
struct Life {
    history: History,
    /// At each write: the dataset's version and the orders.
    at_write: Vec<(u64, Orders)>,
}

fn settings(set: Set, root: &Path, device: DeviceChoice) -> LogSettings {
    LogSettings {
        layout: LayoutChoice::Reorder,
        disk: BUDGET,
        device,
        ..set.settings(&[root])
    }
}

fn order(seed: u64) -> Order {
    let mut random = Random(seed);
    let mut ids: Vec<u32> = (0..SET.samples).collect();
    for at in (1..ids.len()).rev() {
        ids.swap(at, random.below(at + 1));
    }
    Order {
        ids: Arc::new(ids),
        batch: BATCH,
    }
}

fn orders(root: &Path) -> Orders {
    let entries = std::fs::read_dir(root.join(HOME)).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names
        .filter(|name| name.ends_with(".order"))
        .map(|name| {
            let bytes = std::fs::read(root.join(HOME).join(&name)).unwrap();
            (name, bytes)
        })
        .collect()
}

/// The first batches of an epoch, as a loader has them. The samples that were taken to be written.
fn epoch(reading: &Reading, seed: u64, batches: usize) -> HashSet<u32> {
    let (log, set) = (reading.log(), reading.set);
    let current = order(seed);
    log.begin(Some(&current));
    log.foresee(&order(seed + 1));
    let mut taken = HashSet::new();
    for ids in current.ids.chunks(BATCH).take(batches) {
        reading.read(ids.iter().copied());
        for &id in ids {
            if log.offer(&set.sample(id), set.bytes(id).chunks(1000)) {
                taken.insert(id);
            }
        }
        log.consumed(ids);
    }
    log.flush();
    taken
}

fn live(root: &Path) -> Life {
    let life = Arc::new(Mutex::new(Life {
        history: History::new(root),
        at_write: Vec::new(),
    }));
    let mut seed = 0;
    for version in 0..VERSIONS {
        let (recorder, folder) = (life.clone(), root.to_owned());
        let disk = device(move |op| {
            if op.write {
                let mut life = recorder.lock().unwrap();
                let bytes = &op.buffer[op.range.clone()];
                life.history.record(&path_of(op), op.offset, bytes).unwrap();
                life.at_write.push((version, orders(&folder)));
            }
            None
        });
        for _ in 0..RUNS {
            let set = SET.at(version);
            let log = Log::open(settings(set, root, disk.clone())).unwrap();
            let reading = Reading::new(log, set);
            for _ in 0..EPOCHS {
                epoch(&reading, seed, usize::MAX);
                seed += 1;
            }
        }
    }
    Arc::into_inner(life).unwrap().into_inner().unwrap()
}

/// Puts the orders beside the segments; whether they are as they were.
fn place_orders(life: &Life, count: usize, root: &Path, random: &mut Random) -> bool {
    let (mut orders, as_it_was) = match random.below(4) {
        0 => (life.at_write[random.below(count)].1.clone(), false),
        _ => (life.at_write[count - 1].1.clone(), true),
    };
    let mut whole = as_it_was;
    if random.once_in(5) {
        whole = false;
        let names: Vec<_> = orders.keys().cloned().collect();
        let name = &names[random.below(names.len())];
        let bytes = orders.get_mut(name).unwrap();
        match random.below(3) {
            0 => drop(orders.remove(name)),
            1 => bytes.truncate(random.below(bytes.len())),
            _ => {
                let start = random.below(bytes.len()) / 512 * 512;
                let end = bytes.len().min(start + 512);
                bytes[start..end].fill(0);
            }
        }
    }
    for (name, bytes) in orders {
        std::fs::write(root.join(HOME).join(name), bytes).unwrap();
    }
    whole
}

/// Files as young as the loose writes whose length or name did not reach the disk.
fn cut_some(image: &mut Image<'_>, loose: usize, random: &mut Random) {
    let young = image.writes.len().saturating_sub(loose);
    let old: HashSet<_> = image.writes[..young]
        .iter()
        .map(|(write, _)| write.file.clone())
        .collect();
    let files: Vec<_> = image
        .files()
        .map(|(path, length)| (path.to_owned(), length))
        .collect();
    for (path, length) in files {
        if !old.contains(&path) && length > 512 {
            let cut = random.below(3) != 0;
            let length = random.below(length as usize / 512) as u64 * 512;
            image.cut(&path, cut.then_some(length));
        }
    }
}

/// Gives the blocks of some records back. The places that have none any more.
fn punch_some(image: &Image<'_>, root: &Path, random: &mut Random) -> HashSet<(u32, u64)> {
    let mut punched = HashSet::new();
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for (write, _) in &image.writes {
        let file = File::options().write(true).open(root.join(&write.file));
        if let (true, Ok(file)) = (random.once_in(3), file) {
            fallocate(&file, how, write.offset, write.bytes.len() as u64).unwrap();
            punched.insert((segment(write), write.offset));
        }
    }
    punched
}

fn segment(write: &Write) -> u32 {
    let name = write.file.file_stem().unwrap().to_str().unwrap();
    name.parse().unwrap()
}

/// Samples whose records are whole in one of the logs that the orders are of.
fn whole_records(image: &Image<'_>, set: Set, punched: &HashSet<(u32, u64)>) -> HashSet<u32> {
    let by_key: HashMap<_, _> = (0..set.samples)
        .map(|id| (set.identity(id).key, id))
        .collect();
    let word =
        |write: &Write, at: usize| u64::from_le_bytes(write.bytes[at..at + 8].try_into().unwrap());
    let whole = image.writes.iter().filter(|(write, fate)| {
        *fate == Fate::Whole && !punched.contains(&(segment(write), write.offset))
    });
    whole
        .map(|(write, _)| (by_key[&word(write, 8)], word(write, 16)))
        .filter(|&(id, validator)| set.identity(id).validator == validator)
        .map(|(id, _)| id)
        .collect()
}

#[test]
fn no_state_that_a_power_failure_leaves_gives_a_wrong_byte_or_loses_a_whole_record() {
    let folder = fast_folder();
    let root = folder.path().canonicalize().unwrap();
    let life = live(&root);
    assert!(life.history.len() > 500, "{} writes", life.history.len());
    let mut random = Random(11);
    let (mut torn_images, mut corrupt, mut whole, mut held, mut over) = (0, 0, 0, 0, 0);
    for number in 0..IMAGES {
        std::fs::remove_dir_all(root.join("log")).unwrap();
        std::fs::create_dir_all(root.join(HOME)).unwrap();
        let count = 1 + random.below(life.history.len());
        let loose = random.below(24);
        let mut image = life
            .history
            .crash(count, loose, &mut |below| random.below(below));
        if random.once_in(3) {
            cut_some(&mut image, loose, &mut random);
        }
        image.materialise(&root).unwrap();
        let torn = |(_, fate): &(&Write, Fate)| *fate == Fate::Torn;
        torn_images += usize::from(image.writes.iter().any(torn));
        let punched = match random.below(3) {
            0 => HashSet::new(),
            _ => punch_some(&image, &root, &mut random),
        };
        let complete = place_orders(&life, count, &root, &mut random);
        let then = life.at_write[count - 1].0;
        let version = then + u64::from(random.once_in(6));
        let set = SET.at(version);
        // What the disk never heard of having been given back goes now.
        let too_much = used(&root.join("log")) > BUDGET * 3 / 4;
        over += usize::from(too_much);

        let device = match number % 4 {
            0 => DeviceChoice::Auto,
            1 => DeviceChoice::Threads,
            _ => device(|_| None),
        };
        let log = Log::open(settings(set, &root, device)).unwrap();
        let reading = Reading::new(log, set);
        // A second time: a record that is not whole in this epoch's log may be in the next one's.
        let mut found = reading.read(0..set.samples);
        found.retain(|_, whole| *whole);
        found.extend(reading.read((0..set.samples).filter(|id| !found.contains_key(id))));
        corrupt += reading.log().stats().corrupt;
        whole += found.values().filter(|&&whole| whole).count();
        if complete && version == then && !too_much {
            for id in whole_records(&image, set, &punched) {
                let given = found.get(&id) == Some(&true);
                assert!(given, "image {number}: sample {id} was whole");
                held += 1;
            }
        }
        // It goes on as if nothing had been.
        let seed = 1000 + number as u64 * 10;
        let taken = epoch(&reading, seed, 3);
        reading.log().begin(Some(&order(seed + 1)));
        let again = reading.read(taken.iter().copied());
        let right = again.values().filter(|&&whole| whole).count();
        assert_eq!(right, taken.len(), "image {number}");
        let used = used(&root.join("log"));
        assert!(used <= BUDGET, "image {number}: {used} bytes");
    }
    eprintln!(
        "{torn_images} of {IMAGES} images torn, {over} with more than there should be; {corrupt} \
         samples found corrupt, {whole} whole, {held} of them in records that had to be found"
    );
    assert!(torn_images > IMAGES / 2, "{torn_images} of {IMAGES}");
    assert!(over > IMAGES / 10 && corrupt > 0);
    assert!(whole > IMAGES * 10 && held > IMAGES * 10);
}
