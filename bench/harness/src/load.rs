//! The load: client tasks, each of which waits for the answer to a call before it makes the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::histogram::{Histogram, Summary};
use crate::system::{INSERT, INSERT_NAME, Level, Row, Stage, System, UPSERT};
use crate::{Error, Result};

/// Writes that take longer than this are recorded individually.
const SLOW: Duration = Duration::from_millis(50);
/// How many of them a client records.
const SLOW_MAX: usize = 10_000;
/// A load without a time limit ends after this.
const RUN_MAX: Duration = Duration::from_secs(600);
/// How long the last operations may take once a load ends.
pub(crate) const END_MAX: Duration = Duration::from_secs(60);
/// A load ends after this many failures.
const FAILURES_MAX: u64 = 100_000;
/// How long a client waits after a failure.
const AFTER_FAILURE: Duration = Duration::from_millis(1);
/// How long a load runs before the leader is killed, and after the first write that is acknowledged again.
pub(crate) const AROUND_KILL: Duration = Duration::from_millis(500);
/// How long no write may be acknowledged.
pub(crate) const FAILOVER_MAX: Duration = Duration::from_secs(120);

/// A load. If neither rows nor seconds limit it, it runs until the driver ends it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    /// The operation that clients repeat.
    pub work: Work,
    /// The number of clients.
    pub concurrency: u64,
    /// The number of rows written or read after which the load ends.
    pub rows: Option<u64>,
    /// The number of seconds after which the load ends.
    pub seconds: Option<f64>,
    /// The first key to insert.
    pub first_id: i64,
}

/// The operation that clients repeat.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Inserts a row.
    Insert,
    /// Inserts rows in one batch.
    Batch {
        /// The number of rows.
        rows: u64,
    },
    /// Selects a row with a key from 1 to `ids`, or inserts one.
    Mixed {
        /// The number of rows to select from.
        ids: u64,
        /// The percentage of operations that insert.
        writes: u64,
        /// The consistency level of the reads.
        level: Level,
    },
    /// Inserts a row that contains only a short name.
    Name,
    /// Inserts a row with a key from 1 to `ids`, or changes it.
    Upsert {
        /// The number of rows to choose from.
        ids: u64,
    },
}

/// The result of a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Loaded {
    /// The seconds from the start to the last answer.
    pub seconds: f64,
    /// The number of rows that were inserted and acknowledged.
    pub inserted: u64,
    /// The number of rows whose insert failed; they may be present or not.
    pub unsure: u64,
    /// The first key that was not used.
    pub next_id: i64,
    /// The times of acknowledged inserts or batches.
    pub writes: Summary,
    /// The times of selects.
    pub reads: Summary,
    /// The writes that took longer than 50 ms.
    pub slow_writes: Vec<Span>,
    /// The syncs of logs of this process that took longer than 50 ms, as far as the system reports them.
    pub long_syncs: Vec<Span>,
    /// The longest time that a client needed for a write, from the first call to the answer of the call that succeeded,
    /// in microseconds.
    pub wait_max_us: f64,
    /// The mean time of a write in each stage that the system measures itself, in microseconds.
    pub stages: Vec<(String, f64)>,
    /// The number of operations that failed, and the first error.
    pub failed: Option<(u64, String)>,
    /// Whether the load reached its limit or was ended by the driver.
    pub finished: bool,
}

/// The time of an operation that took too long, in seconds since the load began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Its beginning.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

impl Span {
    /// Whether both have a moment in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

impl Loaded {
    /// Returns the result, or an error if the load did not finish.
    pub(crate) fn whole(self) -> Result<Self> {
        match self.finished {
            true => Ok(self),
            false => Err(format!("the load did not finish: {} rows, {:?}", self.inserted, self.failed).into()),
        }
    }
}

/// The result of a failover.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recovered {
    /// From the kill to the first acknowledgement of an insert that began after it.
    pub gap_ms: f64,
    /// The result of the whole load.
    pub loaded: Loaded,
}

/// The state that the clients of a load share.
struct Shared {
    load: Load,
    begin: Instant,
    stop: AtomicBool,
    next_id: AtomicI64,
    rows_left: AtomicI64,
    failures: AtomicU64,
    /// The time of the kill, in nanoseconds from `begin`. The failover waits for an operation that begins later.
    killed: AtomicU64,
    /// When the first such operation was acknowledged.
    recovered: AtomicU64,
}

/// The counts and times of a client.
#[derive(Default)]
struct Tally {
    inserted: u64,
    unsure: u64,
    writes: Histogram,
    reads: Histogram,
    slow: Vec<Span>,
    wait_max: u64,
    failed: u64,
    failure: Option<String>,
}

