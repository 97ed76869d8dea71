//! `forebay sim`: a run before the run.
//!
//! Plans and policies are those of the loader, replayed by `forebay-sim`; nothing is read.

pub(crate) mod door;
mod lcache;
mod lobster;
mod paper;
mod plot;
mod question;
mod table;
mod what_if;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::output::Output;

const AFTER_HELP: &str = "\
Replays the loader's own plans and policies with a cost model: what would be hit, what would
be waited for, what would be read from where. No sample is read.

Examples:
  forebay sim what-if ./train --memory 8GiB,16GiB --plot sizes.svg
  forebay sim paper
  forebay sim paper lobster
  forebay sim paper lobster --scale 0.1 --json";

/// Simulate runs: hits, waiting and reads, before a run
#[derive(Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    WhatIf(Box<what_if::Arguments>),
    Paper(paper::Arguments),
}

pub(crate) fn run(arguments: Arguments, out: &mut Output) -> Result<(), Failure> {
    match arguments.command {
        Command::WhatIf(arguments) => what_if::run(*arguments, out),
        Command::Paper(arguments) => paper::run(&arguments, out),
    }
}
