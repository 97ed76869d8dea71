//! torch's draws, made on a copy of a torch generator's state.
//!
//! The Python side fetches a generator's state as a uint8 array, asks here what torch
//! would draw from it, and puts the advanced state back, so that the generator goes
//! on as if torch had drawn.

use forebay_engine::plan::{Dialect, Mt19937, Sampler as Stream};
use numpy::{IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors;

fn engine(state: &PyReadonlyArray1<'_, u8>) -> PyResult<Mt19937> {
    Mt19937::from_torch_state(state.as_slice()?).map_err(errors::plan)
}

/// One of torch's samplers, as a stream of indices that knows when it draws.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Sampler(Stream);

#[pymethods]
impl Sampler {
    /// `RandomSampler`.
    #[staticmethod]
    #[pyo3(signature = (samples, count, replacement=false))]
    fn random(samples: u32, count: u64, replacement: bool) -> Self {
        Self(Stream::Random {
            samples,
            count,
            replacement,
            dialect: Dialect::Current,
        })
    }

    /// `SubsetRandomSampler`.
    #[staticmethod]
    fn subset(indices: PyReadonlyArray1<'_, u32>) -> PyResult<Self> {
        Ok(Self(Stream::Subset {
            indices: indices.as_slice()?.into(),
            dialect: Dialect::Current,
        }))
    }

    /// `WeightedRandomSampler(replacement=True)`.
    #[staticmethod]
    fn weighted(weights: PyReadonlyArray1<'_, f64>, count: u64) -> PyResult<Self> {
        Ok(Self(Stream::Weighted {
            weights: weights.as_slice()?.into(),
            count,
        }))
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    /// The stream drawn from a generator in this state.
    fn indices<'py>(
        &self,
        py: Python<'py>,
        state: PyReadonlyArray1<'py, u8>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let mut engine = engine(&state)?;
        let indices = py
            .detach(|| self.0.indices(&mut engine))
            .map_err(errors::plan)?;
        Ok(indices.into_pyarray(py))
    }

    /// The stream drawn from a fresh generator of this seed.
    fn indices_of_seed<'py>(
        &self,
        py: Python<'py>,
        seed: u64,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let indices = py
            .detach(|| self.0.indices(&mut Mt19937::new(seed)))
            .map_err(errors::plan)?;
        Ok(indices.into_pyarray(py))
    }

    /// 32-bit draws made once `batches` batches were asked for (found or refused).
    #[pyo3(signature = (batches, batch_size))]
    fn draws(&self, batches: u64, batch_size: Option<u32>) -> u64 {
        self.0.draws(self.0.requests(batches, batch_size))
    }
}

/// The generator's state after `draws` more 32-bit draws.
#[pyfunction]
pub(crate) fn skip<'py>(
    py: Python<'py>,
    state: PyReadonlyArray1<'py, u8>,
    draws: u64,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let mut engine = engine(&state)?;
    py.detach(|| engine.skip(draws));
    let mut bytes = state.as_slice()?.to_vec();
    engine.store_torch_state(&mut bytes).map_err(errors::plan)?;
    Ok(bytes.into_pyarray(py))
}

/// The int64 that a generator in this state draws after `draws` other 32-bit draws.
#[pyfunction]
pub(crate) fn peek(state: PyReadonlyArray1<'_, u8>, draws: u64) -> PyResult<i64> {
    let mut engine = engine(&state)?;
    engine.skip(draws);
    Ok(engine.random_i64())
}

/// A generator's state in 2.5 KB, to be kept in a resume state.
#[pyfunction]
pub(crate) fn pack_generator(state: PyReadonlyArray1<'_, u8>) -> PyResult<Vec<u8>> {
    Ok(engine(&state)?.to_bytes())
}

/// The generator's `state` with the packed one put in its place.
#[pyfunction]
pub(crate) fn unpack_generator<'py>(
    py: Python<'py>,
    packed: Vec<u8>,
    state: PyReadonlyArray1<'py, u8>,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let engine = Mt19937::from_bytes(&packed).map_err(errors::plan)?;
    let mut bytes = state.as_slice()?.to_vec();
    engine.store_torch_state(&mut bytes).map_err(errors::plan)?;
    Ok(bytes.into_pyarray(py))
}

/// `torch.randperm(n)` under `manual_seed(seed)`.
#[pyfunction]
pub(crate) fn randperm(py: Python<'_>, n: u32, seed: u64) -> Bound<'_, PyArray1<u32>> {
    py.detach(|| forebay_engine::plan::randperm(&mut Mt19937::new(seed), n))
        .into_pyarray(py)
}

/// Successive `torch.randperm(n)` from a generator in this state, into `out`; the state after.
#[pyfunction]
pub(crate) fn randperm_into<'py>(
    py: Python<'py>,
    state: PyReadonlyArray1<'py, u8>,
    out: &Bound<'py, PyArray1<u32>>,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let mut engine = engine(&state)?;
    let mut out = out
        .try_readwrite()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let ids = out.as_slice_mut()?;
    forebay_engine::plan::randperm_into(&mut engine, ids);
    let mut bytes = state.as_slice()?.to_vec();
    engine.store_torch_state(&mut bytes).map_err(errors::plan)?;
    Ok(bytes.into_pyarray(py))
}
