//! Reads that failed as if the database's files were damaged or unreadable.
//!
//! A reader only records the failure. The checkpointer then repeats the read on a fresh connection with an empty cache,
//! which shows whether the files are the cause. Errors of temporary files, and a schema that SQLite can't parse, which
//! all nodes would share, do not condemn the database.
//!
//! Invariants: only the first suspicion is kept at a time. Rechecks are bounded in time and in number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_env::metrics::Counter;
use quorate_env::mutant::Mutant;
use quorate_env::signal::Signal;
use quorate_env::{Instant, lock};
use quorate_model::{Stamp, Statement, StoreFault};

use super::error::ReadError;
use super::guard::Allowance;
use super::limits::{Cancel, ReadLimits};
use super::reader::{Progress, Reader, StreamQuery};
use crate::cluster_time::ClusterTime;
use crate::generation::Generation;
use crate::slow::SlowLog;

/// The time limit of a recheck.
const RECHECK_MAX: Duration = Duration::from_secs(10);

/// The least time between two rechecks.
const RECHECK_EVERY: Duration = Duration::from_secs(1);

/// Bytes of the page cache of a recheck.
const CACHE_BYTES: u32 = 1 << 20;

/// SQLite's text for a schema that it can't parse. The error has the same code as a damaged file.
const SCHEMA: &str = "malformed database schema";

/// The suspicious failures of the readers of one store.
#[derive(Debug, Default)]
pub(crate) struct Suspicions {
    state: Mutex<State>,
    /// The count of failed reads of the files when it was last compared.
    failed_reads: AtomicU64,
    /// Woken when there is something to recheck.
    signal: Signal,
    counts: ReadFaults,
}

#[derive(Debug, Default)]
struct State {
    noted: Option<Suspicion>,
    rechecked: Option<Instant>,
}

/// Queries that failed because of the files of the database. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct ReadFaults {
    /// SQLite reported that the database is damaged.
    pub damaged: Arc<Counter>,
    /// The system could not read or write a file.
    pub io: Arc<Counter>,
}

/// A read that failed.
#[derive(Debug)]
struct Suspicion {
    generation: u64,
    /// `None` if opening the connection or taking the snapshot failed.
    query: Option<(Statement, Option<Stamp>)>,
}

impl Suspicions {
    /// Suspicions that wake `signal` when there is something to recheck.
    pub(super) fn with_signal(signal: &Signal) -> Self {
        Self { signal: signal.clone(), ..Self::default() }
    }

    pub(crate) fn counts(&self) -> ReadFaults {
        self.counts.clone()
    }

    /// Records the failure of a read of this generation, if its files may be the cause.
    pub(super) fn note(&self, generation: &Generation, error: &ReadError, query: Option<(&Statement, Option<Stamp>)>) {
        match error {
            ReadError::Fault(StoreFault::Damaged(_)) => self.counts.damaged.inc(),
            ReadError::Fault(StoreFault::Io(_)) => {
                self.counts.io.inc();
                let failed = generation.failed_reads();
                if self.failed_reads.swap(failed, Ordering::AcqRel) == failed {
                    return;
                }
            }
            _ => return,
        }
        if Mutant::ReadDamageIgnored.is_on() {
            return;
        }
        tracing::warn!(%error, "a read failed on the database's files; it is repeated to check them");
        let query = query.map(|(statement, stamp)| (statement.clone(), stamp));
        lock(&self.state).noted.get_or_insert(Suspicion { generation: generation.number(), query });
        self.signal.wake();
    }

    /// How long to wait before the next recheck; `None` if there is nothing to recheck.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let state = lock(&self.state);
        state.noted.as_ref()?;
        Some(state.rechecked.map_or(Duration::ZERO, |last| RECHECK_EVERY.saturating_sub(last.elapsed())))
    }

    /// Repeats the suspicious read, if a recheck is due. Returns a fault if the files are proved to be the cause.
    /// Blocks.
    pub(super) fn recheck(&self, generation: &Arc<Generation>, closing: &Cancel) -> Option<StoreFault> {
        if !self.due_in()?.is_zero() {
            return None;
        }
        let suspicion = lock(&self.state).noted.take()?;
        if suspicion.generation != generation.number() {
            return None;
        }
        let failed_reads = generation.failed_reads();
        let again = read_again(generation, suspicion, closing);
        lock(&self.state).rechecked = Some(Instant::now());
        match again {
            Err(ReadError::Fault(StoreFault::Damaged(what))) if !what.contains(SCHEMA) => {
                Some(StoreFault::Damaged(what))
            }
            Err(ReadError::Fault(StoreFault::Io(what))) if generation.failed_reads() != failed_reads => {
                Some(StoreFault::Io(what))
            }
            again => {
                let error = again.err().map(|error| error.to_string());
                tracing::warn!(error, "the repeated read does not show that the database's files are damaged");
                None
            }
        }
    }
}

/// Repeats the failed read on a new connection.
fn read_again(generation: &Arc<Generation>, suspicion: Suspicion, closing: &Cancel) -> Result<(), ReadError> {
    let suspicions = Arc::<Suspicions>::default();
    let (slow, time) = (SlowLog::new(Duration::ZERO), Arc::new(ClusterTime::new(0)));
    let mut reader = Reader::open(generation, CACHE_BYTES, slow, &suspicions, &time, closing)?;
    reader.begin()?;
    let Some((statement, stamp)) = suspicion.query else { return Ok(()) };
    let limits = ReadLimits { rows: usize::MAX, bytes: usize::MAX, timeout: RECHECK_MAX, cancel: None };
    let query = StreamQuery { statement, stamp, limits };
    let end = Instant::now() + RECHECK_MAX;
    let mut progress = Progress::default();
    while Instant::now() < end {
        let allowance = Allowance::new(&query.limits, RECHECK_MAX);
        let chunk = reader.next_chunk(&query, allowance, progress)?;
        if !chunk.more {
            return Ok(());
        }
        progress = chunk.progress;
    }
    Err(ReadError::Timeout(RECHECK_MAX))
}
