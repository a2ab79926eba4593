//! Makes the write connection deterministic: what a command computes is a function of the data and of its entry's
//! stamp.
//!
//! The clock is the VFS's ([`clock`](crate::vfs::clock)). Here are the rest: `random()` and `randomblob()` draw from
//! the entry's seed ([`random`]); `changes()`, `total_changes()` and `last_insert_rowid()` start anew at each entry
//! ([`counters`]); a rowid at the maximum is noticed, after which SQLite would draw rowids at random ([`counters`]);
//! and the work of an entry is bounded by counting, not by time ([`budget`]). The functions of mathematics are the same
//! on all machines, and on all connections ([`math`]); others count their work for the budget ([`functions`]).
//!
//! Invariant: [`Determinism::begin`] makes everything here as on a connection that was just opened.

use std::sync::Arc;

use quorate_env::mutant::Mutant;
use rusqlite::Connection;

use crate::ffi::hooks;
use crate::functions::{self, Meter};

pub mod budget;
pub mod counters;
pub(crate) mod math;
pub mod random;

use budget::Budget;
use counters::Counters;
use random::Random;

/// What was installed on a connection.
#[derive(Debug)]
pub struct Determinism {
    random: Arc<Random>,
    counters: Arc<Counters>,
    /// Bounds the work of an entry.
    pub budget: Arc<Budget>,
}

impl Determinism {
    /// Installs everything, once for a connection.
    pub fn install(conn: &Connection) -> rusqlite::Result<Self> {
        let budget = Budget::install(conn)?;
        let meter: Arc<dyn Meter> = Arc::<Budget>::clone(&budget);
        let (random, counters) = (Random::install(conn, &meter)?, Counters::install(conn)?);
        functions::install(conn, &meter)?;
        Ok(Self { random, counters, budget })
    }

    /// Begins an entry, or a dry run, which has no entry yet. The caller resets `changes()`, by a statement that
    /// changes nothing.
    pub fn begin(&self, conn: &Connection, entry: Option<u64>, seed: u64, budget: u64) {
        if !Mutant::SeedCarriedOver.is_on() {
            self.seed(seed);
        }
        hooks::set_last_insert_rowid(conn, 0);
        self.counters.begin(conn);
        self.budget.begin(entry, budget);
    }

    /// The next draw is the first of this seed.
    pub fn seed(&self, seed: u64) {
        self.random.seed(seed);
    }

    /// What was counted since the last [`Counters::watch`].
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[cfg(test)]
mod tests;
