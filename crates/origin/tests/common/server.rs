//! A small S3 (and plain web) server that fails as it is told to.
//!
//! One thread a connection, kept alive. Faults are queued per object and used up one
//! by one; every request is noted.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Answers with this status and these headers.
    Status(u16, &'static str),
    /// Promises the whole body and breaks off after so many bytes.
    Truncate(usize),
    /// Does not answer for so long, then goes on.
    Hang(Duration),
    /// Sends the head and so many bytes of the body, then waits so long.
    Stall(usize, Duration),
    /// First replaces the object by this.
    Replace(Vec<u8>),
    /// Ignores the range that was asked for.
    NoRange,
    /// Sends the body in pieces of so many bytes, with a wait after each.
    Drip(usize, Duration),
}

/// What a server tells of the versions of its objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Versions {
    /// An ETag, and the time of the last change, which is long ago for all.
    #[default]
    ETag,
    /// A weak ETag and no time.
    Weak,
    /// The time of the last change alone.
    Time,
    /// Nothing.
    Untold,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query, decoded as they came.
    pub(crate) target: String,
    pub(crate) headers: HashMap<String, String>,
}

#[derive(Default)]
struct State {
    /// By key: content and ETag.
    objects: BTreeMap<String, (Vec<u8>, String)>,
    faults: HashMap<String, VecDeque<Fault>>,
    requests: Vec<Request>,
    /// Whether this is a web server without listing.
    plain: bool,
    /// What is told of an object's version.
    versions: Versions,
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    /// A server with a bucket named `bucket`.
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || drop(serve(&stream, &state)));
            }
        });
        Self { address, state }
    }

    pub(crate) fn plain() -> Self {
        let server = Self::new();
        server.state.lock().unwrap().plain = true;
        server
    }

    pub(crate) fn tell(&self, versions: Versions) {
        self.state.lock().unwrap().versions = versions;
    }

    /// The address of a server that is not there.
    pub(crate) fn down() -> Self {
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap();
        Self {
            address: address.to_string(),
            state: Arc::default(),
        }
    }

    pub(crate) fn put(&self, key: &str, content: impl Into<Vec<u8>>) {
        let object = with_etag(content.into());
        self.state
            .lock()
            .unwrap()
            .objects
            .insert(key.to_owned(), object);
    }

    pub(crate) fn remove(&self, key: &str) {
        self.state.lock().unwrap().objects.remove(key);
    }

    /// The next requests for `key` (or "" for a listing) meet these.
    pub(crate) fn fail(&self, key: &str, faults: &[Fault]) {
        self.state
            .lock()
            .unwrap()
            .faults
            .entry(key.to_owned())
            .or_default()
            .extend(faults.iter().cloned());
    }

    /// The requests since the last call.
    pub(crate) fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }
}

fn with_etag(content: Vec<u8>) -> (Vec<u8>, String) {
    let etag = format!("\"{:016x}\"", forebay_format::hash(&content));
    (content, etag)
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let (method, target) = (
            words.next().unwrap_or_default().to_owned(),
            words.next().unwrap_or_default().to_owned(),
        );
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim().split_once(':') else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let request = Request {
            method,
            target,
            headers,
        };
        if !answer(stream, state, request)? {
            return Ok(());
        }
    }
}

/// Answers one request; false if the connection is over.
fn answer(mut stream: &TcpStream, state: &Mutex<State>, request: Request) -> std::io::Result<bool> {
    let (path, query) = request
        .target
        .split_once('?')
        .unwrap_or((&request.target, ""));
    let path = path.trim_start_matches('/').replace("%20", " ");
    let is_list = query.contains("list-type=2") || request.method == "PROPFIND";
    let head = request.method == "HEAD";
    let (reply, fault) = {
        let mut state = state.lock().unwrap();
        let key = if is_list {
            ""
        } else {
            path.strip_prefix("bucket/").unwrap_or(&path)
        };
        let fault = state.faults.get_mut(key).and_then(VecDeque::pop_front);
        if let Some(Fault::Replace(content)) = &fault {
            state
                .objects
                .insert(key.to_owned(), with_etag(content.clone()));
        }
        let reply = match &fault {
            Some(Fault::Status(status, headers)) => plain(*status, headers, "told to fail"),
            _ if is_list && state.plain => plain(405, "", "no such method"),
            _ if is_list => list(&state, &path, query),
            _ => match state.objects.get(key) {
                None => plain(404, "", "<Error><Code>NoSuchKey</Code></Error>"),
                Some((content, etag)) => {
                    let ignore = matches!(fault, Some(Fault::NoRange));
                    object(content, etag, &request, ignore, state.versions)
                }
            },
        };
        state.requests.push(request);
        (reply, fault)
    };
    let (text, mut body) = reply;
    if let Some(Fault::Hang(time)) = fault {
        std::thread::sleep(time);
    }
    stream.write_all(text.as_bytes())?;
    if head {
        return Ok(true);
    }
    match fault {
        Some(Fault::Truncate(kept)) => {
            body.truncate(kept);
            stream.write_all(&body)?;
            return Ok(false);
        }
        Some(Fault::Stall(kept, time)) => {
            let rest = body.split_off(kept.min(body.len()));
            stream.write_all(&body)?;
            std::thread::sleep(time);
            stream.write_all(&rest)?;
        }
        Some(Fault::Drip(piece, time)) => {
            for piece in body.chunks(piece) {
                stream.write_all(piece)?;
                std::thread::sleep(time);
            }
        }
        _ => stream.write_all(&body)?,
    }
    Ok(true)
}

