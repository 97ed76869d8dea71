//! What a log says of itself.

/// A log's figures so far.
#[derive(Debug, Clone, Default)]
pub struct LogStats {
    /// How samples are laid out.
    pub layout: &'static str,
    /// Whether this process writes.
    pub writes: bool,
    /// Whether the page cache is left out.
    pub direct: bool,
    /// Bytes that all logs of the directories take, as `du` counts.
    pub disk_bytes: u64,
    /// Bytes that they may take.
    pub disk_limit: u64,
    /// Samples read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Requests that they were read by.
    pub requests: u64,
    /// Bytes of those, gaps and edges included.
    pub request_bytes: u64,
    /// Samples written.
    pub written: u64,
    /// Bytes written to the device, all overhead included.
    pub written_bytes: u64,
    /// Samples that were not written because the writer was behind, or they are too long.
    pub skipped: u64,
    /// Samples whose bytes were not what they should be; read from the origin instead.
    pub corrupt: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Epochs whose order was forecast and turned out otherwise.
    pub wrong_forecasts: u64,
    /// No more room.
    pub full: bool,
}

impl LogStats {
    /// Adds the figures of another log in the same directories. What those take is the same for
    /// both; what can be said of one only is not said of the two.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self {
            layout: match self.layout == other.layout {
                true => self.layout,
                false => "packed and reorder",
            },
            writes: self.writes && other.writes,
            direct: self.direct && other.direct,
            disk_bytes: self.disk_bytes.max(other.disk_bytes),
            disk_limit: self.disk_limit.max(other.disk_limit),
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            requests: self.requests + other.requests,
            request_bytes: self.request_bytes + other.request_bytes,
            written: self.written + other.written,
            written_bytes: self.written_bytes + other.written_bytes,
            skipped: self.skipped + other.skipped,
            corrupt: self.corrupt + other.corrupt,
            errors: self.errors + other.errors,
            wrong_forecasts: self.wrong_forecasts + other.wrong_forecasts,
            full: self.full || other.full,
        }
    }
}
