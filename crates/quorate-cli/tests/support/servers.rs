//! Nodes that are started one by one, as an operator starts them: `quorate init`, then `quorate serve` for each.

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{QUORATE, quorate, signal, succeeded, wait_until};

/// The directories and processes of a cluster.
pub struct Servers {
    pub dir: TempDir,
    /// The token of the administrator.
    pub token: String,
    names: Vec<String>,
    processes: Vec<Option<Child>>,
}

impl Servers {
    /// Writes the configurations of nodes named `a`, `b`, ..., on free ports. Starts nothing.
    pub fn init(nodes: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = ('a'..).take(nodes).map(String::from).collect();
        let members: Vec<String> =
            names.iter().zip(free_ports(nodes)).map(|(n, p)| format!("{n}=127.0.0.1:{p}")).collect();
        let path = dir.path().to_str().unwrap();
        let said = succeeded(&quorate(&["init", path, "--members", &members.join(",")]));
        let token = said.lines().map(str::trim).find(|line| line.starts_with("quorate_")).unwrap().to_owned();
        let servers = Self { dir, token, processes: names.iter().map(|_| None).collect(), names };
        for (name, port) in servers.names.iter().zip(free_ports(nodes)) {
            servers.configure(name, "http.listen", &format!("\"127.0.0.1:{port}\""));
        }
        servers
    }

    /// Does the same, and starts all nodes.
    pub fn start(nodes: usize) -> Self {
        let mut servers = Self::init(nodes);
        servers.names.clone().iter().for_each(|name| servers.serve(name));
        servers
    }

    /// Returns the configuration file of a node.
    pub fn config(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.toml"))
    }

    /// Returns the address at which its peers reach a node.
    pub fn addr(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.config(name)).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name} = "))).unwrap();
        line.split('"').nth(1).unwrap().to_owned()
    }

    /// Waits until a node has applied all that was acknowledged before.
    pub fn has_caught_up(&self, name: &str) {
        let (config, addr) = (self.config(name), self.addr(name));
        let read = ["sql", "--config", config.to_str().unwrap(), "--node", &addr, "SELECT 1"];
        wait_until("a node that has caught up", || quorate(&read).status.success());
    }

    /// Sets a key in the configuration of a node, in the line that has it.
    pub fn configure(&self, name: &str, key: &str, value: &str) {
        let text = std::fs::read_to_string(self.config(name)).unwrap();
        let is_key = |line: &&str| line.trim_start_matches("# ").starts_with(&format!("{key} = "));
        assert_eq!(text.lines().filter(is_key).count(), 1, "{key}\n{text}");
        let lines =
            text.lines().map(|line| if is_key(&line) { format!("{key} = {value}\n") } else { format!("{line}\n") });
        std::fs::write(self.config(name), lines.collect::<String>()).unwrap();
    }

    /// Starts a node. Its output goes to a file.
    pub fn serve(&mut self, name: &str) {
        let log = File::options().append(true).create(true).open(self.log(name)).unwrap();
        let mut command = Command::new(QUORATE);
        // It ends when the test ends for any reason: its standard input is a pipe that the test holds.
        command.args(["serve", "--until-stdin-closes", "--config"]).arg(self.config(name)).stdin(Stdio::piped());
        let process = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let at = self.at(name);
        self.processes[at] = Some(process);
    }

    /// Returns the process id of a node that was started.
    pub fn pid(&self, name: &str) -> i32 {
        self.processes[self.at(name)].as_ref().unwrap().id().try_into().unwrap()
    }

    /// Sends a signal to a node and waits until it has ended.
    pub fn stop(&mut self, name: &str, with: Signal) -> ExitStatus {
        let at = self.at(name);
        let mut process = self.processes[at].take().unwrap();
        signal(process.id().try_into().unwrap(), with);
        let mut ended = None;
        wait_until("the end of a node", || {
            ended = process.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// Waits until a node fails by itself. Returns its output.
    pub fn failed(&mut self, name: &str) -> String {
        let at = self.at(name);
        let mut process = self.processes[at].take().unwrap();
        let mut ended = None;
        wait_until("the end of a node", || {
            ended = process.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), Some(1));
        self.said(name)
    }

    /// Returns the output of a node so far.
    pub fn said(&self, name: &str) -> String {
        std::fs::read_to_string(self.log(name)).unwrap_or_default()
    }

    /// Returns the last line of a result as CSV. Nodes that have just been started may take longer to let clients in
    /// than these wait.
    pub fn value(&self, query: &str) -> String {
        let config = self.config("a");
        let sql = |query: &str| quorate(&["sql", "--config", config.to_str().unwrap(), "--format", "csv", query]);
        wait_until("a node that lets clients in", || sql("SELECT 1").status.success());
        succeeded(&sql(query)).lines().last().unwrap_or_default().to_owned()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.log"))
    }

    fn at(&self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).unwrap()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for (name, process) in self.names.iter().zip(&mut self.processes) {
            if std::thread::panicking() {
                let said = std::fs::read_to_string(self.dir.path().join(format!("{name}.log")));
                eprintln!("{name} said:\n{}", said.unwrap_or_default());
            }
            if let Some(process) = process {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}

/// Returns ports on which no process listens, below the range that the system uses for outgoing connections, and above
/// that of `quorate dev`, which may start at the same time. No port is returned twice, so that a node that is down
/// keeps its port.
pub fn free_ports(count: usize) -> Vec<u16> {
    const PORTS: u32 = 6_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ports = std::iter::repeat_with(|| (std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS);
    let ports = ports.take(PORTS as usize).map(|step| 26_000 + u16::try_from(step).unwrap());
    ports.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).take(count).collect()
}
