//! Maintenance of the database while others use it: ANALYZE, REINDEX and VACUUM, changes of the schema, and migrations
//! that all nodes and several clients run at the same time.
//!
//! Invariant: each list of migrations is the previous list and one more migration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use quorate::{
    Error, FailureKind, Migrations, Sql,
    sql::{MigrateError, Migration},
};
use quorate_env::{Env, Rng, sleep, timeout};
use quorate_model::{Appointment, Archiver, ControlReply};

use super::{WRITE_LIMIT, connected};
use crate::cluster::Cluster;
use crate::coverage::{
    APPOINTED, EXTENDED, MIGRATION, NOT_APPOINTED, NOT_EXTENDED, NOT_TICKED, SCHEMA, TICKED, UPKEEP, VACUUM,
};
use crate::ledger::Ledger;

/// The longest pause between two actions, in milliseconds.
const PAUSE_MILLIS: u64 = 2_500;

/// Callers begin a run of migrations at different times, within this many milliseconds.
const LATER_MILLIS: u64 = 40;

/// The client that maintains the database.
pub(super) struct Upkeep {
    cluster: Cluster,
    ledger: Ledger,
    rng: Rng,
    stop: Arc<AtomicBool>,
    calm: u64,
    /// The number of migrations in the last list.
    migrations: u64,
    /// The number of columns that the client has tried to add.
    columns: u64,
}

impl Upkeep {
    pub(super) fn new(cluster: &Cluster, ledger: &Ledger, stop: &Arc<AtomicBool>, calm: u32) -> Self {
        Self {
            cluster: cluster.clone(),
            ledger: ledger.clone(),
            rng: cluster.world().rng().fork(),
            stop: Arc::clone(stop),
            calm: calm.into(),
            migrations: 0,
            columns: 0,
        }
    }

