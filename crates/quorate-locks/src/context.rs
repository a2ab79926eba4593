//! What a command knows of its entry, and what it tells of itself.

use bytes::Bytes;

use crate::LocksError;

/// The steps of a command with the row of its lock, in the unit of an entry's budget.
const COMMAND_STEPS: u64 = 200;

/// The steps of a holder or waiter. The command that adds one pays for its end too, because any later command on the
/// lock may have to end it.
const CLAIM_STEPS: u64 = 500;

/// The steps of a holder or waiter that is read.
const READ_STEPS: u64 = 20;

/// A holder of a lock, or one that waits for it, to whom something has happened that another did: it got a permit, or
/// lost it, or its time has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The lock.
    pub name: Bytes,
    /// The holder.
    pub holder: Bytes,
}

/// The context of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The time: the stamp of the entry, in nanoseconds since 1970.
    pub now: u64,
    /// The index of the entry.
    pub index: u64,
    budget: u64,
    touched: Vec<Touched>,
}

impl Context {
    /// Returns the context of a command that may take `budget` steps.
    pub fn new(now: u64, index: u64, budget: u64) -> Self {
        Self { now, index, budget, touched: Vec::new() }
    }

    pub(crate) fn charge_command(&mut self) -> Result<(), LocksError> {
        self.charge(COMMAND_STEPS)
    }

    pub(crate) fn charge_claim(&mut self) -> Result<(), LocksError> {
        self.charge(CLAIM_STEPS)
    }

    pub(crate) fn charge_read(&mut self, claims: usize) -> Result<(), LocksError> {
        self.charge((claims as u64).saturating_mul(READ_STEPS))
    }

    /// Takes steps of the budget. If there are not so many, there are none left.
    fn charge(&mut self, steps: u64) -> Result<(), LocksError> {
        let left = self.budget.checked_sub(steps);
        self.budget = left.unwrap_or(0);
        left.map(drop).ok_or(LocksError::OutOfBudget)
    }

    /// Returns the steps that are left.
    pub fn budget_left(&self) -> u64 {
        self.budget
    }

    pub(crate) fn touch(&mut self, name: &Bytes, holder: &Bytes) {
        self.touched.push(Touched { name: name.clone(), holder: holder.clone() });
    }

    /// Returns whom something has happened to since the last call, in the order in which it did.
    pub fn take_touched(&mut self) -> Vec<Touched> {
        std::mem::take(&mut self.touched)
    }
}
