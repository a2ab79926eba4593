//! Applies committed entries: many in one SQLite transaction, each with the result that it would have alone.
//!
//! An entry runs in a SAVEPOINT ([`entry`]), so a failed entry leaves nothing behind. A plain statement that undoes
//! itself needs no savepoint. Some failures end the whole transaction (`ON CONFLICT ROLLBACK`, an exceeded budget, and
//! so on). The batch is then applied again from its start, one entry per transaction ([`batch`]). The last stamp, the
//! outcome hash and the sessions are staged, and adopted at COMMIT.
//!
//! # Invariants
//!
//! - No input makes apply panic, stop, or run without bound. The failure of a statement is an outcome.
//! - A fault of the node is never an outcome. It rolls back the transaction, and nothing of the transaction is applied.
//! - Outcomes and rows do not depend on where batches end, on restarts, or on the contents of caches.
//! - The applied row is written in the same transaction as the data.

use std::collections::VecDeque;
use std::sync::Arc;

use quorate_model::{Applied, Entry, Outcome, StoreFault};
use rusqlite::Connection;

use self::ahead::Ahead;
use self::batch::{Failing, KnownToEnd};
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

/// The number of latest entries whose outcome hash [`Applier::outcome_hash_at`] returns.
pub const HASHES_KEPT: usize = 8192;

/// Applies entries to one database, on one thread at a time.
pub struct Applier {
    db: Db,
    gate: Arc<Gate>,
    determinism: Determinism,
    sessions: Sessions,
    reserved: Reserved,
    schema: Schema,
    /// The applied row as of the last COMMIT.
    row: AppliedRow,
    staged: Staged,
    /// The entries that ran in the open transaction before they were committed.
    ahead: Ahead,
    /// The dry run in the open transaction, if there is one.
    dry_run: Option<OpenDryRun>,
    /// Entries that the cluster decided not to run.
    rejected: Rejected,
    /// The latest entry that is known to end its transaction.
    known_to_end: Option<KnownToEnd>,
    /// The latest entry that this node could not run, or not ahead of its commit.
    failing: Option<Failing>,
    /// The latest entries and the outcome hash after each, the oldest first.
    hashes: VecDeque<(u64, u64)>,
    /// The entry that asks to verify the state at the end of the latest batch.
    verification: Option<u64>,
    /// The program's functions and collations. Those that an entry has enabled are registered on the connection.
    extensions: Extensions,
    /// Logs entries that take long.
    slow: SlowLog,
}

/// The changes of the open transaction that are kept outside the database.
#[derive(Debug, Default)]
struct Staged {
    row: AppliedRow,
    hash: OutcomeHash,
    hashes: Vec<(u64, u64)>,
    /// Rejected entries.
    rejected: Vec<u64>,
    /// The effects of statements since the last COMMIT. A rollback undoes them without the caches.
    effects: Effects,
    /// The entry that asks for a verification, if this transaction applies that entry.
    verification: Option<u64>,
    /// The effects that a rollback has undone. The caches must be refreshed before the next statement.
    undone_effects: Effects,
}

impl Applier {
    /// Takes a write connection, and creates the store's own tables if the database has none.
    ///
    /// # Errors
    ///
    /// A fault if the database can't be read or written, if it has a newer layout or needs an extension that is missing
    /// ([`StoreFault::Unsupported`]), or if it holds the data of another cluster, epoch or group.
    pub fn open(conn: Connection, identity: &StoreIdentity, extensions: &Extensions) -> Result<Self, StoreFault> {
        let own = |error: rusqlite::Error| classify::own(&error);
        let row = match AppliedRow::read(&conn)? {
            Some(row) if row.identity != *identity => {
                let text =
                    format!("the database belongs to {:?}, expected {identity:?}; use another directory", row.identity);
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
            known_to_end: None,
            failing: None,
            hashes: VecDeque::new(),
            verification: None,
            extensions: extensions.clone(),
            slow: SlowLog::default(),
        };
        stack::for_write(|| applier.load_schema().map_err(own))?;
        Ok(applier)
    }

    /// Sets the log for slow entries.
    #[must_use]
    pub fn telling(self, slow: SlowLog) -> Self {
        Self { slow, ..self }
    }

    /// Lets `supervision` observe the applier. The applier stops its work when the store is being closed.
    #[must_use]
    pub(crate) fn supervised(self, supervision: Arc<Supervision>) -> Self {
        self.determinism.budget.supervise(supervision);
        self
    }

    /// Fails if the store is being closed. An interrupted statement must not become an outcome, and its error, or the
    /// lack of one, may have been taken for something else since.
    fn check_not_closing(&self) -> Result<(), StoreFault> {
        if self.determinism.budget.is_closing() { Err(StoreFault::Closed) } else { Ok(()) }
    }

    /// Says whether callers of this node wait for the entries that follow. If none wait, an entry that takes long is
    /// stopped sooner.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.determinism.budget.set_awaited(is_awaited);
    }

    /// Applies entries in order, each as if alone, and appends the outcome of each committed entry. An entry that is
    /// not a proposal has an empty reply.
    ///
    /// Stops after an entry that asks for a verification, after entries that have taken long, and before an entry that
    /// is known to take long. So callers wait for the entries before their own, and not for the entries after it. The
    /// remaining entries have no outcomes and must be handed over again.
    ///
    /// # Errors
    ///
    /// A fault of the node with one entry: the first entry that has no outcome.
    pub fn apply_batch(&mut self, entries: &[Entry], outcomes: &mut Vec<Outcome>) -> Result<(), StoreFault> {
        let done = stack::for_write(|| self.batch(entries, outcomes));
        crate::vfs::clock::set(None);
        done.map_err(|fault| self.check_not_closing().err().unwrap_or(fault))
    }

    /// The position and the membership that the database has applied.
    pub fn applied(&self) -> &Applied {
        &self.row.applied
    }

    /// The applied row.
    pub fn row(&self) -> &AppliedRow {
        &self.row
    }

    /// The running hash of outcomes after the last applied entry.
    pub fn outcome_hash(&self) -> u64 {
        self.row.outcome_hash
    }

    /// The running hash of outcomes after the entry at `index`. Known for the last applied entry, and for the last
    /// [`HASHES_KEPT`] entries that were applied since the start.
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

    /// Returns the index of the entry that asks for a verification of the present state, and forgets it.
    pub fn take_verification(&mut self) -> Option<u64> {
        self.verification.take()
    }

    /// The write connection, for checkpoints and other work between batches.
    pub fn connection(&self) -> &Connection {
        self.db.connection()
    }
}

impl std::fmt::Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("row", &self.row).finish_non_exhaustive()
    }
}

/// Creates the store's own tables.
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

/// Upgrades the store's own tables from an older layout.
pub(crate) fn upgrade(conn: &Connection) -> rusqlite::Result<()> {
    session::upgrade(conn)?;
    conn.execute(rejected::TABLE, [])?;
    conn.execute(extensions::TABLE, []).map(drop)
}

#[cfg(test)]
mod tests;
