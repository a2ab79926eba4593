//! The lock on the write connection.
//!
//! The writer takes it for each batch. Between two batches, visitors may take it: a checkpoint, the last step of an
//! image, an installation. A checkpoint may also slow the writer before its visit.
//!
//! Invariant: a visitor waits for at most one batch, because the writer begins no batch while a visitor waits.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use quorate_env::lock;
use quorate_env::signal::Signal;

/// How many times as long as a batch took the writer rests after it, at most.
const SLOWNESS_MAX: u32 = 8;

/// A mutex on which the writer gives way to all other threads.
#[derive(Debug)]
pub(crate) struct WriterLock<T> {
    inner: Mutex<T>,
    visitors: AtomicUsize,
    slowness: AtomicU32,
    writer: Signal,
}

/// Slows the writer until it is dropped.
pub(crate) struct Slowed<'a, T>(&'a WriterLock<T>);

impl<T> Drop for Slowed<'_, T> {
    fn drop(&mut self) {
        self.0.slowness.store(0, Ordering::Release);
    }
}

impl<T> Slowed<'_, T> {
    /// Makes the writer rest twice as long as before, up to [`SLOWNESS_MAX`].
    pub(crate) fn increase(&self) {
        let slowness = self.0.slowness().saturating_mul(2).min(SLOWNESS_MAX);
        self.0.slowness.store(slowness, Ordering::Release);
    }
}

/// Counts a visitor until it is dropped.
struct Visitor<'a, T>(&'a WriterLock<T>);

impl<T> Drop for Visitor<'_, T> {
    fn drop(&mut self) {
        self.0.visitors.fetch_sub(1, Ordering::SeqCst);
        self.0.writer.wake();
    }
}

impl<T> WriterLock<T> {
    pub(crate) fn new(inner: T, writer: Signal) -> Self {
        Self { inner: Mutex::new(inner), visitors: AtomicUsize::new(0), slowness: AtomicU32::new(0), writer }
    }

    /// Makes the writer rest after each batch, at first as long as the batch took. Only the holder of the checkpoint's
    /// pass calls this.
    pub(crate) fn slow_writer(&self) -> Slowed<'_, T> {
        self.slowness.store(1, Ordering::Release);
        Slowed(self)
    }

    /// Returns how many times as long as a batch took the writer rests after it; 0 if it does not rest.
    pub(crate) fn slowness(&self) -> u32 {
        self.slowness.load(Ordering::Acquire)
    }

    /// Locks for the writer. Returns `None` while visitors wait; the writer is woken when they have left.
    pub(crate) fn lock_for_writer(&self) -> Option<MutexGuard<'_, T>> {
        (self.visitors.load(Ordering::SeqCst) == 0).then(|| self.lock())
    }

    /// Waits for the end of the running batch, then runs `visit` under the lock.
    pub(crate) fn visit<R>(&self, visit: impl FnOnce(&mut T) -> R) -> R {
        self.visitors.fetch_add(1, Ordering::SeqCst);
        // Must be dropped last, and also if `visit` panics; otherwise the writer would wait for ever.
        let _visitor = Visitor(self);
        let mut inner = self.lock();
        visit(&mut inner)
    }

    /// Whether a thread holds the lock now.
    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.inner.try_lock().is_err()
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.inner)
    }
}
