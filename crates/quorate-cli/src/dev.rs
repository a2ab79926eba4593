//! `quorate dev`: a cluster of processes on this machine, to try things out.
//!
//! One process runs the nodes as its children for as long as it lives; `quorate dev --restart N` asks it to start one
//! again. When it goes, by Ctrl-C or by SIGKILL, the nodes go; what they hold stays for the next time.

mod child;
mod control;
mod layout;
pub mod registry;
mod say;
mod supervisor;

use std::time::Instant;

use quorate::SecretSource;

use self::control::Control;
use self::supervisor::Supervisor;
use crate::args::DevArgs;
use crate::client;
use crate::error::Result;
use crate::stop::Stop;

pub use self::layout::{Layout, secret_file};

/// Runs the command.
pub async fn run(args: &DevArgs) -> Result<()> {
    match args.restart {
        Some(id) => control::restart(&args.data_dir, id).await,
        None => run_cluster(args).await,
    }
}

async fn run_cluster(args: &DevArgs) -> Result<()> {
    let begin = Instant::now();
    // Before anything is started, so that no signal finds nodes without a keeper.
    let mut stop = Stop::take(args.until_stdin_closes)?;
    let layout = Layout::open(&args.data_dir, args.nodes)?;
    let control = Control::listen(layout.dir())?;
    let secret = SecretSource::File(secret_file(layout.dir()));
    let _registered = registry::register(layout.addrs(), layout.dir());
    let (count, dir) = (layout.addrs().len(), layout.dir().display());
    say::line(&if layout.resumed() {
        format!("taking up the {count} nodes of {dir}")
    } else {
        format!("starting {count} nodes in {dir}")
    });

    let mut supervisor = Supervisor::start(layout, secret.clone())?;
    let ready = tokio::select! {
        ready = supervisor.ready() => Some(ready),
        () = stop.asked() => None,
    };
    let outcome = match ready {
        Some(Ok(cluster)) => {
            let leader = client::leader(&cluster.addrs(), &secret).await;
            say::ready(supervisor.layout().dir(), &cluster, leader, begin.elapsed());
            supervisor.serve(&control, &mut stop).await;
            Ok(())
        }
        Some(Err(error)) => Err(error),
        None => Ok(()),
    };
    say::line("stopping");
    supervisor.stop(&mut stop).await.and(outcome)
}
