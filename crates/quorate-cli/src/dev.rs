//! `quorate dev`: a cluster of processes on this machine, to try things out.
//!
//! One process runs the nodes as its children. `quorate dev --restart N` asks that process to start a node again. When
//! the process ends, by Ctrl-C or by SIGKILL, the nodes end too. Their data stays for the next start.

mod child;
mod control;
mod layout;
pub mod registry;
mod say;
mod supervisor;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use quorate::SecretSource;
use quorate_backup::store::Location;

use self::control::Control;
use self::supervisor::Supervisor;
use crate::client;
use crate::cluster_file::ClusterFile;
use crate::error::{Context as _, Error, Result};
use crate::options::DATA_DIR;
use crate::output::print;
use crate::settings::secret_file;
use crate::stop::Stop;

pub use self::layout::Layout;

/// The maximum number of nodes. More nodes on one machine only cost time.
const NODES_MAX: i64 = 9;

/// Options of `quorate dev`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  quorate dev                                  # three nodes; prints what to type next
  kill -KILL $(quorate dev --pid leader)       # in another terminal: kill the leader
  quorate dev --restart                        # start it again
  quorate dev --archive quorate-archive        # `quorate restore quorate-archive --at latest` brings it all back")]
pub struct DevArgs {
    /// Number of nodes of a new cluster; an existing cluster keeps its number [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub nodes: Option<u16>,
    /// The directory of the cluster; a cluster that is there already is started again
    #[arg(long, value_name = "DIR", default_value = DATA_DIR)]
    pub data_dir: PathBuf,
    /// Archive the cluster in this directory, which is created, or at the URL of a store; give it at every start
    #[arg(long, value_name = "DIR|URL")]
    pub archive: Option<String>,
    /// Start node N of the running cluster again; without N, all nodes whose process has ended
    #[arg(long, value_name = "N", conflicts_with = "nodes", num_args = 0..=1)]
    pub restart: Option<Option<u64>>,
    /// Print the process id of node N of the running cluster, or of its leader
    #[arg(long, value_name = "N|leader", conflicts_with_all = ["nodes", "restart"])]
    pub pid: Option<Which>,
    /// Stop when standard input closes, as it does when the parent process ends
    #[arg(long, hide = true)]
    pub until_stdin_closes: bool,
}

/// A node of `quorate dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The node with this number.
    Node(u64),
    /// The leader.
    Leader,
}

impl std::str::FromStr for Which {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "leader" => Ok(Self::Leader),
            number => number.parse().map(Self::Node).map_err(|_| "expected the number of a node, or leader"),
        }
    }
}

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
        if !node.is_running() {
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
            let leader = client::wait_for_leader(&cluster.addrs(), &SecretSource::File(secret_file(dir))).await;
            leader.ok_or_else(|| Error::new("no node leads at the moment: try again"))?
        }
    };
    let node = cluster.nodes.iter().find(|node| node.id == id);
    let node = node.ok_or_else(|| Error::new(format!("there is no node {id}")))?;
    if !node.is_running() {
        let restart = say::restart_command(id, dir);
        return Err(Error::new(format!("node {id} does not run. Start it again: {restart}")));
    }
    print(&format!("{}\n", node.pid))
}

fn cluster(dir: &Path) -> Result<ClusterFile> {
    let none = || Error::new(format!("no cluster runs in {}: start one with `quorate dev`", dir.display()));
    ClusterFile::read(dir)?.ok_or_else(none)
}

/// Returns where the nodes archive. A directory is created, and its path becomes an absolute one: the nodes have other
/// working directories.
fn archive_place(place: &str) -> Result<String> {
    let location: Location = place.parse().map_err(Error::of)?;
    let Some(dir) = location.as_dir() else { return Ok(place.to_owned()) };
    std::fs::create_dir_all(dir).context(|| format!("cannot create the directory {}", dir.display()))?;
    Ok(dir.display().to_string())
}

async fn run_cluster(args: &DevArgs) -> Result<()> {
    let begin = Instant::now();
    // Take over the signals before any node starts, so that no signal ends this process and leaves nodes behind.
    let mut stop = Stop::take(args.until_stdin_closes)?;
    let layout = Layout::open(&args.data_dir, args.nodes)?;
    let control = Control::listen(layout.dir()).await?;
    let secret = SecretSource::File(secret_file(layout.dir()));
    let (count, dir) = (layout.addrs().len(), layout.dir().display());
    say::line(&if layout.resumed() {
        format!("starting the {count} existing nodes in {dir}")
    } else {
        format!("starting {count} nodes in {dir}")
    });

    let archive = args.archive.as_deref().map(archive_place).transpose()?;
    let mut supervisor = Supervisor::start(layout, secret.clone(), archive)?;
    let ready = tokio::select! {
        ready = supervisor.ready() => Some(ready),
        () = stop.requested() => None,
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    #[test]
    fn a_directory_is_created_however_it_is_written() {
        let parent = tempfile::tempdir().unwrap();
        for (name, scheme) in [("path", ""), ("url", "file://")] {
            let dir = parent.path().join(name).join("below").display().to_string();
            assert_eq!(archive_place(&format!("{scheme}{dir}")).unwrap(), dir);
            assert!(Path::new(&dir).is_dir(), "{dir}");
        }
        assert_eq!(archive_place("s3://bucket/prefix").unwrap(), "s3://bucket/prefix");
    }
}
