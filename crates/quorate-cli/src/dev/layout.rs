//! The data directory of `quorate dev`: the secret, and for each node a configuration, a log of its messages, and the
//! directory that is its own.
//!
//! Invariants:
//! - One process at a time uses the directory: it holds a lock on `dev.lock`, which ends with it, however it ends.
//! - The number of nodes and their addresses are chosen once; later starts take up what is there.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, Told as _};
use crate::settings::{self, NewNode};

/// The id of the first node.
const FIRST: u64 = 1;
/// Nodes of a new cluster where nobody says how many.
const NODES_DEFAULT: u16 = 3;
/// Where ports are drawn from: below those that the system gives to outgoing connections, so that nothing takes the
/// port of a node while that is down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// How many of them belong to one process before those of the next: nodes take theirs only a moment after they were
/// found free, and clusters that start at the same time must not find the same.
const PORTS_PER_PROCESS: usize = 32;
/// Ports that are tried before giving up.
const PORT_ATTEMPTS_MAX: usize = 256;

/// A data directory in use by this process.
#[derive(Debug)]
pub struct Layout {
    dir: PathBuf,
    /// The address of each node, by id from 1.
    addrs: Vec<String>,
    /// Where each serves HTTP, if it does.
    http: Vec<Option<String>>,
    /// Whether there was a cluster in it before.
    resumed: bool,
    /// Held for as long as the process uses the directory.
    _lock: File,
}

impl Layout {
    /// Takes the directory into use; makes what is not there yet.
    pub fn open(dir: &Path, nodes: Option<u16>) -> Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .told(|| format!("cannot make the data directory {}", dir.display()))?;
        let dir = dir.canonicalize().told(|| format!("cannot enter {}", dir.display()))?;
        let lock = lock(&dir)?;
        let resumed = settings::file_of(&dir, &stem(FIRST)).exists();
        if !resumed {
            settings::found(&dir, &new_nodes(nodes.unwrap_or(NODES_DEFAULT))?, |name| format!("node-{name}"))?;
        }
        let addrs = read_addrs(&dir)?;
        if nodes.is_some_and(|nodes| usize::from(nodes) != addrs.len()) {
            let (dir, found) = (dir.display(), addrs.len());
            return Err(Error::new(format!(
                "{dir} holds a cluster of {found} nodes: leave out --nodes, or take another --data-dir"
            )));
        }
        let http = (FIRST..).zip(&addrs).map(|(id, _)| settings::load(&settings::file_of(&dir, &stem(id))));
        let http = http.map(|server| server.map(|server| server.http_listen)).collect::<Result<_>>()?;
        Ok(Self { dir, addrs, http, resumed, _lock: lock })
    }

    /// The directory, absolute.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ids of the nodes with their addresses.
    pub fn nodes(&self) -> impl Iterator<Item = (u64, &str)> {
        (FIRST..).zip(self.addrs.iter().map(String::as_str))
    }

    /// All addresses.
    pub fn addrs(&self) -> &[String] {
        &self.addrs
    }

    /// Where a node serves HTTP, if it does.
    pub fn http(&self, id: u64) -> Option<String> {
        self.http.get(usize::try_from(id.checked_sub(FIRST)?).ok()?).cloned().flatten()
    }

    /// Whether there was a cluster in the directory before.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Where a node keeps its data.
    pub fn node_dir(&self, id: u64) -> PathBuf {
        self.dir.join(stem(id))
    }

    /// The configuration of a node.
    pub fn config(&self, id: u64) -> PathBuf {
        settings::file_of(&self.dir, &stem(id))
    }

    /// What a node says.
    pub fn log(&self, id: u64) -> PathBuf {
        self.dir.join(format!("node-{id}.log"))
    }
}

/// The socket on which the running `quorate dev` takes requests.
pub fn control_socket(dir: &Path) -> PathBuf {
    dir.join("dev.sock")
}

/// What the names of a node's files begin with.
fn stem(id: u64) -> String {
    format!("node-{id}")
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("dev.lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.told(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::new(format!(
            "a `quorate dev` is already running in {}: stop it first, or take another --data-dir",
            dir.display()
        ))),
        Err(TryLockError::Error(error)) => Err(error).told(|| format!("cannot lock {}", path.display())),
    }
}

/// The addresses of the nodes by id.
fn read_addrs(dir: &Path) -> Result<Vec<String>> {
    let path = settings::file_of(dir, &stem(FIRST));
    let mut members = settings::load(&path)?.node.members;
    let addrs: Vec<String> = (FIRST..).map_while(|id| members.remove(&id.to_string())).collect();
    if addrs.is_empty() || !members.is_empty() {
        let path = path.display();
        return Err(Error::new(format!("{path} was not made by `quorate dev`: its members are not called 1, 2, 3")));
    }
    Ok(addrs)
}

fn new_nodes(nodes: u16) -> Result<Vec<NewNode>> {
    let addrs = free_addrs(std::process::id(), usize::from(nodes).saturating_mul(2))?;
    let (addrs, http) = addrs.split_at(usize::from(nodes));
    let new = |(id, (addr, http)): (u64, (&String, &String))| NewNode {
        name: id.to_string(),
        addr: addr.clone(),
        http: http.clone(),
        data_dir: stem(id).into(),
    };
    Ok((FIRST..).zip(addrs.iter().zip(http)).map(new).collect())
}

fn free_addrs(process: u32, count: usize) -> Result<Vec<String>> {
    // All are held until all are found, so that no port is taken twice.
    let mut held = Vec::new();
    let mut addrs = Vec::new();
    let first = usize::try_from(process).unwrap_or(0).saturating_mul(PORTS_PER_PROCESS) % PORTS.len();
    for port in PORTS.cycle().skip(first).take(PORT_ATTEMPTS_MAX) {
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push(listener);
            addrs.push(format!("{}:{port}", Ipv4Addr::LOCALHOST));
        }
        if addrs.len() == count {
            return Ok(addrs);
        }
    }
    Err(Error::new(format!("found no {count} free ports between {} and {}", PORTS.start, PORTS.end)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn processes_that_start_at_the_same_time_find_different_ports() {
        let found: Vec<String> = (1000..1040).flat_map(|process| free_addrs(process, 6).unwrap()).collect();
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len(), "{found:?}");
    }
}
