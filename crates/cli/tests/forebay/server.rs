//! A server that tells how often it was asked, and can stand still.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use super::place::content;

/// A server of samples that stops answering for them after a while.
pub(crate) struct Server {
    pub(crate) port: u16,
    pub(crate) state: Arc<(Mutex<State>, Condvar)>,
}

pub(crate) struct State {
    samples: usize,
    bytes: usize,
    /// Samples that were asked for.
    asked: usize,
    /// Samples that are answered.
    allowed: usize,
    /// This one can be listed but not read.
    pub(crate) gone: Option<usize>,
}

impl Server {
    pub(crate) fn start(samples: usize, bytes: usize, allowed: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State {
            samples,
            bytes,
            asked: 0,
            allowed,
            gone: None,
        };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { port, state }
    }

    pub(crate) fn asked(&self) -> usize {
        self.state.0.lock().unwrap().asked
    }

    pub(crate) fn allow_all(&self) {
        self.state.0.lock().unwrap().allowed = usize::MAX;
        self.state.1.notify_all();
    }
}

/// One request, then the connection ends.
pub(crate) fn serve(
    mut stream: TcpStream,
    (state, changed): &(Mutex<State>, Condvar),
) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let request = lines.next()?.ok()?;
    let mut range = None;
    while let Some(Ok(line)) = lines.next()
        && !line.is_empty()
    {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("range: bytes=") {
            let (from, to) = value.split_once('-')?;
            range = Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?));
        }
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let mut guard = state.lock().unwrap();
    let gone = method == "GET"
        && guard
            .gone
            .is_some_and(|gone| path == format!("/data/s{gone}"));
    let body = match path.strip_prefix("/data/s")?.parse() {
        Ok(sample) => content(sample, guard.bytes),
        Err(_) => {
            let rows = (0..guard.samples).map(|sample| format!("s{sample},0\n"));
            format!("path,label\n{}", rows.collect::<String>()).into_bytes()
        }
    };
    if method == "GET" && !path.ends_with(".csv") {
        guard.asked += 1;
        let turn = guard.asked;
        drop(
            changed
                .wait_while(guard, |state| state.allowed < turn)
                .unwrap(),
        );
    } else {
        drop(guard);
    }
    let all = body.len();
    let (status, part, extra) = match range {
        _ if gone => ("404 Not Found", &body[..0], String::new()),
        Some((from, to)) => {
            let to = to.min(all - 1);
            let extra = format!("Content-Range: bytes {from}-{to}/{all}\r\n");
            ("206 Partial Content", &body[from..=to], extra)
        }
        None => ("200 OK", &body[..], String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: \"v1\"\r\n\
         Last-Modified: Tue, 01 Jul 2025 10:00:00 GMT\r\nConnection: close\r\n{extra}\r\n",
        part.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    if method == "GET" {
        stream.write_all(part).ok()?;
    }
    Some(())
}
