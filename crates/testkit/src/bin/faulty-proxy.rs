//! The proxy as a program, for tests and benchmarks that are not in Rust.
//!
//! It says on stdout where it listens and ends with its parent: when stdin closes, or on
//! SIGTERM or SIGINT.
#![allow(
    clippy::print_stdout,
    reason = "the ports on stdout are this program's interface"
)]

use std::io::{self, Write};

use clap::Parser;
use forebay_testkit::{Faults, Options, Parent, Proxy, Rule};

/// A reverse proxy on loopback that delays and breaks HTTP on request.
///
/// A rule is a line of comma-separated words:
///   when:  every=N | first=N | each=N (of each path) | share=P,seed=S
///   whom:  method=GET  path=SUBSTRING
///   what:  status=503[,retry-after=S] | drop | truncate=BYTES |
///          stall=BYTES[,for-ms=T] | delay=MS | etag=VALUE
///
/// Prints "listening 127.0.0.1:PORT" and "control 127.0.0.1:PORT". The control port answers
/// GET /counts, GET /faults and POST /faults.
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Arguments {
    /// The server behind, host:port
    #[arg(long)]
    upstream: String,
    /// Port to listen on; 0 for a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Control port; 0 for a free one
    #[arg(long, default_value_t = 0)]
    control_port: u16,
    /// Milliseconds added to each request
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// Limit of response bodies, megabits a second over all connections
    #[arg(long)]
    mbps: Option<f64>,
    /// A fault, e.g. every=3,status=503,retry-after=1; may be given several times
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<Rule>,
}

fn main() -> io::Result<()> {
    let arguments = Arguments::parse();
    let parent = Parent::watch()?;
    let faults = Faults {
        delay_ms: arguments.delay_ms,
        mbps: arguments.mbps,
        rules: arguments.rules,
    };
    let options = Options {
        port: arguments.port,
        control_port: Some(arguments.control_port),
    };
    let proxy = Proxy::start_with(&arguments.upstream, faults, &options)?;
    println!("listening {}", proxy.addr());
    if let Some(control) = proxy.control() {
        println!("control {control}");
    }
    io::stdout().flush()?;
    parent.wait();
    Ok(())
}
