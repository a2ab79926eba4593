//! Applies committed entries: many to one transaction of SQLite, each as if it had one of its own.
//!
//! An entry runs in a SAVEPOINT ([`entry`]), so a failed one leaves nothing behind; a plain statement that undoes
//! itself needs none. Some failures end the whole transaction (`ON CONFLICT ROLLBACK`, an exceeded budget, and so on):
//! then the batch is done again from its start, one entry a transaction ([`batch`]). The last stamp, the outcome hash
//! and the sessions are staged and adopted at COMMIT.
//!
//! # Invariants
//!
//! - No input makes apply panic, stop, or run without bound: a statement's trouble is an outcome.
//! - The node's trouble is never an outcome: it rolls back, and nothing of the transaction was applied.
//! - Outcomes and rows do not depend on where batches end, on restarts, or on what is in caches.
//! - The applied row is written in the transaction of the data.

use std::collections::VecDeque;
use std::sync::Arc;

use quorate_model::{Applied, Entry, Outcome, StoreFault};
use rusqlite::Connection;

use self::ahead::Ahead;
use self::batch::{Doomed, Failing};
use self::dry_run::OpenDryRun;
pub use self::dry_run::{DryRunError, DryRunResult};
use crate::applied_row::{self, AppliedRow};
use crate::authorizer::{Effects, Gate};
use crate::classify;
use crate::determinism::Determinism;
use crate::extensions::{self, Extensions};
use crate::ffi::database::Database;
use crate::identity::StoreIdentity;
use crate::outcome_hash::OutcomeHash;
use crate::rejected::{self, Rejected};
use crate::schema_check::{Reserved, Schema};
use crate::session::{self, Sessions};
use crate::slow::SlowLog;
use crate::stack;
use crate::supervision::Supervision;

mod ahead;
mod batch;
mod bulk;
mod dry_run;
mod entry;
mod read_check;
mod schema;
mod statement;

/// The write connection with its prepared statements; each user's statement is kept with what is known of it.
pub(crate) type Db = Database<Note>;

/// What is known of a statement since it was prepared, as long as the schema stays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    effects: Effects,
    /// It writes rows and does nothing else; when it fails, either it leaves nothing behind or what it leaves was
    /// counted; and it never asks what was counted before it.
    is_plain: bool,
}

/// Entries whose outcome hash [`Applier::outcome_hash_at`] remembers.
pub const HASHES_KEPT: usize = 8192;

/// Applies entries to one database, on one thread at a time.
pub struct Applier {
    db: Db,
    gate: Arc<Gate>,
    determinism: Determinism,
    sessions: Sessions,
    reserved: Reserved,
    schema: Schema,
    /// What the database says, as of the last COMMIT.
    row: AppliedRow,
    staged: Staged,
    /// What the open transaction did before it was asked for.
    ahead: Ahead,
    /// The interactive transaction that the open one is, if it is one.
    dry_run: Option<OpenDryRun>,
    /// Entries that the cluster decided not to run.
    rejected: Rejected,
    /// The latest entry that ended a transaction.
    doomed: Option<Doomed>,
    /// The latest entry that this node could not run.
    failing: Option<Failing>,
    /// The latest entries and the outcome hash after each, the oldest first.
    hashes: VecDeque<(u64, u64)>,
    /// The entry that asks for a look at the state in which the latest batch ended.
    verification: Option<u64>,
    /// What the program brings along; what of it is enabled is registered.
    extensions: Extensions,
    /// Tells of entries that take long.
    slow: SlowLog,
}

/// What the transaction at work has changed so far besides the database.
#[derive(Debug, Default)]
struct Staged {
    row: AppliedRow,
    hash: OutcomeHash,
    hashes: Vec<(u64, u64)>,
    /// Rejected entries.
    rejected: Vec<u64>,
    /// What statements did since the last COMMIT, which a rollback would undo behind the caches.
    effects: Effects,
    /// The entry that asks for a look at the state, if this transaction is its own.
    verification: Option<u64>,
    /// Whether a rollback did so, and caches must be made anew before the next statement.
    unsettled: Effects,
}

