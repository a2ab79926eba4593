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

use std::path::Path;
use std::time::Instant;

use quorate::SecretSource;
use rustix::process::{Pid, test_kill_process};

use self::control::Control;
use self::supervisor::Supervisor;
use crate::args::{DevArgs, Which};
use crate::client;
use crate::cluster_file::ClusterFile;
use crate::error::{Error, Result};
use crate::output::print;
use crate::settings::secret_file;
use crate::stop::Stop;

pub use self::layout::Layout;

/// Runs the command.
pub async fn run(args: &DevArgs) -> Result<()> {
    match (args.restart, args.pid) {
        (Some(Some(id)), _) => control::restart(&args.data_dir, id).await,
        (Some(None), _) => restart_ended(&args.data_dir).await,
        (None, Some(which)) => print_pid(&args.data_dir, which).await,
        (None, None) => run_cluster(args).await,
    }
}

async fn restart_ended(dir: &Path) -> Result<()> {
    for node in cluster(dir)?.nodes {
        let is_alive =
            i32::try_from(node.pid).ok().and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_ok());
        if !is_alive {
            control::restart(dir, node.id).await?;
        }
    }
    Ok(())
}

async fn print_pid(dir: &Path, which: Which) -> Result<()> {
    let cluster = cluster(dir)?;
    let id = match which {
        Which::Node(id) => id,
        Which::Leader => {
            let leader = client::leader(&cluster.addrs(), &SecretSource::File(secret_file(dir))).await;
            leader.ok_or_else(|| Error::new("no node leads at the moment: try again"))?
        }
    };
    let node = cluster.nodes.iter().find(|node| node.id == id);
    let node = node.ok_or_else(|| Error::new(format!("there is no node {id}")))?;
    print(&format!("{}\n", node.pid))
}

fn cluster(dir: &Path) -> Result<ClusterFile> {
    let none = || Error::new(format!("no cluster runs in {}: start one with `quorate dev`", dir.display()));
    ClusterFile::read(dir)?.ok_or_else(none)
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
