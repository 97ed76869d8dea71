//! `forebay state skip`: a state moved ahead, or to an epoch's start.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use serde_json::json;

use super::Key;
use super::file::StateFile;
use super::position::{Order, Position};
use crate::failure::{Failure, warn};
use crate::numbers;
use crate::output::{Output, printable};

const AFTER_HELP: &str = "\
The file is replaced at once and as a whole, never in part; whatever else it holds stays.

Examples:
  forebay state skip run/loader.json --batches 100 --batch-size 256 --world-size 8
  forebay state skip run/loader.json --samples 25600
  forebay state skip run/checkpoint.json --key loader --epoch 4 --output run/epoch4.json";

/// Move a state ahead, past bad batches say, or to the start of an epoch
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
#[command(group = ArgGroup::new("how far").required(true).args(["batches", "samples", "epoch"]))]
pub(crate) struct Arguments {
    /// A JSON file with a state
    file: PathBuf,
    /// Batches to skip, on each rank
    #[arg(long, value_name = "K", value_parser = numbers::u64, allow_negative_numbers = true)]
    batches: Option<u64>,
    /// Samples in a batch of one rank; needed with --batches, unless the order is a
    /// sampler's own
    #[arg(long, value_name = "B", value_parser = numbers::positive_u32)]
    #[arg(allow_negative_numbers = true, conflicts_with_all = ["samples", "epoch"])]
    batch_size: Option<u32>,
    /// How many ranks there are [default: 1]
    #[arg(long, value_name = "R", value_parser = numbers::positive_u32)]
    #[arg(allow_negative_numbers = true, conflicts_with_all = ["samples", "epoch"])]
    world_size: Option<u32>,
    /// Samples to skip, on all ranks together; the count of batches stays
    #[arg(long, value_name = "N", value_parser = numbers::u64, allow_negative_numbers = true)]
    samples: Option<u64>,
    /// Go to the start of this epoch, counted from 0
    #[arg(long, value_name = "E", value_parser = numbers::u64, allow_negative_numbers = true)]
    epoch: Option<u64>,
    /// Write here and leave FILE alone
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    key: Key,
}

pub(crate) fn run(arguments: &Arguments, out: &mut Output) -> Result<(), Failure> {
    let file = StateFile::open(&arguments.file, arguments.key.key.as_deref())?;
    let before = &file.position;
    let (after, notes) = moved(before, arguments)?;
    let to = arguments.output.as_ref().unwrap_or(&arguments.file);
    file.save(&after, to)?;
    for note in &notes {
        warn(note);
    }
    if out.json {
        let document = json!({"file": to, "before": before, "after": after, "notes": notes});
        return out.document(&document);
    }
    out.heading(&to.display().to_string())?;
    for (name, [before, after], _) in super::rows(before, &after).into_iter().take(4) {
        if before == after {
            out.field(&name, after)?;
        } else {
            let arrow = out.paint.with(crate::output::Paint::CYAN, "->");
            let name = format!("{name:<12}");
            let (before, after) = (printable(&before), printable(&after));
            out.line(format_args!("  {name}{before} {arrow} {after}"))?;
        }
    }
    Ok(())
}

/// The state moved as asked, and what the user should know about it.
fn moved(before: &Position, arguments: &Arguments) -> Result<(Position, Vec<String>), Failure> {
    let mut position = before.clone();
    let mut notes = Vec::new();
    let counted = before
        .order
        .as_ref()
        .is_some_and(Order::is_counted_in_batches);
    match *arguments {
        Arguments {
            epoch: Some(epoch), ..
        } => {
            if !position.go_to(epoch) {
                notes.push(format!(
                    "the order of epoch {epoch} is not known ahead: the loader will draw it anew"
                ));
            }
        }
        _ if position.has_own_state() => {
            return Err(Failure::new(
                "the state has a dataset's or sampler's own words about where it is, which only \
                 that can move",
                Some("pass --epoch to begin an epoch".to_owned()),
            ));
        }
        Arguments {
            samples: Some(samples),
            ..
        } => {
            if counted {
                return Err(Failure::new(
                    "the order is not forebay's: its samples cannot be counted",
                    Some("pass --batches".to_owned()),
                ));
            }
            by_samples(&mut position, samples, &mut notes);
        }
        Arguments {
            batches,
            batch_size,
            ..
        } => {
            let batches = batches.unwrap_or(0);
            if counted {
                position.batches = position.batches.saturating_add(batches);
                return Ok((position, notes));
            }
            let Some(size) = batch_size.map(u64::from) else {
                return Err(Failure::usage(
                    "--batches without the size of a batch",
                    "pass --batch-size, and --world-size if there are several ranks",
                ));
            };
            let round = size * u64::from(arguments.world_size.unwrap_or(1));
            // No more batches than the epoch has left; its last one may be short.
            let left = position.epoch_length().map_or(u64::MAX, |length| {
                length.saturating_sub(position.consumed).div_ceil(round)
            });
            position.batches = position.batches.saturating_add(batches.min(left));
            by_samples(&mut position, batches.saturating_mul(round), &mut notes);
        }
    }
    Ok((position, notes))
}

fn by_samples(position: &mut Position, samples: u64, notes: &mut Vec<String>) {
    let wanted = position.consumed.saturating_add(samples);
    let (epoch, next) = (position.epoch, position.epoch.saturating_add(1));
    match position.epoch_length() {
        Some(length) => {
            position.consumed = wanted.min(length.max(position.consumed));
            if position.consumed >= length {
                notes.push(format!(
                    "this is the end of epoch {epoch}: the loader will have no batch left in it; \
                     --epoch {next} goes to the next one"
                ));
            }
        }
        None => {
            position.consumed = wanted;
            if let Some(samples) = position.samples
                && wanted >= samples
            {
                notes.push(format!(
                    "this is past the dataset's {samples} samples: unless the sampler draws more \
                     than that, it is the end of epoch {epoch}; --epoch {next} goes to the next one"
                ));
            }
        }
    }
}
