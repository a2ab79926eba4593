//! The driver's side of a cluster: its hosts, the requests to them, and the resources that they used.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::args::{Options, Processes, Role};
use crate::load::{END_MAX, FAILOVER_MAX, Load, Loaded};
use crate::machine::{MIB, Usage, bytes_by_part};
use crate::protocol::{ANSWER, Answer, HostSpec, Request};
use crate::system::NodeSpec;
use crate::{Result, data_dir};

/// How long a cluster may take to start, to elect a leader, to apply what was written, or to answer a short request.
const STATE_MAX: Duration = Duration::from_secs(60);
/// How long a load without a time limit may take, apart from its last answers.
const LOAD_MAX: Duration = Duration::from_secs(600);
/// How long filling the database may take for each MiB.
const FILL_MIB_MAX: Duration = Duration::from_secs(2);
/// How long to wait until all nodes have the acknowledged rows. A node that has permanently fallen behind fails the
/// run.
const CHECK_MAX: Duration = Duration::from_secs(30);
/// How many lines that are not answers are printed for each process.
const PRINTED_MAX: usize = 5;
/// How often states are checked.
const STEP: Duration = Duration::from_millis(20);

/// A running cluster.
pub struct Cluster {
    pub hosts: Vec<Host>,
    dir: tempfile::TempDir,
    system: &'static str,
}

/// A process of the cluster.
pub struct Host {
    spec: HostSpec,
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// The number of lines that were not answers and were printed.
    printed: usize,
}

