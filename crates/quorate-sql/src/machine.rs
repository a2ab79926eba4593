//! The state machine of the stores in SQLite, as apply sees it: the write connection, and what keeps it deterministic.
//!
//! The parts of a [`Machine`](quorate_apply::Machine): transactions and scopes ([`engine`]), the tables of apply's
//! records ([`records`]), and the commands of the stores ([`stores`]): those of SQL ([`statement`], [`bulk`]), those of
//! keys ([`keys`]), those of locks ([`locks`]) and those of events ([`events`]). An entry runs in a SAVEPOINT. A plain
//! statement that undoes itself needs none, and neither does a command of keys, locks or events. Some failures end the
//! whole transaction (`ON CONFLICT ROLLBACK`, an exceeded budget, and so on).
//!
//! # Invariants
//!
//! - The cached schema, here and inside SQLite, is always that of a newly opened connection ([`schema`]).
//! - A statement of the user runs under the gate of the authorizer and within the entry's budget ([`statement`]).

use std::sync::Arc;

use quorate_env::Instant;
use quorate_model::keys::EventClasses;
use quorate_model::{StoreFault, StoreIdentity};
use rusqlite::Connection;

use crate::authorizer::{Effects, Gate};
use crate::determinism::Determinism;
use crate::events::Retention;
use crate::extensions::Extensions;
use crate::ffi::database::Database;
use crate::records::{self, applied_row};
use crate::schema_check::{Reserved, Schema};
use crate::slow::SlowLog;
use crate::supervision::Supervision;
use crate::{classify, stack};

mod bulk;
mod engine;
mod events;
mod keys;
mod locks;
mod read_check;
mod schema;
mod statement;
mod stores;

use engine::Scopes;
use events::EventsState;
use keys::KeysState;
use locks::LocksState;

/// The write connection with its prepared statements. Each user's statement is kept with its [`Note`].
pub(crate) type Db = Database<Note>;

/// Facts cached per prepared statement, valid until the schema changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    effects: Effects,
    /// The statement only writes rows. If it fails, either it leaves nothing behind or the rows that it leaves were
    /// counted. It does not read the counters of earlier statements (`changes()` and the like).
    is_plain: bool,
}

/// Applies the entries of one database.
pub type Applier = quorate_apply::Applier<SqlMachine>;

/// One database with its write connection. See the module's documentation.
pub struct SqlMachine {
    pub(crate) db: Db,
    gate: Arc<Gate>,
    determinism: Determinism,
    reserved: Reserved,
    schema: Schema,
    /// The effects of what ran in the open transaction, by scope.
    scopes: Scopes,
    /// The effects that rollbacks have undone. The caches must be refreshed before the next statement.
    undone_effects: Effects,
    /// The index of the entry that runs; 0 in a dry run.
    index: u64,
    keys: KeysState,
    locks: LocksState,
    events: EventsState,
    /// The program's functions and collations. Those that an entry has enabled are registered on the connection.
    extensions: Extensions,
    /// Logs entries that take long.
    slow: SlowLog,
    /// When the entry that runs has begun, if slow ones are logged.
    begun: Option<Instant>,
}

impl SqlMachine {
    /// Takes a write connection, and creates the store's own tables if the database has none.
    ///
    /// # Errors
    ///
    /// A fault if the database can't be read or written, if it has a newer layout or needs an extension that is missing
    /// ([`StoreFault::Unsupported`]), or if it holds the data of another cluster, epoch or group.
    pub fn open(conn: Connection, identity: &StoreIdentity, extensions: &Extensions) -> Result<Self, StoreFault> {
        let own = |error: rusqlite::Error| classify::own(&error);
        match applied_row::read(&conn)? {
            Some(row) if row.identity != *identity => {
                let text =
                    format!("the database belongs to {:?}, expected {identity:?}; use another directory", row.identity);
                return Err(StoreFault::Io(text));
            }
            Some(_) => records::upgrade(&conn).map_err(own)?,
            None => drop(records::create(&conn, *identity).map_err(own)?),
        }
        let enabled = extensions.enabled(&conn)?;
        extensions.know(&enabled)?;
        extensions.register(&conn, enabled.iter().map(String::as_str)).map_err(own)?;
        let gate = Gate::install(&conn).map_err(own)?;
        let determinism = Determinism::install(&conn).map_err(own)?;
        let reserved = Reserved::read(&conn).map_err(own)?;
        let mut machine = Self {
            db: Db::new(conn),
            gate,
            determinism,
            reserved,
            schema: Schema::default(),
            scopes: Scopes::default(),
            undone_effects: Effects::default(),
            index: 0,
            keys: KeysState::default(),
            locks: LocksState::default(),
            events: EventsState::default(),
            extensions: extensions.clone(),
            slow: SlowLog::default(),
            begun: None,
        };
        stack::for_write(|| machine.load_schema().map_err(own))?;
        Ok(machine)
    }

    /// Sets the log for slow entries.
    #[must_use]
    pub fn with_slow_log(self, slow: SlowLog) -> Self {
        Self { slow, ..self }
    }

    /// Sets how many events are kept.
    #[must_use]
    pub fn keeping_events(mut self, retention: Retention) -> Self {
        self.events.retention = retention;
        self
    }

    /// Lets `supervision` observe the statements. Work stops when the store is being closed.
    #[must_use]
    pub(crate) fn supervised(self, supervision: Arc<Supervision>) -> Self {
        self.determinism.budget.supervise(supervision);
        self
    }

    /// Says whether callers of this node wait for the entries that follow. If none wait, an entry that takes long is
    /// stopped sooner.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.determinism.budget.set_awaited(is_awaited);
    }

    /// Sets which changes of keys the entries that follow note; they change nothing else.
    pub fn note_changes(&mut self, wanted: EventClasses) {
        self.keys.wanted = wanted;
    }

    /// The write connection, for checkpoints and other work between batches.
    pub fn connection(&self) -> &Connection {
        self.db.connection()
    }

    /// Runs one of the store's own statements.
    fn own(&mut self, sql: &'static str) -> Result<(), StoreFault> {
        self.db.execute(sql, []).map(drop).map_err(|error| classify::own(&error))
    }
}

#[cfg(test)]
pub(crate) mod tests;
