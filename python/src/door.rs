//! The engine and its jobs, for Python.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_engine as core;
use pyo3::exceptions::{PyRuntimeWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::dataset::Dataset;
use crate::errors;
use crate::figures::{crew_figures, log_figures};
use crate::fork::{Native, forks};
use crate::plan::Epoch;
use crate::recipe::Recipe;
use crate::tensor::{Element, Form, capsule};
use crate::view::View;

/// How long a wait goes on before Python may handle Ctrl-C.
const STEP: Duration = Duration::from_millis(100);

/// Memory tier, threads and network of one loader.
#[pyclass(module = "forebay._forebay")]
pub(crate) struct Engine(Native<core::Engine>);

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (
        *, memory, readahead, policy, threads, split=None, epoch=None, cache_dirs=None,
        disk=None, layout="auto", chunk=None, shared=false
    ))]
    #[allow(clippy::too_many_arguments)] // by name, from Python
    fn new(
        py: Python<'_>,
        memory: u64,
        readahead: u64,
        policy: &str,
        threads: usize,
        split: Option<(usize, usize)>,
        epoch: Option<u64>,
        cache_dirs: Option<Vec<PathBuf>>,
        disk: Option<u64>,
        layout: &str,
        chunk: Option<u64>,
        shared: bool,
    ) -> PyResult<Self> {
        let layout = find_layout(layout)?;
        let disk = cache_dirs.map(|dirs| core::DiskSettings {
            chunk,
            ..core::DiskSettings::new(dirs, disk, layout)
        });
        let policy = find_policy(policy, epoch)?;
        let settings = core::EngineSettings {
            memory,
            readahead,
            policy,
            disk,
            threads,
            split: split.map(|(load, prepare)| core::FixedSplit { load, prepare }),
            shared,
        };
        let engine = py
            .detach(|| core::Engine::new(settings))
            .map_err(errors::engine)?;
        Ok(Self(Native::new(engine)))
    }

    /// True in the process that made it.
    #[getter]
    fn is_ours(&self) -> bool {
        self.0.is_ours()
    }

    /// The descriptor of the file that the memory tier lies in, if it is shared; open as long as
    /// the engine is.
    #[getter]
    fn shared_memory(&self) -> PyResult<Option<i32>> {
        Ok(self.0.get()?.shared_memory().map(AsRawFd::as_raw_fd))
    }

    /// A new job on a view. `lend`: images of how many pixels at most are lent, and how many.
    /// `gaps`: raw samples may lie apart in their batch.
    #[pyo3(signature = (
        view, *, depth, on_error, max_bad_samples, rank=None, recipe=None, lend=None,
        cache_form="auto", gaps=false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn job(
        &self,
        view: &View,
        depth: usize,
        on_error: &str,
        max_bad_samples: usize,
        rank: Option<u32>,
        recipe: Option<&Recipe>,
        lend: Option<(u64, u64)>,
        cache_form: &str,
        gaps: bool,
    ) -> PyResult<Job> {
        let on_error = match on_error {
            "raise" => core::OnError::Raise,
            "replace" => core::OnError::Replace,
            other => {
                return Err(PyValueError::new_err(format!(
                    "on_error is 'raise' or 'replace', not {other:?}"
                )));
            }
        };
        let cache_form = find_cache_form(cache_form)?;
        let settings = core::JobSettings {
            depth,
            on_error,
            max_bad_samples,
            rank,
            preparation: recipe.map(|recipe| core::PreparationSettings {
                recipe: recipe.0.clone(),
                cache_form,
            }),
            lending: lend.map(|(max_pixels, most)| core::LendingSettings {
                max_pixels,
                cache_form,
                most,
            }),
            gaps,
        };
        let job = self
            .0
            .get()?
            .job_on(view.core()?.clone(), settings)
            .map_err(errors::engine)?;
        Ok(Job(Native::new(job)))
    }

    /// Figures of tier and crew.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.0.get()?.stats();
        let dict = PyDict::new(py);
        dict.set_item("threads", stats.crew.threads)?;
        crew_figures(&dict, &stats.crew)?;
        let memory = PyDict::new(py);
        memory.set_item("capacity_bytes", stats.memory.capacity)?;
        memory.set_item("used_bytes", stats.memory.used)?;
        memory.set_item("peak_bytes", stats.memory.peak_used)?;
        memory.set_item("kept_bytes", stats.memory.kept_bytes)?;
        memory.set_item("kept_samples", stats.memory.entries)?;
        memory.set_item("evictions", stats.memory.evictions)?;
        memory.set_item("refused", stats.memory.refused)?;
        memory.set_item("changed_by_user", stats.memory.spoiled)?;
        dict.set_item("memory", memory)?;
        if let Some((device, log)) = stats.log {
            dict.set_item("log", log_figures(py, device, &log)?)?;
        }
        Ok(dict)
    }

    /// Ends threads and network; waits at most half a second for each.
    fn close(&mut self, py: Python<'_>) {
        py.detach(|| self.0.close());
    }
}

