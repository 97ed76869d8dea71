//! Samples that cannot be read or decoded: the batch fails, or another sample stands in.

use crate::Error;
use crate::batch::StandIn;
use crate::job::{Desk, OnError};
use crate::preparation;
use crate::quarantine::{CANDIDATES, candidate};
use crate::task::{Outcome, Task};

/// Why a sample is of no use.
#[derive(Debug)]
pub(super) enum Cause {
    Read(forebay_origin::Error),
    Image(forebay_prepare::Error),
}

impl From<forebay_origin::Error> for Cause {
    fn from(error: forebay_origin::Error) -> Self {
        Cause::Read(error)
    }
}

impl From<forebay_prepare::Error> for Cause {
    fn from(error: forebay_prepare::Error) -> Self {
        Cause::Image(error)
    }
}

impl Cause {
    /// Whether the sample is at fault rather than the road to it.
    fn blames_the_sample(&self) -> bool {
        match self {
            Cause::Read(error) => error.blames_the_sample(),
            Cause::Image(_) => true,
        }
    }

    fn into_error(self, desk: &Desk, sample: u32) -> Error {
        let name = desk.dataset.name(sample);
        match self {
            Cause::Read(source) => Error::Sample {
                sample,
                name,
                source,
            },
            Cause::Image(source) => Error::Image {
                sample,
                name,
                source,
            },
        }
    }

    /// The error and its causes in one line.
    fn describe(&self) -> String {
        let error: &dyn std::error::Error = match self {
            Cause::Read(error) => error,
            Cause::Image(error) => error,
        };
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// Whether a sample is known to be unreadable, so that a stand-in is read at once.
pub(super) fn is_known(desk: &Desk, task: &Task) -> bool {
    desk.on_error == OnError::Replace && desk.quarantine.holds(task.id)
}

/// Takes a bad sample into quarantine, or makes its error the batch's.
pub(super) fn quarantine(desk: &Desk, task: &Task, cause: Cause) -> Result<(), Error> {
    if desk.on_error == OnError::Raise || !cause.blames_the_sample() {
        return Err(cause.into_error(desk, task.id));
    }
    let name = desk.dataset.name(task.id);
    desk.quarantine.admit(task.id, name, cause.describe())
}

/// The samples that may stand in for a bad one: id, length and label.
pub(super) fn candidates(
    desk: &Desk,
    task: &Task,
) -> impl Iterator<Item = (u32, u64, i64)> + use<> {
    let dataset = desk.dataset.clone();
    let bad = task.id;
    (0..CANDIDATES).filter_map(move |attempt| {
        let id = candidate(bad, attempt, dataset.len())?;
        Some((id, dataset.length(id).ok()?, dataset.label(id).ok()?))
    })
}

/// What a candidate's bytes come to: `None` if it is bad as well.
pub(super) fn try_candidate(
    desk: &Desk,
    task: &Task,
    (id, label): (u32, i64),
    read: Result<Vec<u8>, forebay_origin::Error>,
) -> Option<Outcome> {
    let made = read.map_err(Cause::from).and_then(|bytes| {
        let Some(preparation) = &desk.preparation else {
            return Ok(bytes);
        };
        let mut image = vec![0; task.room];
        preparation::make(preparation, task, &bytes, &mut image)?;
        Ok(image)
    });
    match made {
        Ok(bytes) => Some(Outcome::StandIn(StandIn {
            slot: task.slot,
            id,
            label,
            bytes,
        })),
        Err(cause) if cause.blames_the_sample() => None,
        Err(cause) => Some(Outcome::Failed(cause.into_error(desk, id))),
    }
}

/// All candidates were bad.
pub(super) fn no_stand_in(task: &Task) -> Outcome {
    Outcome::Failed(Error::NoStandIn {
        sample: task.id,
        tried: CANDIDATES,
    })
}
