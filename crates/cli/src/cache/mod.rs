//! `forebay cache`: the logs on local disks, which keep samples for the runs to come.
//!
//! `status`, `verify` and `clear` know logs by their files alone; `warm` runs the engine on a
//! dataset, as a training job would.

mod clear;
mod status;
mod verify;
mod warm;

use std::path::{Component, Path, PathBuf};

use clap::{Args, Subcommand};
use forebay_cache::log::{Found, find_logs};

use crate::failure::Failure;

const AFTER_HELP: &str = "\
A log keeps the samples of a dataset on a local disk: what a run reads from a bucket, the
runs after it read from there.

Examples:
  forebay cache status
  forebay cache warm s3://bucket/train --images --cache-dir /nvme/cache --disk 200GiB
  forebay cache verify --repair
  forebay cache clear s3://bucket/train";

/// Show, fill, check or delete what is kept on local disks
#[derive(Args)]
#[command(after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Status(status::Arguments),
    Warm(warm::Arguments),
    Verify(verify::Arguments),
    Clear(clear::Arguments),
}

pub(crate) fn run(arguments: Arguments, out: &mut crate::output::Output) -> Result<(), Failure> {
    match arguments.command {
        Command::Status(arguments) => status::run(arguments, out),
        Command::Warm(arguments) => warm::run(arguments, out),
        Command::Verify(arguments) => verify::run(arguments, out),
        Command::Clear(arguments) => clear::run(arguments, out),
    }
}

/// Most directories that a log is spread over.
const MOST: usize = 127;

#[derive(Args)]
struct CacheDirs {
    /// A cache directory; may be repeated, for logs that are spread over several [default:
    /// FOREBAY_CACHE, else the folder forebay in XDG_CACHE_HOME, else ~/.cache/forebay]
    #[arg(long = "cache-dir", value_name = "DIR")]
    cache_dirs: Vec<PathBuf>,
}

impl CacheDirs {
    /// The directories, as the loader would name them: a log knows its directories by name.
    fn resolve(self) -> Result<Vec<PathBuf>, Failure> {
        let wrong = |message: String| Failure::usage(message, "pass --cache-dir once a directory");
        if self.cache_dirs.is_empty() {
            let hint = "pass --cache-dir, or set FOREBAY_CACHE";
            let dir = default_dir();
            return match dir {
                Some(dir) => Ok(vec![dir]),
                None => Err(Failure::new(
                    "there is no cache directory",
                    Some(hint.to_owned()),
                )),
            };
        }
        let mut dirs: Vec<PathBuf> = Vec::new();
        for dir in self.cache_dirs {
            if dir.as_os_str().is_empty() {
                return Err(wrong("--cache-dir is empty".to_owned()));
            }
            let dir = absolute(&dir);
            if dirs.contains(&dir) {
                let message = format!("--cache-dir names {} twice", dir.display());
                return Err(wrong(message));
            }
            dirs.push(dir);
        }
        if dirs.len() > MOST {
            let message = format!("{} cache directories; at most {MOST} are used", dirs.len());
            return Err(wrong(message));
        }
        Ok(dirs)
    }
}

fn default_dir() -> Option<PathBuf> {
    let set = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    set("FOREBAY_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|cache| cache.join("forebay")))
        .or_else(|| Some(std::env::home_dir()?.join(".cache/forebay")))
}

/// As Python's `abspath` of `expanduser`: links stay, `..` goes.
fn absolute(path: &Path) -> PathBuf {
    let path = match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    };
    let path = std::path::absolute(&path).unwrap_or(path);
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// The logs in some directories.
fn logs(dirs: &[PathBuf]) -> Result<Vec<Found>, Failure> {
    let hint = "pass a --cache-dir that can be read";
    find_logs(dirs).map_err(|error| Failure::of(&error, Some(hint.to_owned())))
}

/// Those of them that are meant by a folder's name or a dataset's address.
fn choose(logs: Vec<Found>, target: &str, dirs: &[PathBuf]) -> Result<Vec<Found>, Failure> {
    let mut meant = vec![target.to_owned()];
    if target.contains("://") {
        meant.push(target.trim_end_matches('/').to_owned());
    } else {
        let path = absolute(Path::new(target));
        let path = path.canonicalize().unwrap_or(path);
        meant.push(path.to_string_lossy().into_owned());
    }
    let is_meant = |log: &Found| meant.iter().any(|name| log.is_of(name));
    let chosen: Vec<_> = logs.into_iter().filter(is_meant).collect();
    if chosen.is_empty() {
        let hint = "forebay cache status shows those that are there; --cache-dir names others";
        return Err(Failure::new(
            format!("no log of {target} in {}", list(dirs)),
            Some(hint.to_owned()),
        ));
    }
    Ok(chosen)
}

fn list(dirs: &[PathBuf]) -> String {
    let names: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    names.join(", ")
}

/// What people call a log: its dataset's address, or else its folder.
fn title(log: &Found) -> String {
    let about = log
        .about
        .as_deref()
        .filter(|about| !about.trim().is_empty());
    about.map_or_else(|| log.folders[0].display().to_string(), str::to_owned)
}

/// Who writes a log, in words.
fn process(number: u32) -> String {
    match number {
        0 => "a process of another container or machine".to_owned(),
        number => format!("process {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_name() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute(Path::new("a/./b/../c/")), here.join("a/c"));
        assert_eq!(absolute(Path::new("/../x")), Path::new("/x"));
    }

    #[test]
    fn a_directory_that_is_named_twice_is_refused() {
        let dirs = |names: &[&str]| CacheDirs {
            cache_dirs: names.iter().map(PathBuf::from).collect(),
        };
        assert!(matches!(
            dirs(&["/a", "/a/"]).resolve(),
            Err(Failure::Usage(_))
        ));
        assert!(matches!(dirs(&[""]).resolve(), Err(Failure::Usage(_))));
        let many: Vec<_> = (0..128)
            .map(|number| PathBuf::from(format!("/{number}")))
            .collect();
        let many = CacheDirs { cache_dirs: many };
        assert!(matches!(many.resolve(), Err(Failure::Usage(_))));
    }
}
