//! Locking where a panic of another thread must not spread.
//!
//! Invariant of all who use it: what a mutex guards is never left half changed by code that can panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also one whose holder panicked.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
