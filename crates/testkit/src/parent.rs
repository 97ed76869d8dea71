//! How the programs end: with the one that started them.

use std::io::{self, Read};
use std::thread;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// The one that started this program, watched: by stdin, which the kernel closes with it, and by
/// SIGTERM and SIGINT. Made first of all, so that a signal never finds the program unprepared.
#[derive(Debug)]
pub struct Parent {
    runtime: Runtime,
    ended: oneshot::Receiver<()>,
    terminate: Signal,
    interrupt: Signal,
}

impl Parent {
    /// Watches from now on.
    pub fn watch() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        drop(entered);
        let (end, ended) = oneshot::channel::<()>();
        thread::spawn(move || {
            let mut ignored = [0; 1024];
            while matches!(io::stdin().read(&mut ignored), Ok(1..)) {}
            drop(end);
        });
        Ok(Self {
            runtime,
            ended,
            terminate,
            interrupt,
        })
    }

    /// Waits until it is gone or asks this program to end.
    pub fn wait(mut self) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.ended => {}
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
            }
        });
    }
}
