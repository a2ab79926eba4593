//! Migrations: scripts of SQL that make the schema, each of which is run once, in the order of their numbers.
//!
//! Which were run stands in the table `quorate_migrations`, with their names and the hashes of their texts. A migration
//! is one transaction that reads that table, and so one atomic entry: any number of nodes and clients may migrate at
//! the same time, and each migration is run by one of them.
//!
//! Invariant: a migration is run only if all before it were, with the texts that they have here.

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

/// A script of SQL that is run once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    number: i64,
    file: Cow<'static, str>,
    sql: Cow<'static, str>,
}

/// The migrations of a program, in the order of their numbers. [`migrations!`](crate::migrations) makes them from a
/// folder when the program is compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrations(Vec<Migration>);

/// Why migrations were not run. Those before the one that it is about were.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// A name that is no number and text.
    #[error("{0}: the name of a migration is a number, an underscore and a text, as in 0001_users.sql")]
    Name(String),
    /// Two have the same number.
    #[error("{0} and {1} have the same number: give the newer one a higher")]
    SameNumber(String, String),
    /// Its text is not the one that was run.
    #[error("{0} was changed after it was run: bring back its text, and write what is to change into a new migration")]
    Changed(String),
    /// One that was run is not there any more, though later ones are.
    #[error("{0} was run and is missing: bring its file back")]
    Missing(String),
    /// One was not run though a later one was.
    #[error("{0} was not run, and {1} was, which comes after it: give it a number that is higher than all")]
    OutOfOrder(String, String),
    /// One can't be run, or could not now.
    #[error("{file}: {error}")]
    Failed {
        /// The migration.
        file: String,
        /// What it failed with; a [`Failure`](crate::Failure) has the number of its statement.
        #[source]
        error: Error,
    },
    /// What was run before could not be read.
    #[error(transparent)]
    Database(#[from] Error),
}

impl MigrateError {
    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Failed { error, .. } | Self::Database(error) => error.is_retryable(),
            _ => false,
        }
    }
}

/// How a database stands to the migrations of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationStatus {
    /// Those that were run, also by programs that know more of them than this one.
    pub done: Vec<DoneMigration>,
    /// Those that are to be run, in their order.
    pub pending: Vec<Migration>,
}

/// A migration that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoneMigration {
    /// Its number.
    pub number: i64,
    /// The name of its file.
    pub file: String,
    /// When it was run, as the cluster's clock had it: `YYYY-MM-DD HH:MM:SS`, UTC.
    pub run_at: String,
    hash: String,
}

impl Migration {
    /// A migration from the name of its file, as in `0001_users.sql`, and its text.
    ///
    /// # Errors
    ///
    /// [`MigrateError::Name`]; [`MigrateError::Failed`] for a text that is not made of whole statements.
    pub fn new(file: impl Into<Cow<'static, str>>, sql: impl Into<Cow<'static, str>>) -> Result<Self, MigrateError> {
        let (file, sql) = (file.into(), sql.into());
        let number = number(&file).ok_or_else(|| MigrateError::Name(file.clone().into_owned()))?;
        let migration = Self { number, file, sql };
        migration.statements().map(drop).map_err(|error| migration.failed(error))?;
        Ok(migration)
    }

    /// Its number.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// The name of its file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Its text.
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// SHA-256 of the text, whichever system's way its lines end in.
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

/// Digits, an underscore, and a name.
fn number(file: &str) -> Option<i64> {
    let (digits, name) = file.strip_suffix(".sql")?.split_once('_')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number && !name.is_empty())
}

impl Migrations {
    /// These migrations, in the order of their numbers.
    ///
    /// # Errors
    ///
    /// [`MigrateError::SameNumber`].
    pub fn new(migrations: impl IntoIterator<Item = Migration>) -> Result<Self, MigrateError> {
        let mut all: Vec<Migration> = migrations.into_iter().collect();
        all.sort_by_key(|migration| migration.number);
        let same = all.iter().zip(all.iter().skip(1)).find(|(one, next)| one.number == next.number);
        if let Some((one, next)) = same {
            return Err(MigrateError::SameNumber(one.file.clone().into_owned(), next.file.clone().into_owned()));
        }
        Ok(Self(all))
    }

    /// What [`migrations!`](crate::migrations) has looked at and put into order.
    #[doc(hidden)]
    pub fn embedded(files: &[(i64, &'static str, &'static str)]) -> Self {
        let migration = |(number, file, sql): &(i64, &'static str, &'static str)| Migration {
            number: *number,
            file: (*file).into(),
            sql: (*sql).into(),
        };
        Self(files.iter().map(migration).collect())
    }

    /// All, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Migration> {
        self.0.iter()
    }

    /// The status beside what was run before; fails where the two contradict each other.
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
    /// Runs the migrations that were not run yet, each as one atomic entry. May be called by all nodes and clients at
    /// the same time, at each start: each migration is run once, and all calls return when all were. A database may
    /// have run later ones than this program knows, so that an old program still starts beside a new one.
    ///
    /// A migration may hold whatever a [`Sql::batch`] may. Returns those that this call has run; in any case reads of
    /// this handle see what all have done.
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
    /// [`MigrateError::Failed`] names the migration that failed, which has done nothing. The others say how the
    /// migrations differ from those that were run; then nothing was done either.
    pub async fn migrate(&self, migrations: &Migrations) -> Result<Vec<Migration>, MigrateError> {
        let (sql, mut run) = (self.at(Level::Linearizable), Vec::new());
        for migration in self.migration_status(migrations).await?.pending {
            let committed = sql.transact(|tx| {
                let migration = &migration;
                async move {
                    // Meanwhile another call may have run this migration, or others that do not fit.
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
                // This node may hear of it later.
                self.at(Level::AtLeast(committed.position)).query("SELECT 1", ()).await?;
                run.push(migration);
            }
        }
        Ok(run)
    }

    /// Which migrations were run, and which are to be.
    ///
    /// # Errors
    ///
    /// Those of [`Sql::migrate`], but for [`MigrateError::Failed`].
    pub async fn migration_status(&self, migrations: &Migrations) -> Result<MigrationStatus, MigrateError> {
        let done = self.at(Level::Linearizable).transact(|tx| async move { read(&tx).await }).await?;
        migrations.status(done.value)
    }
}

/// Those that were run.
async fn read(tx: &Optimistic) -> Result<Vec<DoneMigration>, Error> {
    if tx.query_one::<i64>(IS_THERE, ()).await? == 0 {
        return Ok(Vec::new());
    }
    let done: Vec<(i64, String, String, String)> = tx.query_as(RUN_BEFORE, ()).await?;
    Ok(done.into_iter().map(|(number, file, hash, run_at)| DoneMigration { number, file, run_at, hash }).collect())
}

/// The statements of a migration, and behind them, so that they keep their numbers, the record that it was run.
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
