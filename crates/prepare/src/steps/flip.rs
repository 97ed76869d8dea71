//! Flips: the canvas only remembers them.

use serde::Deserialize;

use super::check;

/// With probability `p`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flip {
    pub(super) p: f64,
}

impl Flip {
    pub(super) fn check(&self) -> Result<(), String> {
        check::probability(self.p)
    }
}
