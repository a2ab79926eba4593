//! The nodes: processes of the released program, each with its directory and its log, and the faults that can be
//! applied to them.
//!
//! Invariant: a process that ends without being asked to is noticed by the next call of [`Fleet::intact`].

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorate::{Client, ClientConfig, SecretSource};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::world::World;
use crate::harness::servers::{init, serve};
use crate::harness::{Result, until};

/// How long a process may take to end.
const END_MAX: Duration = Duration::from_secs(30);
/// How long one attempt of a client to connect may take.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Small enough that followers which were away for some rounds are sent an image, and that small disks suffice.
const KEEP_LOG: &str = "keep_log = \"2 MiB\"";

/// All nodes.
pub struct Fleet {
    pub world: World,
    pub nodes: Vec<Node>,
    /// Whether syncs can be made to fail.
    pub syncs_fail: bool,
    program: PathBuf,
    pub dir: PathBuf,
}

/// A node.
pub struct Node {
    pub name: String,
    pub addr: String,
    /// The address of its port for clients of Redis.
    pub redis: String,
    process: Option<Child>,
}

impl Fleet {
    /// Starts `count` nodes below a directory.
    pub async fn start(world: World, program: PathBuf, dir: PathBuf, count: usize) -> Result<Self> {
        let names = ('a'..).take(count).map(String::from);
        let (addrs, redis): (Vec<_>, Vec<_>) = world.addrs(count)?.into_iter().unzip();
        let members: Vec<(String, String)> = names.zip(addrs).collect();
        init(&program, &dir, &members).await?;
        for ((name, _), redis) in members.iter().zip(&redis) {
            let file = dir.join(format!("{name}.toml"));
            // Without a user, the clients of Redis need no password.
            let text = std::fs::read_to_string(&file)?.replace("\nadmin_token_hash", "\n# admin_token_hash");
            let lines = format!("{KEEP_LOG}\nredis.listen = \"{redis}\"\ndata_dir");
            std::fs::write(file, text.replacen("data_dir", &lines, 1))?;
        }
        let syncs_fail = make_syncs_fail(&dir).await;
        let node = |((name, addr), redis)| Node { name, addr, redis, process: None };
        let nodes = members.into_iter().zip(redis).map(node).collect();
        let mut fleet = Self { world, nodes, syncs_fail, program, dir };
        for number in 0..count {
            let disk = fleet.disk(number);
            fleet.world.give(&fleet.nodes[number].name, number, &disk).await?;
            fleet.serve(number)?;
        }
        Ok(fleet)
    }

    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// Starts a node's process.
    pub fn serve(&mut self, number: usize) -> Result<()> {
        let node = &mut self.nodes[number];
        let mut command: Command = self.world.command(&node.name, &self.program);
        if self.syncs_fail {
            command.env("LD_PRELOAD", self.dir.join("sync_fails.so"));
            command.env("CHAOS_SYNC_FAILS", self.dir.join(format!("{}.sync-fails", node.name)));
        }
        node.process = Some(serve(command, &self.dir, &node.name)?);
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        let id = self.nodes[number].process.as_ref().and_then(Child::id);
        let pid = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).ok_or("the node has ended")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Sends SIGKILL and waits until the process has ended.
    pub async fn kill(&mut self, number: usize) -> Result<()> {
        self.signal(number, Signal::KILL)?;
        self.ended(number, END_MAX).await
    }

    /// Waits until a process has ended, for any reason.
    pub async fn ended(&mut self, number: usize, limit: Duration) -> Result<()> {
        let node = &mut self.nodes[number];
        if let Some(mut process) = node.process.take() {
            let ended = tokio::time::timeout(limit, process.wait()).await;
            ended.map_err(|_| format!("node {} did not end within {} s", node.name, limit.as_secs()))??;
        }
        Ok(())
    }

