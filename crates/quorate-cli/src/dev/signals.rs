//! The signals that ask `quorate dev` or a node to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Result, Told as _};

/// Waits for SIGINT, SIGTERM or SIGHUP. From its making on these have no other effect, also where the process was
/// started with them ignored, as shells start what runs in the background.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Takes the signals over.
    pub fn take() -> Result<Self> {
        let take = |kind| signal(kind).told(|| "cannot handle signals");
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hang_up: take(SignalKind::hangup())?,
        })
    }

    /// The next of them.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
