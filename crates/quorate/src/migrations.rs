//! Migrations: SQL scripts that create and change the schema. Each one runs once, in the order of their numbers.
//!
//! The table `quorate_migrations` records the migrations that were run, with their names and the hashes of their texts.
//! A migration is one transaction that also reads that table, and is committed as one atomic entry. Any number of nodes
//! and clients may migrate at the same time; each migration is run by one of them.
//!
//! Invariant: a migration runs only if all migrations before it have run with the texts that this program has.

use std::borrow::Cow;
use std::fmt;

use quorate_env::mutant::Mutant;
use quorate_sql::validate::text;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::level::Level;
use crate::optimistic::Optimistic;
use crate::sql::Sql;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS quorate_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, \
                      hash TEXT NOT NULL, run_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) STRICT";
const IS_THERE: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'quorate_migrations'";
const RUN_BEFORE: &str = "SELECT number, name, hash, run_at FROM quorate_migrations ORDER BY number";
const RECORD: &str = "INSERT INTO quorate_migrations (number, name, hash) VALUES (?, ?, ?)";

/// A SQL script that is run once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    number: i64,
    file: Cow<'static, str>,
    sql: Cow<'static, str>,
}

/// The migrations of a program, in the order of their numbers. The macro [`migrations!`](crate::migrations) embeds
/// those of a folder when the program is compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrations(Vec<Migration>);

/// The error of [`Sql::migrate`]. The migrations before the one that the error names may have been run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The file name is not a number, an underscore and a text.
    #[error("{0}: the name of a migration is a number, an underscore and a text, as in 0001_users.sql")]
    Name(String),
    /// Two migrations have the same number.
    #[error("{0} and {1} have the same number: give the newer one a higher number")]
    SameNumber(String, String),
    /// The text of a migration differs from the text that was run.
    #[error("{0} was changed after it was run: restore its text, and put the change into a new migration")]
    Changed(String),
    /// A migration that was run is missing from the program, which has later ones.
    #[error("{0} was run but is missing: restore its file")]
    Missing(String),
    /// A migration was not run, but a later one was.
    #[error("{0} was not run, but {1}, which comes after it, was: give {0} a number higher than all others")]
    OutOfOrder(String, String),
    /// A migration failed, or could not be run at this time.
    #[error("{file}: {error}")]
    Failed {
        /// The migration.
        file: String,
        /// The error; a [`Failure`](crate::Failure) contains the number of the statement.
        #[source]
        error: Error,
    },
    /// The table of migrations could not be read.
    #[error(transparent)]
    Database(#[from] Error),
}

impl MigrateError {
    /// Returns whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Failed { error, .. } | Self::Database(error) => error.is_retryable(),
            _ => false,
        }
    }
}

/// The migrations that were run in a database, and those of a program that are pending.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationStatus {
    /// The migrations that were run, including those of newer programs that this program does not have.
    pub done: Vec<DoneMigration>,
    /// The migrations that have not been run, in their order.
    pub pending: Vec<Migration>,
}

/// A migration that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoneMigration {
    /// Its number.
    pub number: i64,
    /// The name of its file.
    pub file: String,
    /// The time at which it was run, by the cluster's clock: `YYYY-MM-DD HH:MM:SS`, UTC.
    pub run_at: String,
    hash: String,
}

impl Migration {
    /// Creates a migration from the name of its file, such as `0001_users.sql`, and its text.
    ///
    /// # Errors
    ///
    /// Returns [`MigrateError::Name`] if the name is invalid, and [`MigrateError::Failed`] if the text does not consist
    /// of complete statements.
    pub fn new(file: impl Into<Cow<'static, str>>, sql: impl Into<Cow<'static, str>>) -> Result<Self, MigrateError> {
        let (file, sql) = (file.into(), sql.into());
        let number = number(&file).ok_or_else(|| MigrateError::Name(file.clone().into_owned()))?;
        let migration = Self { number, file, sql };
        migration.statements().map(drop).map_err(|error| migration.failed(error))?;
        Ok(migration)
    }

    /// Returns the number of the migration.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Returns the name of its file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns its SQL text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// Returns the SHA-256 of the text. Line ends are normalized to LF first.
    fn hash(&self) -> String {
        let digest = Sha256::digest(self.sql.replace("\r\n", "\n"));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn statements(&self) -> Result<Vec<&str>, Error> {
        Ok(text::split(&self.sql)?)
    }

    fn failed(&self, error: Error) -> MigrateError {
        MigrateError::Failed { file: self.file.clone().into_owned(), error }
    }
}

/// Parses the number of a file name: digits, an underscore, and a name.
fn number(file: &str) -> Option<i64> {
    let (digits, name) = file.strip_suffix(".sql")?.split_once('_')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number && !name.is_empty())
}

impl Migrations {
    /// Sorts these migrations by their numbers.
    ///
    /// # Errors
    ///
    /// Returns [`MigrateError::SameNumber`] if two migrations have the same number.
    pub fn new(migrations: impl IntoIterator<Item = Migration>) -> Result<Self, MigrateError> {
        let mut all: Vec<Migration> = migrations.into_iter().collect();
        all.sort_by_key(|migration| migration.number);
        let same = all.iter().zip(all.iter().skip(1)).find(|(one, next)| one.number == next.number);
        if let Some((one, next)) = same {
            return Err(MigrateError::SameNumber(one.file.clone().into_owned(), next.file.clone().into_owned()));
        }
        Ok(Self(all))
    }

