//! The requests to stop `quorate dev` or a node: a signal, or the end of standard input.

use std::io::Read as _;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::error::{Context as _, Result};

/// Waits for SIGINT, SIGTERM or SIGHUP. Once created, it catches all of these signals, even if the process was started
/// with them ignored, as shells start background jobs.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    /// The end of standard input; `None` if that does not count, or after the first request.
    input: Option<oneshot::Receiver<()>>,
}

impl Stop {
    /// Takes over the signals. With `until_stdin_closes`, the end of standard input counts too.
    pub fn take(until_stdin_closes: bool) -> Result<Self> {
        let take = |kind| signal(kind).context(|| "cannot handle signals");
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hang_up: take(SignalKind::hangup())?,
            input: until_stdin_closes.then(end_of_input),
        })
    }

    /// Waits for the next request to stop.
    pub async fn requested(&mut self) {
        let input = async {
            match &mut self.input {
                // The sender is dropped when the input has ended.
                Some(input) => drop(input.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
            () = input => {}
        }
        // After the first request, the end of the input no longer counts.
        self.input = None;
    }
}

/// How long a node may take to stop cleanly.
const ORDERLY_MAX: Duration = Duration::from_secs(8);

/// Gives the process [`ORDERLY_MAX`] to end. After that it logs what it was waiting for and ends as if it were killed,
/// which loses nothing that was acknowledged.
pub fn end_soon(waiting_for: &'static str) {
    // A separate thread: what keeps the process from ending may also keep its runtime busy.
    std::thread::spawn(move || {
        std::thread::sleep(ORDERLY_MAX);
        let text = "the node did not stop in time: its process ends as if it were killed, and nothing is lost";
        tracing::error!(event = "stop_cut_short", waiting_for, "{text}");
        std::process::exit(1);
    });
}

fn end_of_input() -> oneshot::Receiver<()> {
    let (sender, ended) = oneshot::channel::<()>();
    // A separate thread, which ends with the process: a read of standard input can't be cancelled.
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while !matches!(std::io::stdin().read(&mut buffer), Ok(0) | Err(_)) {}
        drop(sender);
    });
    ended
}
