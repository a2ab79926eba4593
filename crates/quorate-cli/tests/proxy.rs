//! `quorate proxy` and commands that log in, on a cluster of real processes with TLS and users.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests run real processes and stop at the first surprise"
)]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use support::servers::{Servers, free_ports};
use support::{QUORATE, ended_with, failed, quorate, succeeded, wait_until};

/// How long an answer may take: a new leader must be found.
const PATIENCE: Duration = Duration::from_secs(60);

/// A proxy process.
struct Proxy {
    process: Child,
    addr: String,
}

impl Proxy {
    fn start(options: &[&str]) -> Self {
        let addr = format!("127.0.0.1:{}", free_ports(1)[0]);
        let mut command = Command::new(QUORATE);
        command.args(["proxy", "--listen", &addr, "--until-stdin-closes"]).args(options).stdin(Stdio::piped());
        Self { process: command.stderr(Stdio::null()).spawn().unwrap(), addr }
    }

    /// Sends a request; returns the status and the body. The status is 0 if nothing is answered.
    fn ask(&self, method: &str, path: &str, login: &str, body: &str) -> (u16, String) {
        let login = if login.is_empty() { String::new() } else { format!("authorization: Bearer {login}\r\n") };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{login}");
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        let Ok(mut stream) = TcpStream::connect(&self.addr) else { return (0, String::new()) };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        (status, answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
    }

    fn is_ready(&self) -> bool {
        self.ask("GET", "/ready", "", "").0 == 200
    }

    /// Runs a statement by rqlite's API; returns its result.
    fn run(&self, login: &str, sql: &str) -> Value {
        let (status, body) = self.ask("POST", "/db/request", login, &json!([sql]).to_string());
        assert_eq!(status, 200, "{sql}: {body}");
        serde_json::from_str::<Value>(&body).unwrap()["results"][0].take()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn leader(servers: &Servers) -> String {
    let config = servers.config("a");
    let mut leader = None;
    wait_until("a leader", || {
        let status = quorate(&["status", "--config", config.to_str().unwrap(), "--json"]);
        let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        leader = status["leader"].as_str().map(str::to_owned);
        leader.is_some()
    });
    leader.unwrap()
}

#[test]
fn a_proxy_follows_the_leader_and_lets_in_users_only() {
    let mut servers = Servers::start(3);
    let proxy = Proxy::start(&["--config", servers.config("a").to_str().unwrap()]);
    wait_until("the proxy", || proxy.is_ready());
    let token = servers.token.clone();
    assert_eq!(proxy.ask("GET", "/health", "", ""), (200, "ok\n".to_owned()));
    wait_until("the first user", || proxy.ask("POST", "/db/request", "", "[]").0 == 401);
    assert_eq!(proxy.run(&token, "CREATE TABLE t (a INTEGER PRIMARY KEY)").get("error"), None);
    // A node that does not know the users yet refuses a login for now.
    for name in ["a", "b", "c"] {
        servers.has_caught_up(name);
    }

    // Each write that was answered is there once, although leaders die.
    let mut written = 0;
    for _ in 0..2 {
        let led = leader(&servers);
        servers.stop(&led, Signal::KILL);
        for _ in 0..5 {
            assert_eq!(proxy.run(&token, "INSERT INTO t DEFAULT VALUES")["rows_affected"], 1);
            written += 1;
        }
        servers.serve(&led);
        servers.has_caught_up(&led);
        assert_eq!(servers.value("SELECT count(*) FROM t"), written.to_string());
    }
    assert_eq!(proxy.run(&token, "SELECT count(*) FROM t")["values"][0][0], written);
    for name in ["a", "b", "c"] {
        servers.stop(name, Signal::KILL);
    }
    let (status, body) = proxy.ask("GET", "/ready", "", "");
    assert!(status == 503 && body.contains("\"ready\":false"), "{body}");
    assert_eq!(proxy.ask("GET", "/health", "", "").0, 200);
}

#[test]
fn commands_log_in_by_a_token_a_password_or_a_profile() {
    let mut servers = Servers::init(1);
    servers.serve("a");
    let dir = servers.dir.path();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let config = std::fs::read_to_string(servers.config("a")).unwrap();
    let node = config.lines().find(|line| line.starts_with("a = ")).unwrap().split('"').nth(1).unwrap();
    std::fs::write(dir.join("token"), &servers.token).unwrap();
    let (ca, token) = (path("ca.crt"), path("token"));
    let admin = ["--node", node, "--ca", &ca, "--token-file", &token];
    wait_until("the administrator", || quorate(&[&["users", "list"], &admin[..]].concat()).status.success());
    succeeded(&quorate(&[&["sql"], &admin[..], &["CREATE TABLE t (a)"]].concat()));
    let added = succeeded(&quorate(&[&["users", "add", "ann", "--role", "read", "--token"], &admin[..]].concat()));
    succeeded(&support::quorate_reads(&[&["users", "passwd", "ann"], &admin[..]].concat(), "correct horse\n"));

    let as_ann = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = Command::new(QUORATE);
        command.args(args).envs(variables.iter().copied()).stdin(Stdio::null()).output().unwrap()
    };
    let query = ["sql", "--node", node, "--ca", &ca, "--format", "csv", "SELECT count(*) AS n FROM t"];
    let by_token = [("QUORATE_TOKEN", added.trim())];
    assert_eq!(succeeded(&as_ann(&by_token, &query)).lines().last(), Some("0"));
    let by_password = [("QUORATE_USER", "ann"), ("QUORATE_PASSWORD", "correct horse")];
    assert_eq!(succeeded(&as_ann(&by_password, &query)).lines().last(), Some("0"));
    let write = ["sql", "--node", node, "--ca", &ca, "INSERT INTO t VALUES (1)"];
    let refused = ended_with(3, &as_ann(&by_token, &write));
    assert!(refused.contains("may only read"), "{refused}");
    let wrong = ended_with(3, &as_ann(&[("QUORATE_TOKEN", "quorate_0")], &query));
    assert!(wrong.contains("wrong name, password or token"), "{wrong}");
    let silent = ended_with(3, &as_ann(&[("QUORATE_USER", "ann")], &query));
    assert!(silent.contains("set QUORATE_PASSWORD"), "{silent}");

    std::fs::create_dir(dir.join("quorate")).unwrap();
    let profile = format!("[here]\nnodes = [\"{node}\"]\nca = \"../ca.crt\"\ntoken_file = \"../token\"\n");
    std::fs::write(dir.join("quorate/profiles.toml"), profile).unwrap();
    let home = [("XDG_CONFIG_HOME", dir.to_str().unwrap())];
    let listed = succeeded(&as_ann(&home, &["users", "list", "--profile", "here"]));
    assert!(listed.contains("ann"), "{listed}");
    let unknown = failed(&as_ann(&home, &["status", "--profile", "there"]));
    assert!(unknown.contains("there are: here"), "{unknown}");
}
