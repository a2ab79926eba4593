//! What plain SQLite does with an entry: the measure of apply, for tests and simulations.
//!
//! Invariant: each entry has a connection of its own and one transaction, and shares with apply only what an entry
//! carries: the clock that the stamp sets and the numbers that the seed gives.

use std::path::PathBuf;

use quorate_model::{
    Bulk, Column, Command, CommandResult, Outcome, Param, Premise, Proposal, Row, Stamp, Statement, Value,
};
use rusqlite::types::ToSql;
use rusqlite::{Connection, params_from_iter};

use crate::OpenError;
use crate::connection;
use crate::determinism::Determinism;
use crate::query::Rows;
use crate::rows_hash;
use crate::value::{Bound, BoundRaw, owned};
use crate::vfs::{self, clock};

/// A database file that plain SQLite works on.
#[derive(Debug)]
pub struct Plain {
    path: PathBuf,
}

/// What one statement did: the changes, the last rowid, the rows.
pub type Step = (u64, i64, Vec<Row>);

/// What an entry did: the steps of its statements, or SQLite's primary error code, 0 if it is no error of SQLite's.
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
        determinism.begin(&conn, None, stamp.seed, proposal.budget);
        clock::set(Some(stamp.now));
        let done = transaction(&mut conn, proposal);
        clock::set(None);
        Ok(done.map_err(|error| match error {
            // A parameter refers to what no earlier step returned, or a premise does not hold.
            rusqlite::Error::QueryReturnedNoRows => 0,
            error => error.sqlite_error().map_or(rusqlite::ffi::SQLITE_ERROR, |code| code.extended_code & 0xff),
        }))
    }
}

fn transaction(conn: &mut Connection, proposal: &Proposal) -> rusqlite::Result<Vec<Step>> {
    // Ended by hand: a statement may have rolled it back already.
    conn.execute_batch("BEGIN")?;
    let mut steps = Steps::default();
    let premises = proposal.premises.iter().try_for_each(|premise| holds(conn, premise));
    let commands = |()| proposal.commands.iter().try_for_each(|command| steps.run(conn, command));
    let done = premises.and_then(commands);
    let done = done.and_then(|()| conn.execute_batch("COMMIT")).map(|()| steps.done);
    if !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK")?;
    }
    done
}

/// Fails unless a query gives the rows that it gave before. It must not ask for the time, or draw random numbers.
fn holds(conn: &Connection, premise: &Premise) -> rusqlite::Result<()> {
    let columns = conn.prepare(&premise.query.sql)?.column_names().map(str::to_owned).collect();
    let (_, _, rows) = run(conn, &premise.query.sql, premise.query.params.iter().map(Bound))?;
    let is_so = rows_hash::of(&Rows::new(columns, rows.concat())) == premise.rows;
    if is_so { Ok(()) } else { Err(rusqlite::Error::QueryReturnedNoRows) }
}

/// The steps of an entry so far.
#[derive(Default)]
struct Steps {
    done: Vec<Step>,
    /// Of each command the names of its columns and its rows, for parameters that refer to them.
    returned: Vec<(Vec<String>, Vec<Row>)>,
}

impl Steps {
    fn run(&mut self, conn: &Connection, command: &Command) -> rusqlite::Result<()> {
        let (step, columns) = match command {
            Command::Statement(statement) => self.statement(conn, statement)?,
            Command::Bulk(bulk) => (many_steps(conn, bulk)?, Vec::new()),
            Command::OpenSession
            | Command::CloseSession(_)
            | Command::Vacuum
            | Command::Verify
            | Command::Extend(_) => {
                self.returned.push(Default::default());
                return Ok(());
            }
        };
        self.returned.push((columns, step.2.clone()));
        self.done.push(step);
        Ok(())
    }

    fn statement(&self, conn: &Connection, statement: &Statement<Param>) -> rusqlite::Result<(Step, Vec<String>)> {
        let columns = conn.prepare(&statement.sql)?.column_names().map(str::to_owned).collect();
        let values = statement.params.iter().map(|param| match param {
            Param::Value(value) => Ok(value),
            Param::Returned(returned) => {
                self.value(returned.step, &returned.column).ok_or(rusqlite::Error::QueryReturnedNoRows)
            }
        });
        let values: Vec<&Value> = values.collect::<rusqlite::Result<_>>()?;
        Ok((run(conn, &statement.sql, values.into_iter().map(Bound))?, columns))
    }

    fn value(&self, step: u32, column: &Column) -> Option<&Value> {
        let (columns, rows) = self.returned.get(usize::try_from(step).ok()?)?;
        let place = match column {
            Column::Number(number) => usize::try_from(*number).ok()?,
            Column::Name(name) => columns.iter().position(|column| column == name)?,
        };
        rows.first().filter(|_| rows.len() == 1)?.get(place)
    }
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

fn run<P: ToSql>(conn: &Connection, sql: &str, params: impl Iterator<Item = P>) -> rusqlite::Result<Step> {
    let mut prepared = conn.prepare(sql)?;
    let columns = prepared.column_count();
    let mut rows = prepared.query(params_from_iter(params))?;
    let mut seen = Vec::new();
    while let Some(row) = rows.next()? {
        let value = |column| owned(row.get_ref(column)?, row, column).map_err(|_| rusqlite::Error::InvalidQuery);
        seen.push((0..columns).map(value).collect::<rusqlite::Result<_>>()?);
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