/// What the door calls the layouts of the disk cache.
const LAYOUTS: [(&str, core::cache::log::LayoutChoice); 3] = [
    ("auto", core::cache::log::LayoutChoice::Auto),
    ("packed", core::cache::log::LayoutChoice::Packed),
    ("reorder", core::cache::log::LayoutChoice::Reorder),
];

fn find_layout(name: &str) -> PyResult<core::cache::log::LayoutChoice> {
    let found = LAYOUTS.iter().find(|(known, _)| *known == name);
    found.map(|(_, layout)| *layout).ok_or_else(|| {
        PyValueError::new_err(format!(
            "layout is 'auto', 'packed' or 'reorder', not {name:?}"
        ))
    })
}

/// What the door calls the forms of cached images.
const CACHE_FORMS: [(&str, core::CacheForm); 3] = [
    ("auto", core::CacheForm::Auto),
    ("encoded", core::CacheForm::Encoded),
    ("decoded", core::CacheForm::Decoded),
];

fn find_cache_form(name: &str) -> PyResult<core::CacheForm> {
    let found = CACHE_FORMS.iter().find(|(known, _)| *known == name);
    found.map(|(_, form)| *form).ok_or_else(|| {
        PyValueError::new_err(format!(
            "cache_form is 'auto', 'encoded' or 'decoded', not {name:?}"
        ))
    })
}

/// Seed, epoch, first place and stride: see the engine's `Draws`.
type DrawsTuple = (u64, u64, u64, u64);

fn draws((seed, epoch, first, stride): DrawsTuple) -> core::Draws {
    core::Draws {
        seed,
        epoch,
        first,
        stride,
    }
}

/// `epoch`: samples in an epoch, where known.
fn find_policy(name: &str, epoch: Option<u64>) -> PyResult<Box<dyn core::cache::Policy>> {
    // One process is all there is: nobody else holds what it keeps.
    let settings = core::cache::PolicySettings {
        epoch,
        sole_copy: true,
    };
    core::cache::policy_by_name(name, settings).ok_or_else(|| {
        let names = core::cache::POLICIES.join(", ");
        PyValueError::new_err(format!("policy is one of {names}, not {name:?}"))
    })
}

/// One user's sequence of batches.
#[pyclass(module = "forebay._forebay")]
pub(crate) struct Job(Native<core::Job>);

