//! The power fails on a real file system: a disk in a file, of which a copy is made while it is in
//! use. What was not synced is not in the copy.
//!
//! Needs the right to mount; without it there is nothing to see, and that is said.

// Also what is left out is said.
#![allow(clippy::print_stderr)]

mod log_rig;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use forebay_cache::log::Log;
use log_rig::{HOME, Reading, Set, segments};

const SET: Set = Set {
    samples: 300,
    longest: 8_000,
    version: 0,
};

fn run(program: &str, arguments: &[&Path]) -> bool {
    let status = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// The file system in a file, mounted at `point` until dropped.
struct Disk<'a> {
    point: &'a Path,
}

impl<'a> Disk<'a> {
    /// `None` if that is not allowed.
    fn mount(image: &Path, point: &'a Path) -> Option<Self> {
        std::fs::create_dir_all(point).unwrap();
        let arguments = [Path::new("-oloop"), image, point];
        run("mount", &arguments).then_some(Self { point })
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        assert!(run("umount", &[self.point]) || std::thread::panicking());
    }
}

/// What is on a disk: the samples that its log gives, and whether the table was complete.
fn look(image: &Path, point: &Path) -> (usize, bool) {
    let _disk = Disk::mount(image, point).unwrap();
    let table = std::fs::read(point.join(HOME).join("samples.map")).unwrap();
    let reading = Reading::new(Log::open(SET.settings(&[point])).unwrap(), SET);
    (reading.whole(), table[64..72] == 1_u64.to_le_bytes())
}

#[test]
fn a_table_that_says_it_is_complete_after_a_power_failure_is() {
    let folder = tempfile::tempdir().unwrap();
    let [image, mid_run, afterwards, point] =
        ["image", "mid-run", "afterwards", "point"].map(|name| folder.path().join(name));
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let made = run("mkfs.ext4", &[Path::new("-q"), &image]);
    let Some(disk) = made.then(|| Disk::mount(&image, &point)).flatten() else {
        eprintln!("left out: no disk can be mounted here");
        return;
    };
    let log = Log::open(SET.settings(&[&point])).unwrap();
    assert!(SET.fill(&log, 0..100));
    drop(log);
    assert!(run("sync", &[Path::new("-f"), &point]));
    let log = Log::open(SET.settings(&[&point])).unwrap();
    assert!(SET.fill(&log, 100..200));
    // The segments are on the disk, as they are by themselves after some seconds.
    for segment in segments(&point.join(HOME)) {
        File::open(segment).unwrap().sync_all().unwrap();
    }
    std::fs::copy(&image, &mid_run).unwrap();
    drop(log);
    std::fs::copy(&image, &afterwards).unwrap();
    drop(disk);
    assert_eq!(look(&mid_run, &point), (200, false), "in mid run");
    assert_eq!(look(&afterwards, &point), (200, true), "after it");
}
