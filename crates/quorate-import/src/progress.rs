//! The record of an import's progress, kept in the database that the import writes to.
//!
//! `quorate_imports` has a row for each import that is not complete, `quorate_import_chunks` has one for each chunk
//! that is written. The entry that inserts a chunk's rows first inserts the row of the chunk. So a chunk is written
//! whole or not at all, and never twice, even if it is sent again or another process imports the same file. It is not
//! written at all once its import is complete or was started over, because the row of `quorate_imports` that it refers
//! to is gone.
//!
//! A complete import deletes its rows, and the last one drops the tables. Until then the same import can be run again
//! and writes only what is missing, even if that is nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

use quorate::{Error as SqlError, FailureKind, Sql, Value, params};
use quorate_env::Rng;

use crate::columns;
use crate::error::{Context as _, Error, Result};
use crate::identity::Identity;

const IMPORTS: &str = "CREATE TABLE IF NOT EXISTS quorate_imports (
    id INTEGER PRIMARY KEY,
    target TEXT NOT NULL COLLATE NOCASE,
    source TEXT NOT NULL,
    digest TEXT NOT NULL,
    plan TEXT NOT NULL,
    made_table INTEGER NOT NULL,
    begun TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (target, digest)
)";
const CHUNKS: &str = "CREATE TABLE IF NOT EXISTS quorate_import_chunks (
    import INTEGER NOT NULL REFERENCES quorate_imports ON DELETE CASCADE,
    chunk INTEGER NOT NULL,
    hash INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    left_out TEXT NOT NULL,
    PRIMARY KEY (import, chunk)
) WITHOUT ROWID";

const THERE: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'quorate_imports'";
const FIND: &str = "SELECT id, digest, plan, made_table FROM quorate_imports
    WHERE target = ? AND (digest = ? OR source = ?) ORDER BY digest = ? DESC";
const BEGIN: &str =
    "INSERT INTO quorate_imports (id, target, source, digest, plan, made_table) VALUES (?, ?, ?, ?, ?, ?)";
const CHUNK: &str = "INSERT INTO quorate_import_chunks (import, chunk, hash, rows, left_out) VALUES (?, ?, ?, ?, ?)";
const PAGE: &str = "SELECT chunk, hash, rows, left_out FROM quorate_import_chunks
    WHERE import = ? AND chunk >= ? ORDER BY chunk LIMIT 10000";
const FORGET: &str = "DELETE FROM quorate_imports WHERE id = ?";
/// Fails while any import has a row.
const NONE_LEFT: &str = "INSERT INTO quorate_imports SELECT * FROM quorate_imports LIMIT 1";
const DROP: [&str; 2] = ["DROP TABLE quorate_import_chunks", "DROP TABLE quorate_imports"];

/// Attempts to begin an import while other processes begin the same one.
const ATTEMPTS_MAX: usize = 5;

/// The record of an import that is not complete.
pub struct Progress {
    id: i64,
    /// Whether it created the table.
    pub made_table: bool,
    /// The chunks that earlier runs wrote, by number.
    pub done: BTreeMap<u64, Done>,
}

/// A chunk that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The hash of its rows, as they were read.
    pub hash: i64,
    /// How many of them are in the table.
    pub rows: u64,
    /// The rows that broke a constraint.
    pub left_out: Vec<LeftOut>,
}

/// The number of a row in its chunk, and why it was left out.
pub type LeftOut = (u32, String);

/// What an import records about itself when it begins.
pub struct Begin<'a> {
    /// The table.
    pub target: &'a str,
    /// The file.
    pub identity: &'a Identity,
    /// The options that decide where chunks end and what they hold, as JSON.
    pub plan: &'a str,
    /// The statement that creates the table, if it does not exist.
    pub create: Option<&'a str>,
}

struct Found {
    id: i64,
    digest: String,
    plan: String,
    made_table: bool,
}

impl Progress {
    /// The interrupted import of this file into this table, if there is one.
    pub async fn find(sql: &Sql, target: &str, identity: &Identity) -> Result<Option<Self>> {
        Ok(look(sql, target, identity).await?.filter(|found| found.digest == identity.digest).map(Self::of))
    }

    /// Continues the interrupted import, or begins one.
    pub async fn begin(sql: &Sql, begin: &Begin<'_>) -> Result<Self> {
        for _ in 0..ATTEMPTS_MAX {
            if let Some(found) = look(sql, begin.target, begin.identity).await? {
                check(sql, &found, begin).await?;
                let mut progress = Self::of(found);
                progress.done = chunks(sql, progress.id).await?;
                return Ok(progress);
            }
            let id = Rng::from_os().next_u64().cast_signed();
            let Identity { source, digest } = begin.identity;
            let made_table = begin.create.is_some();
            let header = params![id, begin.target, source.as_str(), digest.as_str(), begin.plan, made_table];
            let create = begin.create.map(|create| (Cow::Owned(create.to_owned()), params![]));
            // The row of the import comes before the table: of two imports that begin at once, one fails there and
            // finds the other.
            let own = [(IMPORTS, params![]), (CHUNKS, params![]), (BEGIN, header)];
            let steps = own.map(|(sql, params)| (Cow::Borrowed(sql), params)).into_iter().chain(create);
            match sql.batch(steps).await {
                Ok(_) => return Ok(Self { id, made_table, done: BTreeMap::new() }),
                // Another import of the same file was first.
                Err(SqlError::Failed(failure)) if failure.kind == FailureKind::Constraint => {}
                Err(error) => return Err(error).context(|| "cannot begin"),
            }
        }
        Err(Error::Concurrent("other imports of this file begin and end all the time; wait for them".to_owned()))
    }

