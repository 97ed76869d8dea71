//! As much of HTTP/1.1 as a proxy needs: where a message's head ends, and where its body does.
//!
//! Heads are kept as the bytes that came, so that a signed request stays valid. Bodies are
//! not parsed; a [`Body`] only says how many of the bytes at hand still belong to it.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Heads over this size are refused.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 128;
/// Room for one read: most of a 100 KB body in one system call.
const READ: usize = 128 << 10;

/// A connection with the bytes that were read and not used yet.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) socket: TcpStream,
    pub(crate) buffer: BytesMut,
}

impl Stream {
    pub(crate) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let buffer = BytesMut::with_capacity(READ);
        Ok(Self { socket, buffer })
    }

    /// Reads once; 0 at the end of the stream.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ / 2);
        self.socket.read_buf(&mut self.buffer).await
    }

    /// The next message's head, or `None` where the other side closed between messages.
    pub(crate) async fn head<H: Head>(&mut self) -> io::Result<Option<H>> {
        loop {
            if !self.buffer.is_empty()
                && let Some(head) = H::parse(&mut self.buffer)?
            {
                return Ok(Some(head));
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(invalid("head over 64 KiB"));
            }
            if self.fill().await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }
}

/// A request's or a response's head.
pub(crate) trait Head: Sized {
    /// Takes the head off the buffer's front; `None` where it is not whole yet.
    fn parse(buffer: &mut BytesMut) -> io::Result<Option<Self>>;
}

/// A request's head.
#[derive(Debug)]
pub(crate) struct Request {
    /// The bytes as they came.
    pub(crate) raw: BytesMut,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Body,
    /// The client waits for a `100 Continue` before it sends the body.
    pub(crate) expects: bool,
    /// The connection ends with this exchange.
    pub(crate) close: bool,
}

/// A response's head.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) raw: BytesMut,
    pub(crate) status: u16,
    pub(crate) close: bool,
    framing: Body,
}

impl Head for Request {
    fn parse(buffer: &mut BytesMut) -> io::Result<Option<Self>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let length = match request.parse(buffer).map_err(invalid)? {
            httparse::Status::Partial => return Ok(None),
            httparse::Status::Complete(length) => length,
        };
        let headers = Headers(request.headers);
        let head = Self {
            raw: BytesMut::new(),
            method: request.method.unwrap_or_default().to_owned(),
            path: request.path.unwrap_or_default().to_owned(),
            body: headers.framing()?.unwrap_or(Body::Length(0)),
            expects: headers.says("expect", "100-continue"),
            close: headers.ends(request.version),
        };
        let raw = cut(buffer, length);
        Ok(Some(Self { raw, ..head }))
    }
}

impl Head for Response {
    fn parse(buffer: &mut BytesMut) -> io::Result<Option<Self>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let length = match response.parse(buffer).map_err(invalid)? {
            httparse::Status::Partial => return Ok(None),
            httparse::Status::Complete(length) => length,
        };
        let headers = Headers(response.headers);
        let framing = headers.framing()?.unwrap_or(Body::UntilClose);
        let head = Self {
            raw: BytesMut::new(),
            status: response.code.unwrap_or_default(),
            close: headers.ends(response.version) || framing == Body::UntilClose,
            framing,
        };
        let raw = cut(buffer, length);
        Ok(Some(Self { raw, ..head }))
    }
}

impl Response {
    /// The body that follows this head, which depends on what was asked.
    pub(crate) fn body(&self, method: &str) -> Body {
        match self.status {
            100..=199 | 204 | 304 => Body::Length(0),
            _ if method == "HEAD" => Body::Length(0),
            _ => self.framing,
        }
    }

    /// Whether the connection ends after this answer. An answer without a body has no
    /// length to miss.
    pub(crate) fn ends(&self, method: &str) -> bool {
        self.close && !(self.framing == Body::UntilClose && self.body(method).done())
    }

    /// Puts another value in place of a header's, where the answer has that header.
    pub(crate) fn replace(&mut self, name: &str, value: &str) {
        let head = String::from_utf8_lossy(&self.raw);
        let lines = head.split("\r\n").map(|line| match line.split_once(':') {
            Some((key, _)) if key.eq_ignore_ascii_case(name) => format!("{key}: {value}"),
            _ => line.to_owned(),
        });
        let replaced = lines.collect::<Vec<_>>().join("\r\n");
        self.raw = BytesMut::from(replaced.as_bytes());
    }
}

/// Copies the head out, so that the buffer stays alone in its memory and is used again.
fn cut(buffer: &mut BytesMut, length: usize) -> BytesMut {
    let head = BytesMut::from(&buffer[..length]);
    buffer.advance(length);
    head
}

struct Headers<'h, 'b>(&'h [httparse::Header<'b>]);

