//! Reads, on the threads of their callers.
//!
//! [`Readers`] keeps a pool of read-only connections. A query first runs where it was asked for, for about a
//! millisecond:
//! a point query costs what SQLite costs, without a change of threads. What takes longer is interrupted and run again
//! on a thread for blocking work. [`Snapshot`] runs many reads in one transaction, [`RowStream`] returns results of any
//! size in pieces.
//!
//! # Invariants
//!
//! - Nothing written here can reach the database: connections are read-only, and the authorizer refuses what is not
//!   reading.
//! - Every read is bounded: in rows, bytes and time, in how long it waits for a reader, and in how long its transaction
//!   may keep the store from checkpointing.
//! - A reader belongs to one generation and closes before it. After a switch new reads use the new generation; what
//!   began
//!   before ends on the old one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use quorate_env::signal::Signal;
use quorate_env::{Env, Instant, lock, timeout_at};
use quorate_model::{Statement, StoreFault};

mod error;
mod guard;
mod held;
mod limits;
mod pool;
mod reader;
mod snapshot;
mod stream;
mod suspicion;

#[cfg(test)]
mod tests;

pub use error::ReadError;
pub use limits::{
    BYTES_DEFAULT, CACHE_BYTES_DEFAULT, CHUNK_BYTES, CHUNK_ROWS, Cancel, READERS_DEFAULT, ROWS_DEFAULT, ReadLimits,
    ReaderOptions, TRANSACTION_DEFAULT, WAIT_DEFAULT, value_bytes,
};
pub use snapshot::Snapshot;
pub use stream::RowStream;
pub use suspicion::ReadFaults;
pub(crate) use suspicion::Suspicions;

use crate::generation::{Generation, Generations};
use crate::query::Rows;
use crate::slow::SlowLog;
use guard::Allowance;
use held::Held;
use limits::{Age, CancelOnDrop};
use pool::{Lease, Pool, block_until};
use reader::StreamQuery;
use stream::Lasts;

/// Reads a store. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub struct Readers(Arc<Shared>);

struct Shared {
    generations: Arc<Generations>,
    pool: ArcSwap<Pool>,
    /// Held by who puts another pool in its place.
    switching: Mutex<()>,
    options: ReaderOptions,
    slow: SlowLog,
    suspicions: Arc<Suspicions>,
    /// Used when nothing is to be read any more.
    closing: Cancel,
}

impl Readers {
    /// Readers of a store. Connections are opened when they are needed.
    /// `doubts` is rung when a read found what may be the files' fault.
    pub(crate) fn new(generations: Arc<Generations>, options: ReaderOptions, slow: SlowLog, doubts: &Signal) -> Self {
        let (suspicions, closing) = (Arc::new(Suspicions::telling(doubts)), Cancel::new());
        let pool = Pool::new(generations.current(), &options, slow.clone(), &suspicions, &closing);
        let (pool, switching) = (ArcSwap::from_pointee(pool), Mutex::default());
        Self(Arc::new(Shared { generations, pool, switching, options, slow, suspicions, closing }))
    }

    /// What reads found wrong with the files of the database.
    pub(crate) fn suspicions(&self) -> &Suspicions {
        &self.0.suspicions
    }

    /// Notes a read of this generation that failed elsewhere, if its files may be to blame.
    pub(crate) fn suspect(&self, generation: &Generation, sql: String, error: rusqlite::Error) {
        let query = Statement { sql, ..Statement::default() };
        self.0.suspicions.note(generation, &error.into(), Some((&query, None)));
    }

    /// Takes a second look at a read that failed as if the files were damaged, if there is one to look at, and says
    /// what is wrong with them if that is certain. Blocks for some seconds at most.
    pub(crate) fn look_again(&self) -> Option<StoreFault> {
        self.0.suspicions.look(&self.0.generations.current(), &self.0.closing)
    }

