//! The lock on the write connection.
//!
//! The writer takes it for each batch. Between two batches, visitors may take it: a checkpoint, the last step of an
//! image, an installation. A checkpoint may also slow the writer before its visit.
//!
//! Invariant: a visitor waits for at most one batch, because the writer begins no batch while a visitor waits.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use quorate_env::lock;
use quorate_env::signal::Signal;

/// A mutex on which the writer gives way to all other threads.
#[derive(Debug)]
pub(crate) struct WriterLock<T> {
    inner: Mutex<T>,
    visitors: AtomicUsize,
    is_slowed: AtomicBool,
    writer: Signal,
}

/// Slows the writer until it is dropped.
pub(crate) struct Slowed<'a, T>(&'a WriterLock<T>);

impl<T> Drop for Slowed<'_, T> {
    fn drop(&mut self) {
        self.0.is_slowed.store(false, Ordering::Release);
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
        Self { inner: Mutex::new(inner), visitors: AtomicUsize::new(0), is_slowed: AtomicBool::new(false), writer }
    }

    /// Makes the writer rest after each batch as long as the batch took. Only the holder of the checkpoint's pass calls
    /// this.
    pub(crate) fn slow_writer(&self) -> Slowed<'_, T> {
        self.is_slowed.store(true, Ordering::Release);
        Slowed(self)
    }

    /// Whether the writer rests after each batch.
    pub(crate) fn is_slowed(&self) -> bool {
        self.is_slowed.load(Ordering::Acquire)
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
