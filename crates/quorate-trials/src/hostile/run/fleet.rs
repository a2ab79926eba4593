//! The nodes: processes of `quorate serve` with limited resources, each with a small file system for temporary files if
//! the machine allows it.
//!
//! The file systems are mounted in a mount namespace that ends with this process and its children, so nothing of them
//! is left outside, however the trial ends.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use quorate::{Client, ClientConfig, SecretSource};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::harness::servers::{free_addrs, init, serve};
use crate::harness::{Result, until};

/// How many nodes there are.
pub const NODES: usize = 3;
/// The size of each node's file system for temporary files.
const TEMP_MIB: u64 = 20;
/// Address space that a node may take above what it needs.
const SPARE_BYTES: u64 = 256 << 20;
/// How long the nodes may take to serve again when their limits are set.
const SERVE_AGAIN_MAX: Duration = Duration::from_secs(60);
/// How long a process may take to end after it was killed.
const END_MAX: Duration = Duration::from_secs(30);
/// How long a node may take to answer whether it serves.
const SERVES_MAX: Duration = Duration::from_secs(2);
/// How many bytes of a node's log are shown when it ends.
const LOG_BYTES: usize = 1500;

/// All nodes.
pub struct Fleet {
    program: PathBuf,
    dir: PathBuf,
    nodes: Vec<Node>,
    limits: Limits,
}

struct Node {
    name: String,
    addr: String,
    process: Option<Child>,
}

/// The limits of the processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Whether temporary files go to small file systems.
    pub temp: bool,
    /// The most address space, once it is known.
    pub address_space: Option<u64>,
}

/// Enters a new mount namespace by starting this program again, with the seed that was chosen, if the command line has
/// none. Returns false if the machine does not allow it; otherwise this does not return.
pub fn enter(chosen: Option<u64>) -> Result<bool> {
    let unshare = || {
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--"]);
        command
    };
    let probe = unshare().args(["sh", "-c", "mount -t tmpfs none /mnt"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("this machine gives us no file systems of our own: temporary files have no limit");
        return Ok(false);
    }
    let mut again = unshare();
    again.arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).arg("--namespace");
    if let Some(seed) = chosen {
        again.args(["--seed", &seed.to_string()]);
    }
    Err(again.exec().into())
}

impl Fleet {
    /// Founds a cluster in an empty directory.
    pub async fn found(program: &Path, dir: PathBuf, limits: Limits) -> Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let names = ["a", "b", "c"].map(str::to_owned);
        let members: Vec<(String, String)> = names.into_iter().zip(free_addrs(NODES)?).collect();
        init(program, &dir, &members).await?;
        let nodes = members.into_iter().map(|(name, addr)| Node { name, addr, process: None }).collect();
        let mut fleet = Self { program: program.to_owned(), dir, nodes, limits };
        for number in 0..NODES {
            fleet.mount(number).await?;
            fleet.start(number)?;
        }
        Ok(fleet)
    }

    fn temp(&self, number: usize) -> PathBuf {
        self.dir.join(format!("temp-{}", self.nodes[number].name))
    }

    async fn mount(&self, number: usize) -> Result<()> {
        let temp = self.temp(number);
        std::fs::create_dir_all(&temp)?;
        if !self.limits.temp {
            return Ok(());
        }
        let size = format!("size={TEMP_MIB}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&temp).output().await?;
        let said = String::from_utf8_lossy(&mounted.stderr);
        if mounted.status.success() { Ok(()) } else { Err(format!("mount: {}", said.trim()).into()) }
    }

    /// Starts a node's process.
    pub fn start(&mut self, number: usize) -> Result<()> {
        let temp = self.temp(number);
        let mut command = match self.limits.address_space {
            // A node reads its limit when it starts.
            Some(limit) => {
                let mut command = Command::new("prlimit");
                command.arg(format!("--as={limit}")).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.env("TMPDIR", &temp).env("SQLITE_TMPDIR", &temp);
        let node = &mut self.nodes[number];
        node.process = Some(serve(command, &self.dir, &node.name)?);
        Ok(())
    }

    /// Limits the address space to what the nodes use now and some more, and starts them again.
    pub async fn limit_address_space(&mut self) -> Result<u64> {
        let mut most = 0;
        for number in 0..NODES {
            let pid = self.pid(number).ok_or("a node has ended")?;
            let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))?;
            let peak = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).ok_or("no VmPeak")?;
            let kib: u64 = peak.trim().trim_end_matches(" kB").parse()?;
            most = most.max(kib << 10);
        }
        self.limits.address_space = Some(most + SPARE_BYTES);
        for number in 0..NODES {
            self.kill(number).await?;
            self.start(number)?;
        }
        let config = self.config(0);
        until("the nodes to serve under their limits", SERVE_AGAIN_MAX, async || {
            serves(config.clone()).await.then_some(())
        })
        .await?;
        Ok(most)
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn pid(&self, number: usize) -> Option<Pid> {
        let id = self.nodes[number].process.as_ref().and_then(Child::id)?;
        Pid::from_raw(i32::try_from(id).ok()?)
    }

    /// Sends SIGKILL to a node, if it runs, and waits for its end.
    pub async fn kill(&mut self, number: usize) -> Result<()> {
        if let Some(pid) = self.pid(number) {
            kill_process(pid, Signal::KILL)?;
        }
        if let Some(mut process) = self.nodes[number].process.take() {
            tokio::time::timeout(END_MAX, process.wait()).await.map_err(|_| "a killed process did not end")??;
        }
        Ok(())
    }

    /// Removes all files. No node may be running.
    pub async fn remove(self) -> Result<()> {
        for number in 0..NODES {
            if self.limits.temp {
                Command::new("umount").arg(self.temp(number)).status().await?;
            }
        }
        Ok(std::fs::remove_dir_all(self.dir)?)
    }

    /// Returns the nodes that have ended by themselves since the previous call.
    pub fn ended(&mut self) -> Result<Vec<(usize, ExitStatus)>> {
        let mut ended = Vec::new();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let Some(process) = &mut node.process else { continue };
            if let Some(status) = process.try_wait()? {
                node.process = None;
                ended.push((number, status));
            }
        }
        Ok(ended)
    }

    /// Returns the end of a node's log.
    pub fn last_words(&self, number: usize) -> String {
        let said = std::fs::read(self.dir.join(format!("{}.log", self.nodes[number].name))).unwrap_or_default();
        String::from_utf8_lossy(&said[said.len().saturating_sub(LOG_BYTES)..]).into_owned()
    }

    pub fn name(&self, number: usize) -> &str {
        &self.nodes[number].name
    }

    /// Returns the configuration of a client of all nodes, beginning with one.
    pub fn config(&self, first: usize) -> ClientConfig {
        let addrs = (0..NODES).map(|number| self.nodes[(first + number) % NODES].addr.clone());
        ClientConfig::new(addrs, self.secret())
    }

    /// Returns the configuration of a client of one node.
    pub fn pinned(&self, number: usize) -> ClientConfig {
        ClientConfig::pinned(&self.nodes[number].addr, self.secret())
    }

    fn secret(&self) -> SecretSource {
        SecretSource::File(self.dir.join("secret"))
    }
}

/// Returns whether the node of a pinned configuration answers a linearizable query.
pub async fn serves(config: ClientConfig) -> bool {
    let ask = async {
        let client = Client::connect(config.with_deadline(SERVES_MAX)).await.ok()?;
        let one = client.sql().query_one::<i64>("SELECT 1", ()).await.ok();
        client.close().await;
        one
    };
    tokio::time::timeout(SERVES_MAX * 2, ask).await.ok().flatten().is_some()
}