#[pymethods]
impl Job {
    /// Begins a planned epoch. `random` is what its images are augmented from; `coming` is the
    /// epoch after it, in the same words, if that is known already, and `forecast` the same if it
    /// may still turn out otherwise.
    #[pyo3(signature = (tag, epoch, rank, random=(0, 0, 0, 0), coming=None, forecast=None))]
    #[allow(clippy::too_many_arguments)] // by name, from Python
    fn begin(
        &self,
        py: Python<'_>,
        tag: &str,
        epoch: &Epoch,
        rank: u32,
        random: DrawsTuple,
        coming: Option<(String, PyRef<'_, Epoch>, u32, DrawsTuple)>,
        forecast: Option<(String, PyRef<'_, Epoch>, u32, DrawsTuple)>,
    ) -> PyResult<()> {
        let job = self.0.get()?;
        let planned = |epoch: &Epoch, rank| core::Sequence::Planned {
            epoch: epoch.0.clone(),
            rank,
        };
        let sequence = planned(epoch, rank);
        let coming = coming.map(|(tag, epoch, rank, random)| core::Coming {
            tag,
            sequence: planned(&epoch, rank),
            draws: draws(random),
        });
        let forecast = forecast.map(|(_, epoch, rank, _)| planned(&epoch, rank));
        let begun = py.detach(|| match coming {
            None => job.begin_with_forecast(tag, sequence, draws(random), forecast.as_ref()),
            Some(coming) => job.begin_before(tag, sequence, draws(random), coming),
        });
        begun.map_err(errors::engine)
    }

    /// Whether what is read before the coming epoch is known is not written to disk.
    #[getter]
    fn wants_coming_order(&self) -> PyResult<bool> {
        Ok(self.0.get()?.wants_coming_order())
    }

    /// Begins an epoch whose batches are handed over by `push`.
    #[pyo3(signature = (tag, random=(0, 0, 0, 0)))]
    fn begin_listed(&self, py: Python<'_>, tag: &str, random: DrawsTuple) -> PyResult<()> {
        let job = self.0.get()?;
        py.detach(|| job.begin(tag, core::Sequence::listed(), draws(random)))
            .map_err(errors::engine)
    }

    /// Tells which epoch comes after this one.
    #[pyo3(signature = (tag, epoch, rank, random=(0, 0, 0, 0)))]
    fn foresee(
        &self,
        py: Python<'_>,
        tag: &str,
        epoch: &Epoch,
        rank: u32,
        random: DrawsTuple,
    ) -> PyResult<()> {
        let job = self.0.get()?;
        let sequence = core::Sequence::Planned {
            epoch: epoch.0.clone(),
            rank,
        };
        py.detach(|| job.foresee(tag, sequence, draws(random)))
            .map_err(errors::engine)
    }

    /// Hands a batch over.
    fn push(&self, py: Python<'_>, ids: Vec<u32>) -> PyResult<()> {
        let job = self.0.get()?;
        py.detach(|| job.push(ids)).map_err(errors::engine)
    }

    /// No more batches are handed over.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let job = self.0.get()?;
        py.detach(|| job.close());
        Ok(())
    }

    /// The next batch as (data, lengths, gaps, labels, ids, lent), the tensors as DLPack capsules;
    /// None at the end of the epoch. Lengths are None for finished images; if there are gaps, theirs
    /// are among them, one behind each sample's but the last. Ids are None unless they are wanted,
    /// lent unless there are images that are.
    /// Waits at most `timeout` seconds (0: for ever).
    fn next<'py>(
        &self,
        py: Python<'py>,
        timeout: f64,
        with_ids: bool,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let job = self.0.get()?;
        let mut steps = if timeout > 0.0 {
            (timeout / STEP.as_secs_f64()).ceil() as u64
        } else {
            u64::MAX
        };
        loop {
            let next = py.detach(|| job.next(STEP)).map_err(errors::engine)?;
            let told = tell(py, job);
            match next {
                core::Next::Batch(batch) => {
                    let handed = told.and_then(|()| hand_over(py, &batch, with_ids));
                    if handed.is_err() {
                        // Nobody has it: it is what the next call gives.
                        job.give_back(batch);
                    }
                    return handed.map(Some);
                }
                core::Next::End => return told.map(|()| None),
                core::Next::Wait => told?,
            }
            py.check_signals()?;
            steps -= 1;
            if steps == 0 {
                let text = format!("no batch within {timeout} seconds; hint: raise timeout=");
                return Err(errors::UnavailableError::new_err(text));
            }
        }
    }

