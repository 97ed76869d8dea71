//! The proxy between a plain client and a tiny server, over real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use forebay_testkit::{Counts, Faults, Options, Proxy};

/// Serves `/N` as N bytes, `/chunked/N` in chunks of 1,000, `/until-close/N` without a
/// length; answers a PUT with its body. The `Host` that it saw is in the answer.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            thread::spawn(move || while serve(socket.as_ref().unwrap()).is_some() {});
        }
    });
    addr
}

fn serve(mut socket: &TcpStream) -> Option<()> {
    // Heads and bodies arrive byte by byte here, so nothing of the next request is lost.
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
    };
    let mut words = head.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let host = header("host").unwrap_or("none");
    let body = match header("content-length") {
        Some(length) => {
            let mut body = vec![0; length.parse().unwrap()];
            if header("expect").is_some() {
                socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
            }
            socket.read_exact(&mut body).ok()?;
            body
        }
        None => content(path.rsplit('/').next()?.parse().ok()?),
    };
    let start = format!("HTTP/1.1 200 OK\r\nX-Host: {host}\r\nETag: \"old\"\r\n");
    if path.starts_with("/chunked") {
        write!(socket, "{start}Transfer-Encoding: chunked\r\n\r\n").ok()?;
        for chunk in body.chunks(1000) {
            write!(socket, "{:x}\r\n", chunk.len()).ok()?;
            socket.write_all(chunk).ok()?;
            socket.write_all(b"\r\n").ok()?;
        }
        socket.write_all(b"0\r\n\r\n").ok()
    } else if path.starts_with("/until-close") {
        write!(socket, "{start}\r\n").ok()?;
        socket.write_all(&body).ok()?;
        None
    } else {
        write!(socket, "{start}Content-Length: {}\r\n\r\n", body.len()).ok()?;
        if method != "HEAD" {
            socket.write_all(&body).ok()?;
        }
        Some(())
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// The body is as long as the head promised.
    whole: bool,
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(proxy: &Proxy) -> Self {
        Self(BufReader::new(TcpStream::connect(proxy.addr()).unwrap()))
    }

    fn get(&mut self, path: &str) -> Option<Answer> {
        self.ask("GET", path, b"")
    }

    fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Option<Answer> {
        let socket = self.0.get_mut();
        let length = match body.len() {
            0 => String::new(),
            length => format!("Content-Length: {length}\r\n"),
        };
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nHost: signed.example\r\n{length}\r\n"
        )
        .ok()?;
        socket.write_all(body).ok()?;
        self.answer(method)
    }

    fn answer(&mut self, method: &str) -> Option<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let status = head.split(' ').nth(1)?.parse().unwrap();
        let mut body = Vec::new();
        let mut whole = true;
        if let Some((_, length)) = head.split_once("Content-Length: ") {
            let length: u64 = length.split("\r\n").next()?.parse().unwrap();
            if method != "HEAD" {
                self.0.by_ref().take(length).read_to_end(&mut body).ok()?;
                whole = body.len() as u64 == length;
            }
        } else if head.contains("chunked") {
            loop {
                let mut line = String::new();
                self.0.read_line(&mut line).ok()?;
                let length = u64::from_str_radix(line.trim(), 16).unwrap();
                self.0.by_ref().take(length).read_to_end(&mut body).ok()?;
                self.0.read_line(&mut line).ok()?;
                if length == 0 {
                    break;
                }
            }
        } else {
            self.0.read_to_end(&mut body).ok()?;
        }
        Some(Answer {
            status,
            head,
            body,
            whole,
        })
    }
}

fn proxy(rules: &[&str]) -> Proxy {
    Proxy::start(server().to_string(), Faults::rules(rules).unwrap()).unwrap()
}

/// The counts once nothing is under way: a client has the last byte before it is counted.
fn settled(proxy: &Proxy) -> Counts {
    while proxy.counts().in_flight > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    proxy.counts()
}

