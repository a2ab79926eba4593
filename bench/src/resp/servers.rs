//! The servers to be measured. They are stopped when they are dropped.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quorate_bench_harness::{Result, Usage};
use serde_json::Value;

use crate::wait;

/// How long a server may take until it answers.
const STARTED_MAX: Duration = Duration::from_secs(60);

/// The error of a server that does not.
const LATE: &str = "a server did not start";

/// A server and its processes.
pub struct Server {
    pub name: &'static str,
    pub host: String,
    pub port: u16,
    processes: Vec<u32>,
}

impl Server {
    /// Returns the resources that its processes have used.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of_all(self.processes.iter().copied().map(Ok))
    }
}

/// All servers.
pub struct Servers {
    servers: Vec<Server>,
    children: Vec<Child>,
}

impl Servers {
    /// Starts a cluster of `nodes` nodes.
    pub fn cluster(quorate: &Path, nodes: u16, dir: &Path) -> Result<Self> {
        let mut servers = Self { servers: Vec::new(), children: Vec::new() };
        servers.start_cluster(quorate, nodes, &dir.join("cluster"))?;
        Ok(servers)
    }

    /// Starts a cluster of three nodes, and Valkey twice.
    pub fn start(quorate: &Path, valkey: Option<&Path>, dir: &Path) -> Result<Self> {
        let mut servers = Self::cluster(quorate, 3, dir)?;
        for (name, fsync) in [("Valkey, always", "always"), ("Valkey, everysec", "everysec")] {
            if let Some(valkey) = valkey {
                servers.start_valkey(valkey, name, fsync, &dir.join(fsync))?;
            }
        }
        Ok(servers)
    }

    pub fn all(&self) -> &[Server] {
        &self.servers
    }

    /// Starts `quorate dev`. The server's port is that of the node that leads.
    fn start_cluster(&mut self, quorate: &Path, nodes: u16, dir: &Path) -> Result<()> {
        let mut command = Command::new(quorate);
        command.args(["dev", "--nodes", &nodes.to_string(), "--until-stdin-closes", "--data-dir"]).arg(dir);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        self.children.push(child);
        let output = self.children.last_mut().and_then(|child| child.stdout.take()).ok_or("no output")?;
        // The program prints what to type when the cluster can be used.
        BufReader::new(output).read_line(&mut String::new())?;
        let leader = wait::until(STARTED_MAX, LATE, || {
            let mut command = Command::new(quorate);
            let output = command.args(["dev", "--pid", "leader", "--data-dir"]).arg(dir).output()?;
            Ok(String::from_utf8(output.stdout)?.trim().parse::<u32>().ok())
        })?;
        let file: Value = serde_json::from_str(&fs::read_to_string(dir.join("cluster.json"))?)?;
        let nodes = file.get("nodes").and_then(Value::as_array).ok_or("cluster.json has no nodes")?;
        let pid = |node: &Value| node.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
        let leading = nodes.iter().find(|node| pid(node) == Some(leader)).ok_or("the leader is not in cluster.json")?;
        let address =
            leading.get("resp_addr").and_then(Value::as_str).ok_or("the node has no port for Redis' clients")?;
        let (host, port) = address.rsplit_once(':').ok_or("the address has no port")?;
        let processes = nodes.iter().filter_map(pid).collect();
        self.servers.push(Server { name: "Quorate", host: host.to_owned(), port: port.parse()?, processes });
        Ok(())
    }

    fn start_valkey(&mut self, valkey: &Path, name: &'static str, fsync: &str, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = Command::new(valkey);
        command.args([
            "--port",
            &port.to_string(),
            "--appendonly",
            "yes",
            "--appendfsync",
            fsync,
            "--save",
            "",
            "--dir",
        ]);
        let child = command.arg(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let processes = vec![child.id()];
        self.children.push(child);
        wait::until(STARTED_MAX, LATE, || Ok(pings(port).ok()))?;
        self.servers.push(Server { name, host: "127.0.0.1".into(), port, processes });
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // `quorate dev` stops its nodes when its input closes. Others are killed. Either may have ended otherwise.
            if child.stdin.take().is_none() {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}

fn pings(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; 5];
    stream.read_exact(&mut reply)?;
    if &reply == b"+PONG" { Ok(()) } else { Err("it does not answer PING".into()) }
}
