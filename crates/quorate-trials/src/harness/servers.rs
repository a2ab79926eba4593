//! Three servers as an operator runs them: `quorate init`, then a process of `quorate serve` for each.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use quorate::{Ca, Client, ClientConfig, ClientTls, SecretSource};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::options::Options;
use super::{Result, until};

/// How long a server may take to be ready, or to stop.
const READY_MAX: Duration = Duration::from_secs(120);
/// How many entries a server that has caught up may lack while more are being written.
const LAG_MAX: u64 = 10_000;
/// The range of ports. It is below the range that the system uses for outgoing connections, and above that of `quorate
/// dev`, which may start at the same time.
const PORTS: std::ops::Range<u16> = 26_000..32_000;
/// The distance between the ports where processes with consecutive ids begin to search. A server binds its port only a
/// moment after the port was found free.
const PORTS_PER_PROCESS: u32 = 32;

/// Running servers.
pub struct Servers {
    dir: PathBuf,
    servers: Vec<Server>,
    /// Whether they use TLS, have users, and serve SQL over HTTP.
    has_doors: bool,
    /// Removed at the end.
    _scratch: tempfile::TempDir,
}

struct Server {
    name: String,
    addr: String,
    /// The address of its HTTP port, if it has one.
    http: Option<String>,
    /// What it runs.
    program: PathBuf,
    process: Child,
}

impl Servers {
    /// Starts three servers in a new directory: below `--dir`, or below the directory for temporary files.
    pub async fn start(options: &Options) -> Result<Self> {
        Self::start_as(&options.program()?, options).await
    }

    /// Starts three servers of this program.
    pub async fn start_as(program: &Path, options: &Options) -> Result<Self> {
        Self::found(program, options, false).await
    }

    /// Starts three servers with TLS and users, which serve SQL over HTTP.
    pub async fn start_with_doors(options: &Options) -> Result<Self> {
        Self::found(&options.program()?, options, true).await
    }

    async fn found(program: &Path, options: &Options, has_doors: bool) -> Result<Self> {
        let scratch = options.scratch()?;
        let dir = scratch.path().to_owned();
        super::figures::print_conditions(&dir)?;
        let mut addrs = free_addrs(6)?;
        let https = addrs.split_off(3);
        let members: Vec<(String, String)> = ["a", "b", "c"].map(str::to_owned).into_iter().zip(addrs).collect();
        init_as(program, &dir, &members, has_doors.then_some(&https)).await?;
        let start = |((name, addr), http): ((String, String), String)| {
            let process = serve(Command::new(program), &dir, &name)?;
            Ok(Server { name, addr, http: has_doors.then_some(http), program: program.to_owned(), process })
        };
        let servers = members.into_iter().zip(https).map(start).collect::<Result<_>>()?;
        let servers = Self { dir, servers, has_doors, _scratch: scratch };
        for server in &servers.servers {
            servers.caught_up(&server.addr).await?;
        }
        Ok(servers)
    }

    /// Returns a client of the whole cluster.
    pub async fn client(&self) -> Result<Client> {
        let addrs = self.servers.iter().map(|server| server.addr.clone());
        Ok(Client::connect(self.secured(ClientConfig::new(addrs, self.secret()))).await?)
    }

    /// Returns the directory with the configurations and the certificates.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the address of the HTTP port of a server.
    pub fn http(&self, name: &str) -> Result<&str> {
        let server = self.servers.iter().find(|server| server.name == name).ok_or("no such server")?;
        Ok(server.http.as_deref().ok_or("the server has no HTTP port")?)
    }

    /// Kills the leader, starts it again, and waits until it has caught up. Returns its name.
    pub async fn kill_leader(&mut self) -> Result<String> {
        let status = self.client().await?.status().await?;
        let name = status.leader().ok_or("there is no leader")?.name.clone();
        self.server(&name)?.process.kill().await?;
        self.run(&name).await?;
        Ok(name)
    }

    /// Returns a client of one server.
    pub async fn pinned(&self, name: &str) -> Result<Client> {
        let server = self.servers.iter().find(|server| server.name == name).ok_or("no such server")?;
        Ok(Client::connect(self.pinned_to(&server.addr)).await?)
    }