    /// Lets go of an old generation at once. Without this the next read does it.
    pub fn switch(&self) {
        let _switching = lock(&self.0.switching);
        if self.0.pool.load().generation_number() == self.0.generations.number() {
            return;
        }
        let Shared { generations, options, slow, suspicions, closing, .. } = &*self.0;
        let next = Pool::new(generations.current(), options, slow.clone(), suspicions, closing);
        self.0.pool.swap(Arc::new(next)).retire();
    }

    /// Runs a query on the calling thread, unless no reader is free or it takes longer than about a millisecond: then
    /// `None`, and [`Readers::query_blocking`] is to be called.
    pub fn try_query_inline(&self, statement: &Statement, limits: &ReadLimits) -> Option<Result<Rows, ReadError>> {
        let pool = self.present();
        let mut lease = pool.try_lease()?;
        let allowance = Allowance { inline: true, ..self.allowance(limits) };
        lease.reader().and_then(|reader| reader.query(statement, None, limits, allowance)).transpose()
    }

    /// Runs a query on the calling thread, however long it takes within its limits; waits for a reader if none is free.
    pub fn query_blocking(&self, statement: &Statement, limits: &ReadLimits) -> Result<Rows, ReadError> {
        run(&mut self.lease_blocking()?, statement, limits, self.allowance(limits))
    }

    /// Runs a query: on the calling thread if it is short, else beside it.
    pub async fn query(&self, env: &Env, statement: &Statement, limits: &ReadLimits) -> Result<Rows, ReadError> {
        match self.try_query_inline(statement, limits) {
            Some(result) => result,
            None => self.query_aside(env, statement, limits).await,
        }
    }

    /// Runs a query beside the calling thread, which has other things to do. Dropped, it ends the query.
    pub async fn query_aside(&self, env: &Env, statement: &Statement, limits: &ReadLimits) -> Result<Rows, ReadError> {
        let mut lease = self.lease().await?;
        let gone = CancelOnDrop(Cancel::new());
        let mut allowance = self.allowance(limits);
        allowance.cancel[1] = Some(gone.0.clone());
        let (statement, limits) = (statement.clone(), limits.clone());
        let run = move || run(&mut lease, &statement, &limits, allowance);
        env.blocking(run).await.unwrap_or(Err(StoreFault::Closed.into()))
    }

    /// Fixes the present state for many reads, for at most `max_age`. Beyond the age that read transactions commonly
    /// may have, it lasts only until [`Readers::end_old`].
    pub async fn snapshot(&self, env: &Env, max_age: Duration) -> Result<Snapshot, ReadError> {
        let lease = self.lease().await?;
        if lease.is_open() {
            return self.snapshot_of(lease, max_age);
        }
        let readers = self.clone();
        env.blocking(move || readers.snapshot_of(lease, max_age)).await.unwrap_or(Err(StoreFault::Closed.into()))
    }

    /// [`Readers::snapshot`] on the calling thread, for the common age; waits for a reader if none is free.
    pub fn snapshot_blocking(&self) -> Result<Snapshot, ReadError> {
        self.snapshot_of(self.lease_blocking()?, self.0.options.transaction)
    }

    /// Runs a query whose result is taken piece by piece. The first piece, too, is made when it is asked for.
    pub async fn stream(&self, statement: Statement, limits: ReadLimits) -> Result<RowStream, ReadError> {
        Ok(self.stream_of(self.lease().await?, statement, limits))
    }

    /// [`Readers::stream`] on the calling thread; waits for a reader if none is free.
    pub fn stream_blocking(&self, statement: Statement, limits: ReadLimits) -> Result<RowStream, ReadError> {
        Ok(self.stream_of(self.lease_blocking()?, statement, limits))
    }

    /// Ends every read transaction and closes the connections, those in use when they are given back. Nothing can be
    /// read any more.
    pub fn close(&self) {
        self.0.closing.cancel();
        let pool = self.pool();
        pool.end_if(|_| true);
        pool.retire();
    }

    /// Ends every read transaction that has lasted as long as it may, also of snapshots and streams that nobody uses,
    /// and says how many. To be called now and then by who checkpoints.
    pub fn expire(&self) -> usize {
        let now = Instant::now();
        self.pool().end_if(|age| age.is_reached(now))
    }

