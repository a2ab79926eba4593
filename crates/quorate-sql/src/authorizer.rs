//! What statements may do: SQLite asks while it prepares them, and the answer comes with a reason.
//!
//! A [`Gate`] is installed once on a connection, because installing expires all prepared statements, and is told by
//! [`Gate::enter`] whose statement comes next. [`rules`] holds what is denied; what SQLite does not ask about (the new
//! name of a table, what a foreign key refers to) is for [`schema_check`](crate::schema_check).
//!
//! Invariant: the answer depends only on the statement, the schema and the mode, so that a statement that SQLite
//! prepares again by itself gets the same one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use quorate_env::lock;
use rusqlite::Connection;

use crate::ffi::hooks::{self, Access, Answer};

pub(crate) mod rules;

/// What SQLite may ask while it prepares one statement: for each subquery, each column and each function. Few
/// statements of a megabyte have so many, but SQLite copies parts of a statement: window functions that are nested in
/// each other double the work with each level, some seconds for so many, and no budget sees it.
pub const ASKED_MAX: u32 = 50_000;

const TOO_COMPLEX: &str = "SQLite would plan this statement for too long; nest less, or split it";

/// Whose statement is at work, and how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The store's own: everything is allowed.
    Own,
    /// A command of an entry is being prepared.
    Command,
    /// A command runs; what asks now are the statements that virtual tables prepare inside it. `schema` tells whether
    /// it changes the schema.
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

/// What a statement does besides reading and writing rows, as seen while it was prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// It changes the schema.
    pub schema: bool,
    /// It changes the statistics that plans rest on.
    pub statistics: bool,
    /// SQLite may run statements of its own inside it.
    pub nested: bool,
    /// It writes rows itself, not only by its triggers.
    pub writes: bool,
    /// It inserts rows itself.
    pub inserts: bool,
}

impl Effects {
    /// Whether SQLite counts the rows that it changes. What it writes into tables of its own, it does not count.
    pub fn counts(self) -> bool {
        self.writes && !self.schema && !self.statistics
    }

    /// Whether it writes rows of tables and does nothing else.
    pub fn only_write_rows(self) -> bool {
        self.writes && !self.schema && !self.statistics && !self.nested
    }

    /// Adds those of another statement.
    pub fn add(&mut self, other: Self) {
        self.schema |= other.schema;
        self.statistics |= other.statistics;
        self.nested |= other.nested;
        self.writes |= other.writes;
        self.inserts |= other.inserts;
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
    /// What SQLite has asked while it prepared the statement.
    asked: u32,
    drops: bool,
    alters: bool,
    shadows: BTreeSet<String>,
}

impl Seen {
    fn is_shadow(&self, table: &str) -> bool {
        !self.shadows.is_empty() && self.shadows.contains(&table.to_ascii_lowercase())
    }
}

/// Makes a connection refuse what a query may not do. Its own statements run in [`Mode::Own`].
pub fn install_reader(conn: &Connection) -> rusqlite::Result<Arc<Gate>> {
    let gate = Gate::install(conn)?;
    gate.enter(Mode::Query);
    Ok(gate)
}

impl Gate {
    /// Installs a gate that stands in [`Mode::Own`].
    pub fn install(conn: &Connection) -> rusqlite::Result<Arc<Self>> {
        let gate = Arc::new(Self { mode: AtomicU8::new(Mode::Own.number()), seen: Mutex::default() });
        let asked = Arc::clone(&gate);
        hooks::set_authorizer(conn, move |access| asked.answer(access))?;
        Ok(gate)
    }

    /// Says whose statements come next, and forgets what was seen of those before.
    pub fn enter(&self, mode: Mode) {
        self.mode.store(mode.number(), Ordering::Relaxed);
        if matches!(mode, Mode::Command | Mode::Query) {
            let mut seen = self.seen();
            seen.refusal = None;
            seen.effects = Effects::default();
            seen.asked = 0;
            (seen.drops, seen.alters) = (false, false);
        }
    }

    /// Why the last statement was refused, if it was.
    pub fn take_refusal(&self) -> Option<String> {
        self.seen().refusal.take()
    }

    /// What was seen of the statement since [`Gate::enter`].
    pub fn effects(&self) -> Effects {
        self.seen().effects
    }

    /// Tells which tables belong to virtual tables: commands may not read them. Names are in lower case.
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
            seen.asked = seen.asked.saturating_add(1);
            if seen.asked > ASKED_MAX {
                seen.refusal.get_or_insert_with(|| TOO_COMPLEX.to_owned());
                return Answer::Deny;
            }
        }
        if mode == Mode::Command {
            rules::note(&access, &mut seen);
        }
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
