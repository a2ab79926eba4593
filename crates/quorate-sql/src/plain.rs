//! What plain SQLite does with an entry: the measure of apply, for tests and simulations.
//!
//! Invariant: each entry has a connection of its own and one transaction, and shares with apply only what an entry
//! carries: the clock that the stamp sets and the numbers that the seed gives.

use std::path::PathBuf;

use quorate_model::{Bulk, Command, CommandResult, Outcome, Proposal, Row, Stamp, Statement};
use rusqlite::types::ToSql;
use rusqlite::{Connection, params_from_iter};

use crate::OpenError;
use crate::connection;
use crate::determinism::Determinism;
use crate::value::{Bound, BoundRaw, owned};
use crate::vfs::{self, clock};

/// A database file that plain SQLite works on.
#[derive(Debug)]
pub struct Plain {
    path: PathBuf,
}

/// What one statement did: the changes, the last rowid, the rows.
pub type Step = (u64, i64, Vec<Row>);

/// What an entry did: the steps of its statements, or SQLite's primary error code.
pub type Seen = Result<Vec<Step>, i32>;

impl Plain {
    /// The database at this path, which is made when needed.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// A connection to it, as apply's is but for the entry.
    pub fn connect(&self) -> Result<Connection, OpenError> {
        connection::open_plain(&vfs::over(None)?, &self.path)
    }

    /// Runs an entry. Commands that are no statements are left out.
    pub fn run(&self, stamp: Stamp, proposal: &Proposal) -> Result<Seen, OpenError> {
        let mut conn = self.connect()?;
        let determinism = Determinism::install(&conn).map_err(OpenError::sqlite(&self.path))?;
        determinism.begin(&conn, stamp.seed, proposal.budget);
        clock::set(Some(stamp.now));
        let done = transaction(&mut conn, proposal);
        clock::set(None);
        Ok(done.map_err(|error| {
            error.sqlite_error().map_or(rusqlite::ffi::SQLITE_ERROR, |code| code.extended_code & 0xff)
        }))
    }
}

fn transaction(conn: &mut Connection, proposal: &Proposal) -> rusqlite::Result<Vec<Step>> {
    // Ended by hand: a statement may have rolled it back already.
    conn.execute_batch("BEGIN")?;
    let steps = proposal.commands.iter().filter_map(|command| match command {
        Command::Statement(statement) => Some(step(conn, statement)),
        Command::Bulk(bulk) => Some(many_steps(conn, bulk)),
        Command::OpenSession | Command::CloseSession(_) | Command::Vacuum | Command::Verify => None,
    });
    let done: rusqlite::Result<Vec<Step>> = steps.collect();
    let done = done.and_then(|steps| conn.execute_batch("COMMIT").map(|()| steps));
    if !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK")?;
    }
    done
}

/// The rows of a bulk statement, each by a statement of its own.
fn many_steps(conn: &Connection, bulk: &Bulk) -> rusqlite::Result<Step> {
    // Without rows it must be a statement all the same.
    conn.prepare(&bulk.sql)?;
    let mut values = bulk.rows.raw_values();
    let (mut changes, mut last_rowid) = (0, 0);
    for _ in 0..bulk.rows.len() {
        let (changed, rowid, _) = run(conn, &bulk.sql, values.by_ref().take(bulk.rows.width()).map(BoundRaw))?;
        changes += changed;
        last_rowid = if changed == 0 { last_rowid } else { rowid };
    }
    Ok((changes, last_rowid, Vec::new()))
}

fn step(conn: &Connection, statement: &Statement) -> rusqlite::Result<Step> {
    run(conn, &statement.sql, statement.params.iter().map(Bound))
}

fn run<P: ToSql>(conn: &Connection, sql: &str, params: impl Iterator<Item = P>) -> rusqlite::Result<Step> {
    let mut prepared = conn.prepare(sql)?;
    let columns = prepared.column_count();
    let mut rows = prepared.query(params_from_iter(params))?;
    let mut seen = Vec::new();
    while let Some(row) = rows.next()? {
        seen.push((0..columns).map(|column| row.get_ref(column).map(owned)).collect::<Result<_, _>>()?);
    }
    let is = |verbs: &[&str]| verbs.iter().any(|verb| sql.starts_with(verb));
    let writes = is(&["INSERT", "REPLACE", "UPDATE", "DELETE"]);
    let changes = if writes { conn.changes() } else { 0 };
    let inserts = is(&["INSERT", "REPLACE"]);
    Ok((changes, if changes > 0 && inserts { conn.last_insert_rowid() } else { 0 }, seen))
}

/// An outcome of apply in the same form. Results of commands that are no statements are left out.
pub fn seen(outcome: &Outcome) -> Seen {
    let reply = outcome.as_ref().map_err(|failure| failure.sqlite_code & 0xff)?;
    let step = |result: &CommandResult| match result {
        CommandResult::Statement(result) => Some((result.changes, result.last_insert_rowid, result.rows.clone())),
        _ => None,
    };
    Ok(reply.results.iter().filter_map(step).collect())
}
