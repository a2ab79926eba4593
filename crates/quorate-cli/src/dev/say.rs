//! The messages of `quorate dev`.
//!
//! Errors are ignored: a closed standard output must not end the cluster.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::cluster_file::ClusterFile;
use crate::options::DATA_DIR;

/// Prints a line.
pub fn line(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints that the cluster is ready, and what to type next.
pub fn ready(dir: &Path, cluster: &ClusterFile, leader: Option<u64>, took: Duration) {
    let count = cluster.nodes.len();
    let nodes = if count == 1 { "node is" } else { "nodes are" };
    line(&format!("{count} {nodes} ready after {:.1} s; their data is in {}", took.as_secs_f64(), dir.display()));
    for node in &cluster.nodes {
        let leads = if leader == Some(node.id) { "  leads" } else { "" };
        line(&format!("  node {}  {}  pid {}{leads}", node.id, node.peer_addr, node.pid));
    }
    line("\nIn another terminal:\n");
    line(&format!("  {}", command("sql", dir)));
    line(&format!("  {}", command("status", dir)));
    line(&format!("  kill -KILL $({})    # kill the leader; writes continue", command("dev --pid leader", dir)));
    line(&format!("  {}    # start it again", command("dev --restart", dir)));
    line("\nCtrl-C stops all nodes and keeps their data.");
}

/// Returns the command that starts a node again.
pub fn restart_command(id: u64, dir: &Path) -> String {
    command(&format!("dev --restart {id}"), dir)
}

fn command(words: &str, dir: &Path) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "quorate".to_owned());
    let is_default = std::env::current_dir().is_ok_and(|here| here.join(DATA_DIR) == dir);
    if is_default { format!("{program} {words}") } else { format!("{program} {words} --data-dir {}", dir.display()) }
}
