//! Measures how long a killed node takes to serve again.
//!
//! There are three nodes with a large database, and writes at full speed. When the victim's `-wal` is near the size at
//! which it is checkpointed, the victim is killed by SIGKILL and started again at once. The victim is the leader and a
//! follower in turn. The program prints the time from the start of the process to the first linearizable read that this
//! node answers.
//!
//! `cargo run --release -p quorate-trials -- restart-time [--size-mib 1024] [--kills 10] [--in-flight 64]
//! [--wal-mib 26] [--dir DIR] [--quorate FILE]`

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;

use crate::harness::cluster::{Cluster, Node};
use crate::harness::figures::{Times, ms};
use crate::harness::load::Load;
use crate::harness::options::Options;
use crate::harness::{Result, until};
use crate::verdict::Verdict;

/// How long to wait for a `-wal` of the wanted size.
const WAL_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a node may take before the measurement is given up.
const SERVE_MAX: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Options of `quorate-trials restart-time`.
#[derive(Args, Debug)]
pub struct RestartTimeArgs {
    /// The size of the database
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    size_mib: u64,
    /// How many times a node is killed
    #[arg(long, value_name = "N", default_value_t = 10)]
    kills: u64,
    /// How many writes are in flight
    #[arg(long, value_name = "N", default_value_t = 64)]
    in_flight: u64,
    /// The size that the `-wal` of a node must have before the node is killed
    #[arg(long, value_name = "MIB", default_value_t = 26)]
    wal_mib: u64,
    #[command(flatten)]
    options: Options,
}

/// Runs the trial.
pub async fn run(args: RestartTimeArgs) -> Result<Verdict> {
    let RestartTimeArgs { size_mib, kills, in_flight, wal_mib, options } = args;
    let mut cluster = Cluster::start(&options, &[]).await?;

    cluster.fill(size_mib).await?;
    let sql = cluster.sql().await?;
    let load = Load::start(&sql, in_flight).await?;
    let mut times = Times::default();
    for kill in 1..=kills {
        let leader = cluster.settled().await?;
        let leads = kill % 2 == 1;
        let victim = if leads { leader } else { follower(&cluster, leader.id)? };
        let wal = until("a large -wal", WAL_WAIT_MAX, async || {
            live_wal(&victim.data_dir).filter(|bytes| *bytes >= wal_mib * MIB)
        })
        .await?;
        cluster.kill(&victim)?;
        let time = restart(&cluster, &victim).await?;
        let role = if leads { "leader" } else { "follower" };
        println!("kill {kill:2}, node {} ({role}), -wal {} MiB: {}", victim.id, wal / MIB, ms(time));
        times.push(time);
    }
    let written = load.stop().await?;
    written.check(&sql).await?;
    let text = format!(
        "{kills} kills, database {size_mib} MiB, {in_flight} writes in flight, fsync: from the start of the process to \
         its first linearizable read p50 {}, max {}",
        ms(times.percentile(50)),
        ms(times.longest())
    );
    cluster.stop().await?;
    Ok(Verdict::new(text, true))
}

fn follower(cluster: &Cluster, leader: u64) -> Result<Node> {
    cluster.nodes()?.into_iter().find(|node| node.id != leader).ok_or_else(|| "there is no follower".into())
}

/// Starts the node again. Returns the time until it has answered a linearizable read.
async fn restart(cluster: &Cluster, victim: &Node) -> Result<Duration> {
    let start = Instant::now();
    let read = async {
        let answered = until("a linearizable read", SERVE_MAX, async || {
            let sql = cluster.sql_of(victim).await.ok()?.with_deadline(SERVE_MAX);
            sql.query("SELECT count(*) FROM sqlite_schema", ()).await.ok().map(|_| Instant::now())
        });
        answered.await
    };
    let ((), answered) = tokio::try_join!(cluster.restart(victim.id), read)?;
    Ok(answered - start)
}

/// Returns the bytes of a node's `-wal` that recovery has to read: the frames with the salt of its header.
fn live_wal(data_dir: &Path) -> Option<u64> {
    const HEADER: u64 = 32;
    const FRAME_HEADER: u64 = 24;
    let generation = std::fs::read_dir(data_dir.join("db")).ok()?.flatten().find(|item| item.path().is_dir())?;
    let wal = std::fs::read_dir(generation.path())
        .ok()?
        .flatten()
        .find(|item| item.file_name().to_string_lossy().ends_with("-wal"))?;
    let file = std::fs::File::open(wal.path()).ok()?;
    let mut header = [0; HEADER as usize];
    file.read_exact_at(&mut header, 0).ok()?;
    let page = u64::from(u32::from_be_bytes(header.get(8..12)?.try_into().ok()?));
    let frame = FRAME_HEADER + page;
    let is_live = |number: u64| {
        let mut salt = [0; 8];
        let read = file.read_exact_at(&mut salt, HEADER + number * frame + 8);
        read.is_ok() && header.get(16..24) == Some(salt.as_slice())
    };
    // Frames are written from the start, so the live ones come first.
    let (mut live, mut dead) = (0, file.metadata().ok()?.len().saturating_sub(HEADER) / frame);
    while live < dead {
        let middle = live + (dead - live) / 2;
        if is_live(middle) { live = middle + 1 } else { dead = middle }
    }
    Some(live * frame)
}
