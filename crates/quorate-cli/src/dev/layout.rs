//! The data directory of `quorate dev`: the secret, and for each node its configuration, the log of its messages, and
//! its data directory.
//!
//! Invariants:
//! - Only one process at a time uses the directory. It holds a lock on `dev.lock`, which the system releases when the
//!   process ends.
//! - The number of nodes and their addresses are chosen once; later starts use the same.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::registry;
use crate::error::{Context as _, Error, Result};
use crate::settings::{self, NewNode, Protection};

/// The id of the first node.
const FIRST: u64 = 1;
/// The default number of nodes of a new cluster.
const NODES_DEFAULT: u16 = 3;
/// The range that ports are taken from. It is below the range that the system uses for outgoing connections, so that no
/// connection takes the port of a node that is down; the registry keeps other clusters from it. Our tests take theirs
/// from above it.
const PORTS: std::ops::Range<u16> = 20_000..26_000;
/// The distance between the ports where processes with consecutive ids begin to search. A node binds its port only a
/// moment after the port was found free, so clusters that start at the same time must not find the same ports.
const PORTS_PER_PROCESS: usize = 32;
/// How many ports are tried before giving up.
const PORT_ATTEMPTS_MAX: usize = 256;

/// A data directory in use by this process.
#[derive(Debug)]
pub struct Layout {
    dir: PathBuf,
    /// The address of each node, by id from 1.
    addrs: Vec<String>,
    /// The HTTP address of each node, if it has one.
    http: Vec<Option<String>>,
    /// The address of each node for the clients of Redis, if it has one.
    resp: Vec<Option<String>>,
    /// Whether the directory already held a cluster.
    resumed: bool,
    /// Held for as long as the process uses the directory.
    _lock: File,
}

impl Layout {
    /// Locks the directory, and creates the files of a cluster if there are none.
    pub fn open(dir: &Path, nodes: Option<u16>) -> Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .context(|| format!("cannot create the data directory {}", dir.display()))?;
        let dir = dir.canonicalize().context(|| format!("cannot enter {}", dir.display()))?;
        let lock = lock(&dir)?;
        let resumed = settings::file_of(&dir, &stem(FIRST)).exists();
        if !resumed {
            let nodes = new_nodes(nodes.unwrap_or(NODES_DEFAULT))?;
            settings::found(&dir, &nodes, Protection::default(), |name| format!("node-{name}"))?;
        }
        let addrs = read_addrs(&dir)?;
        if nodes.is_some_and(|nodes| usize::from(nodes) != addrs.len()) {
            let (dir, found) = (dir.display(), addrs.len());
            return Err(Error::new(format!(
                "{dir} holds a cluster of {found} nodes: leave out --nodes, or use another --data-dir"
            )));
        }
        let servers = (FIRST..).zip(&addrs).map(|(id, _)| settings::load(&settings::file_of(&dir, &stem(id))));
        let ports = servers.map(|server| server.map(|server| (server.http_listen, server.redis_listen)));
        let (http, resp): (Vec<_>, Vec<_>) = ports.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        registry::register(addrs.iter().chain(http.iter().flatten()).chain(resp.iter().flatten()), &dir);
        Ok(Self { dir, addrs, http, resp, resumed, _lock: lock })
    }

    /// Returns the absolute path of the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the ids of the nodes with their addresses.
    pub fn nodes(&self) -> impl Iterator<Item = (u64, &str)> {
        (FIRST..).zip(self.addrs.iter().map(String::as_str))
    }

    /// Returns the addresses of all nodes.
    pub fn addrs(&self) -> &[String] {
        &self.addrs
    }

    /// Returns the HTTP address of a node, if it has one.
    pub fn http(&self, id: u64) -> Option<String> {
        of_node(&self.http, id)
    }

    /// Returns the address of a node for the clients of Redis, if it has one.
    pub fn resp(&self, id: u64) -> Option<String> {
        of_node(&self.resp, id)
    }

    /// Returns whether the directory already held a cluster.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Returns the data directory of a node.
    pub fn node_dir(&self, id: u64) -> PathBuf {
        self.dir.join(stem(id))
    }

    /// Returns the configuration file of a node.
    pub fn config(&self, id: u64) -> PathBuf {
        settings::file_of(&self.dir, &stem(id))
    }

    /// Returns the file that a node's messages go to.
    pub fn log(&self, id: u64) -> PathBuf {
        self.dir.join(format!("node-{id}.log"))
    }
}

