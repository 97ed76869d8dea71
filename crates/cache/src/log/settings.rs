//! How a log is set up, and how its memory is cut up.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_format::chunk::{BLOCK, ENTRY, HEAD, chunk_of_one};

use super::core::{Identify, Length};
use super::device::DeviceChoice;
use super::index::Subject;
use super::kind::Kind;
use super::layout::LayoutChoice;
use super::layout_packed::LEAST_BUFFERS;
use super::order_file::SEGMENT;
use super::record;
use super::warnings::Warnings;

/// A chunk as long as this is read as fast as a longer one.
const CHUNK: u64 = 4 << 20;
/// Room of a segment, in chunks.
const CHUNKS_OF_A_SEGMENT: u64 = 64;
/// A request's buffer.
const REQUEST: u64 = 1 << 20;
const LEAST_REQUEST: u64 = 64 << 10;
/// Shorter chunks are not made.
const LEAST_CHUNK: u64 = 64 << 10;

/// How a log is set up.
#[derive(Clone)]
pub struct LogSettings {
    /// Cache directories; chunks go round.
    pub dirs: Vec<PathBuf>,
    /// The dataset's folder in each.
    pub name: String,
    /// The dataset's address, for people.
    pub about: String,
    /// Which dataset, which index. `dirs` is filled in.
    pub subject: Subject,
    /// Bytes of all samples.
    pub total_bytes: u64,
    /// Bytes of the longest.
    pub max_length: u64,
    /// Bytes that all logs in the directories may take, in equal shares.
    pub disk: u64,
    /// Bytes that stay free on each file system.
    pub floor: u64,
    /// Bytes of memory for buffers.
    pub memory: u64,
    /// How samples are laid out.
    pub layout: LayoutChoice,
    /// Bytes of a chunk. `None`: 4 MiB if it is written once, a batch of at most 4 MiB if it is
    /// written for each epoch.
    pub chunk: Option<u64>,
    /// How the disk is spoken to.
    pub device: DeviceChoice,
    /// From a sample's number to who it is.
    pub identify: Identify,
    /// From a sample's number to its bytes.
    pub length: Length,
    /// Where words for the user go.
    pub warnings: Arc<Warnings>,
}

impl std::fmt::Debug for LogSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSettings")
            .field("dirs", &self.dirs)
            .field("name", &self.name)
            .field("disk", &self.disk)
            .finish_non_exhaustive()
    }
}

/// How a log's memory is cut up.
#[derive(Debug)]
pub(super) struct Sizes {
    /// Bytes of a chunk.
    pub(super) chunk: u64,
    pub(super) chunks: usize,
    /// Bytes of a segment.
    pub(super) segment: u64,
    /// Bytes of a buffer that requests take one of, or several side by side.
    pub(super) request: usize,
    pub(super) requests: usize,
    /// Bytes of the longest request, which is the longest chunk that is read as a whole.
    pub(super) longest_request: u64,
    /// Longer samples are not kept.
    pub(super) longest: u64,
}

impl Sizes {
    /// The longest chunk that the memory allows.
    pub(super) fn most_chunk(&self) -> u64 {
        self.chunk.max(self.longest_request)
    }

    pub(super) fn new(settings: &LogSettings, kind: Kind) -> Self {
        let block = BLOCK as u64;
        let half = settings.memory / 2;
        let most_chunk = half / LEAST_BUFFERS;
        // A small log has smaller chunks, so that its last one wastes little of it and its first
        // one is soon written.
        let usual = CHUNK
            .min(settings.disk / 128)
            .min(settings.total_bytes / 16);
        let chunk = settings
            .chunk
            .unwrap_or(usual)
            .max(LEAST_CHUNK)
            .max(chunk_of_one(settings.max_length))
            .min(most_chunk)
            .next_multiple_of(block);
        // A sample may begin and end within a block.
        let edges = 2 * block + record::HEAD as u64;
        // Samples lie apart for the most part: a buffer that holds one of them is held as a whole.
        let mean = settings.total_bytes / u64::from(settings.subject.samples.max(1));
        let usual = (4 * mean).clamp(LEAST_REQUEST, REQUEST);
        let one = |bytes: u64| {
            bytes
                .max(settings.max_length.saturating_add(edges))
                .min(half / 4)
                .max(16 * block)
                .next_multiple_of(block)
        };
        let (request, longest_request) = match kind {
            Kind::Packed => (one(usual), one(usual)),
            // A chunk is read as a whole, into as many buffers side by side as it takes.
            Kind::Reorder => (
                LEAST_REQUEST.min(half / 4).next_multiple_of(block),
                one(settings.chunk.unwrap_or(CHUNK).max(LEAST_CHUNK)).min(SEGMENT),
            ),
        };
        let longest = match kind {
            Kind::Packed => (chunk - (HEAD + ENTRY) as u64).min(request - edges),
            Kind::Reorder => longest_request - edges,
        };
        // Never more than the dataset could fill.
        let segment = (chunk * CHUNKS_OF_A_SEGMENT)
            .min(settings.total_bytes + settings.total_bytes / 16 + 2 * chunk)
            .min(1 << 31)
            .next_multiple_of(block);
        Self {
            chunk,
            segment,
            chunks: (half / chunk).clamp(LEAST_BUFFERS, 64) as usize,
            request: request as usize,
            requests: (half / request)
                .clamp(4, 512)
                .max(longest_request.div_ceil(request)) as usize,
            longest_request,
            longest,
        }
    }
}
