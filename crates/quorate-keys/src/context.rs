//! What a command knows of its entry, and what it tells of itself.

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::keys::{EventClasses, KeyChange, KeyEvent, Space, Version};

use crate::keys::check_time;
use crate::{KeysError, limits};

/// By how much [`Mutant::ExpiredEarly`] is wrong, in nanoseconds.
const EARLY: u64 = 1_000_000_000;

/// The context of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The time: the stamp of the entry, in nanoseconds since 1970.
    pub now: u64,
    /// The version of what the command changes.
    pub version: Version,
    budget: u64,
    touched: Vec<(Space, Bytes)>,
    flushed: Vec<Space>,
    /// The classes of events that somebody wants to know of. Nothing else may depend on them.
    wanted: EventClasses,
    changes: Vec<KeyChange>,
}

impl Context {
    /// Returns the context of a command that may take `budget` steps.
    pub fn new(now: u64, version: Version, budget: u64) -> Self {
        let (touched, flushed, changes) = (Vec::new(), Vec::new(), Vec::new());
        Self { now, version, budget, touched, flushed, wanted: EventClasses::NONE, changes }
    }

    /// Has the events of these classes noted, which changes nothing else.
    #[must_use]
    pub fn noting(self, wanted: EventClasses) -> Self {
        Self { wanted, ..self }
    }

    /// Takes steps of the budget, before the work that they stand for.
    ///
    /// # Errors
    ///
    /// [`KeysError::OutOfBudget`], if there are not so many; then there are none left.
    pub fn charge(&mut self, steps: u64) -> Result<(), KeysError> {
        let left = self.budget.checked_sub(steps);
        self.budget = left.unwrap_or(0);
        left.map(drop).ok_or(KeysError::OutOfBudget)
    }

    /// Takes the steps for rows that are looked up or changed, with their bytes.
    pub(crate) fn charge_rows(&mut self, rows: usize, bytes: usize) -> Result<(), KeysError> {
        let rows = (rows as u64).saturating_mul(limits::ROW_STEPS);
        self.charge(rows.saturating_add(bytes as u64 / limits::BYTES_PER_STEP))
    }

    /// Takes the steps for bytes of a value.
    pub(crate) fn charge_bytes(&mut self, bytes: usize) -> Result<(), KeysError> {
        self.charge(bytes as u64 / limits::BYTES_PER_STEP)
    }

    /// Takes the steps for rows that are read one after the other.
    pub(crate) fn charge_range(&mut self, rows: u64) -> Result<(), KeysError> {
        self.charge(limits::ROW_STEPS.saturating_add(rows.saturating_mul(limits::NEXT_ROW_STEPS)))
    }

    /// Returns the steps that are left.
    pub fn budget_left(&self) -> u64 {
        self.budget
    }

    /// Returns the keys that were changed since the last call, in the order of the changes; one may be there more than
    /// once.
    pub fn take_touched(&mut self) -> Vec<(Space, Bytes)> {
        std::mem::take(&mut self.touched)
    }

    /// Returns the spaces that were flushed since the last call: all keys that they had were changed.
    pub fn take_flushed(&mut self) -> Vec<Space> {
        std::mem::take(&mut self.flushed)
    }

    /// Returns the events since the last call, in their order. Those of a key are in the order that Redis has. Keys of
    /// a flushed space have none.
    pub fn take_changes(&mut self) -> Vec<KeyChange> {
        std::mem::take(&mut self.changes)
    }

    /// Returns whether anybody wants to know of events.
    pub(crate) fn notes(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Notes what happens to a key.
    pub(crate) fn note(&mut self, space: Space, key: &Bytes, events: &[KeyEvent]) {
        if !self.notes() {
            return;
        }
        let wanted = events.iter().filter(|event| event.class().meet(self.wanted));
        self.changes.extend(wanted.map(|event| KeyChange { space, key: key.clone(), event: *event }));
    }

    pub(crate) fn flush(&mut self, space: Space) {
        self.flushed.push(space);
    }

    pub(crate) fn touch(&mut self, space: Space, key: &Bytes) {
        if !Mutant::KeyNotTold.is_on() {
            self.touched.push((space, key.clone()));
        }
    }

    /// Returns the time that is so many nanoseconds after that of the context. One that is too late to be stored is the
    /// latest.
    pub(crate) fn after(&self, nanos: u64) -> u64 {
        self.now.saturating_add(nanos).min(limits::TIME_MAX)
    }

    /// Returns the time of an expiry that a command names.
    ///
    /// # Errors
    ///
    /// [`KeysError::InvalidExpiry`], if it is later than [`TIME_MAX`](limits::TIME_MAX).
    pub(crate) fn time(&self, at: Option<u64>, relative: bool) -> Result<Option<u64>, KeysError> {
        if relative {
            return Ok(at.map(|nanos| self.after(nanos)));
        }
        check_time(at)?;
        Ok(at)
    }

    /// Returns whether something with this expiry is there at the time of the context.
    pub(crate) fn is_alive(&self, expires_at: Option<u64>) -> bool {
        let now = if Mutant::ExpiredEarly.is_on() { self.now.saturating_add(EARLY) } else { self.now };
        expires_at.is_none_or(|at| at > now)
    }
}