/// Runs a load on a node of this process. A load without a limit ends when `ended` completes.
pub async fn run<S: System, T>(
    node: &Arc<S>,
    all_nodes: &[Arc<S>],
    load: Load,
    ended: impl Future<Output = T>,
) -> Result<Loaded> {
    let before = node.stages();
    let shared = Shared::new(load);
    let mut clients = start(node, &shared);
    // Returns whether the load ended as requested.
    let end = async {
        match (shared.load.seconds, shared.load.rows) {
            (Some(seconds), _) => {
                tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
                true
            }
            (None, Some(_)) => {
                tokio::time::sleep(RUN_MAX).await;
                false
            }
            (None, None) => tokio::time::timeout(RUN_MAX, ended).await.is_ok(),
        }
    };
    let mut tally = Tally::default();
    let finished = tokio::select! {
        all = all(&mut clients, &mut tally) => all.map(|()| true)?,
        finished = end => finished,
    };
    stop(&shared, &mut clients, &mut tally).await?;
    let stages = node.stages().into_iter().zip(before).map(|(after, before)| mean(before, after)).collect();
    let long_syncs = all_nodes.iter().flat_map(|node| node.long_syncs()).filter_map(|sync| shared.span(sync));
    Ok(Loaded { stages, long_syncs: long_syncs.collect(), ..shared.loaded(tally, finished) })
}

/// Returns the mean time of the writes that passed a stage between two measurements, in microseconds.
fn mean(before: Stage, after: Stage) -> (String, f64) {
    let writes = after.writes.saturating_sub(before.writes).max(1);
    (after.name.to_owned(), after.time.saturating_sub(before.time).as_secs_f64() * 1e6 / writes as f64)
}

