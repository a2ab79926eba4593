//! `quorate serve`: one node in this process, until a signal, or the end of the standard input where that was asked for.

use std::io::Read as _;

use quorate::{Config, Node};
use tokio::sync::oneshot;

use crate::args::ServeArgs;
use crate::dev::signals::Signals;
use crate::error::{Result, Told as _};

/// Runs the command.
pub async fn run(args: &ServeArgs) -> Result<()> {
    let mut signals = Signals::take()?;
    let config = Config::load(&args.config).told(|| "the configuration")?;
    let node = Node::start(config).await.told(|| "the node can't start")?;
    let mut input = end_of_input(args.until_stdin_closes);
    tokio::select! {
        () = signals.next() => {}
        // The sender never goes before the input has ended.
        _ = &mut input.1 => {}
    }
    node.stop().await;
    Ok(())
}

/// Resolves when the standard input ends; never, where that is not `watched`. Keep both parts.
fn end_of_input(watched: bool) -> (Option<oneshot::Sender<()>>, oneshot::Receiver<()>) {
    let (ended, wait) = oneshot::channel();
    if !watched {
        return (Some(ended), wait);
    }
    // A thread of its own, which dies with the process: a read of the standard input can't be given up.
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while !matches!(std::io::stdin().read(&mut buffer), Ok(0) | Err(_)) {}
        drop(ended);
    });
    (None, wait)
}
