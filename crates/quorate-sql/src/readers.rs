//! Reads on the threads of their callers.
//!
//! [`Readers`] keeps a pool of read-only connections. A query first runs on the calling thread for about a millisecond,
//! so a point query costs what SQLite costs, without a change of threads. A query that takes longer is interrupted and
//! run again on a thread for blocking work. [`Snapshot`] runs many reads in one transaction. [`RowStream`] returns
//! results of any size in pieces.
//!
//! # Invariants
//!
//! - Reads can't change the database: connections are read-only, and the authorizer refuses everything but reading.
//! - Every read is bounded: in rows, bytes and time, in how long it waits for a reader, and in how long its transaction
//!   may keep the store from checkpointing.
//! - A reader belongs to one generation and closes before it. After a switch, new reads use the new generation, and
//!   running ones end on the old one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use quorate_env::signal::Signal;
use quorate_env::{Env, Instant, lock, timeout_at};
use quorate_model::events::{EventsAnswer, EventsQuery};
use quorate_model::keys::{KeysReply, SpaceCommand};
use quorate_model::locks::{LocksCommand, LocksReply};
use quorate_model::{Failure, Statement, StoreFault};

mod error;
mod guard;
mod held;
mod limits;
mod pool;
mod reader;
mod snapshot;
mod stamped;
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

use crate::cluster_time::ClusterTime;
use crate::generation::{Generation, Generations};
use crate::metrics::Counts;
use crate::query::Rows;
use crate::slow::SlowLog;
use guard::Allowance;
use held::Held;
use limits::{Age, CancelOnDrop};
use pool::{Lease, Pool, block_until};
use reader::{Reader, StreamQuery};
use stream::Transaction;

/// Reads a store. Cheap to clone; all clones share their connections.
#[derive(Clone)]
pub struct Readers(Arc<Shared>);

struct Shared {
    generations: Arc<Generations>,
    pool: ArcSwap<Pool>,
    /// Held while another pool is put in place.
    switching: Mutex<()>,
    options: ReaderOptions,
    slow: SlowLog,
    suspicions: Arc<Suspicions>,
    time: Arc<ClusterTime>,
    /// Cancelled when the readers are closed.
    closing: Cancel,
}

impl Readers {
    /// Readers of a store. Connections are opened when they are needed. `signal` is woken when a failed read raises a
    /// suspicion about the files.
    pub(crate) fn new(
        generations: Arc<Generations>,
        options: ReaderOptions,
        slow: SlowLog,
        time: Arc<ClusterTime>,
        signal: &Signal,
    ) -> Self {
        let (suspicions, closing) = (Arc::new(Suspicions::with_signal(signal)), Cancel::new());
        let pool = Pool::new(generations.current(), &options, slow.clone(), &suspicions, &time, &closing);
        let (pool, switching) = (ArcSwap::from_pointee(pool), Mutex::default());
        Self(Arc::new(Shared { generations, pool, switching, options, slow, suspicions, time, closing }))
    }

    /// Failed reads for which the files of the database may be the cause.
    pub(crate) fn suspicions(&self) -> &Suspicions {
        &self.0.suspicions
    }

    /// Records a read of this generation that failed elsewhere, if its files may be the cause.
    pub(crate) fn suspect(&self, generation: &Generation, sql: String, error: rusqlite::Error) {
        let query = Statement { sql: sql.into(), ..Statement::default() };
        self.0.suspicions.note(generation, &error.into(), Some((&query, None)));
    }

    /// Repeats a read that failed as if the files were damaged, if there is one. Returns a fault if the repetition
    /// proves that the files are the cause. Blocks for some seconds at most.
    pub(crate) fn recheck(&self) -> Option<StoreFault> {
        self.0.suspicions.recheck(&self.0.generations.current(), &self.0.closing)
    }

    /// Releases an old generation at once. Otherwise the next read releases it.
    pub fn switch(&self) {
        let _switching = lock(&self.0.switching);
        if self.0.pool.load().generation_number() == self.0.generations.number() {
            return;
        }
        let Shared { generations, options, slow, suspicions, time, closing, .. } = &*self.0;
        let next = Pool::new(generations.current(), options, slow.clone(), suspicions, time, closing);
        self.0.pool.swap(Arc::new(next)).retire();
    }

    /// Runs a query on the calling thread. Returns `None` if no reader is free, or if the query takes longer than about
    /// a millisecond; the caller then calls [`Readers::query_blocking`].
    pub fn try_query_inline(&self, statement: &Statement, limits: &ReadLimits) -> Option<Result<Rows, ReadError>> {
        self.try_inline(limits, |reader, allowance| reader.query(statement, None, limits, allowance))
    }

