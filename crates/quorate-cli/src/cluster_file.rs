//! `cluster.json`: which processes make up the cluster of a data directory. `quorate dev` writes it once the cluster is
//! ready and removes it when it ends; other commands only read it.
//!
//! Invariant: the file is replaced atomically, so a reader sees a whole one or none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quorate_env::Env;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::error::{Context as _, Error, Result};

/// The name of the file in the data directory of `quorate dev`.
const NAME: &str = "cluster.json";

/// The nodes of a cluster on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFile {
    /// The nodes in the order of their ids, which start at 1.
    pub nodes: Vec<NodeProcess>,
}

/// One node and the process that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProcess {
    /// The id, from 1. It is also the node's name in the cluster.
    pub id: u64,
    /// The process that was last started for the node. It may have ended since.
    pub pid: u32,
    /// The address for peers and clients.
    pub peer_addr: String,
    /// The address of its HTTP server, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_addr: Option<String>,
    /// The address of its port for the clients of Redis, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resp_addr: Option<String>,
    /// The data directory of the node.
    pub data_dir: PathBuf,
}

impl NodeProcess {
    /// Returns whether the process runs. Another process may have got its id since it ended, so the process must also
    /// hold the lock of the node's data directory.
    pub fn is_running(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        pid.is_some_and(|pid| test_kill_process(pid).is_ok()) && is_locked(&self.data_dir)
    }
}

/// Returns whether a process uses a data directory. A node that starts at this moment may find the lock taken; it tries
/// again for some seconds.
fn is_locked(data_dir: &Path) -> bool {
    let locked = Env::real().disk().lock_dir(data_dir).map(drop);
    locked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

impl ClusterFile {
    /// Reads the file of a data directory; `None` if there is none.
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(NAME);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(|| format!("cannot read {}", path.display())),
        };
        let file = serde_json::from_slice(&text);
        file.map(Some).map_err(|error| Error::caused(format!("{} is damaged: {error}", path.display()), error))
    }

    /// Writes or replaces the file of a data directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(NAME);
        let next = path.with_extension("json.next");
        let text = serde_json::to_string(self).map_err(Error::of)?;
        fs::write(&next, text + "\n")
            .and_then(|()| fs::rename(&next, &path))
            .context(|| format!("cannot write {}", path.display()))
    }

    /// Removes the file of a data directory, if there is one.
    pub fn remove(dir: &Path) -> Result<()> {
        let path = dir.join(NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the addresses of all nodes.
    pub fn addrs(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.peer_addr.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_file_round_trips_and_unknown_keys_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ClusterFile::read(dir.path()).unwrap(), None);

        let peer_addr = "127.0.0.1:1".into();
        let (http_addr, resp_addr) = (None, None);
        let node = NodeProcess { id: 1, pid: 7, peer_addr, http_addr, resp_addr, data_dir: "node-1".into() };
        let file = ClusterFile { nodes: vec![node] };
        file.write(dir.path()).unwrap();
        assert_eq!(ClusterFile::read(dir.path()).unwrap(), Some(file.clone()));

        let text = r#"{"nodes":[{"id":1,"pid":7,"peer_addr":"127.0.0.1:1","data_dir":"node-1","x":"y"}],"y":2}"#;
        fs::write(dir.path().join(NAME), text).unwrap();
        assert_eq!(ClusterFile::read(dir.path()).unwrap(), Some(file));

        ClusterFile::remove(dir.path()).unwrap();
        ClusterFile::remove(dir.path()).unwrap();
        assert_eq!(ClusterFile::read(dir.path()).unwrap(), None);
    }

    /// An ended node's process id may belong to any other process: here, to this test.
    #[test]
    fn a_process_that_holds_no_lock_is_not_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().to_owned();
        let (pid, peer_addr, http_addr, resp_addr) = (std::process::id(), "h:1".into(), None, None);
        let node = NodeProcess { id: 1, pid, peer_addr, http_addr, resp_addr, data_dir };
        assert!(!node.is_running());
        let lock = Env::real().disk().lock_dir(dir.path()).unwrap();
        assert!(node.is_running());
        assert!(!NodeProcess { pid: i32::MAX.cast_unsigned(), ..node.clone() }.is_running());
        drop(lock);
        assert!(!node.is_running());
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), "{").unwrap();
        let error = ClusterFile::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains(NAME), "{error}");
    }
}
