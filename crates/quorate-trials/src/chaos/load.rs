//! The clients: their operations, and a record of the answers.
//!
//! Some clients follow the leader, each of the others uses one node: by SQL, or as a client of Redis. A client does one
//! operation after the other, of the kinds that [`quorate_history`] can check, with pauses that give the rate. A key is
//! in use for a while and then never again, so that the history of each key stays short.
//!
//! Invariants:
//! - All times come from one monotonic clock. An operation begins before it is sent and ends after it was answered.
//! - [`Error::Unknown`] is the only error after which a write may have been done; after any other error it must not be
//!   there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use quorate::{Error, FailureKind, Level, Sql};
use quorate_env::{Rng, lock};
use quorate_history::{self as history, Nanos, Op, Outcome};
use tokio::task::JoinSet;

use crate::harness::Result;

pub mod bank;
pub mod keys;
mod lists;
mod registers;
mod sets;

/// How long clients try before they give an operation up. Some values are so short that the outcome often stays
/// unknown.
const OPERATION_MAX: [Duration; 3] = [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(3)];
/// The same for operations that must succeed: creating the tables, and reading everything at the end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many unexplained errors are kept.
const SURPRISES_MAX: usize = 5;

/// The answers to all clients.
#[derive(Default)]
pub struct Record {
    pub registers: Vec<Op<history::register::Access>>,
    pub sets: Vec<Op<history::set::Access>>,
    pub bank: Vec<Op<history::bank::Access>>,
    pub lists: Vec<Op<history::append::Transaction>>,
    /// When each acknowledged write was acknowledged.
    pub acknowledged: Vec<Nanos>,
    /// Counts by kind of operation and outcome.
    pub counts: BTreeMap<(&'static str, Outcome), u64>,
    /// The longest time that an acknowledged operation took.
    pub longest: Duration,
    /// Errors that no fault explains.
    pub surprises: Vec<String>,
}

/// What all clients share.
#[derive(Clone)]
pub struct Ledger {
    start: Instant,
    record: Arc<Mutex<Record>>,
}

/// A client with its connection.
#[derive(Clone)]
pub struct Client {
    sql: Sql,
    level: Level,
    deadline: Duration,
    pub rng: Rng,
    pub ledger: Ledger,
}

/// An operation that has ended.
pub struct Ended<T> {
    pub begun: Nanos,
    pub ended: Nanos,
    pub outcome: Outcome,
    pub answer: Option<T>,
}

impl<T> Ended<T> {
    /// Returns the operation for a checker, with its request and answer.
    pub fn with<W>(&self, what: W) -> Op<W> {
        Op { begun: self.begun, ended: self.ended, outcome: self.outcome, what }
    }
}

impl Ledger {
    pub fn new() -> Self {
        Self { start: Instant::now(), record: Arc::default() }
    }

    pub fn now(&self) -> Nanos {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    pub fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }

    /// Counts an operation that has ended now.
    fn ended<T>(
        &self,
        kind: &'static str,
        writes: bool,
        begun: Nanos,
        outcome: Outcome,
        answer: Option<T>,
    ) -> Ended<T> {
        let ended = self.now();
        let mut record = self.record();
        *record.counts.entry((kind, outcome)).or_default() += 1;
        if outcome == Outcome::Done {
            record.longest = record.longest.max(Duration::from_nanos(ended - begun));
            record.acknowledged.extend(writes.then_some(ended));
        }
        Ended { begun, ended, outcome, answer }
    }

    /// Keeps an error that no fault explains.
    fn surprise(&self, error: String) {
        let mut record = self.record();
        if record.surprises.len() < SURPRISES_MAX {
            record.surprises.push(error);
        }
    }
}

impl Client {
    pub fn new(sql: Sql, level: Level, rng: Rng, ledger: &Ledger) -> Self {
        let at = usize::try_from(rng.below(OPERATION_MAX.len() as u64)).unwrap_or(0);
        Self { sql, level, deadline: OPERATION_MAX[at], rng, ledger: ledger.clone() }
    }

    /// Returns the handle for writes.
    pub fn write(&self) -> Sql {
        self.sql.with_deadline(self.deadline)
    }

    /// Returns the handle for reads.
    pub fn read(&self) -> Sql {
        self.sql.at(self.level).with_deadline(self.deadline)
    }

    /// Returns the handle for operations that must succeed, while there are no faults.
    pub fn patient(&self) -> Sql {
        self.sql.with_deadline(PATIENCE)
    }

