//! Runs unmodified clients of other languages on three servers with TLS and users: at the port of a server, at that of
//! a proxy, and at the proxy while each server is restarted and leaders are killed. Beside them, requests with
//! `Idempotency-Key` go through proxies that are killed too.
//!
//! No run of a client may fail. Of the requests with a key none may fail, be lost, or be done twice; a request is sent
//! again, with its key, if it gets no answer or one that says so.
//!
//! `.ci/clients` installs the clients; one that is not installed is left out, with a message.
//!
//! `cargo run --release -p quorate-trials -- clients [--kills 10] [--clients DIR] [--dir DIR] [--quorate FILE]`

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::Args;
use quorate::Sql;
use quorate::admin::Login;
use quorate::users::UserRole;
use tokio::process::{Child, Command};

use crate::harness::options::Options;
use crate::harness::servers::{Servers, free_addrs};
use crate::harness::{Result, until};
use crate::verdict::Verdict;
use keyed::Keyed;
use runs::{PASSWORD, RUNS, TABLES, Target};

mod keyed;
#[path = "../../quorate-http/tests/clients/runs.rs"]
mod runs;

/// How long a proxy may take to be ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// The time between two kills, in which the clients go on.
const PAUSE: Duration = Duration::from_secs(2);

/// Options of `quorate-trials clients`.
#[derive(Args, Debug)]
pub struct ClientsArgs {
    /// How many leaders are killed
    #[arg(long, value_name = "N", default_value_t = 10)]
    kills: u32,
    /// The directory in which `.ci/clients` has installed the clients
    #[arg(long, value_name = "DIR", default_value = "target/clients")]
    clients: PathBuf,
    #[command(flatten)]
    options: Options,
}

/// Runs the trial.
pub async fn run(args: ClientsArgs) -> Result<Verdict> {
    let ClientsArgs { kills, clients, options } = args;
    let mut servers = Servers::start_with_doors(&options).await?;
    let (client, program) = (servers.client().await?, options.program()?);
    let has_users = async || client.admin().users().await.ok().filter(|users| !users.is_empty());
    until("the first administrator", READY_MAX, has_users).await?;
    client.admin().add_user("app", UserRole::Write, Login::Password(PASSWORD.to_owned())).await?;
    let token = client.admin().add_token("app").await?.text().to_owned();
    let addrs = free_addrs(9)?.split_off(6);
    let dir = servers.dir().to_owned();
    let (cert, key) = (dir.join("b.crt"), dir.join("b.key"));
    let tls = ["--certificate".as_ref(), cert.as_path(), "--key".as_ref(), key.as_path()];
    let _secure = start_proxy(&program, &dir, &addrs[0], &tls)?;

    let (sql, mut tally) = (client.sql(), Tally::default());
    let scripts = Scripts {
        installed: std::path::absolute(clients)?,
        ca: dir.join("ca.crt"),
        token: token.clone(),
        sql: sql.clone(),
    };
    for (door, addr) in [("server b", servers.http("b")?.to_owned()), ("a proxy", addrs[0].clone())] {
        scripts.run_all(door, &addr, &mut tally).await?;
    }
    if tally.passed == 0 {
        return Err("no client is installed, or none works: run .ci/clients".into());
    }
    let keyed = Keyed::start(&sql, &token, &addrs[1..]).await?;
    let is_over = Cell::new(false);
    let faults = async {
        let done = trouble(&mut servers, &program, &addrs[1..], kills).await;
        is_over.set(true);
        done
    };
    let running = async {
        while !is_over.get() {
            scripts.run_all("a proxy, under kills", &addrs[0], &mut tally).await?;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    let (faults, running, written) = tokio::join!(faults, running, keyed.run(&is_over));
    // The proxies must live until the last request was answered.
    let _proxies = faults?;
    running?;
    let found = written?.check(&sql).await?;
    println!("{kills} leaders killed, each server restarted, {found}");
    let text = format!("clients {} passed, {} failed", tally.passed, tally.failed);
    Ok(Verdict::new(text, tally.failed == 0 && found.is_right()))
}

/// Restarts each server, then kills leaders, and, with each, a proxy. Returns the proxies, which end with their values.
async fn trouble(servers: &mut Servers, program: &Path, proxies: &[String], kills: u32) -> Result<Vec<Child>> {
    let dir = servers.dir().to_owned();
    let start = |addr: &String| start_proxy(program, &dir, addr, &[]);
    let mut running = proxies.iter().map(start).collect::<Result<Vec<_>>>()?;
    for name in servers.names() {
        servers.restart(&name).await?;
        println!("server {name} was restarted");
    }
    for number in 0..kills {
        tokio::time::sleep(PAUSE).await;
        let at = usize::try_from(number)? % proxies.len();
        running[at].kill().await?;
        let name = servers.kill_leader().await?;
        running[at] = start(&proxies[at])?;
        println!("server {name}, which led, was killed, and a proxy");
    }
    tokio::time::sleep(PAUSE).await;
    Ok(running)
}

fn start_proxy(program: &Path, dir: &Path, addr: &str, options: &[&Path]) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(["proxy", "--listen", addr, "--until-stdin-closes", "--config"]).arg(dir.join("a.toml"));
    command.args(options).stdin(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    Ok(command.spawn()?)
}

/// How many runs of clients have passed.
#[derive(Debug, Default)]
struct Tally {
    passed: u32,
    failed: u32,
}

/// The scripts of the clients.
struct Scripts {
    installed: PathBuf,
    ca: PathBuf,
    token: String,
    sql: Sql,
}

impl Scripts {
    /// Runs each client once.
    async fn run_all(&self, door: &str, addr: &str, tally: &mut Tally) -> Result<()> {
        until("the door", READY_MAX, async || tokio::net::TcpStream::connect(addr).await.ok()).await?;
        for run in RUNS {
            let target = Target { addr, ca: Some(&self.ca), token: Some(&self.token) };
            let Some(command) = run.command(&self.installed, target) else {
                println!("left out: {} is not installed", run.name);
                continue;
            };
            for table in TABLES {
                self.sql.execute(format!("DROP TABLE IF EXISTS {table}"), ()).await?;
            }
            let output = Command::from(command).kill_on_drop(true).output().await?;
            let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let has_passed = output.status.success() && out.trim_end() == "passed";
            let said = if has_passed { "passed".to_owned() } else { format!("FAILED: {}{}", out, err.trim()) };
            *(if has_passed { &mut tally.passed } else { &mut tally.failed }) += 1;
            println!("{} by {} at {door}: {said}", run.name, run.url(target));
        }
        Ok(())
    }
}
