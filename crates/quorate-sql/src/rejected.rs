//! The indexes of entries that the cluster decided not to run.
//!
//! A node that asks how an entry was applied must be able to tell a rejected entry from one that ran. The indexes are
//! therefore stored in `_quorate_rejected`, in the transaction that applies the entry, and are part of images.
//!
//! Invariants: only the latest [`REJECTIONS_MAX`] indexes are kept; the copy in memory equals the committed rows.

use quorate_model::REJECTIONS_MAX;
use rusqlite::{Connection, params};

use crate::apply::Db;

/// Creates the table.
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS _quorate_rejected (entry INTEGER PRIMARY KEY) STRICT";

const ALL: &str = "SELECT entry FROM _quorate_rejected ORDER BY entry";
const ADD: &str = "INSERT OR IGNORE INTO _quorate_rejected (entry) VALUES (?1)";
const TRIM: &str = "DELETE FROM _quorate_rejected
    WHERE entry NOT IN (SELECT entry FROM _quorate_rejected ORDER BY entry DESC LIMIT ?1)";

/// The rejected indexes, as committed. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rejected(Vec<u64>);

impl Rejected {
    /// Reads the indexes from the database.
    pub(crate) fn load(conn: &Connection) -> rusqlite::Result<Self> {
        let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0).map(i64::cast_unsigned);
        Ok(Self(conn.prepare(ALL)?.query_map([], read)?.collect::<Result<_, _>>()?))
    }

    /// Returns the indexes in ascending order.
    pub(crate) fn indexes(&self) -> &[u64] {
        &self.0
    }

    /// Adds an index in the open transaction.
    pub(crate) fn write(db: &mut Db, index: u64) -> rusqlite::Result<()> {
        db.execute(ADD, params![index.cast_signed()])?;
        db.execute(TRIM, params![i64::try_from(REJECTIONS_MAX).unwrap_or(i64::MAX)])?;
        Ok(())
    }

    /// Adds written indexes to the copy in memory, once they are committed.
    pub(crate) fn adopt(&mut self, written: &[u64]) {
        self.0.extend_from_slice(written);
        let surplus = self.0.len().saturating_sub(REJECTIONS_MAX);
        self.0.drain(..surplus);
    }
}