    /// Deletes the record of an import, and drops the table that it created.
    pub async fn discard(sql: &Sql, target: &str, identity: &Identity) -> Result<()> {
        while let Some(found) = look(sql, target, identity).await? {
            let drop =
                found.made_table.then(|| (format!("DROP TABLE IF EXISTS {}", columns::quoted(target)), params![]));
            let steps = [Some((FORGET.to_owned(), params![found.id])), drop];
            sql.batch(steps.into_iter().flatten())
                .await
                .context(|| "cannot delete the record of the earlier import")?;
        }
        Ok(())
    }

    fn of(found: Found) -> Self {
        Self { id: found.id, made_table: found.made_table, done: BTreeMap::new() }
    }

    /// The statement that records a chunk as written. It fails if the chunk is recorded already, or if the record of
    /// the import is gone.
    pub fn step(&self, chunk: u64, done: &Done) -> (&'static str, quorate::Params) {
        let left_out = serde_json::to_string(&done.left_out).unwrap_or_default();
        let numbers = [chunk, done.rows].map(|number| Value::Integer(number.cast_signed()));
        let [chunk, rows] = numbers;
        (CHUNK, params![self.id, chunk, done.hash, rows, left_out])
    }

    /// The record of a chunk, if it is written.
    pub async fn chunk(&self, sql: &Sql, number: u64) -> Result<Option<Done>> {
        let page = page(sql, self.id, number).await?;
        Ok(page.into_iter().next().filter(|(found, _)| *found == number).map(|(_, done)| done))
    }

    /// Deletes the record of a complete import, and the tables if it was the last one.
    pub async fn forget(self, sql: &Sql) -> Result<()> {
        let forgetting = || "all rows are written, but the import's row in quorate_imports is still there";
        sql.execute(FORGET, (self.id,)).await.context(forgetting)?;
        match sql.batch([NONE_LEFT].into_iter().chain(DROP)).await {
            // Other imports are not complete, or another process dropped the tables.
            Ok(_) | Err(SqlError::Failed(_)) => Ok(()),
            Err(error) => Err(error).context(forgetting),
        }
    }
}

async fn look(sql: &Sql, target: &str, identity: &Identity) -> Result<Option<Found>> {
    let looking = || "cannot look for an earlier import";
    if sql.query_one::<i64>(THERE, ()).await.context(looking)? == 0 {
        return Ok(None);
    }
    let Identity { source, digest } = identity;
    let asked = params![target, digest.as_str(), source.as_str(), digest.as_str()];
    let rows: Vec<(i64, String, String, bool)> = match sql.query_as(FIND, asked).await {
        Ok(rows) => rows,
        // The last import was completed in the meantime.
        Err(SqlError::Failed(failure)) if failure.message.contains("no such table") => return Ok(None),
        Err(error) => return Err(error).context(looking),
    };
    let found = rows.into_iter().next();
    Ok(found.map(|(id, digest, plan, made_table)| Found { id, digest, plan, made_table }))
}

async fn check(sql: &Sql, found: &Found, begin: &Begin<'_>) -> Result<()> {
    let Begin { target, identity: Identity { source, digest }, plan, create } = begin;
    let why = if found.digest != *digest {
        format!("{source} has changed since an import of it into {target} was interrupted")
    } else if found.plan != *plan {
        format!(
            "the interrupted import of {source} into {target} had other options; use the same ones to continue\n  \
            then: {}\n  now:  {plan}",
            found.plan
        )
    } else if create.is_some() && columns::of_table(sql, target).await?.is_none() {
        format!("an import of {source} was interrupted, and its table {target} is gone")
    } else {
        return Ok(());
    };
    let rows = if found.made_table { "drops the table that it created" } else { "keeps the rows that are there" };
    Err(Error::Changed(format!("{why}; --restart starts over, and {rows}")))
}

async fn chunks(sql: &Sql, id: i64) -> Result<BTreeMap<u64, Done>> {
    let mut all = BTreeMap::new();
    loop {
        let next = all.last_key_value().map_or(0, |(chunk, _): (&u64, &Done)| chunk.saturating_add(1));
        let page = page(sql, id, next).await?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

async fn page(sql: &Sql, id: i64, from: u64) -> Result<Vec<(u64, Done)>> {
    let reading = || "cannot read the progress of the import";
    let rows: Vec<(i64, i64, i64, String)> = sql.query_as(PAGE, (id, from.cast_signed())).await.context(reading)?;
    let read = |(chunk, hash, rows, left_out): (i64, i64, i64, String)| {
        let left_out = serde_json::from_str(&left_out).context(|| "a row of quorate_import_chunks")?;
        Ok((chunk.cast_unsigned(), Done { hash, rows: rows.cast_unsigned(), left_out }))
    };
    rows.into_iter().map(read).collect()
}
