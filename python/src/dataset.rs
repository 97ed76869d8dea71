//! Opened datasets, for Python.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use forebay_engine::origin as core;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors;
use crate::fork::Native;

/// How often a listing looks for Ctrl-C and tells its progress.
const STEP: Duration = Duration::from_millis(100);

/// A dataset: its index and where its bytes are.
#[pyclass(module = "forebay._forebay")]
pub(crate) struct Dataset {
    core: Native<Arc<core::Dataset>>,
    /// Plain memory that nobody writes to: a forked child reads its parent's.
    index: Arc<core::Index>,
    url: String,
}

impl Dataset {
    fn path_of(&self, sample: u32) -> PyResult<String> {
        self.core()?.path(sample).map_err(errors::index)
    }

    pub(crate) fn core(&self) -> PyResult<&Arc<core::Dataset>> {
        self.core.get()
    }
}

#[pymethods]
impl Dataset {
    #[new]
    #[pyo3(signature = (url, layout, *, extensions=None, allow_empty=false, manifest=None, allow_outside=false, more_shards=None, storage_options=None, refresh="auto", index_dir=None, read=None, numbering=None, parent=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        url: String,
        layout: &str,
        extensions: Option<Vec<String>>,
        allow_empty: bool,
        manifest: Option<String>,
        allow_outside: bool,
        more_shards: Option<Vec<String>>,
        storage_options: Option<BTreeMap<String, String>>,
        refresh: &str,
        index_dir: Option<PathBuf>,
        read: Option<BTreeMap<String, f64>>,
        numbering: Option<u64>,
        parent: Option<PyRef<'_, Self>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let layout = match (layout, manifest) {
            ("folders", _) => core::Layout::ClassFolders {
                extensions,
                allow_empty,
            },
            ("manifest", Some(manifest)) => core::Layout::Manifest {
                manifest,
                allow_outside,
            },
            ("tar", _) => core::Layout::Tar,
            (other, _) => return Err(PyValueError::new_err(format!("no layout {other:?}"))),
        };
        let refresh = match refresh {
            "auto" => core::Refresh::Auto,
            "always" => core::Refresh::Always,
            "never" => core::Refresh::Never,
            other => {
                let text = format!("refresh is 'auto', 'always' or 'never', not {other:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        let storage_options = storage_options
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key, value.into()))
            .collect();
        let read = read_settings(read.unwrap_or_default())?;
        let spec = core::DatasetSpec {
            url,
            more_shards: more_shards.unwrap_or_default(),
            layout,
            storage_options,
            index_dir,
            refresh,
            numbering,
            read,
        };
        let dataset = match parent {
            Some(parent) => {
                core::Dataset::open_with(&spec, parent.index.clone()).map_err(errors::origin)?
            }
            None => open(py, spec, progress)?,
        };
        Ok(Self {
            url: dataset.index().url().to_owned(),
            index: dataset.index().clone(),
            core: Native::new(Arc::new(dataset)),
        })
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.core()?.index().len() as usize)
    }

    /// The url, without secrets.
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// How the index came about: built, refreshed by how much, warnings.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let opened = self.core()?.opened();
        let dict = PyDict::new(py);
        dict.set_item("built", opened.built)?;
        if let Some(difference) = &opened.refreshed {
            let counts = (difference.added, difference.changed, difference.removed);
            dict.set_item("refreshed", counts)?;
        }
        let rebuilt = opened.rebuilt_because_corrupt.iter();
        let rebuilt = rebuilt.map(|reason| format!("index was built anew: {reason}"));
        let warnings: Vec<_> = opened.warning.iter().cloned().chain(rebuilt).collect();
        dict.set_item("warnings", warnings)?;
        Ok(dict)
    }

    #[getter]
    fn classes(&self) -> PyResult<Vec<String>> {
        Ok(self.core()?.index().classes().to_vec())
    }

    /// What a resume state is compared with.
    #[getter]
    fn fingerprint(&self) -> PyResult<String> {
        Ok(format!("{:016x}", self.core()?.index().fingerprint()))
    }

    /// What a pickle is compared with: two datasets with the same number their samples alike.
    #[getter]
    fn numbering(&self) -> u64 {
        self.index.numbering()
    }

    /// Whether samples are local files.
    #[getter]
    fn is_local(&self) -> PyResult<bool> {
        Ok(self.core()?.is_local())
    }

    /// The most requests that are sent to a store at a time.
    #[getter]
    fn requests_in_flight(&self) -> PyResult<usize> {
        Ok(self.core()?.requests_in_flight())
    }

    #[getter]
    fn total_bytes(&self) -> PyResult<u64> {
        Ok(self.core()?.index().total_bytes())
    }

    #[getter]
    fn max_length(&self) -> PyResult<u64> {
        Ok(self.core()?.index().max_length())
    }

    fn label(&self, sample: u32) -> PyResult<i64> {
        self.core()?.index().label(sample).map_err(errors::index)
    }

    fn length(&self, sample: u32) -> PyResult<u64> {
        self.core()?.index().length(sample).map_err(errors::index)
    }

    /// Where a sample comes from: a path, or a url.
    fn path(&self, sample: u32) -> PyResult<String> {
        self.path_of(sample)
    }

    fn paths(&self) -> PyResult<Vec<String>> {
        (0..self.core()?.index().len())
            .map(|sample| self.path_of(sample))
            .collect()
    }

    fn labels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let index = self.core()?.index();
        let labels: Result<Vec<_>, _> =
            (0..index.len()).map(|sample| index.label(sample)).collect();
        Ok(labels.map_err(errors::index)?.into_pyarray(py))
    }
}

