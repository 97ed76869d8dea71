//! `forebay cache warm`: fills the log of a dataset before a job needs it.
//!
//! ```text
//!   plan's epoch -> ids that the log has not -> engine: origin -> memory -> log
//! ```
//!
//! What is there already is not read again, so a run that was stopped goes on where it was.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use forebay_cache::log::{FOLDER, Found, LayoutChoice, Log, find_logs, used};
use forebay_cache::{PolicySettings, policy_by_name};
use forebay_engine::{
    BadSample, DiskSettings, Draws, Engine, EngineSettings, Error, Job, JobSettings, Next, OnError,
    Sequence,
};
use forebay_origin::{Dataset, IndexError, Refresh};
use forebay_plan::{Deal, Order, Plan, Uneven};
use serde_json::json;

use super::{CacheDirs, list, process};
use crate::dataset::DatasetArguments;
use crate::failure::{Failure, warn};
use crate::numbers;
use crate::output::{Output, count, progress_bar, share, size};
use crate::stop::Stop;

const AFTER_HELP: &str = "\
Samples are read in the order of the job's first epoch, so that a job can begin on what is
there. Ctrl-C keeps what was read so far; the same command goes on from there. The bytes
that all logs of a cache directory take never pass --disk.

Examples:
  forebay cache warm s3://bucket/train --images --disk 200GiB
  forebay cache warm s3://bucket/train --images --seed 7 --cache-dir /nvme/cache
  forebay cache warm 's3://bucket/train-{0000..0146}.tar' --cache-dir /nvme0 --cache-dir /nvme1";

/// Bytes of a batch, and the most samples of one: progress is seen after each.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_SAMPLES: usize = 256;
/// Batches that are filled at a time.
const DEPTH: usize = 4;
const READAHEAD: u64 = 64 << 20;
/// How long a sample waits for the disk to keep up with the origin.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often Ctrl-C is looked for.
const STEP: Duration = Duration::from_millis(50);
/// Samples that cannot be read before the dataset is given up.
const MOST_BAD: usize = 1000;

/// Fill the disk with a dataset before a job needs it
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    dataset: DatasetArguments,
    #[command(flatten)]
    dirs: CacheDirs,
    /// Bytes that all logs of the cache directories may take [default: half of what is free]
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes, allow_negative_numbers = true)]
    disk: Option<u64>,
    /// How samples lie on the disk
    #[arg(long, value_name = "LAYOUT", default_value = "auto")]
    disk_layout: DiskLayout,
    /// Seed of epoch 0, as the job will have it
    #[arg(long, value_name = "S", value_parser = numbers::u64, allow_negative_numbers = true)]
    #[arg(conflicts_with = "no_shuffle")]
    seed: Option<u64>,
    /// The job's first epoch, counted from 0
    #[arg(long, value_name = "E", value_parser = numbers::u64, allow_negative_numbers = true)]
    #[arg(conflicts_with = "no_shuffle")]
    epoch: Option<u64>,
    /// In the shuffled order of --seed, or of seed 0 [default: if --seed or --epoch is given]
    #[arg(long, conflicts_with = "no_shuffle")]
    shuffle: bool,
    /// Sample 0 first, the last one last
    #[arg(long)]
    no_shuffle: bool,
    /// Memory to read with; samples longer than a 64th of it are not kept
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes, allow_negative_numbers = true)]
    #[arg(default_value = "512MiB")]
    memory: u64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum DiskLayout {
    /// Packed, unless the log is there in another layout: then nothing is done
    Auto,
    /// Each sample is written once and can be read in any order; a log of another layout is
    /// replaced
    Packed,
}

impl Arguments {
    fn order(&self) -> Order {
        let shuffled = self.shuffle || self.seed.is_some() || self.epoch.is_some();
        if shuffled {
            let seed = self.seed.unwrap_or(0);
            Order::Seeded { seed }
        } else {
            Order::Sequential
        }
    }
}

