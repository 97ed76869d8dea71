//! `forebay cache status`: which logs there are, and what they take.

use clap::Args;
use forebay_cache::log::{Contents, FOLDER, Found, free_space, used};
use serde_json::{Value, json};

use super::{CacheDirs, list, logs, process, title};
use crate::failure::Failure;
use crate::output::{Output, count, share, size};

const AFTER_HELP: &str = "\
Only looks: no log is changed, and those in use go on. Bytes are those of the disk's
blocks, as du counts them.

Examples:
  forebay cache status
  forebay cache status --cache-dir /nvme0/cache --cache-dir /nvme1/cache
  forebay cache status --json";

/// Show what is kept on disk: samples, bytes, who writes
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    dirs: CacheDirs,
}

/// A log and what was found out about it.
struct Row {
    log: Found,
    contents: Contents,
    bytes: u64,
    writer: Result<Option<u32>, String>,
}

pub(super) fn run(arguments: Arguments, out: &mut Output) -> Result<(), Failure> {
    let dirs = arguments.dirs.resolve()?;
    let rows: Vec<_> = logs(&dirs)?.into_iter().map(Row::new).collect();
    let spaces: Vec<_> = dirs
        .iter()
        .map(|dir| (dir, used(&dir.join(FOLDER)), free_space(dir)))
        .collect();
    let total: u64 = spaces.iter().map(|(_, bytes, _)| bytes).sum();
    if out.json {
        let dirs: Vec<_> = spaces
            .iter()
            .map(|(dir, bytes, free)| json!({"path": dir, "bytes": bytes, "free": free}))
            .collect();
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        return out.document(&json!({"cache_dirs": dirs, "bytes": total, "logs": rows}));
    }
    if rows.is_empty() {
        out.line(format_args!("nothing is kept in {}", list(&dirs)))?;
    }
    for row in &rows {
        row.show(out)?;
    }
    for (dir, bytes, free) in spaces {
        out.heading(&dir.display().to_string())?;
        out.field("in use", size(bytes))?;
        out.field("free", free.map_or("not known".to_owned(), size))?;
    }
    Ok(())
}

impl Row {
    fn new(log: Found) -> Self {
        Self {
            contents: log.contents(),
            bytes: log.used(),
            writer: log.writer().map_err(|error| error.to_string()),
            log,
        }
    }

    fn show(&self, out: &mut Output) -> Result<(), Failure> {
        let (log, contents) = (&self.log, &self.contents);
        out.heading(&title(log))?;
        if let Some(problem) = &log.problem {
            out.field("problem", problem)?;
        }
        if log.is_log() {
            out.field("samples", self.samples())?;
            let layout = contents.layout.unwrap_or("nothing is written yet");
            out.field("layout", layout)?;
        }
        out.field("bytes", size(self.bytes))?;
        if log.is_log() {
            out.field("segments", count(contents.segments))?;
            out.field("written by", self.written_by())?;
        }
        if !contents.others.is_empty() {
            let bytes = contents.others.iter().map(|(_, bytes)| bytes).sum();
            let files = count(contents.others.len() as u64);
            out.field("other files", format!("{files}, {}", size(bytes)))?;
        }
        for folder in &log.folders {
            out.field("folder", folder.display())?;
        }
        Ok(())
    }

    fn samples(&self) -> String {
        let contents = &self.contents;
        let mut text = match (contents.held, contents.samples) {
            (Some(held), Some(samples)) => {
                let all = u64::from(samples);
                format!("{} of {} ({})", count(held), count(all), share(held, all))
            }
            (Some(held), None) => format!("{}, of how many is not known", count(held)),
            (None, _) => "not known: they change with every epoch".to_owned(),
        };
        if contents.elsewhere > 0 {
            let more = count(contents.elsewhere);
            text.push_str(&format!(
                "; {more} more in cache directories not named here"
            ));
        }
        text
    }

    fn written_by(&self) -> String {
        match &self.writer {
            Ok(Some(number)) => process(*number),
            Ok(None) => "nobody now".to_owned(),
            Err(error) => format!("not known: {error}"),
        }
    }

    fn json(&self) -> Value {
        let (log, contents) = (&self.log, &self.contents);
        let others: Vec<_> = contents.others.iter().map(|(name, _)| name).collect();
        json!({
            "name": log.name,
            "url": log.about,
            "folders": log.folders,
            "is_log": log.is_log(),
            "problem": log.problem,
            "layout": contents.layout,
            "samples": contents.samples,
            "held": contents.held,
            "held_elsewhere": contents.elsewhere,
            "bytes": self.bytes,
            "segments": contents.segments,
            "other_files": others,
            "writer": self.writer.as_ref().ok().copied().flatten(),
        })
    }
}
