//! What the caller of a failed operation can do about it.
//!
//! Each crate has its own error type with a `kind()`; the Python door turns each
//! kind into one exception under `forebay.Error`.

/// The five things an error can mean to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The other side did not answer: try again.
    Unavailable,
    /// Bytes are not what was promised: drop them and read again.
    Corrupt,
    /// The call itself is wrong: mend it.
    Invalid,
    /// A limit was reached: raise it.
    Exhausted,
    /// What was asked is shut down.
    Closed,
}