    /// Runs a query on the calling thread within its limits. Waits for a reader if none is free.
    pub fn query_blocking(&self, statement: &Statement, limits: &ReadLimits) -> Result<Rows, ReadError> {
        let rows = self.lease_blocking()?.reader()?.query(statement, None, limits, self.allowance(limits))?;
        // `None` is only returned for a first try.
        rows.ok_or(ReadError::Busy)
    }

    /// Runs a query: on the calling thread if it is short, otherwise on a thread for blocking work.
    pub async fn query(&self, env: &Env, statement: &Statement, limits: &ReadLimits) -> Result<Rows, ReadError> {
        match self.try_query_inline(statement, limits) {
            Some(result) => result,
            None => self.query_aside(env, statement, limits).await,
        }
    }

    /// Runs a query on a thread for blocking work. Dropping the future ends the query.
    pub async fn query_aside(&self, env: &Env, statement: &Statement, limits: &ReadLimits) -> Result<Rows, ReadError> {
        let (statement, kept) = (statement.clone(), limits.clone());
        self.aside(env, limits, move |reader, allowance| reader.query(&statement, None, &kept, allowance)).await
    }

    /// Runs commands on keys that only read, on one state and at the time of the cluster: on the calling thread if
    /// that is short, otherwise on a thread for blocking work. Dropping the future ends it. There are fewer answers
    /// than commands if the last one brings the bytes of all answers to `bytes_max`.
    pub async fn keys(
        &self,
        env: &Env,
        commands: &[SpaceCommand],
        bytes_max: usize,
        limits: &ReadLimits,
    ) -> Result<Vec<Result<KeysReply, Failure>>, ReadError> {
        let read = |reader: &mut Reader, allowance| reader.keys(commands, bytes_max, allowance);
        if let Some(answers) = self.try_inline(limits, read) {
            return answers;
        }
        let commands = commands.to_vec();
        self.aside(env, limits, move |reader, allowance| reader.keys(&commands, bytes_max, allowance)).await
    }

    /// Runs a command on locks that only reads; as [`Readers::keys`].
    pub async fn locks(&self, env: &Env, command: &LocksCommand, limits: &ReadLimits) -> Result<LocksReply, ReadError> {
        if let Some(reply) = self.try_inline(limits, |reader, allowance| reader.locks(command, allowance)) {
            return reply;
        }
        let command = command.clone();
        self.aside(env, limits, move |reader, allowance| reader.locks(&command, allowance)).await
    }

    /// Answers a query for events, whose limits were checked: on the calling thread if it is short, otherwise on a
    /// thread for blocking work. Dropping the future ends it.
    pub async fn events(&self, env: &Env, query: &EventsQuery, limits: &ReadLimits) -> Result<EventsAnswer, ReadError> {
        if let Some(answer) = self.try_inline(limits, |reader, allowance| reader.events(query, allowance)) {
            return answer;
        }
        let query = query.clone();
        self.aside(env, limits, move |reader, allowance| reader.events(&query, allowance)).await
    }

