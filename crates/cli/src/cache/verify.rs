//! `forebay cache verify`: reads every sample of the logs and checks it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use forebay_cache::log::{CannotChange, Found, Verified};
use serde_json::{Value, json};

use super::{CacheDirs, choose, list, logs, process, title};
use crate::failure::{Failure, warn};
use crate::output::{Output, count, progress_bar, size};

const AFTER_HELP: &str = "\
Needs neither the dataset nor its index: the checksums lie beside the samples. A sample
that is not whole is never handed to a job, which reads it from the origin instead; with
--repair it is taken out of the log, so that it is written anew when it is next read.

Exit code 1 if there are samples that are not whole and were not taken out.

Examples:
  forebay cache verify
  forebay cache verify s3://bucket/train --repair
  forebay cache verify --cache-dir /nvme/cache --json";

/// Check every sample on disk against its checksum
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// The dataset's address, or the name of its folder [default: all logs]
    #[arg(value_name = "URL or NAME")]
    target: Option<String>,
    /// Take out what is not whole, unless a process writes the log
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    dirs: CacheDirs,
}

pub(super) fn run(arguments: Arguments, out: &mut Output) -> Result<(), Failure> {
    let dirs = arguments.dirs.resolve()?;
    let mut found = logs(&dirs)?;
    if let Some(target) = &arguments.target {
        found = choose(found, target, &dirs)?;
    }
    found.retain(|log| {
        if !log.is_log() {
            warn(&format!("{} is not a log", log.folders[0].display()));
        }
        log.is_log()
    });
    let start = Instant::now();
    let bar = progress_bar(found.iter().map(Found::verifiable_bytes).sum());
    let checked = AtomicU64::new(0);
    let progress = |samples: u64, bytes: u64| {
        let samples = checked.fetch_add(samples, Ordering::Relaxed) + samples;
        bar.inc(bytes);
        bar.set_message(format!("{} samples", count(samples)));
    };
    let verify = |log: Found| {
        let verified = log.verify(arguments.repair, &progress);
        (log, verified)
    };
    let rows: Vec<_> = found.into_iter().map(verify).collect();
    bar.finish_and_clear();
    if out.json {
        let seconds = start.elapsed().as_secs_f64();
        let logs: Vec<_> = rows
            .iter()
            .map(|(log, verified)| row(log, verified))
            .collect();
        out.document(&json!({"logs": logs, "seconds": seconds}))?;
    } else if rows.is_empty() {
        out.line(format_args!("nothing is kept in {}", list(&dirs)))?;
    }
    for (log, verified) in &rows {
        if !out.json {
            show(log, verified, out)?;
        }
        for reason in &verified.unreadable {
            warn(&format!("cannot be checked: {reason}"));
        }
    }
    outcome(&rows, arguments.repair)
}

fn show(log: &Found, verified: &Verified, out: &mut Output) -> Result<(), Failure> {
    out.heading(&title(log))?;
    out.field("verified", samples(verified.samples, Some(verified.bytes)))?;
    if verified.bad > 0 {
        out.field("bad", samples(verified.bad, None))?;
    }
    if verified.lost > 0 {
        let lost = samples(verified.lost, None);
        out.field("lost", format!("{lost}: no chunk has them any more"))?;
    }
    if verified.repaired > 0 {
        let repaired = samples(verified.repaired, None);
        out.field("repaired", format!("{repaired} taken out"))?;
    }
    if !verified.unchecked.is_empty() {
        let files = count(verified.unchecked.len() as u64);
        let bytes = verified.unchecked.iter().map(|(_, bytes)| bytes).sum();
        let text = format!("files of another layout or kind: {files}, {}", size(bytes));
        out.field("unchecked", text)?;
    }
    Ok(())
}

fn samples(number: u64, bytes: Option<u64>) -> String {
    let unit = if number == 1 { "sample" } else { "samples" };
    match bytes {
        Some(bytes) => format!("{} {unit}, {}", count(number), size(bytes)),
        None => format!("{} {unit}", count(number)),
    }
}

fn row(log: &Found, verified: &Verified) -> Value {
    let unchecked: Vec<_> = verified.unchecked.iter().map(|(name, _)| name).collect();
    json!({
        "name": log.name,
        "url": log.about,
        "samples": verified.samples,
        "bytes": verified.bytes,
        "bad": verified.bad,
        "lost": verified.lost,
        "repaired": verified.repaired,
        "unreadable": verified.unreadable,
        "unchecked": unchecked,
    })
}

/// A failure if there is something left that is not whole.
fn outcome(rows: &[(Found, Verified)], repair: bool) -> Result<(), Failure> {
    for (log, verified) in rows {
        if let Some(refusal) = &verified.refusal {
            let reason = match refusal {
                CannotChange::InUse(number) => format!("{} writes it now", process(*number)),
                other => other.to_string(),
            };
            warn(&format!("{} cannot be repaired: {reason}", title(log)));
        }
    }
    let left = |verified: &Verified| verified.bad + verified.lost - verified.repaired;
    let left: u64 = rows.iter().map(|(_, verified)| left(verified)).sum();
    let unreadable: usize = rows
        .iter()
        .map(|(_, verified)| verified.unreadable.len())
        .sum();
    if left > 0 {
        let hint = match repair {
            true => "run it again when no process writes the log, as a user who may write there",
            false => "pass --repair to take them out; they are read from the origin until then",
        };
        let verb = if left == 1 { "is" } else { "are" };
        let message = format!("{} on disk {verb} not whole", samples(left, None));
        return Err(Failure::new(message, Some(hint.to_owned())));
    }
    if unreadable > 0 {
        let hint = "run it as the user who trains";
        let message = format!("{unreadable} files could not be read");
        return Err(Failure::new(message, Some(hint.to_owned())));
    }
    Ok(())
}