    /// Takes the files that [`migrations!`](crate::migrations) has checked and sorted.
    #[doc(hidden)]
    pub fn embedded(files: &[(i64, &'static str, &'static str)]) -> Self {
        let migration = |(number, file, sql): &(i64, &'static str, &'static str)| Migration {
            number: *number,
            file: (*file).into(),
            sql: (*sql).into(),
        };
        Self(files.iter().map(migration).collect())
    }

    /// Returns an iterator over the migrations, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Migration> {
        self.0.iter()
    }

    /// Compares these migrations with those that were run. Fails if they contradict each other.
    fn status(&self, done: Vec<DoneMigration>) -> Result<MigrationStatus, MigrateError> {
        let last_known = self.0.last().map_or(0, |migration| migration.number);
        for old in done.iter().filter(|old| old.number <= last_known) {
            match self.0.iter().find(|migration| migration.number == old.number) {
                None => return Err(MigrateError::Missing(old.file.clone())),
                Some(migration) if migration.hash() != old.hash => {
                    return Err(MigrateError::Changed(migration.file.clone().into_owned()));
                }
                Some(_) => {}
            }
        }
        let is_new = |migration: &&Migration| done.iter().all(|old| old.number != migration.number);
        let pending: Vec<Migration> = self.0.iter().filter(is_new).cloned().collect();
        if let (Some(first), Some(last)) = (pending.first(), done.last())
            && first.number < last.number
        {
            return Err(MigrateError::OutOfOrder(first.file.clone().into_owned(), last.file.clone()));
        }
        Ok(MigrationStatus { done, pending })
    }
}

impl Sql {
    /// Runs the migrations that have not been run yet, each as one atomic entry. All nodes and clients may call this at
    /// the same time and at every start: each migration runs once, and every call returns when all of them have run. It
    /// is not an error if the database has run later migrations that this program does not have, so an older program
    /// still starts next to a newer one.
    ///
    /// A migration may contain the same statements as a [`Sql::batch`]. Returns the migrations that this call has run.
    /// In every case, later reads of this handle see the effects of all of them.
    ///
    /// ```
    /// # async fn f(sql: quorate::Sql) -> Result<(), Box<dyn std::error::Error>> {
    /// use quorate::sql::Migration;
    /// use quorate::Migrations;
    ///
    /// let migrations = Migrations::new([
    ///     Migration::new("0001_users.sql", "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")?,
    ///     Migration::new("0002_names.sql", "CREATE INDEX users_by_name ON users (name); ANALYZE")?,
    /// ])?;
    /// sql.migrate(&migrations).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`MigrateError::Failed`] with the name of the migration that failed; that migration has no effect. The
    /// other errors report how the migrations differ from those that were run. In that case this call runs nothing,
    /// unless the contradiction arises while it runs because another program migrates at the same time.
    pub async fn migrate(&self, migrations: &Migrations) -> Result<Vec<Migration>, MigrateError> {
        let (sql, mut run) = (self.at(Level::Linearizable), Vec::new());
        for migration in self.migration_status(migrations).await?.pending {
            let committed = sql.transact(|tx| {
                let migration = &migration;
                async move {
                    // In the meantime, another call may have run this migration, or others that contradict it.
                    let status = match migrations.status(read(&tx).await?) {
                        Ok(status) => status,
                        Err(differs) => return Ok(Err(differs)),
                    };
                    let is_next = status.pending.first().is_some_and(|next| next.number == migration.number);
                    let runs = is_next || Mutant::MigrationNotReadAgain.is_on();
                    if runs { gather(&tx, migration).map(|()| Ok(true)) } else { Ok(Ok(false)) }
                }
            });
            let committed = committed.await.map_err(|error| migration.failed(error))?;
            if committed.value? {
                // This node may apply the entry later than the leader.
                self.at(Level::AtLeast(committed.position)).query("SELECT 1", ()).await?;
                run.push(migration);
            }
        }
        Ok(run)
    }

    /// Returns the migrations that were run and those that are pending.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Sql::migrate`], except [`MigrateError::Failed`].
    pub async fn migration_status(&self, migrations: &Migrations) -> Result<MigrationStatus, MigrateError> {
        let done = self.at(Level::Linearizable).transact(|tx| async move { read(&tx).await }).await?;
        migrations.status(done.value)
    }
}

/// Returns the migrations that were run.
async fn read(tx: &Optimistic) -> Result<Vec<DoneMigration>, Error> {
    if tx.query_one::<i64>(IS_THERE, ()).await? == 0 {
        return Ok(Vec::new());
    }
    let done: Vec<(i64, String, String, String)> = tx.query_as(RUN_BEFORE, ()).await?;
    Ok(done.into_iter().map(|(number, file, hash, run_at)| DoneMigration { number, file, run_at, hash }).collect())
}

/// Adds the statements of a migration and then the record that it was run. The record comes last, so that the
/// statements keep their numbers in errors.
fn gather(tx: &Optimistic, migration: &Migration) -> Result<(), Error> {
    for statement in migration.statements()? {
        tx.execute(statement.to_owned(), ())?;
    }
    tx.execute(CREATE, ())?;
    tx.execute(RECORD, (migration.number, migration.file.as_ref(), migration.hash()))?;
    Ok(())
}

impl fmt::Display for MigrationStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = self.done.iter().map(|done| format!("{}  run at {}", done.file, done.run_at));
        let pending = self.pending.iter().map(|migration| format!("{}  pending", migration.file));
        f.write_str(&done.chain(pending).collect::<Vec<_>>().join("\n"))
    }
}
