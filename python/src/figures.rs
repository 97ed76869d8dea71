//! Figures of an engine as Python's dictionaries.

use forebay_engine as core;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Adds what the crew does and what holds it up.
pub(crate) fn crew_figures(dict: &Bound<'_, PyDict>, crew: &core::CrewStats) -> PyResult<()> {
    let py = dict.py();
    let figures = PyDict::new(py);
    figures.set_item("prepare", crew.prepare)?;
    figures.set_item("moves", crew.moves)?;
    let queues = crew.queues.iter().map(|queue| {
        let entry = PyDict::new(py);
        entry.set_item("rank", queue.rank)?;
        entry.set_item("load", queue.load)?;
        entry.set_item("step_seconds", queue.step_seconds)?;
        entry.set_item("wait_seconds", queue.wait_seconds)?;
        Ok(entry)
    });
    figures.set_item("queues", queues.collect::<PyResult<Vec<_>>>()?)?;
    let residuals = PyDict::new(py);
    residuals.set_item("prepare", crew.prepare_residual)?;
    let [memory, log, peer, origin] = crew.tier_residuals;
    for (tier, residual) in [
        ("memory", memory),
        ("log", log),
        ("peer", peer),
        ("origin", origin),
    ] {
        residuals.set_item(tier, residual)?;
    }
    figures.set_item("residuals", residuals)?;
    dict.set_item("crew", figures)?;
    if let Some(found) = crew.bottleneck {
        let bottleneck = PyDict::new(py);
        bottleneck.set_item("stage", found.stage)?;
        bottleneck.set_item("rank", found.rank)?;
        bottleneck.set_item("changes", found.changes)?;
        dict.set_item("bottleneck", bottleneck)?;
    }
    Ok(())
}

/// Figures of the disk cache.
pub(crate) fn log_figures<'py>(
    py: Python<'py>,
    device: &str,
    log: &core::cache::log::LogStats,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("layout", log.layout)?;
    dict.set_item("device", device)?;
    dict.set_item("direct", log.direct)?;
    dict.set_item("writer", log.writes)?;
    dict.set_item("disk_bytes", log.disk_bytes)?;
    dict.set_item("disk_limit", log.disk_limit)?;
    dict.set_item("reads", log.reads)?;
    dict.set_item("read_bytes", log.read_bytes)?;
    dict.set_item("requests", log.requests)?;
    dict.set_item("request_bytes", log.request_bytes)?;
    dict.set_item("written_samples", log.written)?;
    dict.set_item("written_bytes", log.written_bytes)?;
    dict.set_item("skipped_samples", log.skipped)?;
    dict.set_item("corrupt_samples", log.corrupt)?;
    dict.set_item("read_errors", log.errors)?;
    dict.set_item("wrong_forecasts", log.wrong_forecasts)?;
    dict.set_item("full", log.full)?;
    Ok(dict)
}
