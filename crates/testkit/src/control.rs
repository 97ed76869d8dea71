//! The control port: other settings and a look at the counters while the program runs.
//!
//! ```text
//! GET  /counts      the counters
//! GET  /SETTINGS    the settings in force: /faults of the proxy, /slowness of the slow files
//! POST /SETTINGS    others in their place: {"delay_ms": 10, "rules": ["every=3,status=503"]}
//! ```

use std::io;
use std::sync::Arc;

use bytes::Buf;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::http::{Request, Stream};

/// Bodies over this size are refused.
const MAX_BODY: usize = 1 << 20;

/// What a control port shows and changes.
pub(crate) trait Controlled: Send + Sync + 'static {
    /// The path of the settings.
    const SETTINGS: &'static str;
    type Settings: Serialize + DeserializeOwned;
    type Counts: Serialize;

    fn settings(&self) -> Self::Settings;
    /// Puts other settings in force, from the next request on.
    fn set(&self, settings: Self::Settings);
    fn counts(&self) -> Self::Counts;
}

/// Serves a control connection until the client closes it.
pub(crate) async fn serve<C: Controlled>(socket: TcpStream, shared: Arc<C>) -> io::Result<()> {
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
        let (status, json) = answer(&request, &body, &*shared);
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

fn answer<C: Controlled>(request: &Request, body: &[u8], shared: &C) -> (&'static str, String) {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/counts") => ("200 OK", json(&shared.counts())),
        ("GET", path) if path == C::SETTINGS => ("200 OK", json(&shared.settings())),
        ("POST", path) if path == C::SETTINGS => match serde_json::from_slice(body) {
            Ok(new) => {
                shared.set(new);
                ("200 OK", json(&shared.settings()))
            }
            Err(error) => ("400 Bad Request", json(&error.to_string())),
        },
        (method, path) => ("404 Not Found", json(&format!("no {method} {path}"))),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain values")
}