/// Runs inserts, kills a process during them, and waits until inserts are acknowledged again.
pub async fn failover<S: System>(node: &Arc<S>, load: Load, pid: i32) -> Result<Recovered> {
    let pid = Pid::from_raw(pid).ok_or("not a process id")?;
    let shared = Shared::new(Load { rows: None, seconds: None, ..load });
    let mut clients = start(node, &shared);
    tokio::time::sleep(AROUND_KILL).await;
    let killed = shared.nanos();
    kill_process(pid, Signal::KILL)?;
    shared.killed.store(killed, Relaxed);
    let limit = Instant::now() + FAILOVER_MAX;
    while shared.recovered.load(Relaxed) == u64::MAX && Instant::now() < limit {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(AROUND_KILL).await;
    let recovered = shared.recovered.load(Relaxed);
    let mut tally = Tally::default();
    stop(&shared, &mut clients, &mut tally).await?;
    if recovered == u64::MAX {
        let failure = tally.failure.unwrap_or_else(|| "no call failed".to_owned());
        return Err(format!("no write was acknowledged within {FAILOVER_MAX:?} after the kill: {failure}").into());
    }
    let gap_ms = (recovered - killed) as f64 / 1e6;
    Ok(Recovered { gap_ms, loaded: shared.loaded(tally, true) })
}

fn start<S: System>(node: &Arc<S>, shared: &Arc<Shared>) -> JoinSet<Tally> {
    let client = |number| client(Arc::clone(node), Arc::clone(shared), number);
    (0..shared.load.concurrency).map(client).collect()
}

async fn all(clients: &mut JoinSet<Tally>, tally: &mut Tally) -> Result<()> {
    while let Some(ended) = clients.join_next().await {
        tally.add(ended?);
    }
    Ok(())
}

async fn stop(shared: &Shared, clients: &mut JoinSet<Tally>, tally: &mut Tally) -> Result<()> {
    shared.stop.store(true, Relaxed);
    let ended = tokio::time::timeout(END_MAX, all(clients, tally)).await;
    ended.map_err(|_| format!("did not finish: calls had no answer {END_MAX:?} after the end of the load"))?
}

async fn client<S: System>(node: Arc<S>, shared: Arc<Shared>, number: u64) -> Tally {
    let mut tally = Tally::default();
    // The sequence of SplitMix64, which differs between clients.
    let mut random = number;
    // When the client began to try the write that has not succeeded yet.
    let mut tries = None;
    while shared.goes_on() {
        // A read that is answered on the caller's thread never yields, so the client yields here to let the others run.
        tokio::task::coop::consume_budget().await;
        random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let drawn = mix(random);
        let begin = shared.nanos();
        let (rows, outcome) = match shared.load.work {
            Work::Mixed { ids, writes, level } if drawn % 100 >= writes => {
                let outcome = select(&*node, one_of(drawn, ids), level).await;
                tally.read(shared.nanos() - begin, outcome.is_ok());
                (0, outcome)
            }
            Work::Batch { rows } => (rows, insert_all(&*node, shared.take(rows), rows).await),
            Work::Insert | Work::Mixed { .. } => (1, node.insert(INSERT, Row::new(shared.take(1))).await),
            Work::Name => (1, node.execute(INSERT_NAME).await),
            Work::Upsert { ids } => (1, node.insert(UPSERT, Row::new(one_of(drawn, ids))).await),
        };
        match outcome {
            Ok(()) => {
                let nanos = shared.acknowledged(begin);
                tally.wrote(rows, begin, nanos);
                tally.wait_max = tally.wait_max.max(begin + nanos - tries.take().unwrap_or(begin));
            }
            Err(error) => {
                tries.get_or_insert(begin);
                tally.fail(rows, &error);
                shared.failures.fetch_add(1, Relaxed);
                tokio::time::sleep(AFTER_FAILURE).await;
            }
        }
    }
    tally
}

/// Returns a key from 1 to `ids`.
fn one_of(drawn: u64, ids: u64) -> i64 {
    (1 + (drawn >> 8) % ids.max(1)) as i64
}

async fn select<S: System>(node: &S, id: i64, level: Level) -> Result<()> {
    match node.select(id, level).await? {
        Some(row) if row.id == id && row.value == Row::value_of(id) => Ok(()),
        other => Err(format!("row {id} is not what was inserted: {other:?}").into()),
    }
}

async fn insert_all<S: System>(node: &S, first: i64, rows: u64) -> Result<()> {
    node.insert_all(INSERT, (first..).take(usize::try_from(rows)?).map(Row::new).collect()).await
}

fn mix(random: u64) -> u64 {
    let random = (random ^ (random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let random = (random ^ (random >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    random ^ (random >> 31)
}

impl Shared {
    fn new(load: Load) -> Arc<Self> {
        let rows = load.rows.and_then(|rows| i64::try_from(rows).ok()).unwrap_or(i64::MAX);
        Arc::new(Self {
            begin: Instant::now(),
            stop: AtomicBool::new(false),
            next_id: AtomicI64::new(load.first_id),
            rows_left: AtomicI64::new(rows),
            failures: AtomicU64::new(0),
            killed: AtomicU64::new(u64::MAX),
            recovered: AtomicU64::new(u64::MAX),
            load,
        })
    }

    /// Takes the next operation. Returns `false` if there is none.
    fn goes_on(&self) -> bool {
        let rows = if let Work::Batch { rows } = self.load.work { rows } else { 1 };
        !self.stop.load(Relaxed)
            && self.failures.load(Relaxed) < FAILURES_MAX
            && (self.load.rows.is_none() || self.rows_left.fetch_sub(rows as i64, Relaxed) > 0)
    }

    /// Reserves `rows` keys for the caller, and returns the first.
    fn take(&self, rows: u64) -> i64 {
        self.next_id.fetch_add(rows as i64, Relaxed)
    }

    fn nanos(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Records the acknowledgement of an operation. Returns how long it took.
    fn acknowledged(&self, begin: u64) -> u64 {
        let now = self.nanos();
        if begin >= self.killed.load(Relaxed) {
            self.recovered.fetch_min(now, Relaxed);
        }
        now - begin
    }

    /// Converts a time to seconds since the beginning, if it ended after the beginning.
    fn span(&self, (from, to): (Instant, Instant)) -> Option<Span> {
        let seconds = |at: Instant| at.saturating_duration_since(self.begin).as_secs_f64();
        (to > self.begin).then(|| Span { from: seconds(from), to: seconds(to) })
    }

    fn loaded(&self, tally: Tally, finished: bool) -> Loaded {
        Loaded {
            seconds: self.begin.elapsed().as_secs_f64(),
            inserted: tally.inserted,
            unsure: tally.unsure,
            next_id: self.next_id.load(Relaxed),
            writes: tally.writes.summary(),
            reads: tally.reads.summary(),
            slow_writes: tally.slow,
            long_syncs: Vec::new(),
            wait_max_us: tally.wait_max as f64 / 1e3,
            stages: Vec::new(),
            failed: tally.failure.map(|failure| (tally.failed, failure)),
            finished: finished && self.failures.load(Relaxed) < FAILURES_MAX,
        }
    }
}

impl Tally {
    fn read(&mut self, nanos: u64, answered: bool) {
        if answered {
            self.reads.record(Duration::from_nanos(nanos));
        }
    }

    /// Counts an acknowledged write. An operation without rows was a read and does not count.
    fn wrote(&mut self, rows: u64, begin: u64, nanos: u64) {
        if rows > 0 {
            if nanos as u128 > SLOW.as_nanos() && self.slow.len() < SLOW_MAX {
                self.slow.push(Span { from: begin as f64 / 1e9, to: (begin + nanos) as f64 / 1e9 });
            }
            self.inserted += rows;
            self.writes.record(Duration::from_nanos(nanos));
        }
    }

    fn fail(&mut self, rows: u64, error: &Error) {
        self.unsure += rows;
        self.failed += 1;
        self.failure.get_or_insert_with(|| error.to_string());
    }

    fn add(&mut self, other: Self) {
        self.inserted += other.inserted;
        self.unsure += other.unsure;
        self.writes.add(&other.writes);
        self.reads.add(&other.reads);
        self.slow.extend(other.slow);
        self.wait_max = self.wait_max.max(other.wait_max);
        self.failed += other.failed;
        self.failure = self.failure.take().or(other.failure);
    }
}
