//! What if: one question, and an answer for every policy and size asked for.
//!
//! ```text
//!   plan + lengths + settings  -->  a scenario for each policy x disk x memory  -->  its epochs
//! ```
//!
//! The command and the Python door ask in the same words ([`Settings`]), and are told in their own
//! what is wrong with them. Scenarios are independent of each other, so each core takes one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_engine::disk_buffers;
use forebay_origin::{Index, IndexError};
use forebay_plan::Plan;
use forebay_policy::{NAMES, by_name};
use forebay_sim::{
    Access, Costs, Curve, Error, Figures, Job, Layout, Loading, Log, Memory, Report, Scenario,
    Sizes,
};
use serde::{Deserialize, Serialize};

/// Most scenarios of one question.
const MOST_ROWS: usize = 1000;
/// Samples whose scenarios may be in memory at one time: each takes up to a hundred bytes.
const MOST_SAMPLES: u64 = 16_000_000;
/// Figures of one scenario, one for each rank and epoch, and samples that its nodes know of.
const MOST_FIGURES: u64 = 4_000_000;
const MOST_KNOWN: u64 = 4_000_000_000;
/// How often whoever watches is told.
const STEP: Duration = Duration::from_millis(50);
/// Copying into a batch: a sample's own cost, what a core gives, and what the memory gives.
const COPY: (f64, f64, f64) = (1e-6, 5e9, 20e9);
/// Reads of the log in flight.
const LOG_REQUESTS: u32 = 64;

/// What is asked for, beside the plan and the lengths.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(crate) policy: Vec<String>,
    /// Bytes of each node.
    pub(crate) memory: Vec<u64>,
    /// Bytes of each node, 0 for none.
    pub(crate) disk: Vec<u64>,
    pub(crate) nodes: u32,
    pub(crate) first_epoch: u64,
    pub(crate) epochs: u32,
    pub(crate) step_ms: f64,
    /// A thread's, for one sample.
    pub(crate) prepare_ms: f64,
    /// Of each rank.
    pub(crate) threads: u32,
    /// In flight, of each rank; `None` if its threads read by themselves.
    pub(crate) requests: Option<u32>,
    /// Batches that are filled or full ahead of the user.
    pub(crate) depth: u32,
    /// Bytes of each node.
    pub(crate) readahead: u64,
    /// What a node gets, in 1,000,000 bytes a second.
    pub(crate) origin_mbps: f64,
    /// What one read at a time gets; `None` if that is all of it.
    pub(crate) origin_each_mbps: Option<f64>,
    pub(crate) origin_latency_ms: f64,
    pub(crate) disk_mbps: f64,
    pub(crate) disk_latency_ms: f64,
    /// For 1,000,000,000 bytes.
    pub(crate) price_per_gb: f64,
    pub(crate) price_per_1000_requests: f64,
}

/// A setting that makes no sense, in the words of both doors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// As in [`Settings`].
    pub(crate) setting: &'static str,
    /// Goes on after the setting's name.
    pub(crate) why: String,
}

impl Wrong {
    fn new(setting: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { setting, why }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Whoever watches had enough.
    Stopped,
    /// A bug of the simulator.
    Failed(Error),
}

/// What would come of one policy with one size of memory and disk.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Answer {
    pub(crate) policy: String,
    pub(crate) memory: u64,
    pub(crate) disk: u64,
    /// An epoch after the first, on average; the first if there is no other.
    #[serde(flatten)]
    pub(crate) later: Epoch,
    /// The epochs in their order.
    pub(crate) epochs: Vec<Epoch>,
    /// What was fetched ahead for the epoch after the last.
    pub(crate) ahead: Epoch,
}

/// Figures of an epoch, of all ranks together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Epoch {
    pub(crate) seconds: f64,
    /// The share of the time that training waits for data.
    pub(crate) waiting: f64,
    pub(crate) samples: f64,
    pub(crate) memory_hits: f64,
    pub(crate) disk_hits: f64,
    pub(crate) origin_reads: f64,
    pub(crate) origin_bytes: f64,
    /// Samples whose batch was complete when it was asked for.
    pub(crate) ready: f64,
    pub(crate) cost: f64,
}