    /// Batches that the user still refers to.
    #[getter]
    fn batches_out(&self) -> PyResult<usize> {
        Ok(self.0.get()?.batches_out())
    }

    /// Batches of this epoch that were taken so far, those that failed included.
    #[getter]
    fn taken(&self) -> PyResult<u64> {
        Ok(self.0.get()?.taken())
    }

    /// Takes note of a sample that cannot be decoded.
    fn quarantine(&self, sample: u32, reason: String) -> PyResult<()> {
        self.0
            .get()?
            .quarantine(sample, reason)
            .map_err(errors::engine)
    }

    /// Gives up the epoch.
    fn cancel(&self, py: Python<'_>) {
        if let Ok(job) = self.0.get() {
            py.detach(|| job.cancel());
        }
    }

    /// Figures of the job.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.0.get()?.stats();
        let dict = PyDict::new(py);
        dict.set_item("batches", stats.batches)?;
        dict.set_item("samples", stats.samples)?;
        dict.set_item("bytes", stats.bytes)?;
        dict.set_item("memory_hits", stats.hits)?;
        dict.set_item("memory_hit_bytes", stats.hit_bytes)?;
        dict.set_item("log_hits", stats.log_hits)?;
        dict.set_item("log_hit_bytes", stats.log_hit_bytes)?;
        dict.set_item("origin_reads", stats.reads)?;
        dict.set_item("origin_bytes", stats.read_bytes)?;
        dict.set_item("ready_samples", stats.ready)?;
        dict.set_item("waited_seconds", stats.waited_seconds)?;
        dict.set_item("replaced_samples", stats.replaced)?;
        dict.set_item("epochs_foreseen", stats.epochs_foreseen)?;
        dict.set_item("decoded_samples", stats.decoded)?;
        dict.set_item("reading_seconds", stats.reading_seconds)?;
        dict.set_item("prepared_samples", stats.prepared)?;
        dict.set_item("preparing_seconds", stats.preparing_seconds)?;
        dict.set_item("steps", stats.steps)?;
        dict.set_item("stepping_seconds", stats.stepping_seconds)?;
        dict.set_item("slabs_out", stats.slabs_out)?;
        dict.set_item("slabs_made", stats.slabs_made)?;
        dict.set_item("slab_peak_bytes", stats.slab_peak_bytes)?;
        let bad = stats
            .bad_samples
            .into_iter()
            .map(|bad| {
                let entry = PyDict::new(py);
                entry.set_item("sample", bad.sample)?;
                entry.set_item("name", bad.name)?;
                entry.set_item("reason", bad.reason)?;
                Ok(entry)
            })
            .collect::<PyResult<Vec<_>>>()?;
        dict.set_item("bad_samples", bad)?;
        if let Some(form) = stats.cache_form {
            let name = CACHE_FORMS.iter().find(|(_, known)| *known == form);
            dict.set_item("cache_form", name.map(|(name, _)| *name))?;
        }
        Ok(dict)
    }
}

/// Passes on what the engine has to say; a warning may be raised as an error, a handler may fail.
fn tell(py: Python<'_>, job: &core::Job) -> PyResult<()> {
    job.tell_warnings(|text| warn(py, text))?;
    if let Some(text) = job.take_news() {
        let logger = py
            .import("logging")?
            .call_method1("getLogger", ("forebay",))?;
        logger.call_method1("info", (text,))?;
    }
    Ok(())
}

fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let text = std::ffi::CString::new(text)?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)
}