impl Applier {
    /// Takes a write connection, and makes the store's own tables if the database has none.
    ///
    /// # Errors
    ///
    /// A fault if the database can't be read or written, if it is of a newer layout or needs an extension that is not
    /// there ([`StoreFault::Unsupported`]), or if it holds the data of another cluster, epoch or group.
    pub fn open(conn: Connection, identity: &StoreIdentity, extensions: &Extensions) -> Result<Self, StoreFault> {
        let own = |error: rusqlite::Error| classify::own(&error);
        let row = match AppliedRow::read(&conn)? {
            Some(row) if row.identity != *identity => {
                let text = format!("it belongs to {:?}, expected is {identity:?}; use another directory", row.identity);
                return Err(StoreFault::Io(text));
            }
            Some(row) => {
                upgrade(&conn).map_err(own)?;
                row
            }
            None => create(&conn, *identity).map_err(own)?,
        };
        let enabled = extensions.enabled(&conn)?;
        extensions.know(&enabled)?;
        extensions.register(&conn, enabled.iter().map(String::as_str)).map_err(own)?;
        let gate = Gate::install(&conn).map_err(own)?;
        let determinism = Determinism::install(&conn).map_err(own)?;
        let sessions = Sessions::load(&conn)?;
        let rejected = Rejected::load(&conn).map_err(own)?;
        let reserved = Reserved::read(&conn).map_err(own)?;
        let staged = Staged { hash: OutcomeHash::new(row.outcome_hash), row: row.clone(), ..Staged::default() };
        let mut applier = Self {
            db: Db::new(conn),
            gate,
            determinism,
            sessions,
            reserved,
            schema: Schema::default(),
            row,
            staged,
            ahead: Ahead::default(),
            dry_run: None,
            rejected,
            doomed: None,
            failing: None,
            hashes: VecDeque::new(),
            verification: None,
            extensions: extensions.clone(),
            slow: SlowLog::default(),
        };
        stack::for_write(|| applier.load_schema().map_err(own))?;
        Ok(applier)
    }

    /// The same, telling of slow entries there.
    #[must_use]
    pub fn telling(self, slow: SlowLog) -> Self {
        Self { slow, ..self }
    }

    /// The same, at which others look. It gives up what it does once the store is being closed.
    #[must_use]
    pub(crate) fn supervised(self, supervision: Arc<Supervision>) -> Self {
        self.determinism.budget.supervise(supervision);
        self
    }

    /// Fails once the store is being closed: an interrupted statement must not become an outcome, and its error, or the
    /// lack of one, may have been taken for something else since.
    fn check_not_closing(&self) -> Result<(), StoreFault> {
        if self.determinism.budget.is_closing() { Err(StoreFault::Closed) } else { Ok(()) }
    }

    /// Says whether callers of this node wait for the entries that follow. Where none do, an entry that takes long is
    /// given up sooner.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.determinism.budget.set_awaited(is_awaited);
    }

    /// Applies entries in order, each as if alone, and adds the outcome of each that is committed; an entry that is no
    /// proposal has an empty reply. It stops behind an entry that asks for a verification, when those before have taken
    /// long, and before one that is known to take long: so callers wait for what is before their own entry, and not for
    /// what is behind it. The rest has no outcomes and has to be handed over again.
    ///
    /// # Errors
    ///
    /// The node's own trouble with one entry: the first that has no outcome.
    pub fn apply_batch(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> Result<(), StoreFault> {
        let done = stack::for_write(|| self.batch(entries, outcomes));
        crate::vfs::clock::set(None);
        done.map_err(|fault| self.check_not_closing().err().unwrap_or(fault))
    }

    /// Where the database stands.
    pub fn applied(&self) -> &Applied {
        &self.row.applied
    }

    /// The applied row.
    pub fn row(&self) -> &AppliedRow {
        &self.row
    }

    /// The running hash of outcomes, as of the last applied entry.
    pub fn outcome_hash(&self) -> u64 {
        self.row.outcome_hash
    }

    /// The running hash of outcomes after the entry at `index`, if that is the last one, or among the last
    /// [`HASHES_KEPT`] that were applied since the start.
    pub fn outcome_hash_at(&self, index: u64) -> Option<u64> {
        if self.row.applied.log_id.is_some_and(|id| id.index == index) {
            return Some(self.row.outcome_hash);
        }
        let place = self.hashes.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        self.hashes.get(place).map(|(_, hash)| *hash)
    }

    /// The latest entries that the cluster decided not to run.
    pub fn rejected(&self) -> &[u64] {
        self.rejected.indexes()
    }

    /// How many sessions the database holds.
    pub fn sessions(&self) -> u64 {
        self.sessions.count()
    }

    /// The index of the entry that asks for a look at the present state. Told once.
    pub fn take_verification(&mut self) -> Option<u64> {
        self.verification.take()
    }

    /// The write connection, for checkpoints and the like between batches.
    pub fn connection(&self) -> &Connection {
        self.db.connection()
    }
}

impl std::fmt::Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("row", &self.row).finish_non_exhaustive()
    }
}

/// Makes the store's own tables.
pub(crate) fn create(conn: &Connection, identity: StoreIdentity) -> rusqlite::Result<AppliedRow> {
    let row = AppliedRow::new(identity);
    let transaction = conn.unchecked_transaction()?;
    for table in [applied_row::TABLE, extensions::TABLE, rejected::TABLE].iter().chain(&session::TABLES) {
        conn.execute(table, [])?;
    }
    row.write(|values| conn.execute(applied_row::WRITE, values))?;
    transaction.commit()?;
    Ok(row)
}

/// Brings the store's own tables of an older layout up to this version's.
pub(crate) fn upgrade(conn: &Connection) -> rusqlite::Result<()> {
    session::upgrade(conn)?;
    conn.execute(rejected::TABLE, [])?;
    conn.execute(extensions::TABLE, []).map(drop)
}

#[cfg(test)]
mod tests;
