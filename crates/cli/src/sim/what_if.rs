//! `forebay sim what-if`: hits, epoch time, waiting, bytes and cost for sizes of memory and disk.

use std::path::{Path, PathBuf};

use clap::Args;
use forebay_origin::{Dataset, Refresh};
use forebay_plan::{Deal, Order, Plan, Uneven};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::plot;
use super::question::{Answer, Question, Settings, Unanswered, Wrong, lengths};
use crate::dataset::DatasetArguments;
use crate::failure::{Failure, warn};
use crate::numbers;
use crate::output::{Output, count, size};
use crate::stop::Stop;

const AFTER_HELP: &str = "\
The lengths are the dataset's own. Order, policies and memory are those of a real run, so hits
are too; times follow from what is said here about step, origin and disk. Samples stay in
memory as they are stored, not decoded. Figures are those of an epoch after the first, which
finds memory and disk empty.

--plot writes an SVG drawing; other formats are not there.

Examples:
  forebay sim what-if ./train
  forebay sim what-if s3://bucket/train --images --memory 8GiB,16GiB,64GiB --step-ms 120 --ranks 8
  forebay sim what-if ./train --policy farthest,lru --disk 0,200GiB --plot sizes.svg
  forebay sim what-if s3://bucket/train --price-per-gb 0.09 --json";

/// Sizes that are asked about if none is named, in per cent of the dataset.
const PARTS: [u64; 5] = [10, 25, 50, 75, 110];
/// The least of them.
const LEAST: u64 = 1 << 20;

