//! What asks `quorate dev` or a node to stop: a signal, or the end of the standard input.

use std::io::Read as _;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::error::{Result, Told as _};

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
        let take = |kind| signal(kind).told(|| "cannot handle signals");
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
