//! A directory seen through a slow mount, as if it lay on a server.
//!
//! ```text
//! reader --> kernel (FUSE) --> Tree --> the directory itself, at once
//!                                |
//!                              Later --> the answer, when its time has come
//! ```
//!
//! Each open and each read is answered after a delay, and all answers share a line of limited
//! speed: what NFS does to a loader. Requests wait side by side, so a hundred reads at once take
//! one delay. The kernel caches no bytes of it; names and sizes it keeps for a minute. Looking up
//! and listing cost no delay: it is reading that is to be slow. A read of more than a megabyte is
//! several requests, one after the other.
//!
//! Mounting needs root and `/dev/fuse`; [`SlowFiles::missing`] says which is not there.

mod later;
mod tree;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption};
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::control::{self, Controlled};
use crate::listening::{Serving, accept, bind};
use crate::pace::Pace;
use later::Later;
use tree::Tree;

/// How slow a mount is. The default is as fast as it can be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slowness {
    /// Added to each open and each read; concurrent ones wait side by side.
    pub delay_ms: u64,
    /// Megabits a second of what is read, over all reads together.
    pub mbps: Option<f64>,
}

/// What was asked of a mount since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCounts {
    /// Files opened.
    pub opens: u64,
    /// Reads of files.
    pub reads: u64,
    /// Bytes that they gave.
    pub bytes_out: u64,
    /// Opens and reads that wait for their answer now.
    pub in_flight: u64,
    /// The most that ever waited at one time.
    pub max_in_flight: u64,
}

/// What the tree, the control port and the mount's owner share.
#[derive(Debug, Default)]
struct Shared {
    slowness: Mutex<Slowness>,
    counts: Mutex<FileCounts>,
    pace: Pace,
}

impl Shared {
    fn slowness(&self) -> MutexGuard<'_, Slowness> {
        self.slowness.lock().expect("no panic while changing")
    }

    fn counting(&self) -> MutexGuard<'_, FileCounts> {
        self.counts.lock().expect("no panic while counting")
    }

    /// When an answer of so many bytes arrives, if it is sent now; `None`: at once.
    fn due(&self, bytes: usize) -> Option<Instant> {
        let Slowness { delay_ms, mbps } = *self.slowness();
        let sent = mbps.map(|mbps| self.pace.through(bytes, mbps));
        match (delay_ms, sent) {
            (0, sent) => sent,
            (delay, sent) => Some(sent.unwrap_or_else(Instant::now) + Duration::from_millis(delay)),
        }
    }
}

impl Controlled for Shared {
    const SETTINGS: &'static str = "/slowness";
    type Settings = Slowness;
    type Counts = FileCounts;

    fn settings(&self) -> Slowness {
        self.slowness().clone()
    }

    fn set(&self, slowness: Slowness) {
        *self.slowness() = slowness;
    }

    fn counts(&self) -> FileCounts {
        self.counting().clone()
    }
}

/// A mounted directory; read-only. It is unmounted when this goes, even from under its readers:
/// what they have open gives errors from then on.
#[derive(Debug)]
pub struct SlowFiles {
    mount: PathBuf,
    control: Option<SocketAddr>,
    shared: Arc<Shared>,
    later: Arc<Later>,
    session: Option<BackgroundSession>,
    _serving: Option<Serving>,
}

impl SlowFiles {
    /// Why this machine cannot mount, if it cannot.
    pub fn missing() -> Option<&'static str> {
        if !rustix::process::geteuid().is_root() {
            return Some("mounting needs root");
        }
        (!Path::new("/dev/fuse").exists()).then_some("there is no /dev/fuse")
    }

    /// Shows `source` at `mount`, a directory that is there. `control_port`: where `GET /counts`,
    /// `GET /slowness` and `POST /slowness` are answered, 0 for any free port.
    pub fn mount(
        source: &Path,
        mount: &Path,
        slowness: Slowness,
        control_port: Option<u16>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            slowness: Mutex::new(slowness),
            ..Shared::default()
        });
        let listener = control_port.map(bind).transpose()?;
        let control = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let serve = |listener| {
            let served = accept(listener, Arc::clone(&shared), control::serve);
            Serving::start("slow-files-control", served)
        };
        let serving = listener.map(serve).transpose()?;
        // Absolute: the mount is to be found again wherever the process is by then.
        let (source, mount) = (source.canonicalize()?, mount.canonicalize()?);
        let later = Arc::new(Later::start()?);
        let tree = Tree::new(source, Arc::clone(&shared), Arc::clone(&later));
        let session = fuser::spawn_mount(tree, &mount, &config())?;
        Ok(Self {
            mount,
            control,
            shared,
            later,
            session: Some(session),
            _serving: serving,
        })
    }

    /// Where the directory is seen.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Where the control paths are, if they were asked for.
    pub fn control(&self) -> Option<SocketAddr> {
        self.control
    }

    /// Makes it faster or slower, from the next open or read on.
    pub fn set(&self, slowness: Slowness) {
        self.shared.set(slowness);
    }

    /// What was asked so far.
    pub fn counts(&self) -> FileCounts {
        self.shared.counts()
    }
}

impl Drop for SlowFiles {
    fn drop(&mut self) {
        // Detached, since a plain unmount fails while a file is open. Its threads end when the
        // kernel has let go of the last one, so nobody waits for them here.
        let _ = unmount(&self.mount, UnmountFlags::DETACH);
        self.later.close();
        drop(self.session.take());
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::FSName("slow-files".to_owned()),
        MountOption::NoAtime,
    ];
    // The directory itself may keep one of them waiting.
    config.n_threads = Some(4);
    config
}