    /// Waits for the outcome of an operation, and counts it.
    pub async fn run<T>(
        &self,
        kind: &'static str,
        writes: bool,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Ended<T> {
        let begun = self.ledger.now();
        let result = work.await;
        let outcome = match &result {
            Ok(_) => Outcome::Done,
            Err(Error::Unknown(_)) => Outcome::Unknown,
            Err(_) => Outcome::Failed,
        };
        if let Some(error) = result.as_ref().err().filter(|error| !is_expected(error)) {
            self.ledger.surprise(format!("{kind}: {error}"));
        }
        self.ledger.ended(kind, writes, begun, outcome, result.ok())
    }
}

/// Returns whether an error is expected: from a cluster under faults, or from an account without money. Any other error
/// means that a statement or the cluster is wrong.
fn is_expected(error: &Error) -> bool {
    let poor = |failure: &quorate::Failure| failure.kind == FailureKind::Constraint;
    error.is_retryable() || matches!(error, Error::Unknown(_) | Error::Store(_)) || error.failure().is_some_and(poor)
}

/// The kinds of operations, with the keys in use.
#[derive(Clone, Default)]
pub struct Work {
    registers: registers::Registers,
    sets: sets::Sets,
    bank: bank::Bank,
    lists: lists::Lists,
    keys: keys::Keys,
}

impl Work {
    /// Creates the tables.
    pub async fn prepare(&self, client: &Client, keys: &mut keys::Client) -> Result<()> {
        let tables = [registers::TABLES, sets::TABLES, bank::TABLES, lists::TABLES, keys::TABLES].concat();
        client.patient().batch(tables).await?;
        self.keys.prepare(keys).await?;
        self.bank.open(client).await
    }

    async fn step(&self, client: &Client) {
        match client.rng.below(100) {
            0..40 => self.registers.step(client).await,
            40..60 => self.sets.step(client).await,
            60..80 => self.bank.step(client).await,
            _ => self.lists.step(client).await,
        }
    }

    /// Reads everything.
    pub async fn finish(&self, client: &Client, keys: &mut keys::Client) -> Result<()> {
        self.registers.finish(client).await?;
        self.sets.finish(client).await?;
        self.bank.finish(client).await?;
        self.lists.finish(client).await?;
        self.keys.finish(keys, &client.patient()).await
    }
}

/// Converts a number for SQL; the numbers here stay small.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The keys in use: a window of a few keys, which moves on after a number of uses.
#[derive(Clone)]
pub struct Window(Arc<Mutex<(u64, u64)>>);

impl Default for Window {
    fn default() -> Self {
        Self(Arc::new(Mutex::new((0, 0))))
    }
}

impl Window {
    /// Returns the first key of the window, and counts `uses` more of it.
    pub fn first(&self, uses: u64, uses_max: u64, width: u64) -> u64 {
        let mut state = lock(&self.0);
        if state.1 >= uses_max {
            *state = (state.0 + width, 0);
        }
        state.1 += uses;
        state.0
    }
}

/// The running clients.
pub struct Load {
    stopping: Arc<Mutex<bool>>,
    clients: JoinSet<()>,
}

impl Load {
    /// Starts the clients, which together try `rate` operations a second.
    pub fn start(work: &Work, clients: Vec<Client>, of_keys: Vec<keys::Client>, rate: u64) -> Self {
        let count = u32::try_from(clients.len() + of_keys.len()).unwrap_or(1);
        let pause_max = Duration::from_secs(2) * count / u32::try_from(rate.max(1)).unwrap_or(u32::MAX);
        // This sleep only sets the rate.
        let pause = move |rng: &Rng| tokio::time::sleep(pause_max * u32::try_from(rng.below(1000)).unwrap_or(0) / 1000);
        let stopping = Arc::<Mutex<bool>>::default();
        let mut all = JoinSet::new();
        for client in clients {
            let (work, stopping) = (work.clone(), Arc::clone(&stopping));
            all.spawn(async move {
                while !*lock(&stopping) {
                    pause(&client.rng).await;
                    work.step(&client).await;
                }
            });
        }
        for mut client in of_keys {
            let (keys, stopping) = (work.keys.clone(), Arc::clone(&stopping));
            all.spawn(async move {
                while !*lock(&stopping) {
                    pause(&client.rng).await;
                    keys.step(&mut client).await;
                }
            });
        }
        Self { stopping, clients: all }
    }

    /// Stops the clients, each after its current operation.
    pub async fn stop(mut self) -> Result<()> {
        *lock(&self.stopping) = true;
        while let Some(ended) = self.clients.join_next().await {
            ended?;
        }
        Ok(())
    }
}
