//! The authorizer: SQLite calls it while it prepares a statement, and a refusal comes with a reason.
//!
//! A [`Gate`] is installed once on a connection, because installing an authorizer expires all prepared statements.
//! [`Gate::enter`] sets whose statement comes next. [`rules`] says what is denied. SQLite does not call the authorizer
//! for some things (the new name of a table, the table that a foreign key refers to);
//! [`schema_check`](crate::schema_check) checks those.
//!
//! Invariant: the answer depends only on the statement, the schema and the mode, so a statement that SQLite prepares
//! again by itself gets the same answer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use quorate_env::lock;
use rusqlite::Connection;

use crate::ffi::hooks::{self, Access, Answer};

pub(crate) mod rules;

/// The most calls of the authorizer by SQLite while it prepares one statement. It makes one for each subquery, column
/// and function. Few statements of a megabyte need this many, but SQLite duplicates parts of a statement: each level of
/// nested window functions doubles the work. Preparing takes some seconds at this limit, and no budget bounds it.
pub const ASKED_MAX: u32 = 50_000;

const TOO_COMPLEX: &str = "SQLite would plan this statement for too long; nest less, or split it";

/// Whose statement is being prepared or run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The store's own: everything is allowed.
    Own,
    /// A command of an entry is being prepared.
    Command,
    /// A command runs; the statements that are prepared now are those of virtual tables inside it.
    Running {
        /// Whether the command changes the schema.
        schema: bool,
    },
    /// A query on a connection that only reads.
    Query,
}

impl Mode {
    fn number(self) -> u8 {
        match self {
            Self::Own => 0,
            Self::Command => 1,
            Self::Running { schema: false } => 2,
            Self::Running { schema: true } => 3,
            Self::Query => 4,
        }
    }

    fn of(number: u8) -> Self {
        match number {
            0 => Self::Own,
            1 => Self::Command,
            2 => Self::Running { schema: false },
            3 => Self::Running { schema: true },
            _ => Self::Query,
        }
    }
}

/// The effects of a statement, as seen while it was prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// It changes the schema.
    pub schema: bool,
    /// It changes the statistics that query plans depend on.
    pub statistics: bool,
    /// SQLite may run statements of its own inside it.
    pub nested: bool,
    /// It writes rows itself, and not only through its triggers.
    pub writes: bool,
    /// It inserts rows itself.
    pub inserts: bool,
    /// It may add events, itself or through its triggers.
    pub notifies: bool,
}

impl Effects {
    /// Returns whether SQLite counts the rows that the statement changes. It does not count rows of its own tables.
    pub fn counts(self) -> bool {
        self.writes && !self.schema && !self.statistics
    }

    /// Returns whether the statement writes rows and has no other effect.
    pub fn only_write_rows(self) -> bool {
        self.writes && !self.schema && !self.statistics && !self.nested && !self.notifies
    }

    /// Adds the effects of another statement.
    pub fn add(&mut self, other: Self) {
        self.schema |= other.schema;
        self.statistics |= other.statistics;
        self.nested |= other.nested;
        self.writes |= other.writes;
        self.inserts |= other.inserts;
        self.notifies |= other.notifies;
    }
}

/// The authorizer of one connection.
#[derive(Debug)]
pub struct Gate {
    mode: AtomicU8,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    refusal: Option<String>,
    effects: Effects,
    /// The number of calls by SQLite while it prepared the statement.
    calls: u32,
    drops: bool,
    alters: bool,
    /// Whether a query reads keys.
    reads_keys: bool,
    shadows: BTreeSet<String>,
}

impl Seen {
    fn is_shadow(&self, table: &str) -> bool {
        !self.shadows.is_empty() && self.shadows.contains(&table.to_ascii_lowercase())
    }
}

/// Installs a gate that refuses what a query may not do. The store's own statements need [`Mode::Own`].
pub fn install_reader(conn: &Connection) -> rusqlite::Result<Arc<Gate>> {
    let gate = Gate::install(conn)?;
    gate.enter(Mode::Query);
    Ok(gate)
}

impl Gate {
    /// Installs a gate, in [`Mode::Own`].
    pub fn install(conn: &Connection) -> rusqlite::Result<Arc<Self>> {
        let gate = Arc::new(Self { mode: AtomicU8::new(Mode::Own.number()), seen: Mutex::default() });
        let shared = Arc::clone(&gate);
        hooks::set_authorizer(conn, move |access| shared.answer(access))?;
        Ok(gate)
    }

    /// Sets whose statement comes next. Before a command or a query, it clears what was seen of the previous statement.
    pub fn enter(&self, mode: Mode) {
        self.mode.store(mode.number(), Ordering::Relaxed);
        if matches!(mode, Mode::Command | Mode::Query) {
            let mut seen = self.seen();
            seen.refusal = None;
            seen.effects = Effects::default();
            seen.calls = 0;
            (seen.drops, seen.alters, seen.reads_keys) = (false, false, false);
        }
    }

    /// Returns why the last statement was refused, if it was, and clears the reason.
    pub fn take_refusal(&self) -> Option<String> {
        self.seen().refusal.take()
    }

    /// Returns the effects of the statement that was prepared since [`Gate::enter`].
    pub fn effects(&self) -> Effects {
        self.seen().effects
    }

    /// Returns whether the query that was prepared since [`Gate::enter`] reads the store's views of keys.
    pub(crate) fn reads_keys(&self) -> bool {
        self.seen().reads_keys
    }

    /// Sets the names of the shadow tables, in lower case: commands may not read them.
    pub(crate) fn set_shadows(&self, shadows: BTreeSet<String>) {
        self.seen().shadows = shadows;
    }

    fn answer(&self, access: Option<Access<'_>>) -> Answer {
        let mode = Mode::of(self.mode.load(Ordering::Relaxed));
        if mode == Mode::Own {
            return Answer::Allow;
        }
        let mut seen = self.seen();
        let Some(access) = access else {
            seen.refusal = Some("a name in the statement is not UTF-8".to_owned());
            return Answer::Deny;
        };
        if matches!(mode, Mode::Command | Mode::Query) {
            seen.calls = seen.calls.saturating_add(1);
            if seen.calls > ASKED_MAX {
                seen.refusal.get_or_insert_with(|| TOO_COMPLEX.to_owned());
                return Answer::Deny;
            }
        }
        if mode == Mode::Command {
            rules::note(&access, &mut seen);
        }
        seen.reads_keys |= mode == Mode::Query && rules::is_of_view(&access);
        if rules::is_left_out(&access, &seen) {
            return Answer::Skip;
        }
        match rules::decide(&access, mode, &seen) {
            Ok(()) => Answer::Allow,
            Err(refusal) => {
                seen.refusal.get_or_insert(refusal);
                Answer::Deny
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

#[cfg(test)]
mod tests;
