//! What-if for a caller that has a view and a plan already: a Python loader.

use forebay_origin::View;
use forebay_plan::Plan;

use super::question::{Question, Settings, Unanswered};

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhatIfError {
    /// A setting makes no sense.
    Wrong {
        /// Its name.
        setting: String,
        /// What is wrong with its value.
        why: String,
    },
    /// The caller had enough.
    Stopped,
    /// It could not be done.
    Failed(String),
}

/// Answers, as a JSON list in the order policy, disk, memory. `settings` is a JSON object with a
/// value for every setting; requests in flight are the view's where they are null. `go_on` is
/// asked now and then, on this thread.
pub fn what_if(
    view: &View,
    plan: &Plan,
    settings: &str,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<String, WhatIfError> {
    let failed = |error: &dyn std::error::Error| WhatIfError::Failed(error.to_string());
    let mut settings: Settings = serde_json::from_str(settings).map_err(|error| failed(&error))?;
    if settings.requests.is_none() && !view.is_local() {
        let requests = u32::try_from(view.requests_in_flight());
        settings.requests = Some(requests.unwrap_or(u32::MAX));
    }
    let lengths: Result<Vec<_>, _> = (0..view.len()).map(|at| view.length(at)).collect();
    let lengths = lengths.map_err(|error| failed(&error))?;
    let question = Question::new(plan.clone(), lengths, settings);
    let question = question.map_err(|wrong| WhatIfError::Wrong {
        setting: wrong.setting.to_owned(),
        why: wrong.why,
    })?;
    let answers = question.answer(&mut |_, _| go_on());
    let answers = answers.map_err(|unanswered| match unanswered {
        Unanswered::Stopped => WhatIfError::Stopped,
        Unanswered::Failed(error) => failed(&error),
    })?;
    serde_json::to_string(&answers).map_err(|error| failed(&error))
}
