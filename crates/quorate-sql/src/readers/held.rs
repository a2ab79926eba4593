//! A read transaction that stays open between calls: that of a snapshot or a stream.
//!
//! Its age is bounded. The first call that finds it too old takes its reader away, and further use fails with
//! [`ReadError::SnapshotEnded`]. A snapshot whose transaction SQLite has rolled back ends in the same way.

use std::sync::{Mutex, TryLockError};

use quorate_env::{Instant, lock};

use super::error::ReadError;
use super::limits::Age;
use super::pool::Lease;

/// A lease that outlives a call.
pub(super) struct Held {
    age: Age,
    slot: Mutex<Option<Lease>>,
}

impl Held {
    pub(super) fn new(age: Age, lease: Lease) -> Self {
        Self { age, slot: Mutex::new(Some(lease)) }
    }

    pub(super) fn age(&self) -> Age {
        self.age
    }

    /// Uses the lease after waiting for other users.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Lease) -> Result<R, ReadError>) -> Result<R, ReadError> {
        self.run(&mut lock(&self.slot), f)
    }

    /// Uses the lease if no other thread uses it.
    pub(super) fn try_with<R>(
        &self,
        f: impl FnOnce(&mut Lease) -> Result<Option<R>, ReadError>,
    ) -> Result<Option<R>, ReadError> {
        match self.slot.try_lock() {
            Ok(mut slot) => self.run(&mut slot, f),
            Err(TryLockError::Poisoned(poisoned)) => self.run(&mut poisoned.into_inner(), f),
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }

    /// Gives the lease back.
    pub(super) fn end(&self) {
        lock(&self.slot).take();
    }

    fn run<R>(
        &self,
        slot: &mut Option<Lease>,
        f: impl FnOnce(&mut Lease) -> Result<R, ReadError>,
    ) -> Result<R, ReadError> {
        if self.age.is_reached(Instant::now()) || slot.as_ref().is_some_and(Lease::has_lost_snapshot) {
            *slot = None;
        }
        f(slot.as_mut().ok_or(ReadError::SnapshotEnded)?)
    }

    /// Whether `matches` holds for its age and it still has its reader.
    pub(super) fn is(&self, matches: impl FnOnce(Age) -> bool) -> bool {
        matches(self.age) && self.slot.try_lock().map_or(true, |slot| slot.is_some())
    }

    /// Ends it if `is_over` holds for its age and it is not in use now. The guard ends one that is in use.
    pub(super) fn end_if(&self, is_over: impl FnOnce(Age) -> bool) -> bool {
        is_over(self.age) && self.slot.try_lock().is_ok_and(|mut slot| slot.take().is_some())
    }
}