/// Returns the socket on which the running `quorate dev` accepts requests.
pub fn control_socket(dir: &Path) -> PathBuf {
    dir.join("dev.sock")
}

/// Returns the prefix of the names of a node's files.
fn stem(id: u64) -> String {
    format!("node-{id}")
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("dev.lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = file.context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::new(format!(
            "a `quorate dev` is already running in {}: stop it first, or use another --data-dir",
            dir.display()
        ))),
        Err(TryLockError::Error(error)) => Err(error).context(|| format!("cannot lock {}", path.display())),
    }
}

/// Reads the addresses of the nodes, in the order of their ids.
fn read_addrs(dir: &Path) -> Result<Vec<String>> {
    let path = settings::file_of(dir, &stem(FIRST));
    let mut members = settings::load(&path)?.node.members;
    let addrs: Vec<String> = (FIRST..).map_while(|id| members.remove(&id.to_string())).collect();
    if addrs.is_empty() || !members.is_empty() {
        let path = path.display();
        return Err(Error::new(format!("{path} was not written by `quorate dev`: its members are not called 1, 2, 3")));
    }
    Ok(addrs)
}

/// Returns the address of a node.
fn of_node(addrs: &[Option<String>], id: u64) -> Option<String> {
    addrs.get(usize::try_from(id.checked_sub(FIRST)?).ok()?).cloned().flatten()
}

fn new_nodes(nodes: u16) -> Result<Vec<NewNode>> {
    let mut addrs = free_addrs(std::process::id(), usize::from(nodes).saturating_mul(3))?.into_iter();
    let mut of_each = || addrs.by_ref().take(usize::from(nodes)).collect::<Vec<_>>();
    let (addrs, http, redis) = (of_each(), of_each(), of_each());
    let new = |(id, (addr, (http, redis)))| NewNode {
        name: u64::to_string(&id),
        addr,
        http,
        sql: true,
        redis: Some(redis),
        data_dir: stem(id).into(),
    };
    Ok((FIRST..).zip(addrs.into_iter().zip(http.into_iter().zip(redis))).map(new).collect())
}

fn free_addrs(process: u32, count: usize) -> Result<Vec<String>> {
    // Keep each port bound until all are found, so that none is found twice.
    let mut held = Vec::new();
    let mut addrs = Vec::new();
    let first = usize::try_from(process).unwrap_or(0).saturating_mul(PORTS_PER_PROCESS) % PORTS.len();
    for port in PORTS.cycle().skip(first).take(PORT_ATTEMPTS_MAX) {
        let addr = format!("{}:{port}", Ipv4Addr::LOCALHOST);
        // Another cluster, or one of its nodes, may be down and need its port again.
        if !registry::is_taken(&addr)
            && let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        {
            held.push(listener);
            addrs.push(addr);
        }
        if addrs.len() == count {
            return Ok(addrs);
        }
    }
    Err(Error::new(format!("found fewer than {count} free ports between {} and {}", PORTS.start, PORTS.end)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn concurrent_processes_find_different_ports() {
        let found: Vec<String> = (1000..1040).flat_map(|process| free_addrs(process, 6).unwrap()).collect();
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len(), "{found:?}");
    }

    #[test]
    fn the_ports_of_a_cluster_that_is_down_are_left_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let taken = free_addrs(2000, 6).unwrap();
        registry::register(&taken, dir.path());
        let others = free_addrs(2000, 6).unwrap();
        assert!(others.iter().all(|addr| !taken.contains(addr)), "{others:?}");
    }
}