pub(super) fn run(arguments: Arguments, out: &mut Output) -> Result<(), Failure> {
    let start = Instant::now();
    let (order, disk_layout) = (arguments.order(), arguments.disk_layout);
    let (epoch, memory) = (arguments.epoch.unwrap_or(0), arguments.memory);
    let dirs = arguments.dirs.resolve()?;
    let dataset = Arc::new(arguments.dataset.open(Refresh::Auto)?);
    if let Some(warning) = &dataset.opened().warning {
        warn(warning);
    }
    if disk_layout == DiskLayout::Auto {
        refuse_reordered(&dirs, &dataset)?;
    }
    let disk = DiskSettings::new(dirs.clone(), arguments.disk, LayoutChoice::Packed);
    let (engine, job) = start_job(&dataset, memory, disk)?;
    let log = engine.log(&dataset);
    say_warnings(&job);
    let Some(log) = log else {
        let hint = "pass a --cache-dir that can be written to, and --memory of 4MiB or more";
        let message = format!("there is no log in {}", list(&dirs));
        return Err(Failure::new(message, Some(hint.to_owned())));
    };
    let before = Tally::of(&log, &dataset).map_err(damaged)?;
    if before.missing.samples > 0 && !log.is_writer() {
        return Err(read_only(&dirs, &dataset));
    }
    let ids = ids(&dataset, order, epoch)?;
    let filled = fill(&job, &log, &dataset, &ids);
    // What was under way ends with the engine, and is not counted on after that.
    drop(engine);
    // Also if it failed: what was read is kept.
    log.flush();
    say_warnings(&job);
    let filled = filled?;
    let after = Tally::of(&log, &dataset).map_err(damaged)?;
    let (limit, longest) = (log.stats().disk_limit, log.longest());
    let stats = job.stats();
    drop((job, log));
    let folders = dirs
        .iter()
        .map(|dir| dir.join(FOLDER).join(dataset.cache_name()));
    let report = Report {
        url: dataset.index().url().to_owned(),
        added: after.held.samples.saturating_sub(before.held.samples),
        read: Amount {
            samples: stats.reads,
            bytes: stats.read_bytes,
        },
        after,
        bad: stats.bad_samples,
        disk: folders.map(|folder| used(&folder)).sum(),
        limit,
        longest,
        end: filled,
        seconds: start.elapsed().as_secs_f64(),
    };
    report.show(out)?;
    report.outcome()
}

fn start_job(
    dataset: &Arc<Dataset>,
    memory: u64,
    disk: DiskSettings,
) -> Result<(Engine, Job), Failure> {
    // Each sample is used once: nothing is worth its memory.
    let policy = policy_by_name("none", PolicySettings::default());
    let policy = policy.ok_or_else(|| Failure::new("there is no policy none", None))?;
    let engine = Engine::new(EngineSettings {
        memory,
        readahead: READAHEAD,
        policy,
        disk: Some(disk),
        threads: 0,
        split: None,
        shared: false,
    });
    let engine = engine.map_err(|error| failed(&error))?;
    let settings = JobSettings {
        depth: DEPTH,
        on_error: OnError::Replace,
        max_bad_samples: MOST_BAD,
        rank: None,
        preparation: None,
        lending: None,
        gaps: false,
    };
    let job = engine.job(dataset.clone(), settings);
    Ok((engine, job.map_err(|error| failed(&error))?))
}

/// All samples, in the order of an epoch.
fn ids(dataset: &Dataset, order: Order, epoch: u64) -> Result<Vec<u32>, Failure> {
    let deal = Deal::Strided {
        uneven: Uneven::Keep,
    };
    let plan = Plan::new(dataset.index().len(), order, deal, 1, None, false);
    let plan = plan.map_err(|error| Failure::of(&error, error.hint().map(str::to_owned)))?;
    Ok(plan.epoch(epoch).rank(0).collect())
}

/// How filling ended, if not by an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// All was read that is not there.
    Done,
    /// There is no more room.
    Full,
    /// This signal came.
    Stopped(i32),
}

/// Reads what the log does not have, in the order of `ids`.
fn fill(job: &Job, log: &Log, dataset: &Dataset, ids: &[u32]) -> Result<End, Failure> {
    let system = |error: std::io::Error| Failure::new(format!("signals: {error}"), None);
    let stop = Stop::new().map_err(system)?;
    log.set_patience(PATIENCE);
    let mut before = usize::MAX;
    loop {
        // Again as long as it helps: a sample is passed over if the disk is far behind.
        let missing = missing(job, log, dataset, ids).map_err(damaged)?;
        if missing.is_empty() || missing.len() >= before {
            return Ok(End::Done);
        }
        before = missing.len();
        let end = pass(job, log, dataset, &missing, &stop)?;
        if end != End::Done {
            return Ok(end);
        }
        log.flush();
        // The last chunks may have found no room after all was read.
        if log.is_full() {
            return Ok(End::Full);
        }
    }
}

