//! Measures where the writes of a batch spend their time on the leader.
//!
//! The combiner has one batch in flight at a time, so a few atomics hold the times of its stages. The combiner begins a
//! batch, the log store marks when the batch is handed over, durable and committed, and the combiner ends it and
//! records the times.
//!
//! Invariants:
//! - A batch costs a few readings of the clock, however many writes it holds, and no lock unless there is a receiver of
//!   [`WriteTrace`]s.
//! - `queue`, `append`, `replicate` and `apply` follow each other without a gap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorate_env::{Env, Instant};
use quorate_model::{LogId, NodeId};
use tokio::sync::watch;

use crate::metrics::GroupMetrics;

/// The times of the write that waited longest in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteTrace {
    /// The time of its outcome, in nanoseconds since 1970-01-01 UTC by this node's clock.
    pub ended_unix_nanos: u64,
    /// The index of the last entry of its batch.
    pub index: u64,
    /// The number of writes in its batch.
    pub batch: u64,
    /// See [`WriteMetrics`](crate::WriteMetrics) for this stage and the others.
    pub queue: Duration,
    /// See `queue`.
    pub append: Duration,
    /// See `queue`. `None` if the outcome came before the batch was durable on this node.
    pub fsync: Option<Duration>,
    /// See `queue`.
    pub replicate: Duration,
    /// See `queue`.
    pub apply: Duration,
}

/// The times of the batch in flight, in nanoseconds since `origin`. 0 stands for a stage that is not reached yet.
pub(crate) struct Stages {
    own: NodeId,
    env: Env,
    metrics: Arc<GroupMetrics>,
    traces: watch::Sender<Option<WriteTrace>>,
    origin: Instant,
    /// The number of the last batch.
    batches: AtomicU64,
    /// The number of the batch in flight, or 0.
    batch: AtomicU64,
    /// The highest index of the batch that was handed to the log's writer.
    last: AtomicU64,
    handed: AtomicU64,
    durable: AtomicU64,
    committed: AtomicU64,
}

/// Entries of a batch that were handed to the log's writer.
pub(crate) struct Handed {
    stages: Arc<Stages>,
    batch: u64,
    writes: u64,
    at: u64,
}

impl Stages {
    pub(crate) fn new(env: Env, own: NodeId, metrics: Arc<GroupMetrics>) -> Arc<Self> {
        Arc::new(Self {
            own,
            env,
            metrics,
            traces: watch::Sender::new(None),
            origin: Instant::now(),
            batches: AtomicU64::new(0),
            batch: AtomicU64::new(0),
            last: AtomicU64::new(0),
            handed: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            committed: AtomicU64::new(0),
        })
    }

    /// Returns a receiver of the latest trace. Traces are made only while there is a receiver.
    pub(crate) fn traces(&self) -> watch::Receiver<Option<WriteTrace>> {
        self.traces.subscribe()
    }

    /// Marks that a batch is proposed now. Returns the time.
    pub(crate) fn begin(&self) -> Instant {
        for mark in [&self.last, &self.handed, &self.durable, &self.committed] {
            mark.store(0, Ordering::Relaxed);
        }
        let number = self.batches.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        self.batch.store(number, Ordering::Release);
        Instant::now()
    }

    /// Marks that entries up to `last`, of which `writes` are writes, are handed to the log's writer now. Returns
    /// `None` if they do not belong to a batch in flight on this node: they may be another leader's.
    pub(crate) fn handed(self: &Arc<Self>, last: LogId, writes: u64) -> Option<Handed> {
        let batch = self.batch.load(Ordering::Acquire);
        if batch == 0 || writes == 0 || last.node != self.own {
            return None;
        }
        let at = self.now();
        self.last.fetch_max(last.index, Ordering::Relaxed);
        mark(&self.handed, at);
        Some(Handed { stages: Arc::clone(self), batch, writes, at })
    }

    /// Marks that the log is committed up to an index.
    pub(crate) fn committed(&self, index: u64) {
        let last = self.last.load(Ordering::Relaxed);
        if last > 0 && index >= last && self.committed.load(Ordering::Relaxed) == 0 {
            mark(&self.committed, self.now());
        }
    }

    /// Ends the batch that was proposed at `proposed`, and records its times. `arrived` has the arrival of each of its
    /// writes. It is empty if not all of them got an outcome; then nothing is recorded.
    pub(crate) fn end(&self, proposed: Instant, arrived: &[Instant]) {
        self.batch.store(0, Ordering::Release);
        let Some(first) = arrived.first() else { return };
        let ended = Instant::now();
        let writes = &self.metrics.writes;
        writes.queue.observe_all(arrived.iter().map(|arrived| proposed.saturating_duration_since(*arrived)));
        writes.total.observe_all(arrived.iter().map(|arrived| ended.saturating_duration_since(*arrived)));

        let (handed, committed) = (self.handed.load(Ordering::Relaxed), self.committed.load(Ordering::Relaxed));
        if handed == 0 || committed == 0 {
            return;
        }
        let between = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
        let count = arrived.len() as u64;
        let append = between(self.since_origin(proposed), handed);
        let (replicate, apply) = (between(handed, committed), between(committed, self.since_origin(ended)));
        writes.append.observe_many(append, count);
        writes.replicate.observe_many(replicate, count);
        writes.apply.observe_many(apply, count);
        if self.traces.receiver_count() > 0 {
            let durable = self.durable.load(Ordering::Relaxed);
            self.traces.send_replace(Some(WriteTrace {
                ended_unix_nanos: self.env.unix_nanos(),
                index: self.last.load(Ordering::Relaxed),
                batch: count,
                queue: proposed.saturating_duration_since(*first),
                append,
                fsync: (durable > 0).then(|| between(handed, durable)),
                replicate,
                apply,
            }));
        }
    }

    fn now(&self) -> u64 {
        self.since_origin(Instant::now())
    }

    fn since_origin(&self, at: Instant) -> u64 {
        let nanos = at.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX).max(1)
    }
}

/// Sets a mark unless it is set.
fn mark(mark: &AtomicU64, at: u64) {
    // If this fails, the mark was already set.
    let _ = mark.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed);
}

impl Handed {
    /// Marks that the entries are durable on this node.
    pub(crate) fn durable(&self) {
        let now = self.stages.now();
        let time = Duration::from_nanos(now.saturating_sub(self.at));
        self.stages.metrics.writes.fsync.observe_many(time, self.writes);
        if self.stages.batch.load(Ordering::Acquire) == self.batch {
            mark(&self.stages.durable, now);
        }
    }
}