#[test]
fn traffic_passes_unchanged_on_one_connection() {
    let proxy = proxy(&[]);
    let mut client = Client::new(&proxy);
    for length in [0, 1, 1000, 300_000] {
        assert_eq!(
            client.get(&format!("/{length}")).unwrap().body,
            content(length)
        );
        let chunked = client.get(&format!("/chunked/{length}")).unwrap();
        assert_eq!(chunked.body, content(length));
    }
    let put = client.ask("PUT", "/x", &content(200_000)).unwrap();
    assert_eq!(put.body, content(200_000));
    assert!(
        client
            .ask("HEAD", "/500", b"")
            .unwrap()
            .head
            .contains("Content-Length: 500")
    );
    assert!(put.head.contains("X-Host: signed.example"), "{}", put.head);
    assert_eq!(client.get("/until-close/5000").unwrap().body, content(5000));

    let counts = proxy.counts();
    assert_eq!(
        (counts.of("GET"), counts.of("PUT"), counts.of("HEAD")),
        (9, 1, 1)
    );
    assert_eq!(
        (counts.connections, counts.faults, counts.bytes_in),
        (1, 0, 200_000)
    );
    assert!(counts.bytes_out >= 2 * 301_001 + 205_000);
}

#[test]
fn a_client_that_waits_for_100_continue_gets_exactly_one() {
    let proxy = proxy(&[]);
    let mut client = Client::new(&proxy);
    let head = "PUT /x HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    client.0.get_mut().write_all(head.as_bytes()).unwrap();
    let mut line = String::new();
    client.0.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
    client.0.read_line(&mut line).unwrap();
    client.0.get_mut().write_all(b"abc").unwrap();
    let answer = client.answer("PUT").unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &b"abc"[..]));
}

#[test]
fn refusals_come_at_their_turn_and_keep_the_connection() {
    let proxy = proxy(&["every=3,status=503,retry-after=7", "every=4,status=500"]);
    let mut client = Client::new(&proxy);
    let answers: Vec<_> = (0..6).map(|_| client.get("/10").unwrap()).collect();
    let status: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(status, [200, 200, 503, 500, 200, 503]);
    assert!(answers[2].head.contains("Retry-After: 7\r\n"));
    assert!(!answers[3].head.contains("Retry-After"));
    assert_eq!(
        client.ask("PUT", "/x", b"abc").unwrap().status,
        200,
        "only GETs are meant"
    );
    assert_eq!((proxy.counts().faults, proxy.counts().connections), (3, 1));
}

#[test]
fn a_truncated_body_ends_early_and_the_connection_with_it() {
    let proxy = proxy(&["first=1,truncate=1234"]);
    let mut client = Client::new(&proxy);
    let answer = client.get("/100000").unwrap();
    assert_eq!((answer.status, answer.whole), (200, false));
    assert_eq!(answer.body, content(1234));
    assert!(answer.head.contains("Content-Length: 100000"));
    assert!(client.get("/10").is_none());
    assert!(Client::new(&proxy).get("/100000").unwrap().whole);
    assert_eq!(settled(&proxy).bytes_out, 101_234);
}

#[test]
fn a_body_shorter_than_the_truncation_is_whole() {
    let proxy = proxy(&["truncate=1234"]);
    let mut client = Client::new(&proxy);
    assert!(client.get("/1234").unwrap().whole);
    assert!(client.get("/10").unwrap().whole);
}

#[test]
fn a_dropped_request_gets_no_answer_and_the_next_connection_does() {
    let proxy = proxy(&["each=1,drop"]);
    assert!(Client::new(&proxy).get("/10").is_none());
    assert_eq!(Client::new(&proxy).get("/10").unwrap().status, 200);
}

#[test]
fn a_stalled_body_goes_on_after_its_time() {
    let proxy = proxy(&["stall=5000,for-ms=60"]);
    let start = Instant::now();
    let answer = Client::new(&proxy).get("/100000").unwrap();
    assert!(start.elapsed() >= Duration::from_millis(60));
    assert_eq!(answer.body, content(100_000));
}

#[test]
fn an_endless_stall_holds_the_request_until_the_client_gives_up() {
    let proxy = proxy(&["stall=5000"]);
    let mut client = Client::new(&proxy);
    let request = b"GET /100000 HTTP/1.1\r\n\r\n";
    client.0.get_mut().write_all(request).unwrap();
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        client.0.read_line(&mut line).unwrap();
    }
    client.0.read_exact(&mut [0; 5000]).unwrap();
    assert_eq!(proxy.counts().in_flight, 1);
    drop(client);
    assert_eq!(settled(&proxy).bytes_out, 5000);
}

