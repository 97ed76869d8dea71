//! One client connection, served request by request.
//!
//! ```text
//! client   head ----> decide ----> delay ----> head, body    server
//!          head, body <---- cut, stall, rename <---- head, body
//! ```
//!
//! Each client connection has one server connection, both kept alive. Bytes go on as they
//! come in, so a body of any size costs one buffer.

use std::io;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Buf;
use tokio::io::{AsyncWrite, AsyncWriteExt, sink};
use tokio::net::TcpStream;
use tokio::time::{sleep, sleep_until};

use crate::control::Controlled;
use crate::counts::{Counter, Counts};
use crate::faults::{Action, Active, Faults};
use crate::http::{Body, Request, Response, Stream};
use crate::pace::Pace;

/// Paced bodies move in steps of this size, so that connections share the line.
const STEP: usize = 16 << 10;

/// What all connections of a proxy share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) upstream: String,
    pub(crate) active: RwLock<Arc<Active>>,
    pub(crate) counter: Counter,
    pub(crate) pace: Pace,
}

impl Shared {
    fn active(&self) -> Arc<Active> {
        let active = self.active.read().expect("no panic while changing faults");
        Arc::clone(&active)
    }
}

impl Controlled for Shared {
    const SETTINGS: &'static str = "/faults";
    type Settings = Faults;
    type Counts = Counts;

    fn settings(&self) -> Faults {
        self.active().faults.clone()
    }

    fn set(&self, faults: Faults) {
        let mut active = self.active.write().expect("no panic while changing faults");
        *active = Arc::new(Active::new(faults));
    }

    fn counts(&self) -> Counts {
        self.counter.copy()
    }
}