impl Cluster {
    /// Starts a cluster in its own directory.
    pub async fn start(options: &Options, processes: Processes) -> Result<Self> {
        let dir = data_dir(options.dir.as_deref())?;
        let specs = specs(dir.path(), options, processes)?;
        let system = options.system.name();
        // All hosts are started first, because each waits for the others.
        let hosts = specs.into_iter().map(|spec| Host::spawn(system, spec)).collect::<Result<_>>()?;
        let mut cluster = Self { hosts, dir, system };
        for host in &mut cluster.hosts {
            host.answer::<()>(STATE_MAX).await?;
        }
        Ok(cluster)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the number of the host that contains the leader.
    pub async fn leader(&mut self) -> Result<usize> {
        let limit = Instant::now() + STATE_MAX;
        while Instant::now() < limit {
            for (number, host) in self.hosts.iter_mut().enumerate() {
                if host.ask(Request::Leads, STATE_MAX).await? {
                    return Ok(number);
                }
            }
            tokio::time::sleep(STEP).await;
        }
        Err(format!("there was no leader within {STATE_MAX:?}").into())
    }

    /// Sends a request to the host that contains the leader, and returns the answer.
    pub async fn ask_leader<T: DeserializeOwned>(&mut self, request: Request, limit: Duration) -> Result<T> {
        let leader = self.leader().await?;
        self.host(leader)?.ask(request, limit).await
    }

    pub fn host(&mut self, number: usize) -> Result<&mut Host> {
        self.hosts.get_mut(number).ok_or_else(|| format!("there is no host {number}").into())
    }

    /// Creates the tables, and inserts `rows` rows into the measured table and `mib` MiB of filler.
    pub async fn prepare(&mut self, rows: u64, mib: u64) -> Result<()> {
        self.ask_leader::<()>(Request::CreateTables, STATE_MAX).await?;
        let limit = STATE_MAX + FILL_MIB_MAX * u32::try_from(mib)?;
        self.ask_leader::<()>(Request::Fill { rows, mib }, limit).await?;
        self.check(rows, 0).await
    }

    /// Runs a load in the process of the leader, or in that of a follower.
    pub async fn run(&mut self, load: Load, at: Role) -> Result<Loaded> {
        let leader = self.leader().await?;
        let number = match at {
            Role::Leader => leader,
            Role::Follower => (leader + 1) % self.hosts.len(),
        };
        let limit = load_max(&load);
        self.host(number)?.ask::<Loaded>(Request::Run(load), limit).await?.whole()
    }

    /// Runs a load in one host while a task runs at another one. Returns both results.
    pub async fn run_during<T>(
        &mut self,
        load: Load,
        [runs, other]: [usize; 2],
        task: impl AsyncFnOnce(&mut Host) -> Result<T>,
    ) -> Result<(T, Loaded)> {
        let [runs, other] = self.hosts.get_disjoint_mut([runs, other])?;
        let (load, limit) = (Load { rows: None, seconds: None, ..load }, load_max(&load));
        runs.send(&(serde_json::to_string(&Request::Run(load))? + "\n")).await?;
        let done = task(other).await;
        runs.send("\n").await?;
        let loaded: Loaded = runs.answer(limit).await?;
        Ok((done?, loaded.whole()?))
    }

    /// Waits until all nodes have applied the acknowledged rows. Rows whose insert failed may be present.
    pub async fn check(&mut self, acknowledged: u64, unsure: u64) -> Result<()> {
        let expected = acknowledged..=acknowledged + unsure;
        let limit = Instant::now() + CHECK_MAX;
        loop {
            let mut counts = Vec::new();
            for host in &mut self.hosts {
                counts.extend(host.ask::<Vec<u64>>(Request::Counts, STATE_MAX).await?);
            }
            let equal = counts.windows(2).all(|pair| pair.first() == pair.last());
            if equal && counts.iter().all(|count| expected.contains(count)) {
                return Ok(());
            }
            if Instant::now() > limit {
                let found = format!("{acknowledged} rows acknowledged, {unsure} unsure, {counts:?} found");
                return Err(format!("rows are missing or too many: {found}").into());
            }
            tokio::time::sleep(STEP).await;
        }
    }

    /// Kills a host and starts it again, without waiting until it serves.
    pub async fn restart(&mut self, number: usize) -> Result<()> {
        let system = self.system;
        let host = self.host(number)?;
        // This returns when the process has ended.
        host.child.kill().await?;
        *host = Host::spawn(system, host.spec.clone())?;
        Ok(())
    }

    /// Kills a host, empties its nodes' directories, and starts it again, without waiting until it serves.
    pub async fn wipe(&mut self, number: usize) -> Result<()> {
        let system = self.system;
        let host = self.host(number)?;
        host.child.kill().await?;
        for node in &host.spec.nodes {
            std::fs::remove_dir_all(&node.dir)?;
            std::fs::create_dir(&node.dir)?;
        }
        *host = Host::spawn(system, host.spec.clone())?;
        Ok(())
    }

    /// Waits until the nodes have finished their work after a start: until they are idle for a moment, or until a time
    /// limit.
    pub async fn quiet(&self) -> Result<()> {
        /// How long the nodes must be idle, what counts as idle, and the time limit.
        const MOMENT: Duration = Duration::from_millis(500);
        const IDLE_CPU: Duration = Duration::from_millis(50);
        const IDLE_WRITTEN: u64 = MIB;
        const QUIET_MAX: Duration = Duration::from_secs(30);
        let limit = Instant::now() + QUIET_MAX;
        let mut before = self.usage()?;
        while Instant::now() < limit {
            tokio::time::sleep(MOMENT).await;
            let now = self.usage()?;
            if now.cpu - before.cpu < IDLE_CPU && now.written - before.written < IDLE_WRITTEN {
                return Ok(());
            }
            before = now;
        }
        Ok(())
    }

    /// Returns what all hosts, and the rest of the machine, have used so far.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of_all(self.hosts.iter().map(Host::pid))
    }

    /// Returns the bytes on disk of all nodes.
    pub fn bytes_on_disk(&self) -> u64 {
        bytes_by_part(self.dir()).values().sum()
    }

    /// Returns the bytes on disk of the node that uses most, by the parts of its directory.
    pub fn bytes_of_a_node(&self) -> BTreeMap<String, u64> {
        let nodes = self.hosts.iter().flat_map(|host| &host.spec.nodes);
        let parts = nodes.map(|node| bytes_by_part(&node.dir));
        parts.max_by_key(|parts| parts.values().sum::<u64>()).unwrap_or_default()
    }
}

