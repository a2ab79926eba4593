//! The data directory of `quorate dev`: the secret, and for each node a configuration, a log of its messages, and the
//! directory that is its own.
//!
//! Invariants:
//! - One process at a time uses the directory: it holds a lock on `dev.lock`, which ends with it, however it ends.
//! - The number of nodes and their addresses are chosen once; later starts take up what is there.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use quorate::Config;
use quorate_env::Rng;

use crate::error::{Error, Result, Told as _};

/// The id of the first node.
const FIRST: u64 = 1;
/// Nodes of a new cluster where nobody says how many.
const NODES_DEFAULT: u16 = 3;
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;
/// Where ports are drawn from: below those that the system gives to outgoing connections, so that nothing takes the
/// port of a node while that is down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Ports that are tried before giving up.
const PORT_ATTEMPTS_MAX: usize = 256;

/// A data directory in use by this process.
#[derive(Debug)]
pub struct Layout {
    dir: PathBuf,
    /// The address of each node, by id from 1.
    addrs: Vec<String>,
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
        let found = read_nodes(&dir)?;
        let resumed = found.is_some();
        let addrs = match (found, nodes) {
            (Some(addrs), Some(nodes)) if addrs.len() != usize::from(nodes) => {
                let (dir, found) = (dir.display(), addrs.len());
                return Err(Error::new(format!(
                    "{dir} holds a cluster of {found} nodes: leave out --nodes, or take another --data-dir"
                )));
            }
            (Some(addrs), _) => addrs,
            (None, nodes) => create(&dir, nodes.unwrap_or(NODES_DEFAULT))?,
        };
        Ok(Self { dir, addrs, resumed, _lock: lock })
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

    /// Whether there was a cluster in the directory before.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Where a node keeps its data.
    pub fn node_dir(&self, id: u64) -> PathBuf {
        self.dir.join(format!("node-{id}"))
    }

    /// The configuration of a node.
    pub fn config(&self, id: u64) -> PathBuf {
        config(&self.dir, id)
    }

    /// What a node says.
    pub fn log(&self, id: u64) -> PathBuf {
        self.dir.join(format!("node-{id}.log"))
    }
}

/// The file of the secret in a data directory.
pub fn secret_file(dir: &Path) -> PathBuf {
    dir.join("secret")
}

/// The socket on which the running `quorate dev` takes requests.
pub fn control_socket(dir: &Path) -> PathBuf {
    dir.join("dev.sock")
}

fn config(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("node-{id}.toml"))
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

/// The addresses of the nodes by id; `None` if there is no cluster yet.
fn read_nodes(dir: &Path) -> Result<Option<Vec<String>>> {
    let path = config(dir, FIRST);
    if !path.exists() {
        return Ok(None);
    }
    let mut members = Config::load(&path).told(|| format!("cannot read {}", path.display()))?.members;
    let addrs: Vec<String> = (FIRST..).map_while(|id| members.remove(&id.to_string())).collect();
    if addrs.is_empty() || !members.is_empty() {
        let path = path.display();
        return Err(Error::new(format!("{path} was not made by `quorate dev`: its members are not called 1, 2, 3")));
    }
    Ok(Some(addrs))
}

fn create(dir: &Path, nodes: u16) -> Result<Vec<String>> {
    let rng = Rng::from_os();
    let mut secret = [0; SECRET_BYTES];
    rng.fill(&mut secret);
    let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    write_private(&secret_file(dir), &secret)?;

    let addrs = free_addrs(&rng, nodes)?;
    // The first comes last: it stands for a whole directory.
    for id in (FIRST..=u64::from(nodes)).rev() {
        write_private(&config(dir, id), &config_text(id, &addrs))?;
    }
    Ok(addrs)
}

fn config_text(id: u64, addrs: &[String]) -> String {
    let members: String = (FIRST..).zip(addrs).map(|(id, addr)| format!("{id} = \"{addr}\"\n")).collect();
    format!("data_dir = \"node-{id}\"\nname = \"{id}\"\nsecret_file = \"secret\"\n\n[members]\n{members}")
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| writeln!(file, "{text}")).told(|| format!("cannot write {}", path.display()))
}

fn free_addrs(rng: &Rng, nodes: u16) -> Result<Vec<String>> {
    // All are held until all are found, so that no port is taken twice.
    let mut held = Vec::new();
    let mut addrs = Vec::new();
    let width = u64::from(PORTS.end - PORTS.start);
    for _ in 0..PORT_ATTEMPTS_MAX {
        let port = PORTS.start + u16::try_from(rng.below(width)).unwrap_or(0);
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push(listener);
            addrs.push(format!("{}:{port}", Ipv4Addr::LOCALHOST));
        }
        if addrs.len() == usize::from(nodes) {
            return Ok(addrs);
        }
    }
    Err(Error::new(format!("found no {nodes} free ports between {} and {}", PORTS.start, PORTS.end)))
}
