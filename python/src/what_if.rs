//! The simulator, for a loader that wants to know what another size would do.

use std::path::PathBuf;

use forebay_cli::WhatIfError;
use forebay_engine::DiskSettings;
use forebay_engine::cache::log::LayoutChoice;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;

use crate::errors;
use crate::plan::Plan;
use crate::view::View;

/// Bytes that a disk cache in these directories may take if nobody says how many.
#[pyfunction]
pub(crate) fn default_disk(cache_dirs: Vec<PathBuf>) -> u64 {
    DiskSettings::new(cache_dirs, None, LayoutChoice::Packed).bytes
}

/// Answers as JSON; so are the settings. Ctrl-C ends it.
#[pyfunction]
pub(crate) fn what_if(
    py: Python<'_>,
    view: &View,
    plan: &Plan,
    settings: &str,
) -> PyResult<String> {
    let (view, plan) = (view.core()?.clone(), plan.0.clone());
    let (answers, raised) = py.detach(|| {
        let mut raised = None;
        let mut go_on = || {
            if raised.is_none() {
                raised = Python::attach(|py| py.check_signals()).err();
            }
            raised.is_none()
        };
        let answers = forebay_cli::what_if(&view, &plan, settings, &mut go_on);
        (answers, raised)
    });
    if let Some(raised) = raised {
        return Err(raised);
    }
    answers.map_err(|error| match error {
        WhatIfError::Wrong { setting, why } => PyValueError::new_err(format!("{setting}: {why}")),
        WhatIfError::Stopped => PyKeyboardInterrupt::new_err(()),
        WhatIfError::Failed(text) => errors::Error::new_err(text),
        other => errors::Error::new_err(format!("{other:?}")),
    })
}
