//! Whose turn it is to use the write connection.
//!
//! The writer uses it from batch to batch; between two batches others may visit it: a checkpoint, an image's last step,
//! an install. Invariant: a visitor waits for at most one batch, since the writer begins no other while a visitor
//! waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use quorate_env::lock;
use quorate_env::signal::Signal;

/// Something that one at a time may use, with the writer going last.
#[derive(Debug)]
pub(crate) struct Turn<T> {
    inner: Mutex<T>,
    visitors: AtomicUsize,
    writer: Signal,
}

/// A visitor, until it is dropped.
struct Leaves<'a, T>(&'a Turn<T>);

impl<T> Drop for Leaves<'_, T> {
    fn drop(&mut self) {
        self.0.visitors.fetch_sub(1, Ordering::SeqCst);
        self.0.writer.wake();
    }
}

impl<T> Turn<T> {
    pub(crate) fn new(inner: T, writer: Signal) -> Self {
        Self { inner: Mutex::new(inner), visitors: AtomicUsize::new(0), writer }
    }

    /// The writer's turn, or `None` while visitors wait: the writer's signal rings when they have gone.
    pub(crate) fn of_writer(&self) -> Option<MutexGuard<'_, T>> {
        (self.visitors.load(Ordering::SeqCst) == 0).then(|| self.lock())
    }

    /// Waits for the end of the running batch, then visits.
    pub(crate) fn visit<R>(&self, visit: impl FnOnce(&mut T) -> R) -> R {
        self.visitors.fetch_add(1, Ordering::SeqCst);
        // Dropped last, and by a visitor that panics too: the writer would wait for ever.
        let _leaves = Leaves(self);
        let mut inner = self.lock();
        visit(&mut inner)
    }

    /// Whether somebody uses it just now.
    #[cfg(test)]
    pub(crate) fn is_taken(&self) -> bool {
        self.inner.try_lock().is_err()
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.inner)
    }
}
