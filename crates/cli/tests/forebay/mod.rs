//! Runs the built command as a user would.
#![allow(dead_code)] // each test binary uses a part of it

pub(crate) mod place;
pub(crate) mod server;

use std::path::Path;
use std::process::{Command, Stdio};

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Stdout of a run that went well.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.err);
        self.out
    }

    /// Stdout as JSON, of a run that went well.
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("stdout is JSON")
    }

    /// Stderr of a run that ended with this code and wrote nothing to stdout.
    pub(crate) fn fails(self, code: i32) -> String {
        assert_eq!((self.code, self.out.as_str()), (code, ""), "{}", self.err);
        assert!(self.err.starts_with("forebay: error: "), "{}", self.err);
        self.err
    }
}

/// The command; its surroundings are empty but for what a test adds.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn finish(command: &mut Command) -> Ran {
    let output = command.output().expect("the command starts");
    Ran {
        code: output.status.code().expect("it was not killed"),
        out: String::from_utf8(output.stdout).expect("stdout is text"),
        err: String::from_utf8(output.stderr).expect("stderr is text"),
    }
}

/// Runs it with these arguments.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    finish(&mut command(arguments))
}

/// Makes a file of so many bytes, and the folders above it.
pub(crate) fn file(path: &Path, bytes: usize) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders can be made");
    std::fs::write(path, vec![b'x'; bytes]).expect("files can be written");
}