impl Host {
    fn spawn(system: &str, spec: HostSpec) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["host", "--system", system, &serde_json::to_string(&spec)?]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let requests = child.stdin.take().ok_or("the host has no standard input")?;
        let answers = child.stdout.take().ok_or("the host has no standard output")?;
        Ok(Self { spec, child, requests, answers: BufReader::new(answers).lines(), printed: 0 })
    }

    pub fn pid(&self) -> Result<u32> {
        self.child.id().ok_or_else(|| "a host has ended".into())
    }

    /// Sends a request and waits for the answer.
    pub async fn ask<T: DeserializeOwned>(&mut self, request: Request, limit: Duration) -> Result<T> {
        self.send(&(serde_json::to_string(&request)? + "\n")).await?;
        self.answer(limit).await.map_err(|error| format!("{request:?}: {error}").into())
    }

    /// Returns the size of the database according to SQLite.
    pub async fn database_bytes(&mut self) -> Result<u64> {
        self.ask(Request::DatabaseBytes, STATE_MAX).await
    }

    /// Stops its nodes cleanly. Returns how long that took.
    pub async fn stop(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        self.ask::<()>(Request::Stop, STATE_MAX).await?;
        Ok(begin.elapsed())
    }

    async fn send(&mut self, line: &str) -> Result<()> {
        Ok(self.requests.write_all(line.as_bytes()).await?)
    }

    /// Runs inserts in this host, which kills another host in the meantime.
    pub async fn failover(&mut self, load: Load, pid: u32) -> Result<crate::load::Recovered> {
        let request = Request::Failover { load, pid: i32::try_from(pid)? };
        self.ask(request, FAILOVER_MAX + END_MAX + STATE_MAX).await
    }

    /// Waits until its nodes serve and answer reads of a row.
    pub async fn ready(&mut self, id: i64) -> Result<()> {
        self.answer::<()>(STATE_MAX).await?;
        self.ask(Request::Ready { id }, STATE_MAX).await
    }

    /// Waits until its nodes serve.
    pub async fn started(&mut self) -> Result<()> {
        self.answer(STATE_MAX).await
    }

    async fn answer<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T> {
        let line = tokio::time::timeout(limit, self.answer_line()).await;
        let line = line.map_err(|_| format!("no answer within {limit:?}"))??;
        let answer: Answer = serde_json::from_str(&line)?;
        Ok(serde_json::from_value(answer?)?)
    }

    async fn answer_line(&mut self) -> Result<String> {
        while let Some(line) = self.answers.next_line().await? {
            match line.strip_prefix(ANSWER) {
                Some(answer) => return Ok(answer.to_owned()),
                // The line comes from a library. A few such lines are printed, because they may explain a problem.
                None if self.printed < PRINTED_MAX => {
                    self.printed += 1;
                    eprintln!("{line}");
                }
                None => {}
            }
        }
        Err("the process has ended".into())
    }
}

/// Returns how long a load may take.
fn load_max(load: &Load) -> Duration {
    load.seconds.map_or(LOAD_MAX, Duration::from_secs_f64) + END_MAX + STATE_MAX
}

/// Returns the hosts of a cluster and their nodes.
fn specs(dir: &Path, options: &Options, processes: Processes) -> Result<Vec<HostSpec>> {
    let members = addresses(options.nodes)?;
    let archive = match options.archive.as_deref() {
        Some("dir") => {
            let dir = dir.join("archive");
            std::fs::create_dir(&dir)?;
            Some(format!("file://{}", dir.display()))
        }
        place => place.map(str::to_owned),
    };
    let node = |id: usize| -> Result<NodeSpec> {
        let dir: PathBuf = dir.join(format!("node-{id}"));
        std::fs::create_dir(&dir)?;
        let (members, server, tls) = (members.clone(), options.url.clone(), options.tls.clone());
        let (archive, durability) = (archive.clone(), options.durability);
        Ok(NodeSpec { id: id as u64, dir, members, durability, tls, archive, server })
    };
    // If the servers already run, only one of them is called, whatever their number.
    let nodes = if options.is_outside() { 1 } else { options.nodes };
    let nodes = (1..=nodes).map(node).collect::<Result<Vec<_>>>()?;
    Ok(match processes {
        Processes::One => vec![HostSpec { nodes }],
        Processes::Many => nodes.into_iter().map(|node| HostSpec { nodes: vec![node] }).collect(),
    })
}

/// Returns two free addresses for each node.
fn addresses(nodes: usize) -> Result<Vec<[String; 2]>> {
    let listeners = (0..2 * nodes).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    let all = listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect::<Result<Vec<_>>>()?;
    let pairs = all.chunks_exact(2).filter_map(|pair| <[String; 2]>::try_from(pair.to_vec()).ok());
    Ok(pairs.collect())
}

/// Converts bytes to MiB with one decimal.
pub fn mib(bytes: u64) -> f64 {
    (bytes as f64 / MIB as f64 * 10.0).round() / 10.0
}
