//! Faulty servers and odd inputs for the tests; not published.
//!
//! A test or benchmark talks to a real server through [`Proxy`], which passes HTTP on as it
//! is and breaks it on request, by the rules of [`Faults`]:
//!
//! ```text
//! client --> Proxy --> server         every=3,status=503,retry-after=1
//!              ^                      share=0.1,truncate=4000
//!              |                      each=1,drop
//!         Faults, Counts
//! ```
//!
//! The same proxy is the binary `faulty-proxy`, for tests that are not in Rust.
//! [`SlowFiles`] shows a directory as slowly as a file server would; it is the binary
//! `slow-files`.
//! [`crash_disk`] makes the states that a disk may be in after the power has failed, and
//! [`files`] makes directory trees that a loader meets in the wild and would rather not.

mod control;
mod counts;
pub mod crash_disk;
mod faults;
pub mod files;
mod http;
mod listening;
mod pace;
mod parent;
mod proxy;
mod relay;
mod slow_files;

pub use counts::Counts;
pub use faults::{Action, Faults, Rule, RuleError, When};
pub use parent::Parent;
pub use proxy::{Options, Proxy};
pub use slow_files::{FileCounts, SlowFiles, Slowness};
