//! A cluster of real processes, started by the binary, and the binary as a user runs it.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod archived;
pub mod clients;
pub mod cluster_archive;
pub mod door;
pub mod faulty;
pub mod redis;
pub mod s3;
pub mod servers;
pub mod terminal;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub const QUORATE: &str = env!("CARGO_BIN_EXE_quorate");
/// A script that becomes `quorate dev`.
const START: &str = "trap '' INT; exec \"$0\" dev --until-stdin-closes --data-dir \"$@\"";
/// How long any state may take to be reached.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Ends threads that look at this flag, also if the test fails while they run.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A running `quorate dev`.
pub struct Dev {
    pub dir: TempDir,
    process: Child,
}

impl Dev {
    /// Starts a cluster and waits until it is ready. SIGINT is ignored at its start, as for a shell's background job.
    pub fn start(nodes: u64) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), &["--nodes", &nodes.to_string()])
    }

    /// The same in a directory that may hold a cluster already.
    pub fn start_in(dir: TempDir, options: &[&str]) -> Self {
        Self::start_as(dir, Command::new("sh").args(["-c", START, QUORATE]), options)
    }

    /// Starts three nodes, each on its own file system of `mib` MiB; `None` if the machine does not allow mounts.
    pub fn start_on_small_disks(mib: u64) -> Option<Self> {
        let namespace = ["--user", "--map-root-user", "--mount"];
        if !Command::new("unshare").args(namespace).arg("true").status().is_ok_and(|status| status.success()) {
            return None;
        }
        let mount = format!("mkdir \"$1/node-$id\"; mount -t tmpfs -o size={mib}m none \"$1/node-$id\"");
        let mount = format!("for id in 1 2 3; do {mount}; done; {START}");
        let dir = tempfile::tempdir().unwrap();
        let command = ["sh", "-ec", mount.as_str(), QUORATE];
        Some(Self::start_as(dir, Command::new("unshare").args(namespace).args(command), &[]))
    }

    fn start_as(dir: TempDir, command: &mut Command, options: &[&str]) -> Self {
        let log = std::fs::File::create(dir.path().join("dev.log")).unwrap();
        let process = command
            .arg(dir.path())
            .args(options)
            // It ends when the test ends for any reason: its standard input is a pipe that the test holds.
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut dev = Self { dir, process };
        wait_until("cluster.json", || {
            let ended = dev.process.try_wait().unwrap();
            assert!(ended.is_none(), "quorate dev ended: {ended:?}\n{}", dev.said());
            dev.dir.path().join("cluster.json").exists()
        });
        dev
    }

    /// Returns its output so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("dev.log")).unwrap_or_default()
    }

    /// Returns the output of a node so far.
    pub fn node_said(&self, id: u64) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("node-{id}.log"))).unwrap_or_default()
    }

    /// Returns a node's directory, as its process sees it.
    pub fn node_dir(&self, id: u64) -> PathBuf {
        let seen = self.dir.path().strip_prefix("/").unwrap();
        Path::new("/proc").join(self.pid(id).to_string()).join("root").join(seen).join(format!("node-{id}"))
    }

    /// Stops the cluster, adds lines to the configuration of all nodes, and starts it again.
    pub fn configured(self, lines: &str) -> Self {
        let ids: Vec<u64> = self.ids();
        let (_, dir) = self.end(Signal::INT);
        for id in ids {
            let path = dir.path().join(format!("node-{id}.toml"));
            let config = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, format!("{config}\n{lines}\n")).unwrap();
        }
        Self::start_in(dir, &[])
    }

    pub fn ids(&self) -> Vec<u64> {
        self.nodes().iter().map(|node| node["id"].as_u64().unwrap()).collect()
    }

    /// Returns the status of a member, once the cluster answers.
    pub fn member(&self, id: u64) -> Value {
        let status = self.status();
        let name = id.to_string();
        status["members"].as_array().unwrap().iter().find(|member| member["name"] == *name).cloned().unwrap_or_default()
    }

    /// Returns the nodes in `cluster.json`.
    pub fn nodes(&self) -> Vec<Value> {
        let text = std::fs::read(self.dir.path().join("cluster.json")).unwrap();
        serde_json::from_slice::<Value>(&text).unwrap()["nodes"].as_array().unwrap().clone()
    }

    pub fn addr(&self, id: u64) -> String {
        self.nodes()[usize::try_from(id).unwrap() - 1]["peer_addr"].as_str().unwrap().to_owned()
    }

    /// Returns the address of a node's port for the clients of Redis.
    pub fn resp_addr(&self, id: u64) -> String {
        self.nodes()[usize::try_from(id).unwrap() - 1]["resp_addr"].as_str().unwrap().to_owned()
    }

    pub fn pid(&self, id: u64) -> i32 {
        self.nodes()[usize::try_from(id).unwrap() - 1]["pid"].as_i64().unwrap().try_into().unwrap()
    }

    /// Runs `quorate sql` on any node.
    pub fn sql(&self, options: &[&str], query: &str) -> Output {
        quorate(&self.sql_options(&[options, &[query]].concat()))
    }

    /// Returns the arguments of `quorate sql` on any node.
    pub fn sql_options<'a>(&'a self, options: &[&'a str]) -> Vec<&'a str> {
        [&["sql", "--data-dir", self.path()], options].concat()
    }

    /// Runs `quorate sql` with a script on its standard input.
    pub fn script(&self, options: &[&str], script: &str) -> Output {
        quorate_reads(&self.sql_options(options), script)
    }

    /// Returns the last line of the result of a query as CSV, from the node `node` if one is given. A node that can't
    /// be reached is asked again.
    pub fn value(&self, node: Option<u64>, query: &str) -> String {
        let mut output = None;
        wait_until("an answer to a query", || {
            let addr = node.map(|id| self.addr(id));
            let pinned: Vec<&str> = addr.iter().flat_map(|addr| ["--node", addr.as_str()]).collect();
            let ran = self.sql(&[&["--format", "csv"], pinned.as_slice()].concat(), query);
            let is_answered = ran.status.code() != Some(3);
            output = Some(ran);
            is_answered
        });
        succeeded(&output.unwrap()).lines().last().unwrap_or_default().to_owned()
    }

    /// Returns the status of the cluster, once a node answers. A busy machine may take longer than the command waits.
    pub fn status(&self) -> Value {
        let mut status = None;
        wait_until("a status", || {
            let output = quorate(&["status", "--json", "--data-dir", self.path()]);
            status = output.status.success().then(|| json_of(&output));
            status.is_some()
        });
        status.unwrap()
    }

    /// Returns the last entry that a node has applied, once all have answered: one that has not may have applied more.
    pub fn applied(&self) -> u64 {
        let mut applied = None;
        wait_until("the status of each node", || {
            let status = self.status();
            let members = status["members"].as_array().unwrap().iter();
            applied = members.map(|member| member["applied"].as_u64()).collect::<Option<Vec<_>>>();
            applied.is_some()
        });
        applied.unwrap().into_iter().max().unwrap()
    }

    /// Verifies the nodes until all have answered in time, and returns what the last verification has printed.
    pub fn verified(&self) -> String {
        let mut said = String::new();
        wait_until("a verification of all nodes", || {
            let output = quorate(&["verify", "--data-dir", self.path()]);
            said = String::from_utf8(output.stdout).unwrap();
            assert!(!said.contains(" differs: "), "{said}");
            output.status.success()
        });
        said
    }

    /// Returns the id of the leader, once there is one.
    pub fn leader(&self) -> u64 {
        let mut leader = None;
        wait_until("a leader", || {
            leader = self.led_by();
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Returns the id of the leader, if there is one.
    pub fn led_by(&self) -> Option<u64> {
        self.status()["leader"].as_str()?.parse().ok()
    }

    pub fn kill(&self, id: u64) {
        signal(self.pid(id), Signal::KILL);
    }

    pub fn restart(&self, id: u64) -> Output {
        quorate(&["dev", "--restart", &id.to_string(), "--data-dir", self.path()])
    }

    /// Sends a signal to `quorate dev` and waits until it has ended. Returns its exit code and the directory.
    pub fn end(mut self, with: Signal) -> (Option<i32>, TempDir) {
        signal(self.process.id().try_into().unwrap(), with);
        let mut ended = None;
        wait_until("the end of quorate dev", || {
            ended = self.process.try_wait().unwrap();
            ended.is_some()
        });
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        (ended.unwrap().code(), dir)
    }

    pub fn path(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
        // The nodes end with the process.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the binary. The caller passes options such as `--data-dir`.
pub fn quorate(args: &[&str]) -> Output {
    quorate_in(Path::new("."), args)
}

/// The same, with a text on the standard input.
pub fn quorate_reads(args: &[&str], input: &str) -> Output {
    let command = &mut Command::new(QUORATE);
    let piped = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = piped.spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let input = input.to_owned();
    // The process may end before it has read all.
    let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = process.wait_with_output().unwrap();
    writing.join().unwrap();
    output
}

/// The same, in another working directory.
pub fn quorate_in(dir: &Path, args: &[&str]) -> Output {
    Command::new(QUORATE).args(args).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command until it says a text. A busy node may take longer to answer than the command waits.
pub fn until_said(text: &str, run: impl Fn() -> Output) -> Output {
    let mut said = None;
    wait_until(&format!("a command that says {text:?}"), || {
        let output = run();
        let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        said = Some(output);
        String::from_utf8_lossy(&both).contains(text)
    });
    said.unwrap()
}

/// Checks that a command succeeded, and returns its standard output.
pub fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the JSON that a program has printed which succeeded.
pub fn json_of(output: &Output) -> Value {
    serde_json::from_str(&succeeded(output)).unwrap()
}

/// Checks that a command failed with exit code 1, and returns its standard error.
pub fn failed(output: &Output) -> String {
    ended_with(1, output)
}

/// Checks that a command ended with this exit code, and returns its standard error.
pub fn ended_with(code: i32, output: &Output) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Queries a file with a SQLite other than Quorate's. Returns lines with `|` between values, or `None` if this machine
/// has no other SQLite.
pub fn plain_sqlite(file: &str, sql: &str) -> Option<String> {
    const PYTHON: &str = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1])
for s in sys.argv[2].split(';'):
    for row in c.execute(s): print('|'.join(str(v) for v in row))";
    let sqlite = Command::new("sqlite3").args([file, sql]).output();
    let found = sqlite.or_else(|_| Command::new("python3").args(["-c", PYTHON, file, sql]).output()).ok()?;
    Some(succeeded(&found))
}

pub fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Returns whether a process is running. A zombie, which has ended but was not waited for, does not count.
pub fn is_alive(pid: i32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}

/// Returns the processor time that a process has used, in hundredths of a second.
pub fn processor_time(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum()
}

pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_until_within(DEADLINE, what, holds);
}

/// The same for what may take longer.
pub fn wait_until_within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::park_timeout(POLL);
    }
}

/// Returns the installed Litestream of a version, or `None`, with a message, if it is not installed.
pub fn litestream(version: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = || std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let dir = std::env::var_os("QUORATE_LITESTREAM").map_or_else(|| target().join("litestream"), PathBuf::from);
    let dir = if version == "0.5" { dir } else { format!("{}-{version}", dir.display()).into() };
    let program = dir.join("bin/litestream");
    if program.exists() {
        return Some(program);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is missing: run .ci/litestream", program.display());
    eprintln!("skipped: Litestream {version} is not installed; .ci/litestream installs it");
    None
}
