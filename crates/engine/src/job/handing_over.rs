//! A batch is taken when it is handed over. Much can go wrong on the last steps to the user: a
//! warning that is raised as an error, a logging handler that fails, no memory for the tensors.
//! None of it may lose a batch, so whoever hands it over gives it back, and it is the next again.

use std::sync::{MutexGuard, PoisonError};

use super::Job;
use crate::batch::Batch;

impl Job {
    /// The batch of the last [`Job::next`] could not be handed over: it is the next one again.
    pub fn give_back(&self, batch: Batch) {
        *self.returned() = Some(batch);
    }

    pub(super) fn returned(&self) -> MutexGuard<'_, Option<Batch>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Batches of this epoch that were taken so far, those that failed included.
    pub fn taken(&self) -> u64 {
        let returned = self.returned().is_some();
        self.desk.window().taken() - u64::from(returned)
    }

    /// What the user should hear about: each once.
    pub fn take_warnings(&self) -> Vec<String> {
        self.desk.plant.warnings.take()
    }

    /// The same, by way of `tell`. It ends with the first error; what was not told by then is told
    /// another time.
    pub fn tell_warnings<E>(&self, mut tell: impl FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let mut texts = self.take_warnings().into_iter();
        let told = texts.by_ref().try_for_each(|text| tell(&text));
        texts.for_each(|text| self.desk.plant.warnings.say(text));
        told
    }
}
