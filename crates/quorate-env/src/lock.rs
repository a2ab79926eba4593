//! Locking that ignores poisoning, so that a panic in one thread does not spread to others.
//!
//! Invariant for callers: code that can panic never leaves the guarded data partly changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a thread panicked while it held the lock.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
