//! The driver's side of a cluster: its hosts, what they are asked, what they used.

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

/// How long a cluster may take to start, to find a leader, to apply what was written, to answer a short question.
const STATE_MAX: Duration = Duration::from_secs(60);
/// How long a load without an end by time may take, beside its last answers.
const LOAD_MAX: Duration = Duration::from_secs(600);
/// How long filling may take for each MiB.
const FILL_MIB_MAX: Duration = Duration::from_secs(2);
/// How long until all nodes have what was acknowledged. A node that has fallen behind for good is not waited for.
const CHECK_MAX: Duration = Duration::from_secs(30);
/// How many lines that are no answers are passed on for each process.
const PRINTED_MAX: usize = 5;
/// How often states are looked at.
const STEP: Duration = Duration::from_millis(20);

/// A running cluster.
pub struct Cluster {
    pub hosts: Vec<Host>,
    dir: tempfile::TempDir,
    system: &'static str,
}

/// One of its processes.
pub struct Host {
    spec: HostSpec,
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Lines that were no answers and were passed on.
    printed: usize,
}

impl Cluster {
    /// Starts one, in a directory of its own.
    pub async fn start(options: &Options, processes: Processes) -> Result<Self> {
        let dir = data_dir(options.dir.as_deref())?;
        let specs = specs(dir.path(), options, processes)?;
        let system = options.system.name();
        // All of them first: each waits for the others.
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

    /// The host with the leader in it, by its number.
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

    /// Asks the host with the leader in it.
    pub async fn ask_leader<T: DeserializeOwned>(&mut self, request: Request, limit: Duration) -> Result<T> {
        let leader = self.leader().await?;
        self.host(leader)?.ask(request, limit).await
    }

    pub fn host(&mut self, number: usize) -> Result<&mut Host> {
        self.hosts.get_mut(number).ok_or_else(|| format!("there is no host {number}").into())
    }

    /// Makes the tables, with so many rows in the one that is measured and so much filler.
    pub async fn prepare(&mut self, rows: u64, mib: u64) -> Result<()> {
        self.ask_leader::<()>(Request::CreateTables, STATE_MAX).await?;
        let limit = STATE_MAX + FILL_MIB_MAX * u32::try_from(mib)?;
        self.ask_leader::<()>(Request::Fill { rows, mib }, limit).await?;
        self.check(rows, 0).await
    }

    /// Runs a load beside the leader, or beside a follower in another process.
    pub async fn run(&mut self, load: Load, at: Role) -> Result<Loaded> {
        let leader = self.leader().await?;
        let number = match at {
            Role::Leader => leader,
            Role::Follower => (leader + 1) % self.hosts.len(),
        };
        let limit = load_max(&load);
        self.host(number)?.ask::<Loaded>(Request::Run(load), limit).await?.whole()
    }

    /// Runs a load at one host for as long as something takes at another one, and gives what came of both.
    pub async fn run_during<T>(
        &mut self,
        load: Load,
        [runs, other]: [usize; 2],
        task: impl AsyncFnOnce(&mut Host) -> Result<T>,
    ) -> Result<(T, Loaded)> {
        let [runs, other] = self.hosts.get_disjoint_mut([runs, other])?;
        let (load, limit) = (Load { rows: None, seconds: None, ..load }, load_max(&load));
        runs.tell(&(serde_json::to_string(&Request::Run(load))? + "\n")).await?;
        let done = task(other).await;
        runs.tell("\n").await?;
        let loaded: Loaded = runs.answer(limit).await?;
        Ok((done?, loaded.whole()?))
    }

    /// Waits until all nodes have applied the rows that were acknowledged; those whose insert failed may be there.
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

    /// Kills a host, and starts it again without waiting for it.
    pub async fn restart(&mut self, number: usize) -> Result<()> {
        let system = self.system;
        let host = self.host(number)?;
        // Returns when it is gone.
        host.child.kill().await?;
        *host = Host::spawn(system, host.spec.clone())?;
        Ok(())
    }

    /// Kills a host, takes its nodes' directories away, and starts it again without waiting for it.
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

    /// Waits until the nodes have done what they do after a start: until they are idle for a moment, or for long
    /// enough.
    pub async fn quiet(&self) -> Result<()> {
        /// How long they must be idle, how idle, and how long to wait for it.
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

    /// What all hosts used so far, and what the rest of the machine did.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of_all(self.hosts.iter().map(Host::pid))
    }

    /// Bytes on disk by node.
    pub fn bytes_on_disk(&self) -> u64 {
        bytes_by_part(self.dir()).values().sum()
    }

    /// Bytes on disk of the node that takes most, by the parts of its directory.
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

    /// Asks, and waits for the answer.
    pub async fn ask<T: DeserializeOwned>(&mut self, request: Request, limit: Duration) -> Result<T> {
        self.tell(&(serde_json::to_string(&request)? + "\n")).await?;
        self.answer(limit).await.map_err(|error| format!("{request:?}: {error}").into())
    }

    /// How large the database is, as SQLite counts it.
    pub async fn database_bytes(&mut self) -> Result<u64> {
        self.ask(Request::DatabaseBytes, STATE_MAX).await
    }

    /// Stops its nodes in good order; gives how long that took.
    pub async fn stop(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        self.ask::<()>(Request::Stop, STATE_MAX).await?;
        Ok(begin.elapsed())
    }

    async fn tell(&mut self, line: &str) -> Result<()> {
        Ok(self.requests.write_all(line.as_bytes()).await?)
    }

    /// Runs inserts here and kills another host meanwhile.
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
                // What a library prints: a few lines may tell something.
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

/// How long a load may take.
fn load_max(load: &Load) -> Duration {
    load.seconds.map_or(LOAD_MAX, Duration::from_secs_f64) + END_MAX + STATE_MAX
}

/// The hosts of a cluster and what is in them.
fn specs(dir: &Path, options: &Options, processes: Processes) -> Result<Vec<HostSpec>> {
    let members = addresses(options.nodes)?;
    let node = |id: usize| -> Result<NodeSpec> {
        let dir: PathBuf = dir.join(format!("node-{id}"));
        std::fs::create_dir(&dir)?;
        let (members, server) = (members.clone(), options.rqlited.clone());
        Ok(NodeSpec { id: id as u64, dir, members, durability: options.durability, server })
    };
    // Of servers that run already one is asked, and it is no matter how many there are.
    let nodes = if options.is_outside() { 1 } else { options.nodes };
    let nodes = (1..=nodes).map(node).collect::<Result<Vec<_>>>()?;
    Ok(match processes {
        Processes::One => vec![HostSpec { nodes }],
        Processes::Many => nodes.into_iter().map(|node| HostSpec { nodes: vec![node] }).collect(),
    })
}

/// Two free addresses for each node.
fn addresses(nodes: usize) -> Result<Vec<[String; 2]>> {
    let listeners = (0..2 * nodes).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>, _>>()?;
    let all = listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect::<Result<Vec<_>>>()?;
    let pairs = all.chunks_exact(2).filter_map(|pair| <[String; 2]>::try_from(pair.to_vec()).ok());
    Ok(pairs.collect())
}

/// Bytes as MiB, for people.
pub fn mib(bytes: u64) -> f64 {
    (bytes as f64 / MIB as f64 * 10.0).round() / 10.0
}
