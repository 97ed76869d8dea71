//! Words for the user about what went wrong and was got round: each once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module's text.
#[derive(Debug, Default)]
pub struct Warnings {
    any: AtomicBool,
    texts: Mutex<Vec<String>>,
}

impl Warnings {
    /// Says it, unless it waits to be heard already.
    pub fn say(&self, text: String) {
        let mut texts = self.texts.lock().expect("the warnings' lock");
        if !texts.contains(&text) {
            texts.push(text);
        }
        self.any.store(true, Ordering::Release);
    }

    /// What was said since this was last asked. One load if nothing was.
    pub fn take(&self) -> Vec<String> {
        if !self.any.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.texts.lock().expect("the warnings' lock"))
    }
}