impl Epoch {
    fn of(figures: Figures, settings: &Settings) -> Self {
        let (requests, bytes) = (figures.reads as f64, figures.read_bytes as f64);
        let cost =
            settings.price_per_gb * bytes / 1e9 + settings.price_per_1000_requests * requests / 1e3;
        Self {
            seconds: 0.0,
            waiting: 0.0,
            samples: figures.samples as f64,
            memory_hits: figures.hits as f64,
            disk_hits: figures.log_reads as f64,
            origin_reads: requests,
            origin_bytes: bytes,
            ready: figures.ready_whole as f64,
            cost,
        }
    }

    fn mean(epochs: &[Self]) -> Self {
        let mean = |figure: fn(&Self) -> f64| {
            epochs.iter().map(figure).sum::<f64>() / epochs.len().max(1) as f64
        };
        let seconds = mean(|epoch| epoch.seconds);
        let waited = mean(|epoch| epoch.seconds * epoch.waiting);
        Self {
            seconds,
            waiting: if seconds > 0.0 { waited / seconds } else { 0.0 },
            samples: mean(|epoch| epoch.samples),
            memory_hits: mean(|epoch| epoch.memory_hits),
            disk_hits: mean(|epoch| epoch.disk_hits),
            origin_reads: mean(|epoch| epoch.origin_reads),
            origin_bytes: mean(|epoch| epoch.origin_bytes),
            ready: mean(|epoch| epoch.ready),
            cost: mean(|epoch| epoch.cost),
        }
    }

    /// A part of the epoch's samples.
    pub(crate) fn share(&self, samples: f64) -> f64 {
        samples / self.samples.max(1.0)
    }
}

/// See the module's text.
pub(crate) struct Question {
    plan: Plan,
    sizes: Sizes,
    settings: Settings,
    /// Samples of a rank in an epoch.
    each: u64,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The lengths of an index.
pub(crate) fn lengths(index: &Index) -> Result<Vec<u64>, IndexError> {
    (0..index.len())
        .map(|sample| index.length(sample))
        .collect()
}

impl Question {
    /// Checked: what is left to go wrong is a bug.
    pub(crate) fn new(plan: Plan, lengths: Vec<u64>, settings: Settings) -> Result<Self, Wrong> {
        settings.check(&plan)?;
        let question = Self {
            each: plan.epoch(settings.first_epoch).len(0),
            plan,
            sizes: Sizes::listed(lengths.iter().copied()),
            settings,
        };
        let longest = lengths.into_iter().max().unwrap_or(0);
        question.check_room(longest)?;
        Ok(question)
    }

    fn check_room(&self, longest: u64) -> Result<(), Wrong> {
        for (policy, memory, disk) in self.rows() {
            let overhead = self.policy(policy)(0).overhead();
            let room = self.memory(memory, disk).room(overhead);
            let fits = room.is_some_and(|room| room.blocks_of(longest) <= room.blocks());
            if !fits {
                let why = format!(
                    "{memory} bytes do not hold the longest sample, which has {longest} bytes"
                );
                return Err(Wrong::new("memory", why));
            }
        }
        Ok(())
    }

    fn rows(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let settings = &self.settings;
        settings.policy.iter().flat_map(move |policy| {
            settings.disk.iter().flat_map(move |&disk| {
                let memory = settings.memory.iter();
                memory.map(move |&memory| (policy.as_str(), memory, disk))
            })
        })
    }