/// Serves a client until one side closes.
pub(crate) async fn serve(socket: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    shared.counter.lock().connections += 1;
    let mut client = Stream::new(socket)?;
    let mut server = None;
    while let Some(request) = client.head::<Request>().await? {
        let in_flight = shared.counter.request(&request.method);
        let goes_on = exchange(&mut client, &mut server, request, &shared).await?;
        drop(in_flight);
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Serves one request; says whether the connection goes on.
async fn exchange(
    client: &mut Stream,
    server: &mut Option<Stream>,
    mut request: Request,
    shared: &Shared,
) -> io::Result<bool> {
    let active = shared.active();
    let action = active.decide(&request.method, &request.path);
    if action.is_some() {
        shared.counter.lock().faults += 1;
    }
    if active.faults.delay_ms > 0 {
        sleep(Duration::from_millis(active.faults.delay_ms)).await;
    }
    match action {
        Some(Action::Drop) => return Ok(false),
        Some(&Action::Status(status, retry_after)) => {
            return refuse(client, request, status, retry_after).await;
        }
        Some(&Action::Delay(time)) => sleep(time).await,
        _ => {}
    }

    let mut response = match ask(client, server, &mut request, shared).await {
        Ok(response) => response,
        Err(_) => {
            client.socket.write_all(&answer(502, None, true)).await?;
            return Ok(false);
        }
    };
    let Some(server) = server.as_mut() else {
        return Ok(false);
    };
    if let Some(Action::Etag(etag)) = action {
        response.replace("etag", etag);
    }
    client.socket.write_all(&response.raw).await?;

    let mut body = response.body(&request.method);
    let pace = active.faults.mbps.map(|mbps| (&shared.pace, mbps));
    let stop = match action {
        Some(&(Action::Truncate(after) | Action::Stall(after, _))) => after,
        _ => u64::MAX,
    };
    let mut sent = 0;
    let mut passed = pass(server, &mut client.socket, &mut body, stop, pace, &mut sent).await;
    if let Some(Action::Stall(_, time)) = action
        && passed.is_ok()
        && !body.done()
    {
        passed = stall(client, *time).await;
        if passed.is_ok() {
            let to = &mut client.socket;
            passed = pass(server, to, &mut body, u64::MAX, pace, &mut sent).await;
        }
    }
    shared.counter.lock().bytes_out += sent;
    passed?;
    Ok(body.done() && !request.close && !response.ends(&request.method))
}

/// Sends the request on and reads the head of its answer.
///
/// A server may close a connection that was idle just when the next request is under way;
/// a request without a body is then sent once more on a fresh one.
async fn ask(
    client: &mut Stream,
    server: &mut Option<Stream>,
    request: &mut Request,
    shared: &Shared,
) -> io::Result<Response> {
    let again = server.is_some() && request.body.done();
    match ask_once(client, server, request, shared).await {
        Err(_) if again => {
            *server = None;
            ask_once(client, server, request, shared).await
        }
        answered => answered,
    }
}

async fn ask_once(
    client: &mut Stream,
    kept: &mut Option<Stream>,
    request: &mut Request,
    shared: &Shared,
) -> io::Result<Response> {
    let server = match kept {
        Some(server) if !closed(server) => server,
        _ => kept.insert(Stream::new(TcpStream::connect(&shared.upstream).await?)?),
    };
    server.socket.write_all(&request.raw).await?;
    if !request.body.done() {
        if request.expects {
            client
                .socket
                .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                .await?;
        }
        // A server that refuses early closes while the body is under way: its answer is
        // what counts then, not the failed write.
        let (to, mut sent) = (&mut server.socket, 0);
        let _ = pass(client, to, &mut request.body, u64::MAX, None, &mut sent).await;
        shared.counter.lock().bytes_in += sent;
        request.close |= !request.body.done();
    }
    loop {
        match server.head::<Response>().await? {
            // The client has had its `100 Continue` from here.
            Some(response) if response.status == 100 => {}
            Some(response) => return Ok(response),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Whether the other side closed a connection that ought to be idle.
fn closed(server: &Stream) -> bool {
    match server.socket.try_read(&mut [0; 1]) {
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        Ok(_) => true,
    }
}

/// Moves a body on until it ends or `moved` is `stop`; `moved` is right on failure too.
async fn pass(
    from: &mut Stream,
    to: &mut (impl AsyncWrite + Unpin),
    body: &mut Body,
    stop: u64,
    pace: Option<(&Pace, f64)>,
    moved: &mut u64,
) -> io::Result<()> {
    while !body.done() && *moved < stop {
        if from.buffer.is_empty() && from.fill().await? == 0 {
            if *body != Body::UntilClose {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            *body = Body::Length(0);
            break;
        }
        let most = usize::try_from(stop - *moved).unwrap_or(usize::MAX);
        let most = pace.map_or(most, |_| most.min(STEP));
        let at_hand = from.buffer.len().min(most);
        let taken = body.take(&from.buffer[..at_hand])?;
        if let Some((pace, mbps)) = pace {
            sleep_until(pace.through(taken, mbps).into()).await;
        }
        to.write_all(&from.buffer[..taken]).await?;
        from.buffer.advance(taken);
        *moved += taken as u64;
    }
    Ok(())
}

/// Waits for a time, or until the client closes.
async fn stall(client: &mut Stream, time: Option<Duration>) -> io::Result<()> {
    let over = async {
        match time {
            Some(time) => sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = over => Ok(()),
        read = client.fill() => match read? {
            0 => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => Ok(()),
        },
    }
}

/// Answers in the server's place.
async fn refuse(
    client: &mut Stream,
    mut request: Request,
    status: u16,
    retry_after: Option<u64>,
) -> io::Result<bool> {
    let head_only = request.method == "HEAD";
    if request.expects {
        request.close = true;
    } else {
        let mut ignored = 0;
        pass(
            client,
            &mut sink(),
            &mut request.body,
            u64::MAX,
            None,
            &mut ignored,
        )
        .await?;
    }
    let answer = answer(status, retry_after, request.close);
    let length = match head_only {
        true => answer
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .map_or(0, |at| at + 4),
        false => answer.len(),
    };
    client.socket.write_all(&answer[..length]).await?;
    Ok(!request.close)
}

/// An error as S3 words it.
fn answer(status: u16, retry_after: Option<u64>, close: bool) -> Vec<u8> {
    let code = match status {
        503 => "SlowDown",
        502 => "BadGateway",
        500 => "InternalError",
        403 => "AccessDenied",
        404 => "NoSuchKey",
        _ => "Fault",
    };
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Error><Code>{code}</Code><Message>injected</Message></Error>"
    );
    let retry_after = retry_after.map_or(String::new(), |s| format!("Retry-After: {s}\r\n"));
    let connection = if close { "Connection: close\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\n\
         Content-Length: {}\r\n{retry_after}{connection}\r\n{body}",
        body.len()
    )
    .into_bytes()
}
