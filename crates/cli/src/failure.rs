//! Why a command ended early: words for stderr, and an exit code.

use std::error::Error;
use std::io::{self, IsTerminal, Write};

use crate::output::{Paint, printable, wants_colour};

/// The end of a command that did not do what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Whoever read our output has seen enough (`forebay order ... | head`).
    ReaderGone,
    /// A signal ended it, at a good place.
    Stopped(i32),
    /// The command line is wrong in a way that only its meaning shows.
    Usage(Words),
    /// It could not be done.
    Failed(Words),
}

/// What is said about it.
#[derive(Debug)]
pub(crate) struct Words {
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage(Words {
            message: message.into(),
            hint: Some(hint.into()),
        })
    }

    pub(crate) fn new(message: impl Into<String>, hint: Option<String>) -> Self {
        Self::Failed(Words {
            message: message.into(),
            hint,
        })
    }

    /// An error with all its causes.
    pub(crate) fn of(error: &dyn Error, hint: Option<String>) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Self::new(message, hint)
    }

    /// From writing to stdout.
    pub(crate) fn of_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            Self::new(format!("cannot write to standard output: {error}"), None)
        }
    }

    /// Tells the user; gives the exit code.
    pub(crate) fn report(self) -> i32 {
        let (words, code) = match self {
            Self::ReaderGone => return 0,
            // As a shell has it for a process that a signal ended.
            Self::Stopped(signal) => return 128 + signal,
            Self::Failed(words) => (words, 1),
            Self::Usage(words) => (words, 2),
        };
        say("error", Paint::RED, &words.message);
        if let Some(hint) = &words.hint {
            // There is nobody left to tell if this write fails.
            let _ = writeln!(io::stderr().lock(), "hint: {}", printable(hint));
        }
        code
    }
}

/// Something the user should know about a command that goes on.
pub(crate) fn warn(message: &str) {
    say("warning", Paint::YELLOW, message);
}

fn say(word: &str, colour: &'static str, message: &str) {
    let mut stderr = io::stderr().lock();
    let paint = Paint::new(wants_colour(stderr.is_terminal()));
    let word = paint.with(colour, word);
    // There is nobody left to tell if this write fails.
    let _ = writeln!(stderr, "forebay: {word}: {}", printable(message));
}
