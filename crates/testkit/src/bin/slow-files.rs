//! A slow mount as a program, for tests and benchmarks that are not in Rust.
//!
//! It says on stdout where it is and ends with its parent: when stdin closes, or on SIGTERM or
//! SIGINT. Then the mount is gone too.
#![allow(
    clippy::print_stdout,
    reason = "the words on stdout are this program's interface"
)]

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use forebay_testkit::{Parent, SlowFiles, Slowness};

/// Shows a directory at another place, read-only and slowly, as if it lay on a server.
///
/// Prints "mounted PATH" and "control 127.0.0.1:PORT". The control port answers GET /counts,
/// GET /slowness and POST /slowness: {"delay_ms": 10, "mbps": null}. Needs root and /dev/fuse.
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Arguments {
    /// The directory that is shown
    #[arg(long)]
    source: PathBuf,
    /// Where: a directory that is there
    #[arg(long)]
    mount: PathBuf,
    /// Control port; 0 for a free one
    #[arg(long, default_value_t = 0)]
    control_port: u16,
    /// Milliseconds added to each open and each read
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// Limit of what is read, megabits a second over all reads
    #[arg(long)]
    mbps: Option<f64>,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let parent = Parent::watch()?;
    if let Some(missing) = SlowFiles::missing() {
        return Err(io::Error::other(missing));
    }
    let slowness = Slowness {
        delay_ms: arguments.delay_ms,
        mbps: arguments.mbps,
    };
    let port = Some(arguments.control_port);
    let files = SlowFiles::mount(&arguments.source, &arguments.mount, slowness, port)?;
    println!("mounted {}", files.path().display());
    if let Some(control) = files.control() {
        println!("control {control}");
    }
    io::stdout().flush()?;
    parent.wait();
    Ok(())
}