fn hand_over<'py>(
    py: Python<'py>,
    batch: &core::Batch,
    with_ids: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let (slab, data) = batch.data();
    let (columns, [ids, labels]) = batch.columns();
    let column = |offset| {
        let form = Form::row(batch.len(), Element::I64);
        Ok::<_, PyErr>(capsule(py, columns, offset, form)?.into_bound(py))
    };
    let none = || py.None().into_bound(py);
    let cuts = batch.cuts();
    let spread = cuts.is_some();
    let row = Form::row(batch.data_len(), Element::U8);
    let (form, lengths) = match (batch.shape(), cuts) {
        (Some(shape), _) => (Form::images(batch.len(), shape), none()),
        (None, None) => (row, PyList::new(py, batch.lengths())?.into_any()),
        (None, Some(cuts)) => (row, PyList::new(py, cuts)?.into_any()),
    };
    PyTuple::new(
        py,
        [
            capsule(py, slab, data, form)?.into_bound(py),
            lengths,
            spread.into_pyobject(py)?.to_owned().into_any(),
            column(labels)?,
            if with_ids { column(ids)? } else { none() },
            if batch.lent().is_empty() {
                none()
            } else {
                Bound::new(py, Lent(Native::new(batch.lent().clone())))?.into_any()
            },
        ],
    )
}

/// Offsets and lengths.
type Pieces = Vec<(u64, u64)>;

/// Images of a batch that lie in the memory tier; given back when this is dropped.
#[pyclass(module = "forebay._forebay", frozen)]
pub(crate) struct Lent(Native<core::Lent>);

#[pymethods]
impl Lent {
    /// Where each lies in the shared memory, in pieces of (offset, length), by slot of the batch.
    fn places(&self) -> PyResult<Vec<(usize, Pieces)>> {
        let lent = self.0.get()?.iter();
        Ok(lent
            .map(|(slot, held)| (*slot, held.extents().collect()))
            .collect())
    }

    /// A copy of each, by slot of the batch.
    fn copies<'py>(&self, py: Python<'py>) -> PyResult<Vec<(usize, Bound<'py, PyBytes>)>> {
        let copy = |(slot, held): &(usize, core::cache::Held)| {
            let bytes = PyBytes::new_with(py, held.len() as usize, |bytes| {
                held.copy_to(bytes);
                Ok(())
            })?;
            Ok((*slot, bytes))
        };
        self.0.get()?.iter().map(copy).collect()
    }
}

/// The samples that stand in for a bad one, in the order in which they are tried.
#[pyfunction]
pub(crate) fn stand_ins(sample: u32, samples: u32) -> Vec<u32> {
    (0..core::CANDIDATES)
        .filter_map(|attempt| core::candidate(sample, attempt, samples))
        .collect()
}

/// The engine that `dataset[i]` reads through, one per process.
static PROCESS: Mutex<Option<(u64, Arc<core::Engine>)>> = Mutex::new(None);

fn process_engine() -> PyResult<Arc<core::Engine>> {
    // Taken with the GIL held and never across a fork of this thread, so the child of
    // a fork finds it free.
    let mut engine = PROCESS.lock().expect("the process engine's lock");
    match &*engine {
        Some((made, engine)) if *made == forks() => return Ok(engine.clone()),
        // The parent's: its threads are not in this process, so it is left alone.
        Some(_) => std::mem::forget(engine.take()),
        None => {}
    }
    let memory = std::env::var("FOREBAY_PROCESS_MEMORY")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(64 << 20);
    let settings = core::EngineSettings {
        memory,
        readahead: 0,
        policy: find_policy("minio", None)?,
        disk: None,
        threads: 1,
        split: None,
        shared: false,
    };
    let made = Arc::new(core::Engine::new(settings).map_err(errors::engine)?);
    *engine = Some((forks(), made.clone()));
    Ok(made)
}

/// One sample's bytes, read through the engine of this process.
#[pyfunction]
pub(crate) fn read_sample<'py>(
    py: Python<'py>,
    dataset: &Dataset,
    sample: u32,
) -> PyResult<Vec<u8>> {
    let engine = process_engine()?;
    let dataset = dataset.core()?.clone();
    py.detach(|| engine.read(&dataset, sample))
        .map_err(errors::engine)
}
