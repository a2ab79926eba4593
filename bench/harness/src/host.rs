//! A process with nodes in it. It starts the nodes, then handles the driver's requests.
//!
//! Invariant: it ends when its driver ends, for whatever reason, because its standard input is closed then.

use std::io::{BufRead as _, Write as _};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::load;
use crate::protocol::{ANSWER, Answer, HostSpec, Request};
use crate::system::{COUNT, DATABASE_BYTES, INSERT, INSERT_FILLER, Level, Row, System, TABLES};
use crate::{Result, machine::MIB};

/// How long to repeat a read that should succeed.
const WAIT_MAX: Duration = Duration::from_secs(50);
/// How long to wait before repeating it.
const WAIT_STEP: Duration = Duration::from_millis(1);
/// The rows of a batch that fills a table. A batch of filler has less than 1 MiB.
const FILL_ROWS: u64 = 1000;
const FILLER_ROWS: u64 = MIB / 4096 / 2;
/// How many of these batches run at the same time.
const FILLING: usize = 4;

/// The nodes of this process.
struct Host<S>(Vec<Arc<S>>);

/// Runs as a host until the driver ends.
pub fn run<S: System>(spec: &str) -> Result<()> {
    let spec: HostSpec = serde_json::from_str(spec)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve::<S>(spec))
}

async fn serve<S: System>(spec: HostSpec) -> Result<()> {
    let mut requests = requests();
    let started = tokio::select! {
        started = Host::<S>::start(spec) => started,
        // The driver sends no requests while a host starts, so the driver has ended.
        _ = requests.recv() => return Ok(()),
    };
    match started {
        Err(error) => answer(Err(error.to_string())),
        Ok(mut host) => {
            answer(Ok(Value::Null))?;
            while let Some(line) = requests.recv().await {
                // An empty line ends a load. If the load ended earlier by itself, the line is read here.
                if !line.is_empty() {
                    answer(host.handle(&line, &mut requests).await.map_err(|error| error.to_string()))?;
                }
            }
            Ok(())
        }
    }
}

/// Reads the lines of standard input. The process exits at its end; the nodes need not be stopped cleanly.
fn requests() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        lines.take_while(|line| sender.blocking_send(line.clone()).is_ok()).for_each(drop);
        std::process::exit(0);
    });
    receiver
}

fn answer(answer: Answer) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{ANSWER}{}", serde_json::to_string(&answer)?)?;
    Ok(out.flush()?)
}

impl<S: System> Host<S> {
    async fn start(spec: HostSpec) -> Result<Self> {
        let mut starts = JoinSet::new();
        for node in spec.nodes {
            starts.spawn(async move { (node.id, S::start(node).await) });
        }
        let mut nodes = Vec::new();
        while let Some(started) = starts.join_next().await {
            let (id, node) = started?;
            nodes.push((id, Arc::new(node?)));
        }
        nodes.sort_by_key(|(id, _)| *id);
        Ok(Self(nodes.into_iter().map(|(_, node)| node).collect()))
    }

    async fn handle(&mut self, line: &str, requests: &mut mpsc::Receiver<String>) -> Result<Value> {
        match serde_json::from_str(line)? {
            Request::Leads => value(self.leader().await.is_some()),
            Request::CreateTables => value(self.create_tables().await?),
            Request::Fill { rows, mib } => value(self.fill(rows, mib).await?),
            Request::Counts => value(self.counts().await?),
            Request::DatabaseBytes => {
                value(self.0.first().ok_or("this process has no node")?.number(DATABASE_BYTES).await?)
            }
            Request::Ready { id } => value(self.ready(id).await?),
            Request::Run(load) => value(load::run(self.writer().await?, &self.0, load, requests.recv()).await?),
            Request::Stop => value(self.stop().await?),
            Request::Failover { load, pid } => {
                let node = self.0.first().ok_or("this process has no node")?;
                value(load::failover(node, load, pid).await?)
            }
        }
    }

    async fn leader(&self) -> Option<&Arc<S>> {
        for node in &self.0 {
            if node.leads().await {
                return Some(node);
            }
        }
        None
    }

    /// Returns the leader if it is in this process, else any node.
    async fn writer(&self) -> Result<&Arc<S>> {
        Ok(self.leader().await.or(self.0.first()).ok_or("this process has no node")?)
    }

    async fn create_tables(&self) -> Result<()> {
        for sql in TABLES {
            self.writer().await?.execute(sql).await?;
        }
        Ok(())
    }

    async fn fill(&self, rows: u64, mib: u64) -> Result<()> {
        let node = self.writer().await?;
        let fillers = mib * MIB / 4096 / FILLER_ROWS * FILLER_ROWS;
        let rows = batches(rows, FILL_ROWS).map(|ids| (INSERT, ids, Row::new as fn(i64) -> Row));
        let fillers = batches(fillers, FILLER_ROWS).map(|ids| (INSERT_FILLER, ids, Row::filler as fn(i64) -> Row));
        let mut running = JoinSet::new();
        for (sql, ids, row) in rows.chain(fillers) {
            if running.len() == FILLING
                && let Some(filled) = running.join_next().await
            {
                filled??;
            }
            let node = Arc::clone(node);
            running.spawn(async move { node.insert_all(sql, ids.map(row).collect()).await });
        }
        while let Some(filled) = running.join_next().await {
            filled??;
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<()> {
        for node in self.0.drain(..) {
            Arc::into_inner(node).ok_or("a load is still running")?.stop().await?;
        }
        Ok(())
    }

    async fn counts(&self) -> Result<Vec<u64>> {
        let mut counts = Vec::new();
        for node in &self.0 {
            // A node that has just started may not have the table yet.
            counts.push(until("a count", async || node.number(COUNT).await).await?);
        }
        Ok(counts)
    }

    async fn ready(&self, id: i64) -> Result<()> {
        for node in &self.0 {
            for level in [Level::Linearizable, Level::Local] {
                until("a read", async || match node.select(id, level).await? {
                    Some(row) => Ok(row),
                    None => Err(format!("row {id} is not present in a read at {level:?}").into()),
                })
                .await?;
            }
        }
        Ok(())
    }
}

/// Returns the keys from 1 to `rows`, in batches.
fn batches(rows: u64, batch: u64) -> impl Iterator<Item = RangeInclusive<i64>> {
    let starts = (0..rows.div_ceil(batch)).map(move |number| number * batch + 1);
    starts.map(move |first| first as i64..=rows.min(first + batch - 1) as i64)
}

fn value(value: impl Serialize) -> Result<Value> {
    Ok(serde_json::to_value(value)?)
}

/// Repeats a call until it succeeds or the time limit is reached.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let limit = Instant::now() + WAIT_MAX;
    loop {
        match ask().await {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() > limit => {
                return Err(format!("waited {WAIT_MAX:?} in vain for {what}: {error}").into());
            }
            Err(_) => tokio::time::sleep(WAIT_STEP).await,
        }
    }
}
