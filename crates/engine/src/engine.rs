//! The engine: what all jobs of a process share.

use std::fs::File;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use forebay_cache::log::{Log, Warnings};
use forebay_cache::{MemoryTier, Policy};
use forebay_origin::{Dataset, View};

use crate::Error;
use crate::aside::Aside;
use crate::crew::{Board, Crew, CrewSettings, FixedSplit, PATIENCE, with_signals_blocked};
use crate::disk::{Disk, DiskSettings};
use crate::job::{Job, JobSettings};
use crate::logs::Logs;
use crate::machine::usable_memory;
use crate::stats::EngineStats;

/// How an engine is set up.
#[derive(Debug)]
pub struct EngineSettings {
    /// Budget of the memory tier in bytes, never passed.
    pub memory: u64,
    /// Bytes that may be fetched ahead of the batches being filled; cut to a share of
    /// `memory`.
    pub readahead: u64,
    /// What stays in memory.
    pub policy: Box<dyn Policy>,
    /// Where samples are kept on disk, if they are.
    pub disk: Option<DiskSettings>,
    /// Threads; 0 for as many as turn out to be of use.
    pub threads: usize,
    /// Who does what, once and for all; `None` to find out as the run goes on.
    pub split: Option<FixedSplit>,
    /// Whether worker processes may map the memory tier, to read images that are lent to them.
    pub shared: bool,
}

/// What jobs and their tasks need of the engine. A job may outlive the crew and the
/// runtime: then it is closed.
#[derive(Debug)]
pub(crate) struct Plant {
    pub(crate) tier: MemoryTier,
    pub(crate) board: Arc<Board>,
    pub(crate) readahead: u64,
    pub(crate) aside: Aside,
    /// The latest tick of any job.
    pub(crate) clock: AtomicU64,
    pub(crate) warnings: Arc<Warnings>,
    runtime: OnceLock<tokio::runtime::Handle>,
}

impl Plant {
    /// The runtime's handle; there once a job on a remote dataset was made.
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.runtime
            .get()
            .expect("a remote job starts the runtime first")
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Engine {
    plant: Arc<Plant>,
    crew: Crew,
    disk: Option<Disk>,
    runtime: Mutex<Option<tokio::runtime::Runtime>>,
}

impl Engine {
    /// Starts the crew; the runtime starts with the first remote dataset.
    pub fn new(settings: EngineSettings) -> Result<Self, Error> {
        let usable = usable_memory();
        if settings.memory > usable.bytes {
            return Err(Error::MoreThanThereIs {
                budget: settings.memory,
                usable,
            });
        }
        // Fetching ahead must leave most of the budget to what is kept.
        let readahead = settings.readahead.min(settings.memory / 4);
        let warnings = Arc::new(Warnings::default());
        let disk = settings
            .disk
            .and_then(|disk| Disk::new(disk, settings.memory, &warnings));
        let buffers = disk.as_ref().map_or(0, Disk::memory);
        let tier = MemoryTier::new(forebay_cache::Settings {
            budget: settings.memory - buffers,
            reserve: readahead,
            policy: settings.policy,
            shared: settings.shared,
        })?;
        let crew = Crew::start(CrewSettings {
            threads: settings.threads,
            split: settings.split,
        })?;
        let board = crew.board().clone();
        tier.set_on_room(Box::new({
            let board = board.clone();
            move || board.wake()
        }));
        let plant = Arc::new(Plant {
            tier,
            board,
            readahead,
            aside: Aside::new(settings.memory),
            clock: AtomicU64::new(0),
            warnings,
            runtime: OnceLock::new(),
        });
        Ok(Self {
            plant,
            crew,
            disk,
            runtime: Mutex::new(None),
        })
    }

    /// A new job on `dataset`. Fails if the largest sample can never fit in memory.
    pub fn job(&self, dataset: Arc<Dataset>, settings: JobSettings) -> Result<Job, Error> {
        self.job_on(Arc::new(dataset.into()), settings)
    }

    /// The same on a view of datasets.
    pub fn job_on(&self, view: Arc<View>, settings: JobSettings) -> Result<Job, Error> {
        self.plant.tier.check_fits(view.max_length())?;
        if !view.is_local() {
            self.start_runtime()?;
        }
        let warnings = &self.plant.warnings;
        let logs = self.disk.as_ref().map_or_else(Logs::default, |disk| {
            let datasets = view.datasets();
            let count = datasets.len();
            Logs::new(datasets.map(|it| disk.log(it, count, warnings)).collect())
        });
        Ok(Job::new(self.plant.clone(), view, logs, settings))
    }

    /// The log of a dataset, if the engine has a disk tier and the log can be opened.
    pub fn log(&self, dataset: &Arc<Dataset>) -> Option<Arc<Log>> {
        let disk = self.disk.as_ref()?;
        let reader = disk.log(dataset, 1, &self.plant.warnings)?;
        Some(reader.log().clone())
    }

    /// One sample's bytes, through the memory tier, outside of any job.
    pub fn read(&self, dataset: &Arc<Dataset>, sample: u32) -> Result<Vec<u8>, Error> {
        if !dataset.is_local() {
            self.start_runtime()?;
        }
        crate::fetch::read_one(&self.plant, &dataset.clone().into(), sample)
    }

    /// The file that the memory tier lies in, if it is shared.
    pub fn shared_memory(&self) -> Option<&File> {
        self.plant.tier.file()
    }

    /// Figures so far.
    pub fn stats(&self) -> EngineStats {
        EngineStats {
            crew: self.crew.stats(),
            memory: self.plant.tier.stats(),
            log: self.disk.as_ref().and_then(Disk::stats),
        }
    }

    fn start_runtime(&self) -> Result<(), Error> {
        let mut runtime = self.runtime.lock().expect("the engine's lock");
        if runtime.is_none() {
            let started = with_signals_blocked(|| {
                tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .thread_name("forebay-net")
                    .enable_all()
                    .build()
            })
            .map_err(|source| Error::System {
                what: "starting the network threads",
                source,
            })?;
            let _ = self.plant.runtime.set(started.handle().clone());
            *runtime = Some(started);
        }
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.close();
        }
        // A batch that the user keeps may be a part of the tier: it is all that is left of it.
        self.plant.tier.close();
        if let Some(runtime) = self.runtime.lock().expect("the engine's lock").take() {
            runtime.shutdown_timeout(PATIENCE);
        }
    }
}
