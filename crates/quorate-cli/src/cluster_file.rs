//! `cluster.json`: which processes make up the cluster of a data directory. `quorate dev` writes it once the cluster is
//! ready and removes it when it ends; everyone else only reads it.
//!
//! Invariant: the file is replaced atomically, so a reader sees a whole one or none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Told as _};

/// The name of the file in the data directory of `quorate dev`.
const NAME: &str = "cluster.json";

/// The nodes of a cluster on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFile {
    /// In the order of their ids, from 1.
    pub nodes: Vec<NodeProcess>,
}

/// One node and the process that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProcess {
    /// From 1; also the node's name in the cluster.
    pub id: u64,
    /// The last process that was started for it, which may have died since.
    pub pid: u32,
    /// Where peers and clients reach it.
    pub peer_addr: String,
    /// Where it serves HTTP, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_addr: Option<String>,
    /// Its own directory.
    pub data_dir: PathBuf,
}

impl ClusterFile {
    /// Reads the file of a data directory; `None` if there is none.
    pub fn read(dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(NAME);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).told(|| format!("cannot read {}", path.display())),
        };
        let file = serde_json::from_slice(&text);
        file.map(Some).map_err(|error| Error::new(format!("{} is damaged: {error}", path.display())))
    }

    /// Writes or replaces the file of a data directory.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let path = dir.join(NAME);
        let next = path.with_extension("json.next");
        let text = serde_json::to_string(self).map_err(|error| Error::new(error.to_string()))?;
        fs::write(&next, text + "\n")
            .and_then(|()| fs::rename(&next, &path))
            .told(|| format!("cannot write {}", path.display()))
    }

    /// Removes the file of a data directory, if there is one.
    pub fn remove(dir: &Path) -> Result<()> {
        let path = dir.join(NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).told(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// The addresses of all nodes.
    pub fn addrs(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.peer_addr.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_file_is_read_back_and_what_is_added_later_is_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ClusterFile::read(dir.path()).unwrap(), None);

        let node =
            NodeProcess { id: 1, pid: 7, peer_addr: "127.0.0.1:1".into(), http_addr: None, data_dir: "node-1".into() };
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

    #[test]
    fn a_damaged_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(NAME), "{").unwrap();
        let error = ClusterFile::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains(NAME), "{error}");
    }
}
