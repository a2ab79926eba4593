//! What asks `quorate dev` or a node to stop: a signal, or the end of the standard input.

use std::io::Read as _;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::error::{Context as _, Result};

/// Waits for SIGINT, SIGTERM or SIGHUP. From its making on these have no other effect, also where the process was
/// started with them ignored, as shells start what runs in the background.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    /// The end of the standard input, as long as it counts and has not come.
    input: Option<oneshot::Receiver<()>>,
}

impl Stop {
    /// Takes the signals over; the end of the standard input counts too where `until_stdin_closes`.
    pub fn take(until_stdin_closes: bool) -> Result<Self> {
        let take = |kind| signal(kind).context(|| "cannot handle signals");
        Ok(Self {
            interrupt: take(SignalKind::interrupt())?,
            terminate: take(SignalKind::terminate())?,
            hang_up: take(SignalKind::hangup())?,
            input: until_stdin_closes.then(end_of_input),
        })
    }

    /// The next request to stop.
    pub async fn asked(&mut self) {
        let input = async {
            match &mut self.input {
                // Its sender is dropped when the input has ended.
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
        // After the first request the end of the input asks for nothing more.
        self.input = None;
    }
}

/// How long a node may take to stop in good order.
const ORDERLY_MAX: Duration = Duration::from_secs(8);

/// From now on the process has [`ORDERLY_MAX`] to end. After that it says what it was waiting for and ends as if it
/// were killed, which loses nothing that was acknowledged.
pub fn end_soon(waiting_for: &'static str) {
    // A thread of its own: whatever keeps the process from ending may keep its runtime busy too.
    std::thread::spawn(move || {
        std::thread::sleep(ORDERLY_MAX);
        let text = "the node did not stop in time: its process ends as if it were killed, and nothing is lost";
        tracing::error!(event = "stop_cut_short", waiting_for, "{text}");
        std::process::exit(1);
    });
}

fn end_of_input() -> oneshot::Receiver<()> {
    let (sender, ended) = oneshot::channel::<()>();
    // A thread of its own, which dies with the process: a read of the standard input can't be given up.
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while !matches!(std::io::stdin().read(&mut buffer), Ok(0) | Err(_)) {}
        drop(sender);
    });
    ended
}