/// What a run would come to with other sizes of memory or disk
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    dataset: DatasetArguments,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args)]
struct Asked {
    /// Sizes of memory, such as 8GiB,16GiB [default: 10, 25, 50, 75 and 110 % of the dataset]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = numbers::bytes)]
    #[arg(allow_negative_numbers = true)]
    memory: Option<Vec<u64>>,
    /// Sizes of the cache on disk; 0 for none
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = numbers::bytes)]
    #[arg(allow_negative_numbers = true, default_value = "0")]
    disk: Vec<u64>,
    /// What stays in memory: farthest, reuse, lru, lfu, minio or none; may be several
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "farthest"
    )]
    policy: Vec<String>,
    /// Milliseconds that a rank computes on a batch
    #[arg(
        long,
        value_name = "MS",
        allow_negative_numbers = true,
        default_value = "100"
    )]
    step_ms: f64,
    /// Samples in a batch of a rank
    #[arg(long, value_name = "B", value_parser = numbers::positive_u32)]
    #[arg(allow_negative_numbers = true, default_value = "256")]
    batch_size: u32,
    /// How many ranks train together
    #[arg(long, value_name = "R", value_parser = numbers::positive_u32)]
    #[arg(allow_negative_numbers = true, default_value = "1")]
    ranks: u32,
    /// Nodes that the ranks are on, each with that memory and disk, shared by its ranks
    #[arg(long, value_name = "N", value_parser = numbers::positive_u32)]
    #[arg(allow_negative_numbers = true, default_value = "1")]
    nodes: u32,
    /// Epochs to replay
    #[arg(long, value_name = "E", value_parser = numbers::positive_u32)]
    #[arg(allow_negative_numbers = true, default_value = "3")]
    epochs: u32,
    /// Seed of epoch 0
    #[arg(long, value_name = "S", value_parser = numbers::u64, allow_negative_numbers = true)]
    #[arg(default_value = "0")]
    seed: u64,
    /// Threads of each rank [default: the cores of this machine, shared by the ranks of a node]
    #[arg(long, value_name = "T", value_parser = numbers::positive_u32)]
    #[arg(allow_negative_numbers = true)]
    threads: Option<u32>,
    /// Milliseconds of a thread to decode and augment a sample
    #[arg(
        long,
        value_name = "MS",
        allow_negative_numbers = true,
        default_value = "0"
    )]
    prepare_ms: f64,
    /// Most bytes fetched ahead on a node
    #[arg(long, value_name = "SIZE", value_parser = numbers::bytes)]
    #[arg(allow_negative_numbers = true, default_value = "256MiB")]
    readahead: u64,
    /// What a node gets from the origin, in MB/s [default: 400, or 1000 for local files]
    #[arg(long, value_name = "MBPS", allow_negative_numbers = true)]
    origin_mbps: Option<f64>,
    /// What each read of the origin takes beside its bytes [default: 30, or 0.05 for local files]
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    origin_latency_ms: Option<f64>,
    /// What a node's disk gives, in MB/s
    #[arg(
        long,
        value_name = "MBPS",
        allow_negative_numbers = true,
        default_value = "2000"
    )]
    disk_mbps: f64,
    /// What each read of the disk takes beside its bytes
    #[arg(
        long,
        value_name = "MS",
        allow_negative_numbers = true,
        default_value = "0.1"
    )]
    disk_latency_ms: f64,
    /// Price of 1,000,000,000 bytes from the origin
    #[arg(
        long,
        value_name = "PRICE",
        allow_negative_numbers = true,
        default_value = "0"
    )]
    price_per_gb: f64,
    /// Price of 1000 requests to the origin, one for each sample read [default: 0.0004, or 0 for local files]
    #[arg(long, value_name = "PRICE", allow_negative_numbers = true)]
    price_per_1000_requests: Option<f64>,
    /// Draw the answers into this file, which ends in .svg
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub(super) fn run(arguments: Arguments, out: &mut Output) -> Result<(), Failure> {
    let asked = arguments.asked;
    if let Some(path) = &asked.plot {
        check_plot(path)?;
    }
    let dataset = arguments.dataset.open(Refresh::Auto)?;
    if let Some(warning) = &dataset.opened().warning {
        warn(warning);
    }
    let index = dataset.index();
    let settings = asked.settings(&dataset);
    let plan = asked.plan(index.len())?;
    let lengths = lengths(index).map_err(|error| Failure::of(&error, None))?;
    let question = Question::new(plan, lengths, settings.clone()).map_err(|error| usage(&error))?;
    let answers = answer(&question)?;
    let (samples, bytes) = (u64::from(index.len()), index.total_bytes());
    let what = format!("{} samples, {}", count(samples), size(bytes));
    if let Some(path) = &asked.plot {
        let drawing = plot::svg(&format!("{}: {what}", index.url()), &answers);
        std::fs::write(path, drawing).map_err(|error| {
            let message = format!("cannot write {}: {error}", path.display());
            Failure::new(message, Some("pass another file to --plot".to_owned()))
        })?;
    }
    if out.json {
        return out.document(&json!({
            "url": index.url(),
            "samples": samples,
            "bytes": bytes,
            "ranks": asked.ranks,
            "batch_size": asked.batch_size,
            "seed": asked.seed,
            "settings": settings,
            "rows": answers,
            "plot": asked.plot.as_ref().map(|path| path.display().to_string()),
        }));
    }
    out.heading(index.url())?;
    out.field("dataset", what)?;
    asked.say_assumed(&settings, out)?;
    out.line("")?;
    for (at, line) in table(&answers, &settings).iter().enumerate() {
        match at {
            0 => out.heading(line)?,
            _ => out.line(line)?,
        }
    }
    match &asked.plot {
        Some(path) => out.line(format_args!("\nthe drawing is in {}", path.display())),
        None => Ok(()),
    }
}

