//! The `forebay` command: a look at a dataset, an order, a loader's state or a cache, before a run.
//!
//! ```text
//!   forebay index URL      list a dataset once, for every process that comes after
//!   forebay inspect URL    what is in it
//!   forebay order ...      which samples, in which order, for which rank
//!   forebay state ...      where a saved loader is; move it
//!   forebay cache ...      what is kept on disk; fill it, check it, delete it
//!   forebay sim ...        a run before the run: hits, waiting and reads, simulated
//! ```
//!
//! One file a subcommand. A subcommand takes its arguments and writes to [`Output`];
//! what fails comes back as a [`Failure`], and only [`run`] turns that into words on
//! stderr and an exit code. The library never ends the process: it may be Python's.

mod cache;
mod dataset;
mod failure;
mod index;
mod inspect;
mod numbers;
mod order;
mod output;
mod sim;
mod state;
mod stop;

use std::io::{self, IsTerminal, Write};

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use failure::Failure;
use output::{Output, wants_colour};
pub use sim::door::{WhatIfError, what_if};

const AFTER_HELP: &str = "\
Examples:
  forebay index s3://bucket/train --images
  forebay inspect ./train
  forebay order --samples 50000 --seed 7 --epoch 3 --head 5
  forebay state show run/loader.json
  forebay cache warm s3://bucket/train --images --disk 200GiB
  forebay cache status
  forebay sim what-if s3://bucket/train --images --memory 8GiB,64GiB --step-ms 120
  forebay sim paper lobster

Exit codes:
  0  done
  1  it failed; stderr says why and what to do
  2  the command line is wrong
  130  Ctrl-C ended it

Environment:
  FOREBAY_CACHE    where index files (in its folder `index`) and samples (in `log`) are kept
  NO_COLOR         if set, no colour; nor is there any where the output is not a terminal
  AWS_*, GOOGLE_*, AZURE_*    credentials and settings of object stores";

/// Forebay feeds training jobs: the command line looks at datasets, orders, states and caches.
#[derive(Parser)]
#[command(name = "forebay", version, after_help = AFTER_HELP, arg_required_else_help = true)]
struct Cli {
    /// Answer in JSON, on stdout
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Index(index::Arguments),
    Inspect(inspect::Arguments),
    Order(order::Arguments),
    State(state::Arguments),
    Cache(cache::Arguments),
    Sim(sim::Arguments),
}

/// Runs the command with these arguments, the program's name being the first; gives
/// its exit code.
pub fn run(arguments: impl IntoIterator<Item = String>) -> i32 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let mut out = Output::new(cli.json);
    let done = match cli.command {
        Command::Index(arguments) => index::run(arguments, &mut out),
        Command::Inspect(arguments) => inspect::run(arguments, &mut out),
        Command::Order(arguments) => order::run(&arguments, &mut out),
        Command::State(arguments) => state::run(arguments, &mut out),
        Command::Cache(arguments) => cache::run(arguments, &mut out),
        Command::Sim(arguments) => sim::run(arguments, &mut out),
    };
    let done = done.and_then(|()| out.flush());
    done.map_or_else(Failure::report, |()| 0)
}

/// Says what clap has to say: help and the version on stdout, errors on stderr.
fn refuse(error: &clap::Error) -> i32 {
    let is_error =
        error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    // There is nobody left to tell if these writes fail.
    if is_error {
        let text = error.render();
        let mut stderr = io::stderr().lock();
        let _ = if wants_colour(stderr.is_terminal()) {
            write!(stderr, "forebay: {}", text.ansi())
        } else {
            write!(stderr, "forebay: {text}")
        };
    } else {
        let _ = error.print();
        let _ = io::stdout().flush();
    }
    error.exit_code()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
