//! Views of datasets, for Python.

use std::sync::Arc;

use forebay_engine::origin as core;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::dataset::Dataset;
use crate::errors;
use crate::fork::Native;

/// Samples of one dataset or of several, numbered by their position.
#[pyclass(frozen, weakref, module = "forebay._forebay")]
pub(crate) struct View(Native<Arc<core::View>>);

impl View {
    pub(crate) fn core(&self) -> PyResult<&Arc<core::View>> {
        self.0.get()
    }
}

#[pymethods]
impl View {
    /// `map` numbers the samples of all datasets one after another; without it they are all of
    /// them. `labels` are those of the positions, if they are not the datasets' own.
    #[new]
    #[pyo3(signature = (datasets, map=None, labels=None))]
    fn new(
        py: Python<'_>,
        datasets: Vec<PyRef<'_, Dataset>>,
        map: Option<PyReadonlyArray1<'_, u32>>,
        labels: Option<PyReadonlyArray1<'_, i64>>,
    ) -> PyResult<Self> {
        let parts = datasets.iter().map(|dataset| dataset.core().cloned());
        let parts: Vec<_> = parts.collect::<PyResult<_>>()?;
        let map: Option<Arc<[u32]>> = map.map(|map| map.as_slice().map(Arc::from)).transpose()?;
        let labels: Option<Arc<[i64]>> = labels
            .map(|labels| labels.as_slice().map(Arc::from))
            .transpose()?;
        let view = py
            .detach(|| core::View::new(parts, map, labels))
            .map_err(errors::origin)?;
        Ok(Self(Native::new(Arc::new(view))))
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.core()?.len() as usize)
    }

    /// What a resume state is compared with.
    #[getter]
    fn fingerprint(&self) -> PyResult<String> {
        Ok(format!("{:016x}", self.core()?.fingerprint()))
    }

    /// Whether samples are local files.
    #[getter]
    fn is_local(&self) -> PyResult<bool> {
        Ok(self.core()?.is_local())
    }

    /// The most requests that are sent to stores at a time.
    #[getter]
    fn requests_in_flight(&self) -> PyResult<usize> {
        Ok(self.core()?.requests_in_flight())
    }

    #[getter]
    fn total_bytes(&self) -> PyResult<u64> {
        Ok(self.core()?.total_bytes())
    }
}
