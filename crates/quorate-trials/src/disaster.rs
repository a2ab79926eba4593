//! Destroys all machines of a cluster at full write speed, and restores it from its archive, again and again.
//!
//! Three nodes archive to a directory, with many writes in flight. All are killed by SIGKILL at the same moment, and
//! their directories are deleted. A new cluster is restored from the archive. What it lacks was acknowledged shortly
//! before the end: the program prints how long before, at most. Nothing that the archive had told may be missing.
//!
//! `cargo run --release -p quorate-trials -- disaster [--times 20] [--in-flight 64] [--seconds 5] [--size-mib 0]
//! [--dir DIR] [--quorate FILE]`

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Args;
use quorate::{Error, Sql};
use quorate_env::{Rng, lock};
use tokio::task::JoinSet;

use crate::harness::Result;
use crate::harness::cluster::{Cluster, Place};
use crate::harness::options::Options;
use crate::verdict::Verdict;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// The bytes of each row.
const ROW_BYTES: usize = 200;

/// Options of `quorate-trials disaster`.
#[derive(Args, Debug)]
pub struct DisasterArgs {
    /// How often the machines are destroyed
    #[arg(long, value_name = "N", default_value_t = 20)]
    times: u32,
    /// How many writes are in flight
    #[arg(long, value_name = "N", default_value_t = 64)]
    in_flight: u64,
    /// How long writes go on before the end: up to twice that
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    seconds: u64,
    /// The size of the database before the writes begin
    #[arg(long, value_name = "MIB", default_value_t = 0)]
    size_mib: u64,
    #[command(flatten)]
    options: Options,
}

/// When each write was acknowledged.
type Acknowledged = BTreeMap<(i64, i64), Instant>;

/// The losses of one disaster.
struct Loss {
    /// For how long the lost writes had been acknowledged, at most.
    age: Duration,
    writes: usize,
    /// How many entries are missing that the archive had told.
    archived: u64,
    /// From the beginning of the restore to the first answer.
    took: Duration,
}

/// Runs the trial.
pub async fn run(args: DisasterArgs) -> Result<Verdict> {
    let rng = Rng::from_os();
    let (mut age, mut archived) = (Duration::ZERO, 0);
    for number in 1..=args.times {
        let loss = destroy(&args, &rng).await?;
        println!(
            "{number}: {} writes lost, acknowledged up to {:.2} s before the end, {} of them archived; read again \
             {:.2} s after the restore began",
            loss.writes,
            loss.age.as_secs_f64(),
            loss.archived,
            loss.took.as_secs_f64()
        );
        age = age.max(loss.age);
        archived += loss.archived;
    }
    let (times, age) = (args.times, age.as_secs_f64());
    let text = format!("{times} disasters, archived writes lost {archived}, others lost at most {age:.2} s");
    Ok(Verdict::new(text, archived == 0))
}

/// Builds a cluster, destroys it, and restores it.
async fn destroy(args: &DisasterArgs, rng: &Rng) -> Result<Loss> {
    let place = args.options.scratch()?;
    let at = Place { dir: place.path().to_owned(), boundary: None };
    let cluster = Cluster::archiving(&args.options, at).await?;
    if args.size_mib > 0 {
        cluster.fill(args.size_mib).await?;
    }
    let sql = cluster.sql().await?;
    // Returns once everything before is archived too.
    let archived = sql.with_archived_writes().with_deadline(PATIENCE);
    archived.execute("CREATE TABLE load (writer INTEGER, number INTEGER, filler TEXT)", ()).await?;

    let writes = Arc::<Mutex<Acknowledged>>::default();
    let mut workers = JoinSet::new();
    for writer in 0..args.in_flight {
        workers.spawn(write(sql.clone(), i64::try_from(writer)?, Arc::clone(&writes)));
    }
    let millis = args.seconds.saturating_mul(1000);
    tokio::time::sleep(Duration::from_millis(millis + rng.below(millis.max(1)))).await;
    // What the archive says that it has must be there afterwards.
    let told = cluster.archived().await.unwrap_or(0);
    let end = cluster.destroy().await?;
    workers.shutdown().await;

    let begun = Instant::now();
    let (restored, last) = Cluster::restored(&args.options, place.path()).await?;
    let rows: Vec<(i64, i64)> = restored.sql().await?.query_as("SELECT writer, number FROM load", ()).await?;
    let took = begun.elapsed();
    let found: BTreeSet<_> = rows.into_iter().collect();
    let writes = lock(&writes);
    let lost: Vec<_> = writes.iter().filter(|(key, at)| **at <= end && !found.contains(*key)).collect();
    let age = lost.iter().map(|(_, at)| end.saturating_duration_since(**at)).max().unwrap_or_default();
    Ok(Loss { age, writes: lost.len(), archived: told.saturating_sub(last), took })
}

/// Inserts rows until the cluster is gone.
async fn write(sql: Sql, writer: i64, writes: Arc<Mutex<Acknowledged>>) {
    let filler = "x".repeat(ROW_BYTES);
    for number in 0_i64.. {
        match sql.execute("INSERT INTO load VALUES (?, ?, ?)", (writer, number, filler.as_str())).await {
            Ok(_) => drop(lock(&writes).insert((writer, number), Instant::now())),
            Err(Error::Unknown(_)) => {}
            Err(_) => return,
        }
    }
}
