//! The Python door: thin classes over the engine, no logic that Rust should own.

mod dataset;
mod door;
mod errors;
mod figures;
mod fork;
mod orders;
mod plan;
mod recipe;
mod tensor;
mod view;
mod what_if;

use pyo3::prelude::*;

#[pymodule]
mod _forebay {
    #[pymodule_export]
    use super::dataset::{Dataset, tar_members};
    #[pymodule_export]
    use super::door::{Engine, Job, Lent, read_sample, stand_ins};
    #[pymodule_export]
    use super::errors::{
        ClosedError, CorruptError, Error, ExhaustedError, InvalidError, UnavailableError,
    };
    #[pymodule_export]
    use super::fork::forks;
    #[pymodule_export]
    use super::orders::{
        Sampler, pack_generator, peek, randperm, randperm_into, skip, unpack_generator,
    };
    #[pymodule_export]
    use super::plan::{Epoch, Plan};
    #[pymodule_export]
    use super::recipe::Recipe;
    #[pymodule_export]
    use super::view::View;
    #[pymodule_export]
    use super::what_if::{default_disk, what_if};
    use super::*;

    /// Runs the `forebay` command; its exit code.
    #[pyfunction]
    fn run_command(py: Python<'_>, arguments: Vec<String>) -> i32 {
        py.detach(|| forebay_cli::run(arguments))
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::fork::watch();
        module.add("POLICIES", forebay_engine::cache::POLICIES.to_vec())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