    /// Reads the counts of the stores at once: none if no reader is free, if the tables can't be read, or if a first
    /// try reached its limit.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let pool = self.current();
        let mut lease = pool.try_permit()?;
        let allowance = Allowance { inline: true, ..self.allowance(&ReadLimits::default()) };
        lease.reader().and_then(|reader| reader.counts(allowance)).ok().flatten()
    }

    /// Reads on the calling thread, unless no reader is free or it takes long.
    fn try_inline<T>(
        &self,
        limits: &ReadLimits,
        read: impl FnOnce(&mut Reader, Allowance) -> Result<Option<T>, ReadError>,
    ) -> Option<Result<T, ReadError>> {
        let pool = self.current();
        let mut lease = pool.try_lease()?;
        let allowance = Allowance { inline: true, ..self.allowance(limits) };
        lease.reader().and_then(|reader| read(reader, allowance)).transpose()
    }

    /// Reads on a thread for blocking work.
    async fn aside<T: Send + 'static>(
        &self,
        env: &Env,
        limits: &ReadLimits,
        read: impl FnOnce(&mut Reader, Allowance) -> Result<Option<T>, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let mut lease = self.lease().await?;
        let gone = CancelOnDrop(Cancel::new());
        let mut allowance = self.allowance(limits);
        allowance.cancel[1] = Some(gone.0.clone());
        // `None` is only returned for a first try.
        let run = move || read(lease.reader()?, allowance)?.ok_or(ReadError::Busy);
        env.blocking(run).await.unwrap_or(Err(StoreFault::Closed.into()))
    }

    /// Opens a snapshot of the present state for many reads, for at most `max_age`. After the usual age limit of read
    /// transactions, it lasts only until [`Readers::end_old`].
    pub async fn snapshot(&self, env: &Env, max_age: Duration) -> Result<Snapshot, ReadError> {
        let lease = self.lease().await?;
        if lease.is_open() {
            return self.snapshot_of(lease, max_age);
        }
        let readers = self.clone();
        env.blocking(move || readers.snapshot_of(lease, max_age)).await.unwrap_or(Err(StoreFault::Closed.into()))
    }

    /// [`Readers::snapshot`] on the calling thread, with the usual age limit. Waits for a reader if none is free.
    pub fn snapshot_blocking(&self) -> Result<Snapshot, ReadError> {
        self.snapshot_of(self.lease_blocking()?, self.0.options.transaction)
    }

    /// Runs a query whose result is taken piece by piece. Each piece, including the first, is computed when it is
    /// requested.
    pub async fn stream(&self, statement: Statement, limits: ReadLimits) -> Result<RowStream, ReadError> {
        Ok(self.stream_of(self.lease().await?, statement, limits))
    }

    /// [`Readers::stream`] on the calling thread. Waits for a reader if none is free.
    pub fn stream_blocking(&self, statement: Statement, limits: ReadLimits) -> Result<RowStream, ReadError> {
        Ok(self.stream_of(self.lease_blocking()?, statement, limits))
    }

    /// Ends every read transaction and closes the connections. Those in use close when they are given back. Later reads
    /// fail.
    pub fn close(&self) {
        self.0.closing.cancel();
        let pool = self.pool();
        pool.end_if(|_| true);
        pool.retire();
    }

    /// Ends every read transaction that has reached its age limit, also of snapshots and streams that nobody uses, and
    /// returns how many. The checkpointer calls this regularly.
    pub fn expire(&self) -> usize {
        let now = Instant::now();
        self.pool().end_if(|age| age.is_reached(now))
    }

    /// Ends every read transaction older than the usual age limit, including those with a longer one, and returns how
    /// many.
    pub fn end_old(&self) -> usize {
        self.old_since().map_or(0, |time| self.end_begun_before(time))
    }

    /// Whether there is a snapshot older than the usual age limit of read transactions.
    pub fn keeps_old(&self) -> bool {
        self.old_since().is_some_and(|time| self.pool().holds(|age| age.begun < time))
    }

    fn old_since(&self) -> Option<Instant> {
        Instant::now().checked_sub(self.0.options.transaction)
    }

    /// Ends every read transaction of the current generation that began before `time`, if its start is known, and
    /// returns how many. They fail with [`ReadError::SnapshotEnded`].
    pub fn end_begun_before(&self, time: Instant) -> usize {
        self.pool().end_if(|age| age.begun < time)
    }

    fn pool(&self) -> Arc<Pool> {
        Guard::into_inner(self.current())
    }

    /// The pool of the current generation, for short use. Loading it writes to no shared memory, and a thread that
    /// replaces the pool does not wait until this one is released.
    fn current(&self) -> Guard<Arc<Pool>> {
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
                Ok(Err(_)) => self.check_replaced(&pool)?,
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
                Some(Err(_)) => self.check_replaced(&pool)?,
                None => return Err(ReadError::Busy),
            }
        }
    }

    /// Fails after a pool was retired, unless another one has replaced it.
    fn check_replaced(&self, retired: &Arc<Pool>) -> Result<(), ReadError> {
        if Arc::ptr_eq(&self.pool(), retired) { Err(StoreFault::Closed.into()) } else { Ok(()) }
    }

    fn snapshot_of(&self, mut lease: Lease, max_age: Duration) -> Result<Snapshot, ReadError> {
        let begun = Instant::now();
        let applied_index = lease.reader()?.begin()?;
        Ok(Snapshot::new(hold(begun, max_age, lease), applied_index))
    }

    fn stream_of(&self, lease: Lease, statement: Statement, limits: ReadLimits) -> RowStream {
        let held = hold(Instant::now(), self.0.options.transaction, lease);
        RowStream::new(held, StreamQuery { statement, stamp: None, limits }, Transaction::Own)
    }
}

fn hold(begun: Instant, max_age: Duration, lease: Lease) -> Arc<Held> {
    let pool = Arc::clone(lease.pool());
    let held = Arc::new(Held::new(Age { begun, max: max_age }, lease));
    pool.hold(Arc::downgrade(&held));
    held
}
