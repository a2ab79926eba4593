//! The trial: there is one cluster after the other, each until all statements were sent or the cluster does not come
//! back. At the end of each, all rows of the writers and all nodes are compared.
//!
//! Invariant: what is sent depends only on the seed, or on the file that is replayed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quorate::{Client, ClientConfig, Sql};

use crate::harness::{Result, until};
use crate::verdict::Verdict;

pub mod books;
pub mod embedded;
pub mod fleet;
pub mod machine;
pub mod schema;
mod senders;
pub mod statements;
mod watch;
mod writers;

use books::Books;
use fleet::{Fleet, Limits, NODES, serves};
use senders::Sending;
use statements::{Corpus, Hostile};
use watch::{End, Watch};

/// How long a new cluster may take to serve.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long all nodes may take to verify their data.
const VERIFIED_MAX: Duration = Duration::from_secs(120);
/// How long the writers run before the nodes' address space is measured.
const WARM_UP: Duration = Duration::from_secs(3);
/// How many clusters may be lost before the trial gives up.
const LOST_MAX: u64 = 200;

/// The settings of a trial.
pub struct Settings {
    /// The range of statement numbers: from the first, below the second.
    pub from: u64,
    pub to: u64,
    pub senders: usize,
    /// How many connections may send a write at the same time.
    pub writes: usize,
    /// How many statements there are between two kills of all nodes; 0 for no kills.
    pub kill_every: u64,
    /// How many statements there are between two resets of the schema.
    pub reset_every: u64,
    pub limits: bool,
    /// The longest time that another write may wait.
    pub stall_max: Duration,
    /// Whether nodes can have small file systems for temporary files.
    pub temp: bool,
    pub program: PathBuf,
    pub dir: PathBuf,
}

/// The source of the statements.
pub enum Source {
    Corpus(Corpus),
    /// The statements of a file.
    Again(Vec<Hostile>),
}

impl Source {
    fn statement(&self, number: u64) -> Option<Hostile> {
        match self {
            Self::Corpus(corpus) => Some(corpus.statement(number)),
            Self::Again(list) => list.get(usize::try_from(number).ok()?).cloned(),
        }
    }
}

/// Runs the trial.
pub async fn run(settings: Settings, source: Source, books: Arc<Books>) -> Result<Verdict> {
    let settings = Arc::new(settings);
    let sending = Arc::new(Sending::new(Arc::clone(&settings), source));
    let mut limits = Limits { temp: settings.limits && settings.temp, address_space: None };
    let begun = Instant::now();
    for life in 0..=LOST_MAX {
        let dir = settings.dir.join(format!("cluster-{life}"));
        let mut fleet = Fleet::found(&settings.program, dir, limits).await?;
        let end = live(&mut fleet, &books, &sending).await;
        limits = fleet.limits();
        for number in 0..NODES {
            fleet.kill(number).await?;
        }
        if end? == End::Done {
            break;
        }
        fleet.remove().await?;
        println!("a new cluster, after {} statements and {} s", sending.taken(), begun.elapsed().as_secs());
        books.trouble_ends();
    }
    Ok(verdict(&books, settings.stall_max, begun.elapsed()))
}

/// Runs one cluster, from its start to its end.
async fn live(fleet: &mut Fleet, books: &Arc<Books>, sending: &Arc<Sending>) -> Result<End> {
    for number in 0..NODES {
        let config = fleet.pinned(number);
        until("a new cluster", READY_MAX, async || serves(config.clone()).await.then_some(())).await?;
    }
    let sql = Client::connect(fleet.config(0)).await?.sql();
    writers::prepare(&sql).await?;
    senders::reset(&sql).await;
    let mut writers = writers::start(fleet, books).await?;
    if sending.settings.limits {
        tokio::time::sleep(WARM_UP).await;
        if fleet.limits().address_space.is_none() {
            let needed = fleet.limit_address_space().await?;
            println!("a node needs {} MiB of address space and may take 256 MiB more", needed >> 20);
        }
    }
    let tasks = senders::start(fleet, books, sending);
    let kills = sending.taken() / sending.settings.kill_every.max(1);
    let mut watch = Watch { fleet, books, sending, kills, stall: None, back: None, due: [None; NODES] };
    let end = watch.watch(tasks).await?;
    writers.shutdown().await;
    if end == End::Done {
        match compare(&sql, fleet.config(0), books).await {
            Ok(text) => println!("{text}"),
            Err(error) => books.fails(&format!("at the end: {error}"), None),
        }
    }
    Ok(end)
}

/// Compares all rows and all nodes.
async fn compare(sql: &Sql, config: ClientConfig, books: &Books) -> Result<String> {
    let rows = writers::compare(sql, books).await?;
    let mut said = String::new();
    let verification =
        until("all nodes to verify their data", VERIFIED_MAX, async || match quorate::verify(config.clone()).await {
            Ok(verification) => {
                let silent = verification.nodes.iter().find_map(|node| node.tables.as_ref().err());
                said = silent.cloned().unwrap_or_default();
                silent.is_none().then_some(verification)
            }
            Err(error) => {
                said = error.to_string();
                None
            }
        });
    let verification = match verification.await {
        Ok(verification) => verification,
        Err(error) => return Err(format!("{error}: {said}").into()),
    };
    if !verification.is_sound() {
        return Err(format!("the nodes differ: {:?}", verification.differences()).into());
    }
    Ok(format!("{rows}; all nodes hold the same"))
}

/// Prints the answers and the reasons of failures, and returns the verdict.
fn verdict(books: &Books, stall_max: Duration, took: Duration) -> Verdict {
    let distinct = books.distinct();
    let mut inner = books.open();
    if inner.longest > stall_max {
        let text = format!("a write waited for {} ms", inner.longest.as_millis());
        inner.reasons.push(text);
    }
    for ((category, kind), count) in &inner.answers {
        println!("{category:?}: {kind} {count}");
    }
    for (text, (count, hostile)) in &inner.doubtful {
        println!("doubtful text, {count} times: {text}\n  for {hostile}");
    }
    for reason in &inner.reasons {
        println!("FAILED: {reason}");
    }
    println!(
        "{distinct} of {} statements distinct; all nodes killed {} times, {} clusters lost; {} s",
        inner.sent,
        inner.kills,
        inner.lost,
        took.as_secs()
    );
    println!("{}", books.machine.said());
    let (sent, ended, longest) = (inner.sent, inner.ended, inner.longest.as_millis());
    let text = format!("statements {sent}, nodes ended {ended}, longest stall {longest} ms");
    Verdict::new(text, inner.failed == 0 && inner.reasons.is_empty())
}