    /// Returns the names of all servers.
    pub fn names(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.name.clone()).collect()
    }

    /// Asks a server to stop, starts it again, and waits until it has caught up. Returns how long it took to stop, and
    /// whether it was the leader.
    pub async fn restart(&mut self, name: &str) -> Result<(Duration, bool)> {
        let leader = self.client().await?.status().await?.leader().map(|leader| leader.name.clone());
        let program = self.server(name)?.program.clone();
        let took = self.restart_as(name, &program).await?;
        Ok((took, leader.as_deref() == Some(name)))
    }

    /// Asks a server to stop, starts it again as this program, and waits until it has caught up. Returns how long it
    /// took to stop.
    pub async fn restart_as(&mut self, name: &str, program: &Path) -> Result<Duration> {
        let took = self.stop(name).await?;
        self.server(name)?.program = program.to_owned();
        self.run(name).await?;
        Ok(took)
    }

    /// Checks that a server that is started as this program ends, with a line on standard error that contains `why`.
    /// Returns that line. The server then runs again as before.
    pub async fn refuses(&mut self, name: &str, program: &Path, why: &str) -> Result<String> {
        self.stop(name).await?;
        let mut command = Command::new(program);
        command.args(["serve", "--until-stdin-closes", "--config"]).arg(self.dir.join(format!("{name}.toml")));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut started = piped.spawn()?;
        // Waiting for the output would close it, and so stop the server.
        let _stdin = started.stdin.take();
        let ended = tokio::time::timeout(READY_MAX, started.wait_with_output()).await??;
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        let line = said.lines().find(|line| line.contains(why)).map(str::to_owned);
        let line = line.filter(|_| !ended.status.success());
        let line = line.ok_or_else(|| format!("server {name} ended with {} and said: {said}", ended.status))?;
        self.run(name).await?;
        Ok(line)
    }

    /// Starts a server that has stopped, and waits until it has caught up.
    async fn run(&mut self, name: &str) -> Result<()> {
        let dir = self.dir.clone();
        let server = self.server(name)?;
        server.process = serve(Command::new(&server.program), &dir, name)?;
        let addr = server.addr.clone();
        self.caught_up(&addr).await
    }

    /// Asks a server to stop. Returns how long it took.
    async fn stop(&mut self, name: &str) -> Result<Duration> {
        let server = self.server(name)?;
        let begin = Instant::now();
        let pid = server.process.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).ok_or("it has ended")?;
        kill_process(pid, Signal::TERM)?;
        let ended = tokio::time::timeout(READY_MAX, server.process.wait()).await??;
        if !ended.success() {
            return Err(format!("server {name}: {ended}").into());
        }
        Ok(begin.elapsed())
    }

    fn server(&mut self, name: &str) -> Result<&mut Server> {
        self.servers.iter_mut().find(|server| server.name == name).ok_or_else(|| "no such server".into())
    }

    async fn caught_up(&self, addr: &str) -> Result<()> {
        let config = self.pinned_to(addr).with_deadline(Duration::from_secs(1));
        until("a server to catch up", READY_MAX, async || {
            let remote = Client::connect(config.clone()).await.ok()?;
            let own = remote.status().await.ok()?;
            let leader = own.leader()?.addr.clone();
            let there = Client::connect(self.pinned_to(&leader)).await.ok()?.status().await.ok()?;
            let lag = there.committed_index.saturating_sub(own.applied.index);
            (lag < LAG_MAX).then_some(())
        })
        .await
    }

    fn pinned_to(&self, addr: &str) -> ClientConfig {
        self.secured(ClientConfig::pinned(addr, self.secret()))
    }

    fn secured(&self, config: ClientConfig) -> ClientConfig {
        if self.has_doors { config.with_tls(ClientTls::new(Ca::File(self.dir.join("ca.crt")))) } else { config }
    }

    fn secret(&self) -> SecretSource {
        SecretSource::File(self.dir.join("secret"))
    }
}

/// Writes the configurations of members, given by name and address. Their connections are in the clear.
pub async fn init(program: &Path, dir: &Path, members: &[(String, String)]) -> Result<()> {
    init_as(program, dir, members, None).await
}

/// Writes the configurations of members. With addresses for HTTP they use TLS and serve SQL there.
async fn init_as(program: &Path, dir: &Path, members: &[(String, String)], https: Option<&Vec<String>>) -> Result<()> {
    let list: Vec<String> = members.iter().map(|(name, addr)| format!("{name}={addr}")).collect();
    let mut command = Command::new(program);
    command.arg("init").arg(dir).args(["--members", &list.join(",")]);
    if https.is_none() {
        command.arg("--no-tls");
    }
    let init = command.output().await?;
    if !init.status.success() {
        return Err(format!("quorate init: {}", String::from_utf8_lossy(&init.stderr)).into());
    }
    for (number, (name, _)) in members.iter().enumerate() {
        let file = dir.join(format!("{name}.toml"));
        // All servers would use the same HTTP port of this machine.
        let text = std::fs::read_to_string(&file)?.replace("\nhttp.listen", "\n# http.listen");
        let http = https.map(|https| format!("http.listen = \"{}\"\nhttp.sql = true\n", https[number]));
        let text = text.replace("\n# http.sql = false\n", "\n");
        std::fs::write(file, http.unwrap_or_default() + &text)?;
    }
    Ok(())
}

/// Starts a server by a command that ends with the program's name. Its output goes to a file.
pub fn serve(mut command: Command, dir: &Path, name: &str) -> Result<Child> {
    let log = File::options().append(true).create(true).open(dir.join(format!("{name}.log")))?;
    // It ends when this process ends for any reason: its standard input is a pipe that this process holds.
    command.args(["serve", "--until-stdin-closes", "--config"]).arg(dir.join(format!("{name}.toml")));
    command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
    Ok(command.kill_on_drop(true).spawn()?)
}

/// Returns addresses on which no process listens.
pub fn free_addrs(count: usize) -> Result<Vec<String>> {
    let first = std::process::id().wrapping_mul(PORTS_PER_PROCESS) % u32::from(PORTS.end - PORTS.start);
    let first = u16::try_from(first)?;
    let ports = (PORTS.start + first..PORTS.end).chain(PORTS);
    let mut held = Vec::new();
    let free = ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).map(|listener| held.push(listener)).is_ok());
    let addrs: Vec<String> = free.take(count).map(|port| format!("127.0.0.1:{port}")).collect();
    if addrs.len() == count { Ok(addrs) } else { Err("no free ports".into()) }
}
