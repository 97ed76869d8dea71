//! Ports on loopback, served on a thread of its own.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// A thread that serves until this goes, with its own single-threaded runtime: a test needs no
/// runtime, and a busy or blocked test does not slow it.
#[derive(Debug)]
pub(crate) struct Serving {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    pub(crate) fn start(
        name: &str,
        served: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Leaving the runtime closes all connections.
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = served => {}
                }
            });
        };
        Ok(Self {
            stop: Some(stop),
            thread: Some(Builder::new().name(name.to_owned()).spawn(run)?),
        })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed already, and drop must not panic.
            let _ = thread.join();
        }
    }
}

/// Port 0 is any free one.
pub(crate) fn bind(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves every connection, for ever.
pub(crate) async fn accept<S, F>(
    listener: TcpListener,
    shared: Arc<S>,
    serve: fn(TcpStream, Arc<S>) -> F,
) where
    S: Send + Sync + 'static,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener).expect("a non-blocking listener");
    loop {
        match listener.accept().await {
            // A connection that breaks is the client's to notice.
            Ok((socket, _)) => drop(tokio::spawn(serve(socket, Arc::clone(&shared)))),
            // Out of file descriptors: others will close.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
