//! The proxy as an object: starts, changes its faults, counts, and stops when it goes.
//!
//! It runs on a thread of its own with its own single-threaded runtime, so that a test
//! needs no runtime, and a busy or blocked test does not slow it. Dropping it closes every
//! connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, RwLock};
use std::thread::{Builder, JoinHandle};

use tokio::sync::oneshot;

use crate::control;
use crate::counts::{Counter, Counts};
use crate::faults::{Active, Faults};
use crate::relay::{self, Pace, Shared};

/// Where a proxy listens. Port 0 is any free one; always on loopback.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Port for the clients.
    pub port: u16,
    /// Port for `GET /counts`, `GET /faults` and `POST /faults`; `None` for no such port.
    pub control_port: Option<u16>,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    control: Option<SocketAddr>,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy on a free port before `upstream`: `host:port`, with or without `http://`.
    pub fn start(upstream: impl AsRef<str>, faults: Faults) -> io::Result<Self> {
        Self::start_with(upstream, faults, &Options::default())
    }

    /// The same on ports of the caller's choice.
    pub fn start_with(
        upstream: impl AsRef<str>,
        faults: Faults,
        options: &Options,
    ) -> io::Result<Self> {
        let upstream = upstream.as_ref().trim_start_matches("http://");
        let shared = Arc::new(Shared {
            upstream: upstream.trim_end_matches('/').to_owned(),
            active: RwLock::new(Arc::new(Active::new(faults))),
            counter: Counter::default(),
            pace: Pace::default(),
        });
        let clients = bind(options.port)?;
        let control = options.control_port.map(bind).transpose()?;
        let addr = clients.local_addr()?;
        let control_addr = control.as_ref().map(TcpListener::local_addr).transpose()?;

        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let served = Arc::clone(&shared);
        let run = move || runtime.block_on(run(clients, control, served, stopped));
        let thread = Builder::new().name("faulty-proxy".to_owned()).spawn(run)?;
        Ok(Self {
            addr,
            control: control_addr,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The same as a URL without a slash at its end.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Where the control paths are, if they were asked for.
    pub fn control(&self) -> Option<SocketAddr> {
        self.control
    }

    /// Puts other faults in force, from the next request on; rules count from zero again.
    pub fn set(&self, faults: Faults) {
        control::set(&self.shared, faults);
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        self.shared.counter.copy()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed already, and drop must not panic.
            let _ = thread.join();
        }
    }
}

fn bind(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts until the proxy goes; leaving the runtime closes all connections.
async fn run(
    clients: TcpListener,
    control: Option<TcpListener>,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) {
    let clients = accept(clients, Arc::clone(&shared), relay::serve);
    let control = async {
        match control {
            Some(listener) => accept(listener, shared, control::serve).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = stopped => {}
        () = clients => {}
        () = control => {}
    }
}

async fn accept<F>(
    listener: TcpListener,
    shared: Arc<Shared>,
    serve: fn(tokio::net::TcpStream, Arc<Shared>) -> F,
) where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let listener = tokio::net::TcpListener::from_std(listener).expect("a non-blocking listener");
    loop {
        match listener.accept().await {
            // A connection that breaks is the client's to notice.
            Ok((socket, _)) => drop(tokio::spawn(serve(socket, Arc::clone(&shared)))),
            // Out of file descriptors: others will close.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
}
