//! A cluster of real processes, as `quorate dev` starts it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use quorate::{Client, ClientConfig, SecretSource, Sql};
use quorate_env::Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use tokio::process::{Child, Command};

use super::options::Options;
use super::{Result, until};

/// How long a cluster may take to be ready, or to stop.
const READY_MAX: Duration = Duration::from_secs(120);
/// How many nodes a cluster has.
const NODES: usize = 3;
/// The file that the output of `quorate dev` goes to.
const DEV_LOG: &str = "dev.log";
/// The bytes of a MiB.
const MIB: u64 = 1 << 20;

/// Where nodes archive to.
#[derive(Clone)]
pub struct Place {
    pub dir: PathBuf,
    /// How often pages are archived, if not as usual.
    pub boundary: Option<&'static str>,
}

/// A running `quorate dev`.
pub struct Cluster {
    program: PathBuf,
    dir: PathBuf,
    /// Where the nodes archive, if they do.
    archive: Option<Place>,
    dev: Child,
    /// Removed at the end.
    _scratch: tempfile::TempDir,
}

/// One node, as in `cluster.json`.
#[derive(Clone, Deserialize)]
pub struct Node {
    pub id: u64,
    pub pid: i32,
    pub peer_addr: String,
    #[serde(default)]
    pub resp_addr: String,
    pub data_dir: PathBuf,
}

#[derive(Deserialize)]
struct ClusterFile {
    nodes: Vec<Node>,
}

/// The output of `quorate status --json`.
#[derive(Deserialize)]
pub struct Status {
    #[serde(deserialize_with = "perhaps_number")]
    pub leader: Option<u64>,
    pub members: Vec<Member>,
}

/// The status of a member.
#[derive(Deserialize)]
pub struct Member {
    #[serde(rename = "name", deserialize_with = "number")]
    pub id: u64,
    pub raft_id: String,
    pub voter: bool,
    pub reachable: bool,
    lag: Option<u64>,
}

/// Reads the name of a node of `quorate dev`, which is a number.
fn number<'de, D: Deserializer<'de>>(name: D) -> std::result::Result<u64, D::Error> {
    String::deserialize(name)?.parse().map_err(Error::custom)
}

fn perhaps_number<'de, D: Deserializer<'de>>(name: D) -> std::result::Result<Option<u64>, D::Error> {
    Option::<String>::deserialize(name)?.map(|name| name.parse().map_err(Error::custom)).transpose()
}

impl Member {
    /// Returns whether it is a voter that lacks no more than a few of the entries that are being written.
    pub fn is_caught_up(&self) -> bool {
        /// The entries that it may lack.
        const LAG_MAX: u64 = 10_000;
        self.voter && self.reachable && self.lag.is_some_and(|lag| lag < LAG_MAX)
    }
}

impl Cluster {
    /// Starts three nodes in a new directory: below `--dir`, or below the directory for temporary files. `timing` holds
    /// lines of TOML for the `timing` section of each node.
    pub async fn start(options: &Options, timing: &[String]) -> Result<Self> {
        let scratch = options.scratch()?;
        super::figures::print_conditions(scratch.path())?;
        let mut cluster = Self::start_in(options, scratch, None).await?;
        if !timing.is_empty() {
            cluster.configure(&format!("[timing]\n{}", timing.join("\n"))).await?;
        }
        Ok(cluster)
    }

    /// Starts three nodes that archive to a directory.
    pub async fn archiving(options: &Options, archive: Place) -> Result<Self> {
        let Place { dir, boundary } = archive.clone();
        let mut cluster = Self::start_in(options, options.scratch()?, Some(archive)).await?;
        if let Some(boundary) = boundary {
            let lines = format!("[archive]\nurl = \"{}\"\nboundary = \"{boundary}\"", dir.display());
            cluster.configure(&lines).await?;
        }
        Ok(cluster)
    }

    /// Starts three nodes with the last state of an archive. Returns the last archived entry too.
    pub async fn restored(options: &Options, archive: &Path) -> Result<(Self, u64)> {
        let scratch = options.scratch()?;
        let mut restore = Command::new(options.program()?);
        restore.arg("restore").arg(archive).args(["--at", "latest", "--data-dir"]).arg(scratch.path());
        let said = output(&mut restore).await?;
        let index = said.split("from position ").nth(1).and_then(|rest| rest.split(' ').next()?.rsplit('.').next());
        let index = index.and_then(|index| index.parse().ok()).ok_or_else(|| format!("quorate restore said {said}"))?;
        let archive = Place { dir: archive.to_owned(), boundary: None };
        Ok((Self::start_in(options, scratch, Some(archive)).await?, index))
    }

    async fn start_in(options: &Options, scratch: tempfile::TempDir, archive: Option<Place>) -> Result<Self> {
        let (program, dir) = (options.program()?, scratch.path().to_owned());
        let dev = dev(&program, &dir, archive.as_ref())?;
        let mut cluster = Self { dev, program, dir, archive, _scratch: scratch };
        cluster.ready().await?;
        Ok(cluster)
    }

    /// Starts all nodes again, with these lines of TOML at the end of their configuration.
    async fn configure(&mut self, lines: &str) -> Result<()> {
        self.stop().await?;
        for id in 1..=NODES {
            let path = self.dir.join(format!("node-{id}.toml"));
            let config = std::fs::read_to_string(&path)?;
            std::fs::write(&path, format!("{config}\n{lines}\n"))?;
        }
        self.dev = dev(&self.program, &self.dir, self.archive.as_ref())?;
        self.ready().await
    }

