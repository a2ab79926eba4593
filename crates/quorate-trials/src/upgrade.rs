//! Upgrades a cluster one server after the other while it is being written to, and tries to downgrade it.
//!
//! Three processes of `quorate serve` run a build that is one format level behind, and many writers insert rows. Each
//! server in turn is asked to stop and is started as the current build. No write may fail, and no row may be lost or
//! doubled. The cluster must use the old level until the last server is upgraded, and then raise it. After that, a
//! server that is started as the old build must refuse its data, say what to do, and damage nothing.
//!
//! The trial builds the older binary itself, from the same sources with the feature `lower-level`. So the two differ in
//! the format of entries only; `--old` names the binary of a real older version.
//!
//! `cargo run --release -p quorate-trials -- upgrade [--in-flight 64] [--old FILE] [--dir DIR] [--quorate FILE]`

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use quorate::limits::FORMAT_LEVEL;
use tokio::process::Command;

use crate::harness::load::{Load, Written};
use crate::harness::options::Options;
use crate::harness::servers::Servers;
use crate::harness::{Result, until};
use crate::verdict::Verdict;

/// How long the leader may take to raise the level after the last upgrade.
const RAISE_MAX: Duration = Duration::from_secs(30);
/// What a server of any older version says about data that it does not know.
const REFUSAL: &str = "knows levels up to";
/// Longer than the time in which a leader looks several times whether it can raise the level.
const LOOKS: Duration = Duration::from_secs(4);
/// How many writes are acknowledged between two steps, at least.
const WRITES_BETWEEN: u64 = 200;

/// Options of `quorate-trials upgrade`.
#[derive(Args, Debug)]
pub struct UpgradeArgs {
    /// How many writes are in flight
    #[arg(long, value_name = "N", default_value_t = 64)]
    in_flight: u64,
    /// The older binary to begin with [default: it is built with the feature lower-level]
    #[arg(long, value_name = "FILE")]
    old: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// Runs the trial.
pub async fn run(args: UpgradeArgs) -> Result<Verdict> {
    let UpgradeArgs { in_flight, old, options } = args;
    let new = options.program()?;
    let old = match old {
        Some(old) => old,
        None => build_old().await?,
    };
    let mut servers = Servers::start_as(&old, &options).await?;
    let sql = servers.client().await?.sql();
    let load = Load::start(&sql, in_flight).await?;
    for name in servers.names() {
        more_writes(&load).await?;
        stays_old(&servers, &name).await?;
        servers.restart_as(&name, &new).await?;
        println!("server {name} is upgraded, {} writes so far", load.acknowledged());
    }
    let raised = || async { level(&servers).await.ok().filter(|level| *level == FORMAT_LEVEL) };
    until("the format level to be raised", RAISE_MAX, raised).await?;
    more_writes(&load).await?;
    let written = load.stop().await?;
    let compared = written.compare(&sql).await?;
    let last = servers.names().pop().ok_or("no servers")?;
    println!("server {last} as the old build: {}", servers.refuses(&last, &old, REFUSAL).await?);
    // The server reads its own data, after it has applied all acknowledged writes.
    let there = servers.pinned(&last).await?.sql();
    if written.compare(&there).await? != compared {
        return Err("the refused downgrade changed the data".into());
    }
    let Written { acknowledged, unknown, .. } = written;
    // A write fails if its outcome is not known. Rows beyond the acknowledged ones belong to such writes.
    let doubled = compared.doubled + compared.rows.saturating_sub(compared.doubled + acknowledged + unknown);
    let text = format!(
        "upgraded 3 nodes under {acknowledged} writes: {unknown} failed, {} lost, {doubled} doubled",
        compared.lost
    );
    Ok(Verdict::new(text, unknown + compared.lost + doubled == 0))
}

/// Returns the format level that the cluster uses.
async fn level(servers: &Servers) -> Result<u32> {
    Ok(servers.client().await?.status().await?.format_level)
}

/// Checks that the level is not raised before server `next` is upgraded, although the leader has had time for it.
async fn stays_old(servers: &Servers, next: &str) -> Result<()> {
    tokio::time::sleep(LOOKS).await;
    let level = level(servers).await?;
    if level < FORMAT_LEVEL {
        Ok(())
    } else {
        Err(format!("the level is {level} before server {next} is upgraded").into())
    }
}

async fn more_writes(load: &Load) -> Result<()> {
    let enough = load.acknowledged() + WRITES_BETWEEN;
    until("more writes", RAISE_MAX, async || (load.acknowledged() >= enough).then_some(())).await
}

/// Builds the binary that is one format level behind, unless it is there and current.
async fn build_old() -> Result<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = workspace.join("target/lower-level");
    println!("building the older binary in {}", target.display());
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--locked", "-p", "quorate-cli", "--features", "lower-level", "--target-dir"]);
    let built = build.arg(&target).current_dir(workspace).status().await?;
    if !built.success() {
        return Err("the older binary can't be built; name one with --old".into());
    }
    Ok(target.join("release/quorate"))
}
