//! The control port: other faults and a look at the counters while the proxy runs.
//!
//! ```text
//! GET  /counts    the counters
//! GET  /faults    the faults in force
//! POST /faults    others in their place: {"delay_ms": 10, "rules": ["every=3,status=503"]}
//! ```

use std::io;
use std::sync::Arc;

use bytes::Buf;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::faults::{Active, Faults};
use crate::http::{Request, Stream};
use crate::relay::Shared;

/// Bodies over this size are refused.
const MAX_BODY: usize = 1 << 20;

/// Puts other faults in force, from the next request on.
pub(crate) fn set(shared: &Shared, faults: Faults) {
    let mut active = shared
        .active
        .write()
        .expect("no panic while changing faults");
    *active = Arc::new(Active::new(faults));
}

/// Serves a control connection until the client closes it.
pub(crate) async fn serve(socket: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let mut client = Stream::new(socket)?;
    while let Some(mut request) = client.head::<Request>().await? {
        let mut body = Vec::new();
        while !request.body.done() && body.len() <= MAX_BODY {
            if client.buffer.is_empty() && client.fill().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = request.body.take(&client.buffer)?;
            body.extend_from_slice(&client.buffer[..taken]);
            client.buffer.advance(taken);
        }
        let (status, json) = answer(&request, &body, &shared);
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            json.len()
        );
        client.socket.write_all((head + &json).as_bytes()).await?;
        if request.close || !request.body.done() {
            break;
        }
    }
    Ok(())
}

fn answer(request: &Request, body: &[u8], shared: &Shared) -> (&'static str, String) {
    let faults = || {
        let active = shared
            .active
            .read()
            .expect("no panic while changing faults");
        json(&active.faults)
    };
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/counts") => ("200 OK", json(&shared.counter.copy())),
        ("GET", "/faults") => ("200 OK", faults()),
        ("POST", "/faults") => match serde_json::from_slice::<Faults>(body) {
            Ok(new) => {
                set(shared, new);
                ("200 OK", faults())
            }
            Err(error) => ("400 Bad Request", json(&error.to_string())),
        },
        (method, path) => ("404 Not Found", json(&format!("no {method} {path}"))),
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain values")
}