    /// Fails if a node has ended that was not killed.
    pub fn intact(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            let Some(process) = &mut node.process else { continue };
            if let Some(status) = process.try_wait()? {
                return Err(format!("node {} ended by itself: {status}", node.name).into());
            }
        }
        Ok(())
    }

    /// Returns the size of a node's output so far, in bytes.
    pub fn said_bytes(&self, number: usize) -> u64 {
        std::fs::metadata(self.log(number)).map_or(0, |metadata| metadata.len())
    }

    /// Returns a node's output after its first `bytes` bytes.
    pub fn said_after(&self, number: usize, bytes: u64) -> Result<String> {
        let mut log = File::open(self.log(number))?;
        log.seek(SeekFrom::Start(bytes))?;
        let mut said = Vec::new();
        log.read_to_end(&mut said)?;
        // The output may begin inside a character: replace its remains.
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Makes a node's syncs fail, or succeed again.
    pub fn fail_syncs(&self, number: usize, fail: bool) -> Result<()> {
        let file = self.dir.join(format!("{}.sync-fails", self.nodes[number].name));
        if fail {
            File::create(file).map(drop)?
        } else {
            std::fs::remove_file(file)?
        }
        Ok(())
    }

    /// Fills a node's file system to the last byte, or frees it again.
    pub fn fill(&self, number: usize, full: bool) -> Result<()> {
        let ballast = self.disk(number).join("ballast");
        if !full {
            return Ok(std::fs::remove_file(ballast)?);
        }
        let mut file = File::create(ballast)?;
        for len in [1 << 20, 4096, 1] {
            let zeros = vec![0; len];
            loop {
                match file.write_all(&zeros) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Returns a client of all nodes, or of one node that answers its reads itself. Connecting is tried until the
    /// deadline, which also applies to each call.
    pub async fn client(&self, pinned: Option<usize>, deadline: Duration) -> Result<Client> {
        let config = match pinned {
            Some(number) => ClientConfig::pinned(&self.nodes[number].addr, self.secret()),
            None => self.config(),
        };
        let config = config.with_deadline(CONNECT_MAX);
        let what = format!("a client of {}", pinned.map_or("all", |number| &self.nodes[number].name));
        until(&what, deadline, async || Client::connect(config.clone()).await.ok()).await
    }

    /// Returns the configuration of a client of all nodes.
    pub fn config(&self) -> ClientConfig {
        ClientConfig::new(self.nodes.iter().map(|node| node.addr.clone()), self.secret())
    }

    /// Returns the leader, according to the node that answers.
    pub async fn leader(&self, probe: &Client) -> Option<usize> {
        let status = probe.status().await.ok()?;
        let addr = &status.leader()?.addr;
        self.nodes.iter().position(|node| node.addr == *addr)
    }

    /// Ends all processes and unmounts the file systems. With `keep`, their contents are copied first.
    pub async fn stop(&mut self, keep: bool) -> Result<()> {
        for number in 0..self.count() {
            if self.nodes[number].process.is_some() {
                self.kill(number).await?;
            }
            let disk = self.disk(number);
            if keep && self.world.own {
                let kept = self.dir.join(format!("{}-kept", self.nodes[number].name));
                Command::new("cp").arg("-a").arg(&disk).arg(kept).status().await?;
            }
            self.world.take(&disk).await?;
        }
        Ok(())
    }

    /// Returns the mount point of a node's file system: its data directory, as `quorate init` names it.
    fn disk(&self, number: usize) -> PathBuf {
        self.dir.join(&self.nodes[number].name)
    }

    fn log(&self, number: usize) -> PathBuf {
        self.dir.join(format!("{}.log", self.nodes[number].name))
    }

    fn secret(&self) -> SecretSource {
        SecretSource::File(self.dir.join("secret"))
    }
}

/// Compiles the library that makes syncs fail. Returns false if there is no compiler.
async fn make_syncs_fail(dir: &Path) -> bool {
    let source = dir.join("sync_fails.c");
    if std::fs::write(&source, include_str!("sync_fails.c")).is_err() {
        return false;
    }
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", "-o"]).arg(dir.join("sync_fails.so")).arg(source).arg("-ldl");
    cc.output().await.is_ok_and(|output| output.status.success())
}
