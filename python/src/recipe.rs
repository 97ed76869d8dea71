//! Recipes for Python: what a transform was translated to.

use std::sync::Arc;

use forebay_engine::prepare;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;

/// How an encoded image becomes a sample; made from JSON.
#[pyclass(module = "forebay._forebay", frozen)]
pub(crate) struct Recipe(pub(crate) Arc<prepare::Recipe>);

#[pymethods]
impl Recipe {
    #[new]
    fn new(json: &str) -> PyResult<Self> {
        let recipe = prepare::Recipe::from_json(json).map_err(errors::prepare)?;
        Ok(Self(Arc::new(recipe)))
    }

    /// Channels, height and width of every sample.
    #[getter]
    fn shape(&self) -> (usize, usize, usize) {
        let shape = self.0.shape();
        (shape.channels, shape.height, shape.width)
    }

    /// The name of the samples' type, as torch has it.
    #[getter]
    fn dtype(&self) -> &'static str {
        match self.0.shape().element {
            prepare::Element::U8 => "uint8",
            prepare::Element::F16 => "float16",
            prepare::Element::Bf16 => "bfloat16",
            prepare::Element::F32 => "float32",
        }
    }

    /// "chw" or "hwc": how samples lie in memory.
    #[getter]
    fn order(&self) -> &'static str {
        match self.0.shape().order {
            prepare::Order::Chw => "chw",
            prepare::Order::Hwc => "hwc",
        }
    }

    /// One sample made by itself, as the loader would make it.
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        encoded: &[u8],
        seed: u64,
        epoch: u64,
        position: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let draw = prepare::Draw {
            seed,
            epoch,
            position,
        };
        let mut scratch = prepare::Scratch::default();
        let size = self.0.shape().bytes();
        PyBytes::new_with(py, size, |out| {
            self.0
                .prepare(encoded, draw, &mut scratch, out)
                .map_err(errors::prepare)
        })
    }

    /// The random parameters of one sample of that size, as JSON.
    fn trace(
        &self,
        width: u32,
        height: u32,
        seed: u64,
        epoch: u64,
        position: u64,
    ) -> PyResult<String> {
        let draw = prepare::Draw {
            seed,
            epoch,
            position,
        };
        self.0.trace((width, height), draw).map_err(errors::prepare)
    }
}