    /// Answers, in the order policy, disk, memory. `watch` hears how many samples of how many were
    /// replayed, and ends it by saying no.
    pub(crate) fn answer(
        &self,
        watch: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Vec<Answer>, Unanswered> {
        let rows: Vec<_> = self.rows().collect();
        let samples = u64::from(self.plan.samples()).max(1);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = cores.min((MOST_SAMPLES / samples).max(1) as usize);
        let total = rows.len() as u64 * samples * u64::from(self.settings.epochs);
        let (next, done, stop) = (
            AtomicUsize::new(0),
            AtomicU64::new(0),
            AtomicBool::new(false),
        );
        let work = || {
            let mut answers = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(&(policy, memory, disk)) = rows.get(at) else {
                    return Ok(answers);
                };
                let mut seen = 0;
                let report = self
                    .scenario(policy, memory, disk)
                    .run_watched(&mut |events| {
                        done.fetch_add(events - seen, Ordering::Relaxed);
                        seen = events;
                        !stop.load(Ordering::Relaxed)
                    });
                match report {
                    Ok(report) => answers.push((at, self.read(policy, memory, disk, &report))),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..workers.min(rows.len()))
                .map(|_| scope.spawn(work))
                .collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                if !watch(done.load(Ordering::Relaxed).min(total), total) {
                    stop.store(true, Ordering::Relaxed);
                }
                std::thread::park_timeout(STEP);
            }
            let mut answers = Vec::new();
            let mut stopped = None;
            for thread in threads {
                match thread.join().expect("the simulator does not panic") {
                    Ok(some) => answers.extend(some),
                    Err(Error::Stopped) => stopped = stopped.or(Some(Unanswered::Stopped)),
                    Err(error) => stopped = Some(Unanswered::Failed(error)),
                }
            }
            answers.sort_by_key(|&(at, _)| at);
            let answers = answers.into_iter().map(|(_, answer)| answer).collect();
            stopped.map_or(Ok(answers), Err)
        })
    }

    fn read(&self, policy: &str, memory: u64, disk: u64, report: &Report) -> Answer {
        let (settings, count) = (&self.settings, self.settings.epochs as usize);
        let all = &report.jobs[0].epochs;
        let epochs: Vec<Epoch> = all[..count]
            .iter()
            .map(|epoch| Epoch {
                seconds: epoch.seconds(),
                waiting: epoch.waiting(settings.step_ms / 1e3),
                ..Epoch::of(epoch.all(), settings)
            })
            .collect();
        let ahead = all.get(count).map(|epoch| epoch.all()).unwrap_or_default();
        Answer {
            policy: policy.to_owned(),
            memory,
            disk,
            later: Epoch::mean(&epochs[usize::from(count > 1)..]),
            epochs,
            ahead: Epoch::of(ahead, settings),
        }
    }

    fn policy(&self, name: &str) -> forebay_sim::MakePolicy {
        let settings = forebay_policy::Settings {
            epoch: Some(self.each),
            sole_copy: true,
        };
        let name = name.to_owned();
        Arc::new(move |_| by_name(&name, settings).expect("checked when it was asked"))
    }

    /// What a log's buffers take of the memory, as in the engine; `None` if there is no log.
    fn buffers(memory: u64, disk: u64) -> Option<u64> {
        disk_buffers(memory).filter(|_| disk > 0)
    }

    fn memory(&self, memory: u64, disk: u64) -> Memory {
        Memory::Engine {
            budget: memory - Self::buffers(memory, disk).unwrap_or(0),
            readahead: self.settings.readahead,
        }
    }

    fn scenario(&self, policy: &str, memory: u64, disk: u64) -> Scenario {
        let settings = &self.settings;
        let here = u64::from((self.plan.world() / settings.nodes).max(1));
        let speed = |rate: f64, latency: f64| Access {
            latency: latency / 1e3,
            node: Curve::flat(rate * 1e6),
            total: None,
        };
        let (copy, core, most) = COPY;
        let budget = self.memory(memory, disk);
        let Memory::Engine { budget: bytes, .. } = budget else {
            unreachable!("made above");
        };
        Scenario {
            jobs: vec![Job {
                plan: self.plan.clone(),
                dataset: 0,
                sizes: self.sizes.clone(),
                first_epoch: settings.first_epoch,
                epochs: settings.epochs,
                step: settings.step_ms / 1e3,
                loading: Loading {
                    requests: settings.requests,
                    depth: settings.depth,
                    readahead: settings.readahead.min(bytes / 4) / here,
                    prepare: settings.prepare_ms / 1e3,
                    runs_on: true,
                    // Where each sample takes milliseconds, a thread takes fewer at a time.
                    run: if settings.prepare_ms > 0.0 { 4 } else { 16 },
                    ..Loading::local(settings.threads)
                },
            }],
            nodes: settings.nodes,
            memory: budget,
            policy: self.policy(policy),
            log: Self::buffers(memory, disk).map(|_| Log {
                capacity: disk,
                layout: Layout::Packed,
                together: 1,
                requests: LOG_REQUESTS,
                by_threads: false,
            }),
            peers: false,
            costs: Costs {
                memory: Access {
                    latency: copy,
                    node: Curve::up_to(core, most),
                    total: None,
                },
                log: speed(settings.disk_mbps, settings.disk_latency_ms),
                peer: Access::flat(f64::MAX),
                origin: Access {
                    node: match settings.origin_each_mbps {
                        Some(each) => Curve::up_to(each * 1e6, settings.origin_mbps * 1e6),
                        None => Curve::flat(settings.origin_mbps * 1e6),
                    },
                    ..speed(settings.origin_mbps, settings.origin_latency_ms)
                },
            },
        }
    }
}

