//! Locking that ignores poisoning, so that a panic in one thread does not spread to others.
//!
//! Invariant for callers: code that can panic never leaves the guarded data partly changed.

use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a thread panicked while it held the lock.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    unpoisoned(mutex.lock())
}

/// Returns the guard of any other kind of lock, or of a wait for a condition, in the same way.
pub fn unpoisoned<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}
