//! The log tier: samples on a local SSD, read as fast as one long file.
//!
//! ```text
//!   origin --offer--> chunk in memory --> writer thread --> segments
//!   plan ----ask----> sorted, joined requests --> device --> slices, each checked
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | `log` | the handle: one dataset's log in one or several directories |
//! | `settings`, `stats` | how it is set up, and its figures |
//! | `layout`, `kind`, `read_only` | what the layouts share; which it is; one that is only read |
//! | `layout_packed` | written once |
//! | `layout_reorder`, `ordered`, `order_file`, `record` | written for each epoch, in its order |
//! | `scribe`, `rooms` | its writing thread, and what it takes of each directory |
//! | `measure` | which of the two suits the disk |
//! | `writer`, `reader`, `kept` | the two threads; reads go first; chunks that were read ahead |
//! | `device`, `uring`, `buffer` | the way to the disk, and its memory |
//! | `index` | where each sample lies, shared by all processes |
//! | `recover`, `recover_ordered`, `reclaim` | what is on the disk; what may go |
//! | `files`, `budget`, `lease` | segments, the disk contract, who writes |
//! | `inspect`, `verify` | logs as their files show them, without their datasets |
//!
//! The promise: bytes are checked against who they should be before anybody sees them. Whatever is
//! torn, stale or flipped is read from the origin instead.

mod budget;
mod buffer;
mod core;
mod device;
mod files;
mod index;
mod inspect;
mod kept;
mod kind;
mod layout;
mod layout_packed;
mod layout_reorder;
mod lease;
#[allow(clippy::module_inception)]
mod log;
mod measure;
mod order_file;
mod ordered;
mod read_only;
mod reader;
mod reclaim;
mod record;
mod recover;
mod recover_ordered;
mod rooms;
mod scribe;
mod settings;
mod stats;
mod uring;
mod verify;
mod warnings;
mod writer;

pub use self::core::{Identify, Length};
pub use budget::used;
pub use buffer::{Buffer, Slice};
pub use device::{Device, DeviceChoice, Done, Op, transfer};
pub use index::{Location, Subject};
pub use inspect::{CannotChange, Contents, Found, find_logs, free_space};
pub use layout::{Check, LayoutChoice, Order, Sample, Spot};
pub use log::{FOLDER, Log};
pub use reader::{Answer, Reader, Want};
pub use settings::LogSettings;
pub use stats::LogStats;
pub use verify::Verified;
pub use warnings::Warnings;
