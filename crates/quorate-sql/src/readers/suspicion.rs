//! Reads that failed as if the database's files were damaged or could not be read.
//!
//! A reader only notes the failure. A second look, on a fresh connection with a cache of its own, says whether the
//! files are to blame; the checkpointer takes it. Errors of temporary files and a schema that SQLite can't parse, which
//! all nodes would share, do not condemn the database.
//!
//! Invariants: one suspicion is kept at a time, the first; looks are bounded in time and in number.

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
use crate::generation::Generation;
use crate::slow::SlowLog;

/// How long a second look may take.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// How much time passes between two looks at least.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Bytes of the page cache of a second look.
const CACHE_BYTES: u32 = 1 << 20;

/// What SQLite calls a schema that it can't parse; the error has the code of a damaged file.
const SCHEMA: &str = "malformed database schema";

/// What the readers of one store have met.
#[derive(Debug, Default)]
pub(crate) struct Suspicions {
    state: Mutex<State>,
    /// Failed reads of the files that are accounted for.
    failed_reads: AtomicU64,
    /// Woken when there is something to look at.
    signal: Signal,
    counts: ReadFaults,
}

#[derive(Debug, Default)]
struct State {
    noted: Option<Suspicion>,
    looked: Option<Instant>,
}

/// Queries that failed because of the files of the database. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct ReadFaults {
    /// SQLite said that the database is damaged.
    pub damaged: Arc<Counter>,
    /// The system could not read or write a file.
    pub io: Arc<Counter>,
}

/// A read that failed.
#[derive(Debug)]
struct Suspicion {
    generation: u64,
    /// `None` where the connection could not be opened, or the snapshot not be taken.
    query: Option<(Statement, Option<Stamp>)>,
}

impl Suspicions {
    /// Rings `signal` when there is something to look at.
    pub(super) fn telling(signal: &Signal) -> Self {
        Self { signal: signal.clone(), ..Self::default() }
    }

    pub(crate) fn counts(&self) -> ReadFaults {
        self.counts.clone()
    }

    /// Notes what a read of this generation failed with, if its files may be to blame.
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
        tracing::warn!(%error, "a read failed because of the database's files; they are looked at");
        let query = query.map(|(statement, stamp)| (statement.clone(), stamp));
        lock(&self.state).noted.get_or_insert(Suspicion { generation: generation.number(), query });
        self.signal.wake();
    }

    /// How long to wait before the next look; `None` where there is nothing to look at.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let state = lock(&self.state);
        state.noted.as_ref()?;
        Some(state.looked.map_or(Duration::ZERO, |looked| LOOK_EVERY.saturating_sub(looked.elapsed())))
    }

    /// Takes a second look, if one is due, and says what is wrong with the files if that is certain. Blocks.
    pub(super) fn look(&self, generation: &Arc<Generation>, closing: &Cancel) -> Option<StoreFault> {
        if !self.due_in()?.is_zero() {
            return None;
        }
        let suspicion = lock(&self.state).noted.take()?;
        if suspicion.generation != generation.number() {
            return None;
        }
        let failed_reads = generation.failed_reads();
        let again = read_again(generation, suspicion, closing);
        lock(&self.state).looked = Some(Instant::now());
        match again {
            Err(ReadError::Fault(StoreFault::Damaged(what))) if !what.contains(SCHEMA) => {
                Some(StoreFault::Damaged(what))
            }
            Err(ReadError::Fault(StoreFault::Io(what))) if generation.failed_reads() != failed_reads => {
                Some(StoreFault::Io(what))
            }
            again => {
                let error = again.err().map(|error| error.to_string());
                tracing::warn!(error, "a second look at what failed does not show that the files are damaged");
                None
            }
        }
    }
}

/// Does what failed once more, on a connection of its own.
fn read_again(generation: &Arc<Generation>, suspicion: Suspicion, closing: &Cancel) -> Result<(), ReadError> {
    let doubts = Arc::<Suspicions>::default();
    let mut reader = Reader::open(generation, CACHE_BYTES, SlowLog::new(Duration::ZERO), &doubts, closing)?;
    reader.begin()?;
    let Some((statement, stamp)) = suspicion.query else { return Ok(()) };
    let limits = ReadLimits { rows: usize::MAX, bytes: usize::MAX, timeout: LOOK_MAX, cancel: None };
    let query = StreamQuery { statement, stamp, limits };
    let end = Instant::now() + LOOK_MAX;
    let mut progress = Progress::default();
    while Instant::now() < end {
        let allowance = Allowance::new(&query.limits, LOOK_MAX);
        let chunk = reader.next_chunk(&query, allowance, progress)?;
        if !chunk.more {
            return Ok(());
        }
        progress = chunk.progress;
    }
    Err(ReadError::Timeout(LOOK_MAX))
}
