//! Keeps the cached schema, here and inside SQLite, as it would be on a newly opened connection.

use quorate_apply::{Engine, Trouble};
use quorate_model::{Failure, StoreFault};

use super::SqlMachine;
use crate::authorizer::Effects;
use crate::classify;
use crate::schema_check::Schema;

/// A schema change that is rolled back makes SQLite discard its loaded schema, statistics and virtual tables.
const RELOAD: [&str; 4] =
    ["SAVEPOINT reload", "CREATE TABLE _quorate_reload (a)", "ROLLBACK TO reload", "RELEASE reload"];

impl SqlMachine {
    /// Refreshes the caches after a statement with these effects, or after a rollback that undid them. Must run in a
    /// transaction.
    pub(super) fn refresh_caches(&mut self, effects: Effects) -> Result<(), StoreFault> {
        if !effects.schema && !effects.statistics {
            return Ok(());
        }
        if effects.statistics {
            // SQLite keeps loaded statistics until it loads the schema again, whatever happens to their rows.
            self.forget_schema()?;
            self.scopes.innermost.schema = true;
        }
        self.db.flush();
        self.load_schema().map_err(|error| classify::own(&error))
    }

    /// Handles a statement that left a schema that SQLite can't read back. SQLite reports the database as damaged and
    /// writes no more in this transaction, so all of it is rolled back.
    pub(super) fn unreadable(&mut self, failure: Failure) -> Trouble {
        match self.give_up() {
            Ok(()) => failure.into(),
            Err(fault) => fault.into(),
        }
    }

    /// Makes SQLite load the schema again before its next use.
    pub(super) fn forget_schema(&mut self) -> Result<(), StoreFault> {
        RELOAD.into_iter().try_for_each(|sql| self.own(sql))
    }

    pub(super) fn load_schema(&mut self) -> rusqlite::Result<()> {
        let conn = self.db.connection();
        self.schema = Schema::read(conn)?;
        self.schema.connect(conn)?;
        self.gate.set_shadows(self.schema.shadows.clone());
        Ok(())
    }
}
