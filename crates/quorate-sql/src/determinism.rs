//! Makes the write connection deterministic: the result of a command is a function of the data and of its entry's
//! stamp.
//!
//! The VFS supplies the clock ([`clock`](crate::vfs::clock)). This module does the rest. `random()` and `randomblob()`
//! draw from the entry's seed ([`random`]). `changes()`, `total_changes()` and `last_insert_rowid()` are reset at each
//! entry ([`counters`]). A write of the largest rowid is detected, because SQLite would choose further rowids at random
//! ([`counters`]). The work of an entry is bounded by counting, not by time ([`budget`]). Mathematical functions are
//! the same on all machines and on all connections ([`math`]), and functions that can take long count their work for
//! the budget ([`functions`]).
//!
//! Invariant: [`Determinism::begin`] resets everything here to the state on a newly opened connection.

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

/// The parts that are installed on a connection.
#[derive(Debug)]
pub struct Determinism {
    random: Arc<Random>,
    counters: Arc<Counters>,
    /// Bounds the work of an entry.
    pub budget: Arc<Budget>,
}

impl Determinism {
    /// Installs all parts; to be called once for a connection.
    pub fn install(conn: &Connection) -> rusqlite::Result<Self> {
        let budget = Budget::install(conn)?;
        let meter: Arc<dyn Meter> = Arc::<Budget>::clone(&budget);
        let (random, counters) = (Random::install(conn, &meter)?, Counters::install(conn)?);
        functions::install(conn, &meter)?;
        Ok(Self { random, counters, budget })
    }

    /// Begins an entry, or a dry run, which has no entry yet. The caller must reset `changes()`, by running a statement
    /// that changes nothing.
    pub fn begin(&self, conn: &Connection, entry: Option<u64>, seed: u64, budget: u64) {
        if !Mutant::SeedCarriedOver.is_on() {
            self.seed(seed);
        }
        hooks::set_last_insert_rowid(conn, 0);
        self.counters.begin(conn);
        self.budget.begin(entry, budget);
    }

    /// Sets the seed: the next draw is its first one.
    pub fn seed(&self, seed: u64) {
        self.random.seed(seed);
    }

    /// Returns the counters of the connection.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[cfg(test)]
mod tests;
