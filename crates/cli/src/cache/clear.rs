//! `forebay cache clear`: deletes logs.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;
use forebay_cache::log::{CannotChange, Found};
use serde_json::json;

use super::{CacheDirs, choose, list, logs, process, title};
use crate::failure::{Failure, warn};
use crate::output::{Output, printable, size};

const AFTER_HELP: &str = "\
A log that a process writes now is not deleted. What is deleted is read from the origin
when it is next wanted.

Examples:
  forebay cache clear s3://bucket/train
  forebay cache clear ./train --cache-dir /nvme/cache --yes
  forebay cache clear --all";

/// Delete what is kept on disk
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    /// The dataset's address, or the name of its folder
    #[arg(value_name = "URL or NAME", required_unless_present = "all")]
    target: Option<String>,
    /// All logs
    #[arg(long, conflicts_with = "target")]
    all: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
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
            warn(&format!(
                "{} is not a log and stays",
                log.folders[0].display()
            ));
        }
        log.is_log()
    });
    if !found.is_empty() && !arguments.yes && !agreed(&found)? {
        return Err(Failure::new("nothing was deleted", None));
    }
    let mut freed = 0;
    let mut deleted = Vec::new();
    let mut kept = Vec::new();
    for log in &found {
        let elsewhere = log.contents().elsewhere;
        match log.clear() {
            Ok(bytes) => {
                freed += bytes;
                deleted.push(log);
                if elsewhere > 0 {
                    let title = title(log);
                    warn(&format!(
                        "{title}: a part of it stays in cache directories that were not named"
                    ));
                }
            }
            Err(error) => kept.push((log, error)),
        }
    }
    if out.json {
        let names: Vec<_> = deleted.iter().map(|log| &log.name).collect();
        let refused: Vec<_> = kept.iter().map(|(log, _)| &log.name).collect();
        let document = json!({"deleted": names, "kept": refused, "freed": freed});
        out.document(&document)?;
    } else if found.is_empty() {
        out.line(format_args!("nothing is kept in {}", list(&dirs)))?;
    } else {
        for log in &deleted {
            out.line(format_args!("deleted {}", printable(&title(log))))?;
        }
        out.line(format_args!("{} freed", size(freed)))?;
    }
    kept.into_iter()
        .next()
        .map_or(Ok(()), |(log, error)| Err(failure(log, &error)))
}

fn failure(log: &Found, error: &CannotChange) -> Failure {
    let title = title(log);
    match error {
        CannotChange::InUse(number) => Failure::new(
            format!("{title} is not deleted: {} writes it now", process(*number)),
            Some("end that process first, or wait for it".to_owned()),
        ),
        CannotChange::Part => Failure::new(
            format!("{title} is not deleted: {error}"),
            Some("pass the --cache-dir of the others as well".to_owned()),
        ),
        CannotChange::Io { path, source } => Failure::new(
            format!("{} cannot be deleted: {source}", path.display()),
            Some("run it as the user who trains".to_owned()),
        ),
        CannotChange::Foreign => Failure::new(format!("{title}: {error}"), None),
    }
}

/// Asks on a terminal; elsewhere nobody can answer.
fn agreed(found: &[Found]) -> Result<bool, Failure> {
    let mut stderr = io::stderr().lock();
    if !io::stdin().is_terminal() || !stderr.is_terminal() {
        return Err(Failure::usage(
            "there is no terminal to ask at whether to delete",
            "pass --yes",
        ));
    }
    // There is nobody left to ask if these writes fail: then the answer is no.
    for log in found {
        let _ = writeln!(stderr, "{}  {}", size(log.used()), printable(&title(log)));
    }
    let _ = write!(stderr, "delete? [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
