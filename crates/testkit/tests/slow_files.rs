//! A real mount, read through the kernel. Skipped, with a word, where nothing can be mounted.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use forebay_testkit::{SlowFiles, Slowness};
use tempfile::TempDir;

/// Whether the test can run here; says why not.
fn can_mount() -> bool {
    let missing = SlowFiles::missing();
    if let Some(reason) = missing {
        eprintln!("skipped: {reason}");
    }
    missing.is_none()
}

/// A directory with a few files, and an empty one to see it at.
struct Place {
    _directory: TempDir,
    source: PathBuf,
    mount: PathBuf,
}

fn place() -> Place {
    let directory = TempDir::new().unwrap();
    let (source, mount) = (
        directory.path().join("source"),
        directory.path().join("mount"),
    );
    fs::create_dir_all(source.join("class/empty")).unwrap();
    fs::create_dir(&mount).unwrap();
    for number in 0..20 {
        fs::write(source.join(format!("class/{number}")), content(number)).unwrap();
    }
    fs::write(source.join("large"), vec![7; 3 << 20]).unwrap();
    symlink("class/3", source.join("link")).unwrap();
    Place {
        _directory: directory,
        source,
        mount,
    }
}

fn content(number: usize) -> Vec<u8> {
    (0..1000 * number).map(|i| (i % 251) as u8).collect()
}

fn slow(delay_ms: u64) -> Slowness {
    Slowness {
        delay_ms,
        mbps: None,
    }
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let path = path.canonicalize().unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == path.to_str())
}

#[test]
fn everything_is_seen_as_it_is() {
    if !can_mount() {
        return;
    }
    let Place {
        source,
        mount,
        _directory,
    } = place();
    let files = SlowFiles::mount(&source, &mount, slow(0), None).unwrap();
    let mut names: Vec<_> = fs::read_dir(mount.join("class"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names.len(), 21);
    for number in 0..20 {
        let path = format!("class/{number}");
        assert_eq!(fs::read(mount.join(&path)).unwrap(), content(number));
        let (there, here) = (
            fs::metadata(source.join(&path)).unwrap(),
            fs::metadata(mount.join(&path)).unwrap(),
        );
        assert_eq!(there.len(), here.len());
        assert_eq!(there.mode(), here.mode());
        assert_eq!(there.modified().unwrap(), here.modified().unwrap());
    }
    assert_eq!(fs::read(mount.join("large")).unwrap(), vec![7; 3 << 20]);
    assert_eq!(fs::read(mount.join("link")).unwrap(), content(3));
    assert_eq!(fs::read_dir(mount.join("class/empty")).unwrap().count(), 0);
    let missing = File::open(mount.join("class/none")).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    assert!(fs::write(mount.join("class/0"), b"1").is_err());

    let file = File::open(mount.join("class/9")).unwrap();
    let mut part = [0; 100];
    file.read_exact_at(&mut part, 8000).unwrap();
    assert_eq!(part[..], content(9)[8000..8100]);
    drop(file);
    drop(files);
    assert!(!is_mounted(&mount));
}

#[test]
fn the_kernel_keeps_no_bytes() {
    if !can_mount() {
        return;
    }
    let place = place();
    let files = SlowFiles::mount(&place.source, &place.mount, slow(0), None).unwrap();
    for _ in 0..3 {
        assert_eq!(fs::read(place.mount.join("class/5")).unwrap(), content(5));
    }
    let counts = files.counts();
    assert_eq!((counts.opens, counts.bytes_out), (3, 15_000));
    assert_eq!(counts.in_flight, 0);
}

#[test]
fn opens_and_reads_are_delayed_side_by_side() {
    if !can_mount() {
        return;
    }
    let place = place();
    let files = SlowFiles::mount(&place.source, &place.mount, slow(0), None).unwrap();
    files.set(slow(100));
    let start = Barrier::new(8);
    thread::scope(|scope| {
        for number in 1..=8 {
            let (start, path) = (&start, place.mount.join(format!("class/{number}")));
            scope.spawn(move || {
                start.wait();
                let from = Instant::now();
                let file = File::open(path).unwrap();
                assert!(from.elapsed() >= Duration::from_millis(100));
                let mut data = vec![0; 1000 * number];
                assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
                assert!(from.elapsed() >= Duration::from_millis(200));
                assert_eq!(data, content(number));
            });
        }
    });
    // Were they served one after the other, only one at a time would be in flight.
    assert!(files.counts().max_in_flight > 1);
    files.set(slow(0));
    assert_eq!(fs::read(place.mount.join("class/5")).unwrap(), content(5));
}

#[test]
fn bandwidth_is_limited_over_all_reads_together() {
    if !can_mount() {
        return;
    }
    let place = place();
    let slowness = Slowness {
        delay_ms: 0,
        mbps: Some(400.0),
    };
    let _files = SlowFiles::mount(&place.source, &place.mount, slowness, None).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| fs::read(place.mount.join("large")).unwrap());
        }
    });
    // 6 MiB at 50 MB/s are 126 ms, less the slack of the pacing.
    assert!(start.elapsed() >= Duration::from_millis(110));
}

#[test]
fn a_mount_goes_although_a_file_is_open() {
    if !can_mount() {
        return;
    }
    let place = place();
    let files = SlowFiles::mount(&place.source, &place.mount, slow(0), None).unwrap();
    let open = File::open(place.mount.join("class/9")).unwrap();
    drop(files);
    assert!(!is_mounted(&place.mount));
    assert_eq!(fs::read_dir(&place.mount).unwrap().count(), 0);
    drop(open);
}

/// The program, and the lines that it said.
fn program(place: &Place) -> (Child, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_slow-files"))
        .args(["--source".as_ref(), place.source.as_os_str()])
        .args(["--mount".as_ref(), place.mount.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mounted = lines.next().unwrap().unwrap();
    let canonical = place.mount.canonicalize().unwrap();
    assert_eq!(mounted, format!("mounted {}", canonical.display()));
    let control = lines.next().unwrap().unwrap();
    let control = control.strip_prefix("control ").unwrap().to_owned();
    (program, control)
}

fn ask(control: &str, method: &str, path: &str, body: &str) -> String {
    let mut socket = TcpStream::connect(control).unwrap();
    let length = body.len();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_program_is_controlled_over_its_port_and_ends_with_its_stdin() {
    if !can_mount() {
        return;
    }
    let place = place();
    let (mut program, control) = program(&place);
    assert_eq!(fs::read(place.mount.join("class/7")).unwrap(), content(7));
    assert!(ask(&control, "GET", "/counts", "").contains("\"bytes_out\":7000"));
    let answer = ask(&control, "POST", "/slowness", r#"{"delay_ms": 30}"#);
    assert!(
        answer.contains(r#"{"delay_ms":30,"mbps":null}"#),
        "{answer}"
    );
    let start = Instant::now();
    assert_eq!(fs::read(place.mount.join("class/7")).unwrap(), content(7));
    assert!(start.elapsed() >= Duration::from_millis(60));
    let bad = ask(&control, "POST", "/slowness", r#"{"delay": 1}"#);
    assert!(bad.starts_with("HTTP/1.1 400"), "{bad}");
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
    assert!(!is_mounted(&place.mount));
}

#[test]
fn the_program_unmounts_when_it_is_asked_to_end() {
    if !can_mount() {
        return;
    }
    let place = place();
    let (mut program, _) = program(&place);
    assert!(is_mounted(&place.mount));
    let pid = rustix::process::Pid::from_child(&program);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(program.wait().unwrap().success());
    assert!(!is_mounted(&place.mount));
}
