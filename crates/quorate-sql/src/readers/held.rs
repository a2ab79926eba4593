//! What keeps a read transaction open between calls: a snapshot or a stream.
//!
//! Its age is bounded: once it is too old its reader is taken away, by whoever looks first, and further use fails with
//! [`ReadError::SnapshotTooOld`].

use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use quorate_env::Instant;

use super::error::ReadError;
use super::pool::{Lease, lock};

/// Something that can be ended for its age.
pub(super) trait Ends: Send + Sync {
    /// Ends it if it began before `time` and is not in use just now; what is in use its guard ends.
    fn end_if_begun_before(&self, time: Instant) -> bool;
}

/// A lease with the state of its holder.
pub(super) struct Held<T> {
    begun: Instant,
    max_age: Duration,
    slot: Mutex<Option<(Lease, T)>>,
}

impl<T> Held<T> {
    pub(super) fn new(begun: Instant, max_age: Duration, lease: Lease, state: T) -> Self {
        Self { begun, max_age, slot: Mutex::new(Some((lease, state))) }
    }

    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    pub(super) fn max_age(&self) -> Duration {
        self.max_age
    }

    /// Uses the lease, after waiting for others who do.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Lease, &mut T) -> Result<R, ReadError>) -> Result<R, ReadError> {
        self.run(&mut lock(&self.slot), f)
    }

    /// Uses the lease if nobody else does.
    pub(super) fn try_with<R>(
        &self,
        f: impl FnOnce(&mut Lease, &mut T) -> Result<Option<R>, ReadError>,
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
        slot: &mut Option<(Lease, T)>,
        f: impl FnOnce(&mut Lease, &mut T) -> Result<R, ReadError>,
    ) -> Result<R, ReadError> {
        if Instant::now().saturating_duration_since(self.begun) >= self.max_age {
            *slot = None;
        }
        let (lease, state) = slot.as_mut().ok_or(ReadError::SnapshotTooOld)?;
        f(lease, state)
    }
}

impl<T: Send> Ends for Held<T> {
    fn end_if_begun_before(&self, time: Instant) -> bool {
        if self.begun >= time {
            return false;
        }
        self.slot.try_lock().is_ok_and(|mut slot| slot.take().is_some())
    }
}
