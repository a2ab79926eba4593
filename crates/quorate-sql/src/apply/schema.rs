//! Keeps what is remembered of the schema, here and inside SQLite, as it would be on a connection that was just opened.

use quorate_model::StoreFault;

use super::Applier;
use crate::authorizer::Effects;
use crate::classify;
use crate::schema_check::Schema;

/// A change of the schema that is rolled back makes SQLite forget all that it has loaded: schema, statistics, virtual
/// tables.
const RELOAD: [&str; 4] =
    ["SAVEPOINT reload", "CREATE TABLE _quorate_reload (a)", "ROLLBACK TO reload", "RELEASE reload"];

impl Applier {
    /// Makes caches know of `effects`: of a statement, or of a rollback that undid them. Must run in a transaction.
    pub(super) fn settle(&mut self, effects: Effects) -> Result<(), StoreFault> {
        if !effects.schema && !effects.statistics {
            return Ok(());
        }
        if effects.statistics {
            // SQLite keeps statistics until it loads the schema again, whatever happens to the rows.
            RELOAD.into_iter().try_for_each(|sql| self.own(sql))?;
            self.staged.effects.schema = true;
        }
        self.db.flush();
        self.load_schema().map_err(|error| classify::own(&error))
    }

    pub(super) fn load_schema(&mut self) -> rusqlite::Result<()> {
        let conn = self.db.connection();
        self.schema = Schema::read(conn)?;
        self.schema.connect(conn);
        self.gate.set_shadows(self.schema.shadows.clone());
        Ok(())
    }
}
