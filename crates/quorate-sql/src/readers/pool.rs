//! The readers of one generation.
//!
//! Invariants: there are at most as many readers as permits. A reader in the pool is reset. A retired pool keeps no
//! reader, so its generation is released with the last lease.

use std::future::Future;
use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};

use quorate_env::{Instant, lock};
use tokio::sync::Semaphore;

use super::error::ReadError;
use super::guard::Guard;
use super::held::Held;
use super::limits::{Age, Cancel, ReaderOptions};
use super::reader::Reader;
use super::suspicion::Suspicions;
use crate::cluster_time::ClusterTime;
use crate::generation::Generation;
use crate::slow::SlowLog;

pub(super) struct Pool {
    // Declared first, so that readers close before the generation is dropped.
    idle: Mutex<Option<Vec<Idle>>>,
    pub(super) permits: Semaphore,
    guards: Mutex<Vec<Weak<Guard>>>,
    held: Mutex<Vec<Weak<Held>>>,
    cache_bytes: u32,
    slow: SlowLog,
    suspicions: Arc<Suspicions>,
    time: Arc<ClusterTime>,
    closing: Cancel,
    generation: Arc<Generation>,
}

/// A reader that is not in use.
struct Idle {
    /// Boxed, because it moves with every use.
    reader: Box<Reader>,
    /// The thread that used it last. The caches of that thread's processor hold its data.
    thread: ThreadId,
}

thread_local! {
    static HERE: ThreadId = thread::current().id();
}

impl Pool {
    pub(super) fn new(
        generation: Arc<Generation>,
        options: &ReaderOptions,
        slow: SlowLog,
        suspicions: &Arc<Suspicions>,
        time: &Arc<ClusterTime>,
        closing: &Cancel,
    ) -> Self {
        Self {
            idle: Mutex::new(Some(Vec::new())),
            permits: Semaphore::new(options.readers.clamp(1, Semaphore::MAX_PERMITS)),
            guards: Mutex::default(),
            held: Mutex::default(),
            cache_bytes: options.cache_bytes,
            slow,
            suspicions: Arc::clone(suspicions),
            time: Arc::clone(time),
            closing: closing.clone(),
            generation,
        }
    }

    pub(super) fn generation_number(&self) -> u64 {
        self.generation.number()
    }

    /// Leases a reader that is open and free now.
    pub(super) fn try_lease(&self) -> Option<Lease<&Self>> {
        self.try_permit().filter(|lease| lease.reader.is_some())
    }

    /// Returns a reader at once, if one is free, which may have to be opened yet.
    pub(super) fn try_permit(&self) -> Option<Lease<&Self>> {
        self.permits.try_acquire().ok()?.forget();
        Some(Lease::permitted(self))
    }

    /// Retires the pool. Idle readers close now, the others when they are given back. Callers that wait for a permit
    /// get an error.
    pub(super) fn retire(&self) {
        lock(&self.idle).take();
        self.permits.close();
    }

    /// Registers a transaction that stays open between calls.
    pub(super) fn hold(&self, held: Weak<Held>) {
        let mut all = lock(&self.held);
        all.retain(|held| held.strong_count() > 0);
        all.push(held);
    }

    /// Whether a transaction that stays open between calls has an age for which `matches` holds.
    pub(super) fn holds(&self, matches: impl Fn(Age) -> bool) -> bool {
        lock(&self.held).iter().filter_map(Weak::upgrade).any(|held| held.is(&matches))
    }

    /// Ends every transaction for whose age `is_over` holds, and returns how many.
    pub(super) fn end_if(&self, is_over: impl Fn(Age) -> bool) -> usize {
        let held: Vec<_> = lock(&self.held).iter().filter_map(Weak::upgrade).collect();
        let guards: Vec<_> = lock(&self.guards).iter().filter_map(Weak::upgrade).collect();
        let idle = held.iter().filter(|held| held.end_if(&is_over)).count();
        let running = guards.iter().filter(|guard| guard.end_if(&is_over)).count();
        idle + running
    }

    fn open_reader(&self) -> Result<Reader, ReadError> {
        let slow = self.slow.clone();
        let reader =
            Reader::open(&self.generation, self.cache_bytes, slow, &self.suspicions, &self.time, &self.closing);
        let reader = reader.inspect_err(|error| self.suspicions.note(&self.generation, error, None))?;
        let mut guards = lock(&self.guards);
        guards.retain(|guard| guard.strong_count() > 0);
        guards.push(Arc::downgrade(reader.guard()));
        Ok(reader)
    }
}

/// The use of one reader, which is given back on drop.
pub(super) struct Lease<P: Deref<Target = Pool> = Arc<Pool>> {
    // Declared before the pool, which holds the generation, so that it is dropped first.
    reader: Option<Box<Reader>>,
    pool: P,
}

impl<P: Deref<Target = Pool>> Lease<P> {
    /// A lease for a permit that the caller has taken and forgotten.
    pub(super) fn permitted(pool: P) -> Self {
        let reader = lock(&pool.idle).as_mut().and_then(take_idle);
        Self { reader, pool }
    }

    /// Whether SQLite has rolled back the transaction of the reader's snapshot.
    pub(super) fn has_lost_snapshot(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.has_lost_snapshot())
    }

    /// The reader. Opens it if it is not open yet, which blocks.
    pub(super) fn reader(&mut self) -> Result<&mut Reader, ReadError> {
        if self.reader.is_none() {
            self.reader = Some(Box::new(self.pool.open_reader()?));
        }
        self.reader.as_deref_mut().ok_or(ReadError::Busy)
    }

    pub(super) fn is_open(&self) -> bool {
        self.reader.is_some()
    }

    pub(super) fn pool(&self) -> &P {
        &self.pool
    }
}

impl<P: Deref<Target = Pool>> Drop for Lease<P> {
    fn drop(&mut self) {
        if let Some(mut reader) = self.reader.take()
            && reader.reset()
            && let Some(idle) = lock(&self.pool.idle).as_mut()
        {
            idle.push(Idle { reader, thread: HERE.with(|here| *here) });
        }
        self.pool.permits.add_permits(1);
    }
}

/// Takes the reader that this thread used last, or else the one that was given back last.
fn take_idle(idle: &mut Vec<Idle>) -> Option<Box<Reader>> {
    let own = HERE.with(|here| idle.iter().rposition(|idle| idle.thread == *here));
    let place = own.or_else(|| idle.len().checked_sub(1))?;
    Some(idle.swap_remove(place).reader)
}

/// Blocks this thread until a future is ready or the deadline passes.
pub(super) fn block_until<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}
