//! Sends the same random commands to three nodes, each in turn, and to a real Valkey, and compares every reply.
//!
//! No reply may differ, but for the decisions that `docs/keys.md` lists. `.ci/stores` installs Valkey. With the same
//! `--seed` the commands are the same.
//!
//! `cargo run --release -p quorate-trials -- redis [--seconds 120] [--seed 1] [--valkey FILE] [--dir DIR]
//! [--quorate FILE]`

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use quorate_env::Rng;
use quorate_resp::differential::{Alike, Comparison, Generator, anew};
use tokio::process::{Child, Command};

use crate::harness::cluster::Cluster;
use crate::harness::options::Options;
use crate::harness::resp::{Connection, request};
use crate::harness::servers::free_addrs;
use crate::harness::{Result, until};
use crate::verdict::Verdict;

/// After so many requests the commands go to another node.
const NODE_AFTER: u64 = 2_000;
/// How long a server may take to start, and a cluster to reach its format level.
const READY_MAX: Duration = Duration::from_secs(60);
/// How much later one side may have done requests. Replies that tell a time may differ by twice this.
const APART_MAX: Duration = Duration::from_secs(1);

/// Options of `quorate-trials redis`.
#[derive(Args, Debug)]
pub struct RedisArgs {
    /// How long to send commands
    #[arg(long, value_name = "N", default_value_t = 120)]
    seconds: u64,
    /// What the commands are drawn from [default: at random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The program of Valkey, as `.ci/stores` installs it
    #[arg(long, value_name = "FILE", default_value = "target/stores/bin/valkey-server")]
    valkey: PathBuf,
    #[command(flatten)]
    options: Options,
}

/// Runs the trial.
pub async fn run(args: RedisArgs) -> Result<Verdict> {
    let RedisArgs { seconds, seed, valkey, options } = args;
    let seed = seed.unwrap_or_else(|| Rng::from_os().next_u64() >> 32);
    println!("seed {seed}");
    let (_valkey, redis) = start_valkey(&valkey).await?;
    let mut cluster = Cluster::start(&options, &[]).await?;
    let mut nodes = Vec::new();
    for node in cluster.nodes()? {
        nodes.push(Connection::to(&node.resp_addr).await?);
    }
    wait_for_level(&mut nodes[0]).await?;
    let mut sides = Sides { redis, nodes, at: 0, hello: "2", comparison: Comparison::default(), compared: 0 };
    let (mut generator, end) = (Generator::new(seed), Instant::now() + Duration::from_secs(seconds));
    let (mut sent, mut since) = (0, 0);
    sides.begin().await?;
    while Instant::now() < end {
        if sent >= since + NODE_AFTER {
            sides.go_on().await?;
            since = sent;
        }
        let pipeline = generator.pipeline(sides.hello);
        sent += u64::try_from(pipeline.len())?;
        if let Some(difference) = sides.compare(&pipeline).await? {
            println!("after {sent} commands of seed {seed}, in version {}: {difference}", sides.hello);
            return Ok(Verdict::new(format!("commands {sent}, differences 1"), false));
        }
    }
    cluster.stop().await?;
    let compared = sides.compared;
    Ok(Verdict::new(format!("commands {compared}, differences 0"), compared > 0))
}

/// Starts Valkey and connects to it.
async fn start_valkey(program: &PathBuf) -> Result<(Child, Connection)> {
    if !program.is_file() {
        let missing = program.display();
        return Err(format!("there is no {missing}: run .ci/stores, or name the program with --valkey").into());
    }
    let addr = free_addrs(1)?.remove(0);
    let port = addr.rsplit(':').next().unwrap_or_default();
    let mut command = Command::new(program);
    command.args(["--port", port, "--save", "", "--bind", "127.0.0.1", "--dir", "/tmp"]);
    let process = command.stdout(Stdio::null()).kill_on_drop(true).spawn()?;
    let connected = until("Valkey", READY_MAX, async || Connection::to(&addr).await.ok()).await?;
    Ok((process, connected))
}

/// Waits until transactions can depend on keys: the last thing that follows the founding of a cluster.
async fn wait_for_level(node: &mut Connection) -> Result<()> {
    let guarded = ["watch level", "multi", "ping", "exec"].map(request);
    let reached = async || {
        let replies = node.ask(&guarded).await.ok()?;
        replies.last().filter(|reply| !reply.is_error()).map(drop)
    };
    until("the format level", READY_MAX, reached).await
}

/// Both sides, with the same keys.
struct Sides {
    redis: Connection,
    nodes: Vec<Connection>,
    /// The node that is asked.
    at: usize,
    /// The version of the protocol.
    hello: &'static str,
    comparison: Comparison,
    /// How many requests were compared.
    compared: u64,
}

impl Sides {
    /// Begins anew, without keys.
    async fn begin(&mut self) -> Result<()> {
        let anew = anew(self.hello);
        self.redis.ask(&anew).await?;
        self.nodes[self.at].ask(&anew).await?;
        self.comparison = Comparison::default();
        Ok(())
    }

    /// Begins anew at the next node, and in the other version of the protocol.
    async fn go_on(&mut self) -> Result<()> {
        self.at = (self.at + 1) % self.nodes.len();
        self.hello = if self.hello == "2" { "3" } else { "2" };
        self.begin().await
    }

    /// Sends requests to both sides. Returns how they differ, if they do. If the sides have done them at different
    /// times, both begin anew: what expires would differ from then on.
    async fn compare(&mut self, requests: &[Vec<Bytes>]) -> Result<Option<String>> {
        let begun = Instant::now();
        let redis = self.redis.ask(requests).await?;
        let ours = self.nodes[self.at].ask(requests).await?;
        if begun.elapsed() > APART_MAX {
            self.begin().await?;
            return Ok(None);
        }
        self.compared += u64::try_from(requests.len())?;
        for (request, (redis, ours)) in requests.iter().zip(redis.iter().zip(&ours)) {
            match self.comparison.check(request, redis, ours) {
                Ok(Alike::Same) => {}
                Ok(Alike::Apart) => {
                    self.begin().await?;
                    break;
                }
                Err(difference) => return Ok(Some(difference.to_string())),
            }
        }
        Ok(None)
    }
}