/// Samples that the log has not but could have.
fn missing(job: &Job, log: &Log, dataset: &Dataset, ids: &[u32]) -> Result<Vec<u32>, IndexError> {
    let bad: Vec<u32> = job
        .stats()
        .bad_samples
        .iter()
        .map(|bad| bad.sample)
        .collect();
    let mut missing = Vec::new();
    for &id in ids {
        let length = dataset.index().length(id)?;
        if length <= log.longest() && log.find(id, length).is_none() && !bad.contains(&id) {
            missing.push(id);
        }
    }
    Ok(missing)
}

fn pass(
    job: &Job,
    log: &Log,
    dataset: &Dataset,
    missing: &[u32],
    stop: &Stop,
) -> Result<End, Failure> {
    let (batches, bytes) = batches(dataset, missing).map_err(damaged)?;
    let bar = progress_bar(bytes);
    let sequence = Sequence::Listed {
        batches: batches.into(),
        closed: true,
    };
    job.begin("warm", sequence, Draws::default())
        .map_err(|error| failed(&error))?;
    let mut samples = 0;
    let end = loop {
        if let Some(signal) = stop.signal() {
            break Ok(End::Stopped(signal));
        }
        if log.is_full() {
            break Ok(End::Full);
        }
        match job.next(STEP) {
            Ok(Next::Batch(batch)) => {
                samples += batch.len() as u64;
                bar.inc(batch.data_len() as u64);
                let all = count(missing.len() as u64);
                bar.set_message(format!("{} of {all} samples", count(samples)));
            }
            Ok(Next::End) => break Ok(End::Done),
            Ok(Next::Wait) => bar.tick(),
            Err(error) => break Err(failed(&error)),
        }
    };
    job.cancel();
    bar.finish_and_clear();
    end
}

/// Samples in batches, and the bytes of all.
fn batches(dataset: &Dataset, ids: &[u32]) -> Result<(Vec<Vec<u32>>, u64), IndexError> {
    let mut batches: Vec<Vec<u32>> = Vec::new();
    let (mut all, mut bytes) = (0, u64::MAX);
    for &id in ids {
        let length = dataset.index().length(id)?;
        all += length;
        bytes = bytes.saturating_add(length);
        match batches.last_mut() {
            Some(batch) if bytes <= BATCH_BYTES && batch.len() < BATCH_SAMPLES => batch.push(id),
            _ => {
                batches.push(vec![id]);
                bytes = length;
            }
        }
    }
    Ok((batches, all))
}

/// Samples and their bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Amount {
    samples: u64,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.samples += 1;
        self.bytes += bytes;
    }

    fn words(&self) -> String {
        format!("{} samples, {}", count(self.samples), size(self.bytes))
    }
}

/// What of a dataset a log has.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    held: Amount,
    /// Could be there.
    missing: Amount,
    /// Cannot.
    too_long: Amount,
}

impl Tally {
    fn of(log: &Log, dataset: &Dataset) -> Result<Self, IndexError> {
        let mut tally = Self::default();
        let index = dataset.index();
        for id in 0..index.len() {
            let length = index.length(id)?;
            let amount = if length > log.longest() {
                &mut tally.too_long
            } else if log.find(id, length).is_some() {
                &mut tally.held
            } else {
                &mut tally.missing
            };
            amount.add(length);
        }
        Ok(tally)
    }

    fn samples(&self) -> u64 {
        self.held.samples + self.missing.samples + self.too_long.samples
    }
}

/// What came of it.
struct Report {
    url: String,
    /// Samples that were not there before.
    added: u64,
    /// From the origin.
    read: Amount,
    after: Tally,
    bad: Vec<BadSample>,
    /// Bytes of the log on disk, and those that all logs may take.
    disk: u64,
    limit: u64,
    longest: u64,
    end: End,
    seconds: f64,
}