/// Opens on another thread, so that Ctrl-C ends the wait; the listing then ends unseen.
fn open(
    py: Python<'_>,
    spec: core::DatasetSpec,
    progress: Option<Py<PyAny>>,
) -> PyResult<core::Dataset> {
    struct Counter(AtomicU64);
    impl core::Progress for Counter {
        fn listed(&self, objects: u64) {
            self.0.store(objects, Ordering::Relaxed);
        }
    }
    let counter = Arc::new(Counter(AtomicU64::new(0)));
    let (send, receive) = mpsc::channel();
    let seen = counter.clone();
    std::thread::Builder::new()
        .name("forebay-open".into())
        .spawn(move || drop(send.send(core::Dataset::open(&spec, &*seen))))?;
    // One receiver for one thread, though its type is not Sync.
    let receive = std::sync::Mutex::new(receive);
    loop {
        let answer = py.detach(|| {
            receive
                .lock()
                .expect("held by this thread alone")
                .recv_timeout(STEP)
        });
        let tell = |done: bool| match &progress {
            Some(progress) => progress
                .call1(py, (counter.0.load(Ordering::Relaxed), done))
                .map(drop),
            None => Ok(()),
        };
        match answer {
            Ok(opened) => {
                tell(true)?;
                return opened.map_err(errors::origin);
            }
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals()?;
                tell(false)?;
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(errors::Error::new_err(
                    "opening the dataset failed unexpectedly",
                ));
            }
        }
    }
}

fn read_settings(given: BTreeMap<String, f64>) -> PyResult<core::ReadSettings> {
    let mut settings = core::ReadSettings::default();
    for (name, value) in given {
        if !value.is_finite() || value < 0.0 {
            return Err(PyValueError::new_err(format!(
                "read_options: {name}={value} is not a number from 0"
            )));
        }
        match name.as_str() {
            "requests_in_flight" => settings.requests_in_flight = (value as usize).max(1),
            "bytes_in_flight" => settings.bytes_in_flight = (value as u64).max(1),
            "deadline" => settings.deadline = seconds(value),
            "hedge_after" => settings.hedge_after = (value > 0.0).then(|| seconds(value)),
            "coalesce_gap" => settings.coalesce_gap = value as u64,
            other => {
                return Err(PyValueError::new_err(format!(
                    "read_options has {other:?}; what can be set are deadline, hedge_after, \
                     requests_in_flight, bytes_in_flight and coalesce_gap"
                )));
            }
        }
    }
    Ok(settings)
}

/// At most a year, which is for ever here and fits every clock.
fn seconds(value: f64) -> Duration {
    Duration::from_secs_f64(value.min(365.0 * 86400.0))
}

/// The members of one sample of a tar shard: (key, extension, start, end) each.
#[pyfunction]
pub(crate) fn tar_members(
    bytes: PyReadonlyArray1<'_, u8>,
) -> PyResult<Vec<(String, String, u64, u64)>> {
    let members = core::tar::members(bytes.as_slice()?)
        .map_err(|error| errors::CorruptError::new_err(error.to_string()))?;
    Ok(members
        .into_iter()
        .map(|member| (member.key, member.ext, member.range.start, member.range.end))
        .collect())
}
