//! Plans and their epochs, for Python.

use std::sync::Arc;

use forebay_engine::plan as core;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors;

/// Which sample each rank needs in each batch of each epoch.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Plan(pub(crate) core::Plan);

#[pymethods]
impl Plan {
    /// `seed=None` and `indices=None` is the sequential order.
    #[new]
    #[pyo3(signature = (samples, *, seed=None, indices=None, world=1, deal="strided", uneven="pad", batch_size=None, drop_last=false))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        samples: u32,
        seed: Option<u64>,
        indices: Option<PyReadonlyArray1<'_, u32>>,
        world: u32,
        deal: &str,
        uneven: &str,
        batch_size: Option<u32>,
        drop_last: bool,
    ) -> PyResult<Self> {
        let order = match (seed, indices) {
            (Some(_), Some(_)) => {
                return Err(PyValueError::new_err(
                    "a plan has a seed or indices, not both",
                ));
            }
            (Some(seed), None) => core::Order::Seeded { seed },
            (None, Some(indices)) => core::Order::Given(Arc::from(indices.as_slice()?)),
            (None, None) => core::Order::Sequential,
        };
        let uneven = match uneven {
            "pad" => core::Uneven::Pad,
            "drop" => core::Uneven::Drop,
            "keep" => core::Uneven::Keep,
            other => {
                return Err(PyValueError::new_err(format!(
                    "uneven is pad, drop or keep, not {other:?}"
                )));
            }
        };
        let deal = match deal {
            "strided" => core::Deal::Strided { uneven },
            "batches" => core::Deal::Batches,
            other => {
                return Err(PyValueError::new_err(format!(
                    "deal is strided or batches, not {other:?}"
                )));
            }
        };
        core::Plan::new(samples, order, deal, world, batch_size, drop_last)
            .map(Self)
            .map_err(errors::plan)
    }

    /// Epoch `epoch`, from its start.
    fn epoch(&self, py: Python<'_>, epoch: u64) -> Epoch {
        Epoch(py.detach(|| self.0.epoch(epoch)))
    }
}

/// One epoch's order, dealt to ranks.
#[pyclass(frozen, module = "forebay._forebay")]
pub(crate) struct Epoch(pub(crate) core::Epoch);

#[pymethods]
impl Epoch {
    /// What remains once the first `consumed` positions of the order are used up.
    fn rest(&self, consumed: u64) -> Self {
        Self(self.0.from_position(consumed))
    }

    /// Samples of a rank.
    fn len(&self, rank: u32) -> u64 {
        self.0.len(rank)
    }

    /// Batches of a rank.
    fn batches(&self, rank: u32) -> u64 {
        self.0.batches(rank)
    }

    /// Positions of the order used up once every rank took `batches` batches.
    fn consumed(&self, batches: u64) -> u64 {
        self.0.consumed(batches)
    }

    /// The samples of one batch of a rank.
    fn batch(&self, rank: u32, index: u64) -> PyResult<Vec<u32>> {
        if index >= self.0.batches(rank) {
            return Err(PyValueError::new_err(format!(
                "the epoch has {} batches",
                self.0.batches(rank)
            )));
        }
        Ok(self.0.batch(rank, index).collect())
    }

    /// Every sample of a rank, in order.
    fn samples<'py>(&self, py: Python<'py>, rank: u32) -> Bound<'py, PyArray1<u32>> {
        let samples: Vec<u32> = py.detach(|| {
            (0..self.0.len(rank))
                .map(|position| self.0.sample(rank, position))
                .collect()
        });
        samples.into_pyarray(py)
    }
}