impl Asked {
    /// What is asked for; what is not said is assumed, for files otherwise than for a store.
    fn settings(&self, dataset: &Dataset) -> Settings {
        let (local, bytes) = (dataset.is_local(), dataset.index().total_bytes());
        let usual = |store: f64, files: f64| if local { files } else { store };
        // So that every sample can be in memory at all.
        let least = LEAST.max(dataset.index().max_length().saturating_mul(4));
        let part = |&part: &u64| (bytes / 100 * part).max(least).next_multiple_of(LEAST);
        let mut parts: Vec<u64> = PARTS.iter().map(part).collect();
        parts.dedup();
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let here = (self.ranks / self.nodes).max(1);
        let requests = u32::try_from(dataset.requests_in_flight()).unwrap_or(u32::MAX);
        Settings {
            policy: self.policy.clone(),
            memory: self.memory.clone().unwrap_or(parts),
            disk: self.disk.clone(),
            nodes: self.nodes,
            first_epoch: 0,
            epochs: self.epochs,
            step_ms: self.step_ms,
            prepare_ms: self.prepare_ms,
            threads: self.threads.unwrap_or((cores / here).max(1)),
            requests: (!local).then_some((requests / here).max(1)),
            depth: 3,
            readahead: self.readahead,
            origin_mbps: self.origin_mbps.unwrap_or(usual(400.0, 1000.0)),
            origin_each_mbps: None,
            origin_latency_ms: self.origin_latency_ms.unwrap_or(usual(30.0, 0.05)),
            disk_mbps: self.disk_mbps,
            disk_latency_ms: self.disk_latency_ms,
            price_per_gb: self.price_per_gb,
            price_per_1000_requests: self.price_per_1000_requests.unwrap_or(usual(0.0004, 0.0)),
        }
    }

    fn plan(&self, samples: u32) -> Result<Plan, Failure> {
        let order = Order::Seeded { seed: self.seed };
        let deal = Deal::Strided {
            uneven: Uneven::Pad,
        };
        Plan::new(
            samples,
            order,
            deal,
            self.ranks,
            Some(self.batch_size),
            false,
        )
        .map_err(|error| Failure::usage(error.to_string(), error.hint().unwrap_or("")))
    }

    /// What the answers rest on.
    fn say_assumed(&self, settings: &Settings, out: &mut Output) -> Result<(), Failure> {
        let ranks = match (self.ranks, self.nodes) {
            (1, _) => "1 rank".to_owned(),
            (ranks, 1) => format!("{ranks} ranks on one node"),
            (ranks, nodes) => format!("{ranks} ranks on {nodes} nodes"),
        };
        let batches = format!(
            "{ranks}, batches of {}, {} ms each; {} epochs, seed {}",
            self.batch_size, self.step_ms, self.epochs, self.seed
        );
        out.field("training", batches)?;
        let who = match settings.requests {
            Some(requests) => format!("{requests} requests in flight"),
            None => format!("{} threads", settings.threads),
        };
        let origin = format!(
            "{} MB/s, {} ms a read, {who} a rank",
            settings.origin_mbps, settings.origin_latency_ms
        );
        out.field("origin", origin)?;
        if settings.disk.iter().any(|&disk| disk > 0) {
            let disk = format!(
                "{} MB/s, {} ms a read",
                settings.disk_mbps, settings.disk_latency_ms
            );
            out.field("disk", disk)?;
        }
        if settings.prepare_ms > 0.0 {
            let prepare = format!(
                "{} ms a sample, {} threads a rank",
                settings.prepare_ms, settings.threads
            );
            out.field("preparing", prepare)?;
        }
        if has_price(settings) {
            let prices = format!(
                "{} a GB, {} a 1000 requests",
                settings.price_per_gb, settings.price_per_1000_requests
            );
            out.field("prices", prices)?;
        }
        Ok(())
    }
}

fn has_price(settings: &Settings) -> bool {
    settings.price_per_gb > 0.0 || settings.price_per_1000_requests > 0.0
}

/// With a bar on a terminal; Ctrl-C ends it.
fn answer(question: &Question) -> Result<Vec<Answer>, Failure> {
    let system = |error: std::io::Error| Failure::new(format!("signals: {error}"), None);
    let stop = Stop::new().map_err(system)?;
    let bar = ProgressBar::new(0);
    let style = "{bar:20} {human_pos} of {human_len} samples replayed, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    let answers = question.answer(&mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
        stop.signal().is_none()
    });
    bar.finish_and_clear();
    answers.map_err(|unanswered| match (unanswered, stop.signal()) {
        (_, Some(signal)) => Failure::Stopped(signal),
        (Unanswered::Failed(error), None) => Failure::of(&error, None),
        (Unanswered::Stopped, None) => Failure::new("stopped", None),
    })
}

