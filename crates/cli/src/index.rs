//! `forebay index`: lists a dataset, so that no process has to before it trains.

use std::time::Instant;

use clap::Args;
use forebay_origin::Refresh;
use serde_json::json;

use crate::dataset::DatasetArguments;
use crate::failure::Failure;
use crate::output::{Output, count, size};

const AFTER_HELP: &str = "\
The index is a file that every process on this machine shares. For local directories it
is brought up to date when a loader opens it; for buckets run this command when the data
has changed.

Examples:
  forebay index ./train --images
  forebay index s3://bucket/train --images --storage-option region=eu-central-1
  AWS_ENDPOINT_URL=http://localhost:9000 AWS_ALLOW_HTTP=true forebay index s3://bucket/train
  forebay index 's3://bucket/shards/train-{0000..0146}.tar'
  forebay index ./files --manifest train.csv --json";

/// Build or refresh the index of a dataset
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    dataset: DatasetArguments,
}

pub(crate) fn run(arguments: Arguments, out: &mut Output) -> Result<(), Failure> {
    let start = Instant::now();
    let dataset = arguments.dataset.open(Refresh::Always)?;
    let seconds = start.elapsed().as_secs_f64();
    let (index, opened) = (dataset.index(), dataset.opened());
    // An index that is not kept is of no use to those who come after.
    let Some(path) = &opened.index_path else {
        let reason = opened.warning.as_deref().unwrap_or("index cannot be kept");
        let hint = "pass --index-dir, or set FOREBAY_CACHE to a folder that can be written";
        return Err(Failure::new(reason, Some(hint.to_owned())));
    };
    let samples = u64::from(index.len());
    let (action, changes) = match (&opened.refreshed, &opened.rebuilt_because_corrupt) {
        (Some(d), _) => ("refreshed", Some([d.added, d.changed, d.removed])),
        (None, Some(_)) => ("rebuilt", None),
        (None, None) => ("built", Some([samples, 0, 0])),
    };
    if out.json {
        return out.document(&json!({
            "action": action,
            "url": index.url(),
            "samples": samples,
            "bytes": index.total_bytes(),
            "classes": index.classes().len(),
            "added": changes.map(|[added, _, _]| added),
            "changed": changes.map(|[_, changed, _]| changed),
            "removed": changes.map(|[_, _, removed]| removed),
            "fingerprint": format!("{:016x}", index.fingerprint()),
            "index": {"file": path, "bytes": index.file_len()},
            "seconds": seconds,
        }));
    }
    out.heading(&format!("{action} the index of {}", index.url()))?;
    out.field("samples", count(samples))?;
    out.field("bytes", size(index.total_bytes()))?;
    out.field("classes", count(index.classes().len() as u64))?;
    if let (Some(changes), "refreshed") = (changes, action) {
        let [added, changed, removed] = changes.map(count);
        let text = format!("{added} added, {changed} changed, {removed} removed");
        out.field("changes", text)?;
    }
    let file = format!("{} ({})", path.display(), size(index.file_len()));
    out.field("index", file)?;
    out.field("took", format!("{seconds:.1} s"))
}
