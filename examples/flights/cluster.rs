//! The processes of the cluster that `quorate dev` started: finds the leader, kills a node, and starts it again.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::{fs, io};

use serde_json::Value;

use crate::Result;

/// The nodes of a `quorate dev` on this machine.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The path of the program `quorate`.
    pub quorate: PathBuf,
    /// The directory that contains `cluster.json`.
    pub data_dir: PathBuf,
}

/// A node, as `cluster.json` describes it.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: u64,
    pub pid: u64,
    pub peer_addr: String,
    /// The file with the secret of the cluster.
    pub secret: PathBuf,
}

impl Cluster {
    pub fn nodes(&self) -> Result<Vec<Node>> {
        let path = self.data_dir.join("cluster.json");
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let json: Value = serde_json::from_str(&text)?;
        let nodes: Option<Vec<Node>> = json
            .get("nodes")
            .and_then(Value::as_array)
            .map_or(Some(Vec::new()), |n| n.iter().map(|json| self.node(json)).collect());
        nodes.filter(|nodes| !nodes.is_empty()).ok_or_else(|| format!("{} lists no nodes", path.display()).into())
    }

    /// Sends SIGKILL to the present leader. Returns `None` if no node that answers knows a leader.
    pub fn kill_leader(&self) -> Result<Option<Node>> {
        let nodes = self.nodes()?;
        let Some(leader) = nodes.iter().find_map(|node| self.leader_known_to(node)) else {
            return Ok(None);
        };
        let Some(leader) = nodes.into_iter().find(|node| node.id == leader) else {
            return Err(format!("cluster.json has no node {leader}").into());
        };
        succeed(Command::new("kill").args(["-KILL", &leader.pid.to_string()]).output())?;
        Ok(Some(leader))
    }

    /// Starts a killed node again.
    pub fn restart(&self, node: &Node) -> Result<()> {
        let mut command = Command::new(&self.quorate);
        command.args(["dev", "--restart", &node.id.to_string(), "--data-dir"]).arg(&self.data_dir);
        succeed(command.output()).map(drop)
    }

    fn node(&self, json: &Value) -> Option<Node> {
        Some(Node {
            id: json.get("id")?.as_u64()?,
            pid: json.get("pid")?.as_u64()?,
            peer_addr: json.get("peer_addr")?.as_str()?.to_owned(),
            secret: self.data_dir.join("secret"),
        })
    }

    /// Returns `None` if the node does not answer; it may be the one that was killed.
    fn leader_known_to(&self, node: &Node) -> Option<u64> {
        let mut command = Command::new(&self.quorate);
        command.args(["status", "--json", "--node", &node.peer_addr]);
        let output = succeed(command.output()).ok()?;
        let json: Value = serde_json::from_slice(&output.stdout).ok()?;
        json.get("leader")?.as_str()?.parse().ok()
    }
}

fn succeed(output: io::Result<Output>) -> Result<Output> {
    let output = output?;
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(output)
}