/// In the words of the command line.
fn usage(wrong: &Wrong) -> Failure {
    let option = wrong.setting.replace('_', "-");
    let hint = match wrong.setting {
        "memory" => "write it as --memory 8GiB,16GiB",
        _ => "see forebay sim what-if --help",
    };
    Failure::usage(format!("--{option}: {}", wrong.why), hint)
}

fn check_plot(path: &Path) -> Result<(), Failure> {
    let is_svg = path
        .extension()
        .is_some_and(|end| end.eq_ignore_ascii_case("svg"));
    if !is_svg {
        return Err(Failure::usage(
            format!("--plot: {} does not end in .svg", path.display()),
            "SVG is the only format; write it as --plot sizes.svg",
        ));
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let message = format!("--plot: there is no folder {}", folder.display());
        return Err(Failure::usage(message, "make it first"));
    }
    Ok(())
}

/// What a column says of an answer.
type Cell = Box<dyn Fn(&Answer) -> String>;

/// A heading, and a line for each answer.
fn table(answers: &[Answer], settings: &Settings) -> Vec<String> {
    let per_cent = |part: f64| format!("{:.1} %", 100.0 * part);
    let seconds = |seconds: f64| match seconds {
        0.0..600.0 => format!("{seconds:.1} s"),
        600.0..36_000.0 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    };
    let disk = settings.disk.iter().any(|&disk| disk > 0);
    let policy = settings.policy.len() > 1 || settings.policy != ["farthest"];
    let mut columns: Vec<(&str, Cell)> = Vec::new();
    if policy {
        columns.push(("policy", Box::new(|answer| answer.policy.clone())));
    }
    columns.push(("memory", Box::new(|answer| size(answer.memory))));
    if disk {
        columns.push(("disk", Box::new(|answer| size(answer.disk))));
    }
    let hits = |answer: &Answer| answer.later.share(answer.later.memory_hits);
    columns.push((
        "from memory",
        Box::new(move |answer| per_cent(hits(answer))),
    ));
    if disk {
        let hits = |answer: &Answer| answer.later.share(answer.later.disk_hits);
        columns.push(("from disk", Box::new(move |answer| per_cent(hits(answer)))));
    }
    let reads = |answer: &Answer| answer.later.share(answer.later.origin_reads);
    columns.push((
        "from origin",
        Box::new(move |answer| per_cent(reads(answer))),
    ));
    columns.push((
        "origin bytes",
        Box::new(|answer| size(answer.later.origin_bytes as u64)),
    ));
    columns.push((
        "epoch",
        Box::new(move |answer| seconds(answer.later.seconds)),
    ));
    columns.push((
        "waiting",
        Box::new(move |answer| per_cent(answer.later.waiting)),
    ));
    if settings.epochs > 1 {
        let first = move |answer: &Answer| seconds(answer.epochs[0].seconds);
        columns.push(("first epoch", Box::new(first)));
    }
    if has_price(settings) {
        let cost = |cost: f64| format!("{cost:.4}");
        columns.push(("cost", Box::new(move |answer| cost(answer.later.cost))));
    }
    let mut lines = vec![String::new(); answers.len() + 1];
    for (name, text) in columns {
        let cells: Vec<String> = std::iter::once(name.to_owned())
            .chain(answers.iter().map(text))
            .collect();
        let width = cells.iter().map(|cell| cell.chars().count()).max();
        for (line, cell) in lines.iter_mut().zip(cells) {
            *line += &format!("  {cell:>0$}", width.unwrap_or(0));
        }
    }
    lines
}
