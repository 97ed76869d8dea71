//! `forebay state`: where a saved loader is, and how to move it.
//!
//! A state is the small JSON object that `loader.state_dict()` returns, in a file of its
//! own or inside a checkpoint. `position` says what it means, `file` where it lies,
//! `skip` how it moves.

mod file;
mod position;
mod skip;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::failure::Failure;
use crate::output::{Output, count, share};
use file::StateFile;
use position::{Order, Position};

const AFTER_HELP: &str = "\
In Python, a state is written by json.dump(loader.state_dict(), file) and read by
loader.load_state_dict(json.load(file)).

Examples:
  forebay state show run/loader.json
  forebay state show run/checkpoint.json --key loader
  forebay state skip run/loader.json --batches 100 --batch-size 256 --world-size 8
  forebay state skip run/loader.json --epoch 4 --output run/epoch4.json
  forebay state diff run/step100.json run/step200.json";

/// Show, move or compare the saved states of loaders
#[derive(Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Show(Show),
    Skip(skip::Arguments),
    Diff(Diff),
}

/// Show where a loader is
#[derive(Args)]
#[command(after_help = "\
Examples:
  forebay state show run/loader.json
  forebay state show run/checkpoint.json --key loader --json")]
struct Show {
    /// A JSON file with a state
    file: PathBuf,
    #[command(flatten)]
    key: Key,
}

/// Compare two states
#[derive(Args)]
#[command(after_help = "\
The exit code is 0 whether they differ or not; --json says which in \"same\".

Examples:
  forebay state diff run/step100.json run/step200.json
  forebay state diff loader.json checkpoint.json --key loader")]
struct Diff {
    /// A JSON file with a state
    a: PathBuf,
    /// Another one
    b: PathBuf,
    #[command(flatten)]
    key: Key,
}

#[derive(Args)]
struct Key {
    /// Where in the file's object the state is, if the file is not itself one
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
}

pub(crate) fn run(arguments: Arguments, out: &mut Output) -> Result<(), Failure> {
    match arguments.command {
        Command::Show(show) => {
            let file = StateFile::open(&show.file, show.key.key.as_deref())?;
            if out.json {
                return out.document(&file.position);
            }
            out.heading(&show.file.display().to_string())?;
            describe(&file.position, out)
        }
        Command::Skip(arguments) => skip::run(&arguments, out),
        Command::Diff(diff) => {
            let key = diff.key.key.as_deref();
            let a = StateFile::open(&diff.a, key)?.position;
            let b = StateFile::open(&diff.b, key)?.position;
            compare(&a, &b, out)
        }
    }
}

fn describe(position: &Position, out: &mut Output) -> Result<(), Failure> {
    out.field("epoch", position.epoch)?;
    out.field("consumed", consumed(position))?;
    out.field(
        "batches",
        format!("{} on each rank", count(position.batches)),
    )?;
    out.field("order", order(position.order.as_ref()))?;
    let fingerprint = position.fingerprint.as_deref().unwrap_or("none");
    out.field("dataset", format!("{} samples", samples(position)))?;
    out.field("fingerprint", fingerprint)?;
    for (name, value) in &position.other {
        out.field(name, value)?;
    }
    Ok(())
}

fn consumed(position: &Position) -> String {
    match &position.order {
        Some(order) if order.is_counted_in_batches() => {
            format!("counted in batches: the order is {order}")
        }
        _ => match position.epoch_length() {
            Some(length) => {
                let at_end = if position.consumed >= length {
                    ", the end of the epoch"
                } else {
                    ""
                };
                format!(
                    "{} of {} samples ({}){at_end}",
                    count(position.consumed),
                    count(length),
                    share(position.consumed.min(length), length)
                )
            }
            None => format!("{} samples", count(position.consumed)),
        },
    }
}

fn order(order: Option<&Order>) -> String {
    order.map_or("not drawn yet".to_owned(), ToString::to_string)
}

fn samples(position: &Position) -> String {
    position.samples.map_or("unknown".to_owned(), count)
}

/// The fields of two states side by side: name, both values for people, both in JSON.
type Row = (String, [String; 2], [serde_json::Value; 2]);

fn rows(a: &Position, b: &Position) -> Vec<Row> {
    let numbers = |name: &str, pair: [u64; 2]| -> Row {
        (name.to_owned(), pair.map(count), pair.map(|n| json!(n)))
    };
    let pair = [a, b];
    let mut rows = vec![
        numbers("epoch", pair.map(|side| side.epoch)),
        numbers("consumed", pair.map(|side| side.consumed)),
        numbers("batches", pair.map(|side| side.batches)),
        (
            "order".to_owned(),
            pair.map(|side| order(side.order.as_ref())),
            pair.map(|side| json!(side.order)),
        ),
        (
            "samples".to_owned(),
            pair.map(samples),
            pair.map(|side| json!(side.samples)),
        ),
        (
            "fingerprint".to_owned(),
            pair.map(|side| side.fingerprint.clone().unwrap_or("none".to_owned())),
            pair.map(|side| json!(side.fingerprint)),
        ),
    ];
    let others = a
        .other
        .keys()
        .chain(b.other.keys().filter(|name| !a.other.contains_key(*name)));
    for name in others {
        let values = pair.map(|side| side.other.get(name));
        let texts = values.map(|value| value.map_or("none".to_owned(), ToString::to_string));
        rows.push((name.clone(), texts, values.map(|value| json!(value))));
    }
    rows
}

fn compare(a: &Position, b: &Position, out: &mut Output) -> Result<(), Failure> {
    let mut rows = rows(a, b);
    rows.retain(|(_, _, [a, b])| a != b);
    if out.json {
        let differences: serde_json::Map<_, _> = rows
            .into_iter()
            .map(|(name, _, values)| (name, json!(values)))
            .collect();
        return out.document(&json!({"same": differences.is_empty(), "differences": differences}));
    }
    if rows.is_empty() {
        return out.line("no difference");
    }
    for (name, [a, b], values) in rows {
        let steps = match values.each_ref().map(serde_json::Value::as_i64) {
            [Some(a), Some(b)] => format!(
                " ({}{})",
                if b > a { '+' } else { '-' },
                count(a.abs_diff(b))
            ),
            _ => String::new(),
        };
        out.field(&name, format_args!("{a} -> {b}{steps}"))?;
    }
    Ok(())
}