/// Most milliseconds: a day.
const MOST_MS: f64 = 86_400_000.0;

impl Settings {
    fn check(&self, plan: &Plan) -> Result<(), Wrong> {
        for policy in &self.policy {
            if !NAMES.contains(&policy.as_str()) {
                let why = format!("{policy:?} is not one of {}", NAMES.join(", "));
                return Err(Wrong::new("policy", why));
            }
        }
        for (setting, none) in [
            ("policy", self.policy.is_empty()),
            ("memory", self.memory.is_empty()),
            ("disk", self.disk.is_empty()),
        ] {
            if none {
                return Err(Wrong::new(setting, "nothing is asked for"));
            }
        }
        let rows = self.policy.len() * self.memory.len() * self.disk.len();
        if rows > MOST_ROWS {
            let why = format!("{rows} answers are too many; at most {MOST_ROWS}");
            return Err(Wrong::new("memory", why));
        }
        let ranks = plan.world();
        for (setting, value, most) in [
            ("nodes", self.nodes, ranks),
            ("ranks", ranks, 65_536),
            ("epochs", self.epochs, 10_000),
            ("threads", self.threads, 1024),
            ("depth", self.depth, 1024),
            ("requests", self.requests.unwrap_or(1), 65_536),
        ] {
            if !(1..=most).contains(&value) {
                let why = format!("{value} is not a number from 1 to {most}");
                return Err(Wrong::new(setting, why));
            }
        }
        if !ranks.is_multiple_of(self.nodes) {
            let why = format!("{ranks} ranks do not go evenly onto {} nodes", self.nodes);
            return Err(Wrong::new("nodes", why));
        }
        let figures = u64::from(ranks) * u64::from(self.epochs);
        if figures > MOST_FIGURES {
            let why = format!("{figures} epochs of ranks are too many; at most {MOST_FIGURES}");
            return Err(Wrong::new("epochs", why));
        }
        let known = u64::from(self.nodes) * u64::from(plan.samples());
        if known > MOST_KNOWN {
            let why = format!("samples times nodes are {known}, too many; at most {MOST_KNOWN}");
            return Err(Wrong::new("nodes", why));
        }
        for (setting, value, least, most) in [
            ("step_ms", self.step_ms, 0.0, MOST_MS),
            ("prepare_ms", self.prepare_ms, 0.0, MOST_MS),
            ("origin_mbps", self.origin_mbps, 0.001, 1e9),
            (
                "origin_each_mbps",
                self.origin_each_mbps.unwrap_or(1.0),
                1e-6,
                1e9,
            ),
            ("origin_latency_ms", self.origin_latency_ms, 0.0, MOST_MS),
            ("disk_mbps", self.disk_mbps, 0.001, 1e9),
            ("disk_latency_ms", self.disk_latency_ms, 0.0, MOST_MS),
            ("price_per_gb", self.price_per_gb, 0.0, 1e9),
            (
                "price_per_1000_requests",
                self.price_per_1000_requests,
                0.0,
                1e9,
            ),
        ] {
            // Not a number is in no range.
            if !(least..=most).contains(&value) {
                let why = format!("{value} is not a number from {least} to {most}");
                return Err(Wrong::new(setting, why));
            }
        }
        Ok(())
    }
}
