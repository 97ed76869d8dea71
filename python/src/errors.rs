//! One Python exception per kind of error, all under `forebay.Error`.

use forebay_engine::Kind;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(forebay, Error, PyException, "Base of forebay's errors.");
create_exception!(
    forebay,
    UnavailableError,
    Error,
    "The other side did not answer: try again."
);
create_exception!(
    forebay,
    CorruptError,
    Error,
    "Bytes are not what was promised."
);
create_exception!(forebay, InvalidError, Error, "The call is wrong: mend it.");
create_exception!(
    forebay,
    ExhaustedError,
    Error,
    "A limit was reached: raise it."
);
create_exception!(forebay, ClosedError, Error, "What was asked is shut down.");

/// An error with its causes and its hint, as the exception of its kind.
fn raise(kind: Kind, error: &dyn std::error::Error, hint: Option<String>) -> PyErr {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    if let Some(hint) = hint {
        text.push_str("; hint: ");
        text.push_str(&hint);
    }
    match kind {
        Kind::Unavailable => UnavailableError::new_err(text),
        Kind::Corrupt => CorruptError::new_err(text),
        Kind::Invalid => InvalidError::new_err(text),
        Kind::Exhausted => ExhaustedError::new_err(text),
        Kind::Closed => ClosedError::new_err(text),
    }
}

pub(crate) fn engine(error: forebay_engine::Error) -> PyErr {
    raise(error.kind(), &error, error.hint())
}

pub(crate) fn origin(error: forebay_engine::origin::Error) -> PyErr {
    raise(error.kind(), &error, error.hint())
}

pub(crate) fn index(error: forebay_engine::origin::IndexError) -> PyErr {
    raise(error.kind(), &error, None)
}

pub(crate) fn plan(error: forebay_engine::plan::Error) -> PyErr {
    raise(Kind::Invalid, &error, None)
}

pub(crate) fn prepare(error: forebay_engine::prepare::Error) -> PyErr {
    use forebay_engine::prepare::Error::{Corrupt, Invalid, TooLarge, TooSmall};
    let kind = match error {
        Corrupt(_) => Kind::Corrupt,
        TooLarge { .. } => Kind::Exhausted,
        TooSmall(_) | Invalid(_) => Kind::Invalid,
    };
    raise(kind, &error, error.hint().map(String::from))
}