fn plain(status: u16, headers: &str, body: &str) -> (String, Vec<u8>) {
    let headers = if headers.is_empty() {
        String::new()
    } else {
        format!("{headers}\r\n")
    };
    (
        format!(
            "HTTP/1.1 {status} x\r\n{headers}Content-Length: {}\r\n\r\n",
            body.len()
        ),
        body.as_bytes().to_vec(),
    )
}

fn object(
    content: &[u8],
    etag: &str,
    request: &Request,
    ignore_range: bool,
    versions: Versions,
) -> (String, Vec<u8>) {
    if request
        .headers
        .get("if-match")
        .is_some_and(|wanted| wanted != etag)
    {
        return plain(412, "", "<Error><Code>PreconditionFailed</Code></Error>");
    }
    let time = "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT";
    let fixed = match versions {
        Versions::ETag => format!("ETag: {etag}\r\n{time}"),
        Versions::Weak => format!("ETag: W/{etag}"),
        Versions::Time => time.to_owned(),
        Versions::Untold => "X-Nothing: 1".to_owned(),
    };
    let range = request
        .headers
        .get("range")
        .filter(|_| !ignore_range)
        .and_then(|text| {
            let (start, end) = text.strip_prefix("bytes=")?.split_once('-')?;
            Some((
                start.parse::<usize>().ok()?,
                end.parse::<usize>().unwrap_or(usize::MAX).saturating_add(1),
            ))
        });
    match range {
        Some((start, _)) if start >= content.len() => plain(416, "", "out of range"),
        Some((start, end)) => {
            let end = end.min(content.len());
            let text = format!(
                "HTTP/1.1 206 x\r\n{fixed}\r\nContent-Range: bytes {start}-{}/{}\r\nContent-Length: {}\r\n\r\n",
                end - 1,
                content.len(),
                end - start
            );
            (text, content[start..end].to_vec())
        }
        None => (
            format!(
                "HTTP/1.1 200 x\r\n{fixed}\r\nContent-Length: {}\r\n\r\n",
                content.len()
            ),
            content.to_vec(),
        ),
    }
}

/// Pages of three, so that small tests see several.
fn list(state: &State, path: &str, query: &str) -> (String, Vec<u8>) {
    if path.trim_end_matches('/') != "bucket" {
        return plain(404, "", "<Error><Code>NoSuchBucket</Code></Error>");
    }
    let field = |name: &str| {
        let value = query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value
            .unwrap_or_default()
            .replace("%2F", "/")
            .replace("+", " ")
    };
    let (prefix, token) = (field("prefix"), field("continuation-token"));
    let after = if token.is_empty() {
        field("start-after")
    } else {
        token
    };
    let mut keys = state
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix) && **key > after)
        .peekable();
    let mut xml = String::from("<ListBucketResult>");
    let mut last = String::new();
    for (key, (content, etag)) in keys.by_ref().take(3) {
        xml += &format!(
            "<Contents><Key>{key}</Key><Size>{}</Size><ETag>{}</ETag>\
             <LastModified>2015-10-21T07:28:00.000Z</LastModified></Contents>",
            content.len(),
            etag.replace('"', "&quot;")
        );
        last.clone_from(key);
    }
    if keys.peek().is_some() {
        xml += &format!(
            "<NextContinuationToken>{last}</NextContinuationToken><IsTruncated>true</IsTruncated>"
        );
    }
    xml += "</ListBucketResult>";
    plain(200, "", &xml)
}