impl Report {
    fn show(&self, out: &mut Output) -> Result<(), Failure> {
        let Tally {
            held,
            missing,
            too_long,
        } = self.after;
        let samples = self.after.samples();
        if out.json {
            return out.document(&json!({
                "url": self.url,
                "samples": samples,
                "held": held.samples,
                "held_bytes": held.bytes,
                "added": self.added,
                "read": self.read.samples,
                "read_bytes": self.read.bytes,
                "missing": missing.samples,
                "missing_bytes": missing.bytes,
                "too_long": too_long.samples,
                "unreadable": self.bad.len(),
                "full": self.end == End::Full,
                "stopped": matches!(self.end, End::Stopped(_)),
                "disk_bytes": self.disk,
                "disk_limit": self.limit,
                "seconds": self.seconds,
            }));
        }
        out.heading(&self.url)?;
        let part = share(held.samples, samples);
        out.field(
            "kept",
            format!("{} of {} ({part})", held.words(), count(samples)),
        )?;
        let disk = format!(
            "{}, all logs may take {}",
            size(self.disk),
            size(self.limit)
        );
        out.field("on disk", disk)?;
        out.field("read", self.read.words())?;
        if missing.samples > 0 {
            match self.end {
                End::Full => out.field("did not fit", missing.words())?,
                End::Stopped(_) => {
                    let left = missing.words();
                    out.field(
                        "left",
                        format!("{left}; the same command goes on from here"),
                    )?;
                }
                End::Done => out.field("not kept", missing.words())?,
            }
        }
        if too_long.samples > 0 {
            let longest = size(self.longest);
            let text = format!("{}: longer than {longest}", too_long.words());
            out.field("too long", text)?;
        }
        out.field("took", format!("{:.1} s", self.seconds))
    }

    /// What is to be said at the end, and how the command ends.
    fn outcome(&self) -> Result<(), Failure> {
        if let End::Stopped(signal) = self.end {
            return Err(Failure::Stopped(signal));
        }
        if let Some(first) = self.bad.first() {
            let samples = match self.bad.len() {
                1 => "1 sample".to_owned(),
                number => format!("{} samples", count(number as u64)),
            };
            let message = format!(
                "{samples} could not be read, the first: {}: {}",
                first.name, first.reason
            );
            let hint = "mend the dataset, or let forebay index list it again";
            return Err(Failure::new(message, Some(hint.to_owned())));
        }
        if self.after.held.samples > 0 || self.after.samples() == 0 {
            return Ok(());
        }
        let (message, hint) = if self.after.missing.samples == 0 {
            let longest = size(self.longest);
            (
                format!("nothing could be kept: every sample is longer than {longest}"),
                "raise --memory, up to 512MiB",
            )
        } else {
            let limit = size(self.limit);
            (
                format!("nothing could be kept: no sample fits within {limit} of disk"),
                "raise --disk, or pass a --cache-dir where more is free",
            )
        };
        Err(Failure::new(message, Some(hint.to_owned())))
    }
}

/// The dataset's log, if there is one.
fn log_of(dirs: &[PathBuf], dataset: &Dataset) -> Option<Found> {
    let logs = find_logs(dirs).unwrap_or_default();
    logs.into_iter()
        .find(|log| log.name == dataset.cache_name())
}

/// A log that a job writes anew for each epoch would have to go.
fn refuse_reordered(dirs: &[PathBuf], dataset: &Dataset) -> Result<(), Failure> {
    match log_of(dirs, dataset).and_then(|log| log.contents().layout) {
        Some("reorder") => Err(Failure::new(
            format!(
                "the log of {} has the layout reorder, which a job fills as it runs",
                dataset.index().url()
            ),
            Some("pass --disk-layout packed to put another in its place".to_owned()),
        )),
        _ => Ok(()),
    }
}

fn read_only(dirs: &[PathBuf], dataset: &Dataset) -> Failure {
    let url = dataset.index().url();
    let writer = log_of(dirs, dataset).and_then(|log| log.writer().ok().flatten());
    match writer {
        Some(number) => Failure::new(
            format!("the log of {url} is written by {}", process(number)),
            Some("let it end, or pass another --cache-dir".to_owned()),
        ),
        None => Failure::new(
            format!(
                "nothing could be kept: the log in {} cannot be written",
                list(dirs)
            ),
            Some("raise --disk, or pass a --cache-dir that can be written to".to_owned()),
        ),
    }
}

fn damaged(error: IndexError) -> Failure {
    Failure::of(&error, Some("forebay index builds it anew".to_owned()))
}

fn failed(error: &Error) -> Failure {
    let hint = match error {
        Error::TooManyBad { .. } => {
            Some("check the dataset; forebay index lists it again".to_owned())
        }
        error => error.hint().map(|hint| in_our_words(&hint)),
    };
    Failure::of(error, hint)
}

fn say_warnings(job: &Job) {
    for text in job.take_warnings() {
        warn(&in_our_words(&text));
    }
}

/// The engine speaks of the loader's settings.
fn in_our_words(text: &str) -> String {
    text.replace("memory=", "--memory")
        .replace("cache_dir=", "--cache-dir")
}