impl<'b> Headers<'_, 'b> {
    fn get(&self, name: &str) -> Option<&'b [u8]> {
        let found = self.0.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        found.map(|header| header.value)
    }

    fn says(&self, name: &str, word: &str) -> bool {
        let value = self.get(name).unwrap_or_default();
        let mut words = value.split(|&byte| byte == b',');
        words.any(|found| found.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
    }

    fn ends(&self, version: Option<u8>) -> bool {
        match version {
            Some(0) => !self.says("connection", "keep-alive"),
            _ => self.says("connection", "close"),
        }
    }

    fn framing(&self) -> io::Result<Option<Body>> {
        if self.says("transfer-encoding", "chunked") {
            return Ok(Some(Body::Chunked(Chunk::Size(0))));
        }
        let Some(length) = self.get("content-length") else {
            return Ok(None);
        };
        let length = std::str::from_utf8(length)
            .ok()
            .and_then(|s| s.parse().ok());
        length
            .map(|length| Some(Body::Length(length)))
            .ok_or_else(|| invalid("content-length is not a number"))
    }
}

/// What is left of a message's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Length(u64),
    Chunked(Chunk),
    UntilClose,
}

/// Where in a chunked body the next byte lies.
///
/// ```text
/// 1a;ext\r\n  data  \r\n  0\r\n  trailer: x\r\n  \r\n
/// Size  Ext   Data  End   Size   Trailer         Trailer, empty line: Done
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In the size; so far it is this.
    Size(u64),
    /// Behind the size's digits, up to the end of the line.
    Ext(u64),
    /// This many bytes of data are left.
    Data(u64),
    /// In the line end behind the data.
    End,
    /// In a trailer line, with this many characters so far.
    Trailer(u64),
    Done,
}

impl Body {
    pub(crate) fn done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::Done))
    }

    /// Counts off the part of `bytes` that belongs to the body; gives its length.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::UntilClose => Ok(bytes.len()),
            Self::Length(left) => {
                let taken = bytes
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                Ok(taken)
            }
            Self::Chunked(state) => {
                let mut at = 0;
                while at < bytes.len() && *state != Chunk::Done {
                    at += state.step(&bytes[at..])?;
                }
                Ok(at)
            }
        }
    }
}

impl Chunk {
    /// Moves over one byte of framing or a run of data; `bytes` is not empty.
    fn step(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let byte = bytes[0];
        *self = match *self {
            Self::Data(left) => {
                let taken = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                *self = match left - taken as u64 {
                    0 => Self::End,
                    left => Self::Data(left),
                };
                return Ok(taken);
            }
            Self::Size(size) => match (byte as char).to_digit(16) {
                Some(_) if size > u64::MAX >> 5 => return Err(invalid("chunk size too large")),
                Some(digit) => Self::Size(size * 16 + u64::from(digit)),
                None if byte == b'\n' => Self::behind(size),
                None => Self::Ext(size),
            },
            Self::Ext(size) if byte == b'\n' => Self::behind(size),
            Self::End if byte == b'\n' => Self::Size(0),
            Self::Trailer(0) if byte == b'\n' => Self::Done,
            Self::Trailer(_) if byte == b'\n' => Self::Trailer(0),
            Self::Trailer(length) if byte != b'\r' => Self::Trailer(length + 1),
            same => same,
        };
        Ok(1)
    }

    fn behind(size: u64) -> Self {
        match size {
            0 => Self::Trailer(0),
            size => Self::Data(size),
        }
    }
}

pub(crate) fn invalid<E: Into<Box<dyn std::error::Error + Send + Sync>>>(cause: E) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNKED: &[u8] = b"5;x=1\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nEnd: 1\r\n\r\n";

    #[test]
    fn a_chunked_body_ends_where_it_ends_however_it_is_cut() {
        for step in 1..CHUNKED.len() {
            let mut bytes = CHUNKED.to_vec();
            bytes.extend_from_slice(b"GET / HTTP/1.1\r\n");
            let mut body = Body::Chunked(Chunk::Size(0));
            let mut at = 0;
            while !body.done() {
                let end = bytes.len().min(at + step);
                at += body.take(&bytes[at..end]).unwrap();
            }
            assert_eq!(at, CHUNKED.len(), "cut every {step} bytes");
        }
    }

    #[test]
    fn a_body_of_known_length_leaves_the_next_message() {
        let mut body = Body::Length(3);
        assert_eq!(body.take(b"ab").unwrap(), 2);
        assert_eq!(body.take(b"cGET").unwrap(), 1);
        assert!(body.done());
    }

    #[test]
    fn an_endless_chunk_size_is_refused() {
        let mut body = Body::Chunked(Chunk::Size(0));
        assert!(body.take(b"ffffffffffffffffff").is_err());
    }

    #[test]
    fn a_head_is_taken_off_only_when_it_is_whole() {
        let whole = b"HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 4\r\n\r\nbody";
        let mut buffer = BytesMut::from(&whole[..30]);
        assert!(Response::parse(&mut buffer).unwrap().is_none());
        buffer.extend_from_slice(&whole[30..]);
        let mut head = Response::parse(&mut buffer).unwrap().unwrap();
        assert_eq!(&buffer[..], b"body");
        assert_eq!(head.body("GET"), Body::Length(4));
        assert!(head.body("HEAD").done());
        head.replace("etag", "\"b\"");
        assert_eq!(
            &head.raw[..],
            b"HTTP/1.1 200 OK\r\nETag: \"b\"\r\nContent-Length: 4\r\n\r\n"
        );
    }
}