#[test]
fn an_etag_is_replaced_and_nothing_else() {
    let proxy = proxy(&["path=/20,etag=\"new\""]);
    let mut client = Client::new(&proxy);
    assert!(
        client
            .get("/10")
            .unwrap()
            .head
            .contains("ETag: \"old\"\r\n")
    );
    let answer = client.get("/20").unwrap();
    assert!(answer.head.contains("ETag: \"new\"\r\n"));
    assert_eq!(answer.body, content(20));
}

#[test]
fn a_delay_is_per_request_and_does_not_queue_them() {
    let proxy = Proxy::start(server().to_string(), Faults::delay(50)).unwrap();
    let start = Instant::now();
    let mut clients: Vec<_> = (0..16).map(|_| Client::new(&proxy)).collect();
    for client in &mut clients {
        let request = b"GET /10 HTTP/1.1\r\n\r\n";
        client.0.get_mut().write_all(request).unwrap();
    }
    for client in &mut clients {
        assert_eq!(client.answer("GET").unwrap().status, 200);
        assert!(start.elapsed() >= Duration::from_millis(50));
    }
    // Were they queued, only one at a time would be in flight.
    assert!(proxy.counts().max_in_flight > 1);
}

#[test]
fn bandwidth_is_limited_over_all_connections_together() {
    let faults = Faults {
        mbps: Some(16.0),
        ..Faults::default()
    };
    let proxy = Proxy::start(server().to_string(), faults).unwrap();
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert!(Client::new(&proxy).get("/100000").unwrap().whole));
        }
    });
    // 200 KB at 2 MB/s are 100 ms, less the slack of the pacing.
    assert!(start.elapsed() >= Duration::from_millis(90));
}

#[test]
fn a_server_that_is_down_is_a_502() {
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let proxy = Proxy::start(format!("http://{gone}/"), Faults::default()).unwrap();
    assert_eq!(Client::new(&proxy).get("/10").unwrap().status, 502);
}

#[test]
fn a_proxy_that_goes_closes_its_connections_and_its_port() {
    let proxy = proxy(&[]);
    let mut client = Client::new(&proxy);
    assert_eq!(client.get("/10").unwrap().status, 200);
    let addr = proxy.addr();
    drop(proxy);
    assert!(client.get("/10").is_none());
    assert!(TcpStream::connect(addr).is_err());
}

#[test]
fn faults_change_and_counts_are_read_over_the_control_port() {
    let options = Options {
        control_port: Some(0),
        ..Options::default()
    };
    let server = server().to_string();
    let proxy = Proxy::start_with(server, Faults::default(), &options).unwrap();
    let mut client = Client::new(&proxy);
    let socket = TcpStream::connect(proxy.control().unwrap()).unwrap();
    let mut control = Client(BufReader::new(socket));

    assert_eq!(client.get("/10").unwrap().status, 200);
    let faults = br#"{"delay_ms": 1, "rules": ["status=503"]}"#;
    assert_eq!(control.ask("POST", "/faults", faults).unwrap().status, 200);
    assert_eq!(client.get("/10").unwrap().status, 503);
    let counts = String::from_utf8(control.get("/counts").unwrap().body).unwrap();
    assert!(counts.contains("\"requests\":{\"GET\":2}"), "{counts}");
    let faults = control.get("/faults").unwrap().body;
    assert!(
        String::from_utf8(faults)
            .unwrap()
            .contains("method=GET,status=503")
    );

    let bad = control
        .ask("POST", "/faults", br#"{"rules": ["explode"]}"#)
        .unwrap();
    assert_eq!(bad.status, 400);
    assert!(
        String::from_utf8(bad.body)
            .unwrap()
            .contains("unknown word")
    );
    assert_eq!(control.get("/nothing").unwrap().status, 404);
    assert_eq!(
        client.get("/10").unwrap().status,
        503,
        "a bad change changes nothing"
    );
}

#[test]
fn the_program_says_where_it_listens_and_ends_with_its_stdin() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_faulty-proxy"))
        .args([
            "--upstream",
            &server().to_string(),
            "--rule",
            "every=2,status=500",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let listening = lines.next().unwrap().unwrap();
    let addr = listening.strip_prefix("listening ").unwrap();
    assert!(
        lines
            .next()
            .unwrap()
            .unwrap()
            .starts_with("control 127.0.0.1:")
    );
    let mut client = Client(BufReader::new(TcpStream::connect(addr).unwrap()));
    assert_eq!(client.get("/10").unwrap().status, 200);
    assert_eq!(client.get("/10").unwrap().status, 500);
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}