    /// Returns the last archived entry, once there is one.
    pub async fn archived(&self) -> Option<u64> {
        #[derive(Deserialize)]
        struct Archived {
            last: Option<Last>,
        }
        #[derive(Deserialize)]
        struct Last {
            position: String,
        }
        let mut list = Command::new(&self.program);
        list.args(["archive", "list", "--json"]).arg(&self.archive.as_ref()?.dir);
        let archived: Vec<Archived> = serde_json::from_str(&output(&mut list).await.ok()?).ok()?;
        archived.first()?.last.as_ref()?.position.rsplit('.').next()?.parse().ok()
    }

    /// Kills all nodes by SIGKILL, and deletes their directories. Returns the moment before.
    pub async fn destroy(mut self) -> Result<Instant> {
        let moment = Instant::now();
        for node in self.nodes()? {
            signal(node.pid, Signal::KILL)?;
        }
        self.dev.kill().await?;
        let dir = self.dir.clone();
        tokio::task::spawn_blocking(move || std::fs::remove_dir_all(dir)).await??;
        Ok(moment)
    }

    async fn ready(&mut self) -> Result<()> {
        let (file, log) = (self.dir.join("cluster.json"), self.dir.join(DEV_LOG));
        let dev = &mut self.dev;
        until("the cluster", READY_MAX, async || match dev.try_wait() {
            Ok(None) => file.exists().then_some(Ok(())),
            ended => Some(Err(format!(
                "quorate dev ended: {ended:?}\n{}",
                std::fs::read_to_string(&log).unwrap_or_default()
            ))),
        })
        .await??;
        Ok(())
    }

    /// Stops all nodes.
    pub async fn stop(&mut self) -> Result<()> {
        if let Some(pid) = self.dev.id() {
            signal(i32::try_from(pid)?, Signal::INT)?;
            let ended = tokio::time::timeout(READY_MAX, self.dev.wait()).await??;
            if !ended.success() {
                return Err(format!("quorate dev: {ended}").into());
            }
        }
        Ok(())
    }

    pub fn nodes(&self) -> Result<Vec<Node>> {
        let file: ClusterFile = serde_json::from_slice(&std::fs::read(self.dir.join("cluster.json"))?)?;
        Ok(file.nodes)
    }

    pub fn node(&self, id: u64) -> Result<Node> {
        self.nodes()?.into_iter().find(|node| node.id == id).ok_or_else(|| format!("there is no node {id}").into())
    }

    /// Returns a handle to the whole cluster.
    pub async fn sql(&self) -> Result<Sql> {
        Ok(Client::connect(self.config()?).await?.sql())
    }

    /// Returns the configuration of a client of the cluster.
    pub fn config(&self) -> Result<ClientConfig> {
        let addrs = self.nodes()?.into_iter().map(|node| node.peer_addr);
        Ok(ClientConfig::new(addrs, self.secret()))
    }

    /// Returns a handle to one node, which answers all reads itself.
    pub async fn sql_of(&self, node: &Node) -> Result<Sql> {
        Ok(Client::connect(ClientConfig::pinned(&node.peer_addr, self.secret())).await?.sql())
    }

    fn secret(&self) -> SecretSource {
        SecretSource::File(self.dir.join("secret"))
    }

    /// Returns the output of `quorate status --json`.
    pub async fn status(&self) -> Result<Status> {
        Ok(serde_json::from_str(&self.quorate(&["status", "--json"]).await?)?)
    }

    /// Waits until all nodes have caught up and one of them leads. Returns the leader.
    pub async fn settled(&self) -> Result<Node> {
        let leader = until("all nodes to catch up", READY_MAX, async || {
            let Status { leader, members } = self.status().await.ok()?;
            leader.filter(|_| members.len() == NODES && members.iter().all(Member::is_caught_up))
        });
        self.node(leader.await?)
    }

    /// Sends SIGKILL. Returns the moment before.
    pub fn kill(&self, node: &Node) -> Result<Instant> {
        let moment = Instant::now();
        signal(node.pid, Signal::KILL)?;
        Ok(moment)
    }

    /// Starts a killed node again and waits until it answers.
    pub async fn restart(&self, id: u64) -> Result<()> {
        self.quorate(&["dev", "--restart", &id.to_string()]).await.map(drop)
    }

    /// Fills a table until the database has about this size. The bytes go through the log, which is then purged of most
    /// of them.
    pub async fn fill(&self, mib: u64) -> Result<()> {
        /// The bytes of a row: a page holds one.
        const ROW_BYTES: usize = 4000;
        let sql = self.sql().await?;
        sql.execute("CREATE TABLE filler (data BLOB)", ()).await?;
        let rng = Rng::from_seed(1);
        let row = || {
            let mut bytes = vec![0; ROW_BYTES];
            rng.fill(&mut bytes);
            ("INSERT INTO filler VALUES (?)", (bytes,))
        };
        for _ in 0..mib {
            sql.batch((0..MIB / 4096).map(|_| row())).await?;
        }
        self.settled().await?;
        Ok(())
    }

    async fn quorate(&self, args: &[&str]) -> Result<String> {
        output(Command::new(&self.program).args(args).arg("--data-dir").arg(&self.dir)).await
    }
}

/// Runs a command, and returns what it says.
async fn output(command: &mut Command) -> Result<String> {
    let output = command.output().await?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn dev(program: &Path, dir: &Path, archive: Option<&Place>) -> Result<Child> {
    let log = std::fs::File::create(dir.join(DEV_LOG))?;
    let mut command = Command::new(program);
    // It ends when this process ends for any reason: its standard input is a pipe that this process holds.
    command.args(["dev", "--until-stdin-closes", "--data-dir"]).arg(dir);
    if let Some(archive) = archive {
        command.arg("--archive").arg(&archive.dir);
    }
    command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
    Ok(command.kill_on_drop(true).spawn()?)
}

fn signal(pid: i32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(pid).ok_or("not a process id")?;
    Ok(kill_process(pid, signal)?)
}
