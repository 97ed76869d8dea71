//! The proxy as an object: starts, changes its faults, counts, and stops when it goes.
//!
//! It runs on a thread of its own. Dropping it closes every connection.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, RwLock};

use crate::control::{self, Controlled};
use crate::counts::{Counter, Counts};
use crate::faults::{Active, Faults};
use crate::listening::{Serving, accept, bind};
use crate::pace::Pace;
use crate::relay::{self, Shared};

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
    _serving: Serving,
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

        let serving = Serving::start("faulty-proxy", serve(clients, control, Arc::clone(&shared)))?;
        Ok(Self {
            addr,
            control: control_addr,
            shared,
            _serving: serving,
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
        self.shared.set(faults);
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }
}

async fn serve(clients: TcpListener, control: Option<TcpListener>, shared: Arc<Shared>) {
    let clients = accept(clients, Arc::clone(&shared), relay::serve);
    match control {
        Some(listener) => {
            let control = accept(listener, shared, control::serve);
            tokio::join!(clients, control);
        }
        None => clients.await,
    }
}