    /// Ends every read transaction that has lasted as long as one commonly may, those that were given more time among
    /// them, and says how many.
    pub fn end_old(&self) -> usize {
        self.old_since().map_or(0, |time| self.end_begun_before(time))
    }

    /// Whether there is a snapshot older than read transactions commonly become.
    pub fn keeps_old(&self) -> bool {
        self.old_since().is_some_and(|time| self.pool().holds(|age| age.begun < time))
    }

    fn old_since(&self) -> Option<Instant> {
        Instant::now().checked_sub(self.0.options.transaction)
    }

    /// Ends every read transaction of the generation in force that began before `time`, where its beginning is known,
    /// and says how many: they fail with [`ReadError::SnapshotEnded`].
    pub fn end_begun_before(&self, time: Instant) -> usize {
        self.pool().end_if(|age| age.begun < time)
    }

    fn pool(&self) -> Arc<Pool> {
        Guard::into_inner(self.present())
    }

    /// The pool of the generation in force, for the moment: no thread writes what others read to get it, and nobody
    /// who puts another in its place waits for this one to be let go.
    fn present(&self) -> Guard<Arc<Pool>> {
        let pool = self.0.pool.load();
        if pool.generation_number() == self.0.generations.number() {
            return pool;
        }
        self.switch();
        self.0.pool.load()
    }

    fn allowance(&self, limits: &ReadLimits) -> Allowance {
        Allowance::new(limits, self.0.options.transaction)
    }

    async fn lease(&self) -> Result<Lease, ReadError> {
        let deadline = Instant::now() + self.0.options.wait;
        loop {
            let pool = self.pool();
            match timeout_at(deadline, pool.permits.acquire()).await {
                Ok(Ok(permit)) => {
                    permit.forget();
                    return Ok(Lease::permitted(Arc::clone(&pool)));
                }
                Ok(Err(_)) => self.go_on_after(&pool)?,
                Err(_) => return Err(ReadError::Busy),
            }
        }
    }

    fn lease_blocking(&self) -> Result<Lease, ReadError> {
        let deadline = Instant::now() + self.0.options.wait;
        loop {
            let pool = self.pool();
            match block_until(deadline, pool.permits.acquire()) {
                Some(Ok(permit)) => {
                    permit.forget();
                    return Ok(Lease::permitted(Arc::clone(&pool)));
                }
                Some(Err(_)) => self.go_on_after(&pool)?,
                None => return Err(ReadError::Busy),
            }
        }
    }

    /// After a pool was retired: fails unless there is another one.
    fn go_on_after(&self, retired: &Arc<Pool>) -> Result<(), ReadError> {
        if Arc::ptr_eq(&self.pool(), retired) { Err(StoreFault::Closed.into()) } else { Ok(()) }
    }

    fn snapshot_of(&self, mut lease: Lease, max_age: Duration) -> Result<Snapshot, ReadError> {
        let begun = Instant::now();
        let applied_index = lease.reader()?.begin()?;
        Ok(Snapshot::new(hold(begun, max_age, lease), applied_index))
    }

    fn stream_of(&self, lease: Lease, statement: Statement, limits: ReadLimits) -> RowStream {
        let held = hold(Instant::now(), self.0.options.transaction, lease);
        RowStream::new(held, StreamQuery { statement, stamp: None, limits }, Lasts::AsLong)
    }
}

fn hold(begun: Instant, max_age: Duration, lease: Lease) -> Arc<Held> {
    let pool = Arc::clone(lease.pool());
    let held = Arc::new(Held::new(Age { begun, max: max_age }, lease));
    pool.hold(Arc::downgrade(&held));
    held
}

fn run(lease: &mut Lease, statement: &Statement, limits: &ReadLimits, allowance: Allowance) -> Result<Rows, ReadError> {
    // Without a first try there is always an answer.
    lease.reader()?.query(statement, None, limits, allowance)?.ok_or(ReadError::Busy)
}