    pub(super) async fn run(mut self, env: Env) {
        let Some(client) = connected(&env, &self.cluster).await else { return };
        while !self.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(self.rng.below(PAUSE_MILLIS * self.calm))).await;
            let sql = client.sql().with_deadline(WRITE_LIMIT);
            match self.rng.below(8) {
                0 | 1 => self.migrate(&sql).await,
                2 => self.use_new_function(&sql).await,
                3 => {
                    self.use_new_level().await;
                    self.appoint().await;
                }
                _ => self.maintain(&sql).await,
            }
        }
    }

    /// Runs the same list of migrations, one longer than before, on all nodes that serve and by two clients.
    async fn migrate(&mut self, remote: &Sql) {
        self.migrations += 1;
        self.ledger.migrating(self.migrations);
        let migrations = (1..=self.migrations).map(migration).collect::<Result<Vec<_>, _>>();
        let migrations = match migrations.and_then(Migrations::new) {
            Ok(migrations) => migrations,
            Err(error) => return self.cluster.history().violation(format!("the migrations are not valid: {error}")),
        };
        let nodes = self.cluster.names().iter().filter_map(|name| self.cluster.sql(name));
        let handles = nodes.chain([remote.clone(), remote.clone()]).map(|sql| sql.with_deadline(WRITE_LIMIT));
        let calls = join_all(handles.map(|sql| self.migrate_by(sql, &migrations))).await;
        if calls.into_iter().filter(|is_done| *is_done).count() > 1 {
            self.ledger.happened(MIGRATION);
        }
    }

    /// Runs all migrations by a handle. Returns whether that succeeded; the handle must then see all rows that they
    /// wrote.
    async fn migrate_by(&self, sql: Sql, migrations: &Migrations) -> bool {
        sleep(Duration::from_millis(self.rng.below(LATER_MILLIS))).await;
        let migrated = sql.migrate(migrations).await;
        let run = migrated.as_ref().map(|run| run.iter().map(Migration::number).collect::<Vec<_>>());
        self.cluster.world().trace().add("upkeep", format_args!("{} migrations: {run:?}", self.migrations));
        match migrated {
            Ok(_) => self.ledger.migrated(self.migrations),
            Err(MigrateError::Failed { error, .. } | MigrateError::Database(error)) => {
                self.excuse("a migration", &error);
                return false;
            }
            Err(error) => {
                self.cluster.history().violation(format!("the migrations contradict each other: {error}"));
                return false;
            }
        }
        match sql.query_one::<u64>("SELECT count(*) FROM steps", ()).await {
            Ok(found) if found < self.migrations => {
                let text = format!("{sql:?} has run {} migrations, but shows only {found}", self.migrations);
                self.cluster.history().violation(text);
            }
            Ok(_) => {}
            Err(error) => self.excuse("a read of what migrations did", &error),
        }
        true
    }

    /// Proposes what only the new format level has. Until all nodes run the current version, that is refused.
    async fn use_new_level(&self) {
        let at = self.rng.below(self.cluster.names().len() as u64);
        let Some(name) = usize::try_from(at).ok().and_then(|at| self.cluster.names().get(at)) else { return };
        let Ok(Some(ticked)) = timeout(WRITE_LIMIT, self.cluster.tick(name)).await else { return };
        self.cluster.world().trace().add("upkeep", format_args!("a tick by {name}: {ticked:?}"));
        match ticked {
            Ok(()) => self.ledger.happened(TICKED),
            Err(Error::Failed(failure)) if failure.kind == FailureKind::Unsupported => {
                self.ledger.happened(NOT_TICKED);
            }
            Err(error) => self.excuse("a tick", &error),
        }
    }

    /// Proposes an archiver in the place of the one that a node knows, or of one that there never is.
    async fn appoint(&self) {
        let at = self.rng.below(self.cluster.names().len() as u64);
        let Some(name) = usize::try_from(at).ok().and_then(|at| self.cluster.names().get(at)) else { return };
        let Some((status, _)) = self.cluster.admin(name) else { return };
        let pick = usize::try_from(self.rng.below(status.members.len() as u64 + 1)).unwrap_or(0);
        let node = status.members.get(pick).map(|member| member.id);
        let is_right = self.rng.chance(0.7);
        let expected = if is_right { Archiver::token_of(status.archiver) } else { u64::MAX };
        let appointed = timeout(WRITE_LIMIT, self.cluster.appoint(name, Appointment { node, expected })).await;
        let Ok(Some(appointed)) = appointed else { return };
        self.cluster.world().trace().add("upkeep", format_args!("an archiver by {name}: {appointed:?}"));
        match appointed {
            Ok(ControlReply::Archiver(_)) => self.ledger.happened(NOT_APPOINTED),
            Ok(_) if is_right => self.ledger.happened(APPOINTED),
            Ok(reply) => self.cluster.history().violation(format!("an archiver that is none was replaced: {reply:?}")),
            Err(Error::Failed(failure)) if failure.kind == FailureKind::Unsupported => {}
            Err(error) => self.excuse("an appointment", &error),
        }
    }

    async fn maintain(&mut self, sql: &Sql) {
        let (what, statement) = match self.rng.below(16) {
            0..4 => (SCHEMA, "CREATE INDEX IF NOT EXISTS events_by_draw ON events (draw)"),
            4..7 => (SCHEMA, "DROP INDEX IF EXISTS events_by_draw"),
            7..10 => {
                self.columns += 1;
                (SCHEMA, "")
            }
            10..12 => (UPKEEP, "ANALYZE"),
            12..14 => (UPKEEP, "REINDEX"),
            _ => (VACUUM, "VACUUM"),
        };
        let column = format!("ALTER TABLE mirrors ADD COLUMN more_{} INTEGER NOT NULL DEFAULT 7", self.columns);
        let statement = if statement.is_empty() { column } else { statement.to_owned() };
        let done = sql.execute(statement.clone(), ()).await;
        self.cluster.world().trace().add("upkeep", format_args!("{statement}: {done:?}"));
        match done {
            Ok(_) => self.ledger.happened(what),
            Err(error) => self.excuse(&statement, &error),
        }
    }

    /// Calls the function that the program's latest version adds. The call is refused until all nodes run that version.
    async fn use_new_function(&self, sql: &Sql) {
        let done = sql.execute("INSERT INTO lates VALUES (late(?))", (7,)).await;
        self.cluster.world().trace().add("upkeep", format_args!("late(): {done:?}"));
        match done {
            Ok(_) => self.ledger.happened(EXTENDED),
            // The cluster refuses the call, or the node itself does not know the function.
            Err(Error::Failed(_)) => self.ledger.happened(NOT_EXTENDED),
            Err(error) => self.excuse("late()", &error),
        }
    }

    /// Records an error as a violation unless it can be explained: nodes are killed and cut off, but all requests are
    /// valid.
    fn excuse(&self, what: &str, error: &Error) {
        let is_rejected = matches!(error, Error::Failed(failure) if failure.kind == FailureKind::Rejected);
        if is_rejected && self.cluster.may_reject() {
            return;
        }
        if matches!(error, Error::Failed(_) | Error::Forbidden(_) | Error::Row(_)) {
            self.cluster.history().violation(format!("{what} failed: {error}"));
        }
    }
}

/// Returns a migration that records how many there were before it.
fn migration(number: u64) -> Result<Migration, MigrateError> {
    let text = format!(
        "CREATE TABLE step_{number} (x INTEGER PRIMARY KEY);
         INSERT INTO steps (number, before) SELECT {number}, count(*) FROM steps;
         ALTER TABLE steps ADD COLUMN more_{number}"
    );
    Migration::new(format!("{number:04}_step.sql"), text)
}
