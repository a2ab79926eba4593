//! Runs entries in plain SQLite: the reference for apply in tests and simulations.
//!
//! Invariant: each entry has a connection of its own and one transaction. It shares with apply only what an entry
//! determines: the clock, from the stamp, and the random numbers, from the seed.

use std::path::PathBuf;

use quorate_model::{
    Bulk, Column, Command, CommandResult, Mode, Outcome, Param, Proposal, Read, ReadCheck, Row, SqlCommand, SqlReply,
    Stamp, Statement, Value,
};
use rusqlite::types::ToSql;
use rusqlite::{Connection, params_from_iter};

use crate::OpenError;
use crate::connection;
use crate::determinism::Determinism;
use crate::ffi::hooks;
use crate::query::Rows;
use crate::rows_hash;
use crate::value::{Bound, BoundRaw, owned};
use crate::vfs::{self, clock};

/// A database file that plain SQLite works on.
#[derive(Debug)]
pub struct Plain {
    path: PathBuf,
}

/// The result of one statement: the changes, the last rowid, the rows.
pub type Step = (u64, i64, Vec<Row>);

/// The result of an entry: the step of each of its statements, or a primary error code of SQLite: that of a statement
/// in a pipeline, or that of the whole entry. The code is 0 if the error is not one of SQLite's.
pub type Seen = Result<Vec<Result<Step, i32>>, i32>;

impl Plain {
    /// Uses the database at this path, which is created when needed.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Opens a connection with the settings of apply's connection.
    pub fn connect(&self) -> Result<Connection, OpenError> {
        connection::open_plain(&vfs::over(None)?, &self.path)
    }

    /// Runs an entry. Commands that are not statements are left out.
    pub fn run(&self, stamp: Stamp, proposal: &Proposal) -> Result<Seen, OpenError> {
        let mut conn = self.connect()?;
        let determinism = Determinism::install(&conn).map_err(OpenError::sqlite(&self.path))?;
        clock::set(Some(stamp.now));
        let mut run = |ended: Option<Ended>| {
            determinism.begin(&conn, None, stamp.seed, proposal.budget);
            transaction(&mut conn, proposal, ended)
        };
        let done = match run(None) {
            Err(Stop::Ended(ended)) => run(Some(ended)),
            done => done,
        };
        clock::set(None);
        Ok(done.map_err(|stop| match stop {
            Stop::Failed(error) => code(&error),
            Stop::Ended(Ended { code, .. }) => code,
        }))
    }
}

/// The command that ended the transaction of a pipeline, and its error code.
#[derive(Clone, Copy)]
struct Ended {
    number: usize,
    code: i32,
}

/// Why an entry had no effect.
enum Stop {
    Failed(rusqlite::Error),
    Ended(Ended),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

fn code(error: &rusqlite::Error) -> i32 {
    match error {
        // A parameter refers to a value that no earlier step returned, or a read check does not hold.
        rusqlite::Error::QueryReturnedNoRows => 0,
        error => error.sqlite_error().map_or(rusqlite::ffi::SQLITE_ERROR, |code| code.extended_code & 0xff),
    }
}

fn transaction(
    conn: &mut Connection,
    proposal: &Proposal,
    ended: Option<Ended>,
) -> Result<Vec<Result<Step, i32>>, Stop> {
    // Not a `rusqlite::Transaction`, because a statement may already have rolled it back.
    conn.execute_batch("BEGIN")?;
    let done = commands(conn, proposal, ended);
    let done = done.and_then(|steps| Ok(conn.execute_batch("COMMIT").map(|()| steps.done)?));
    if !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK")?;
    }
    done
}

fn commands(conn: &Connection, proposal: &Proposal, ended: Option<Ended>) -> Result<Steps, Stop> {
    let mut steps = Steps::default();
    proposal.read_checks.iter().try_for_each(|check| holds(conn, check))?;
    for (number, command) in proposal.commands.iter().enumerate() {
        match (proposal.mode, ended) {
            (Mode::Atomic, _) => steps.run(conn, command)?,
            (Mode::Pipeline, Some(ended)) if number >= ended.number => {
                steps.fail(if number == ended.number { ended.code } else { 0 });
            }
            (Mode::Pipeline, _) => {
                steps.run_apart(conn, command).map_err(|code| Stop::Ended(Ended { number, code }))?
            }
        }
    }
    Ok(steps)
}

/// Fails unless a query returns the same rows as before. The query must not use the clock or random numbers.
fn holds(conn: &Connection, check: &ReadCheck) -> rusqlite::Result<()> {
    // Plain SQLite has no store of keys.
    let Read::Sql(query) = &check.read else { return Ok(()) };
    let columns = conn.prepare(&query.sql)?.column_names().map(str::to_owned).collect();
    let (_, _, rows) = run(conn, &query.sql, query.params.iter().map(Bound))?;
    let is_so = rows_hash::of(&Rows::new(columns, rows.concat())) == check.answer;
    if is_so { Ok(()) } else { Err(rusqlite::Error::QueryReturnedNoRows) }
}

/// The results of an entry so far.
#[derive(Default)]
struct Steps {
    done: Vec<Result<Step, i32>>,
    /// The names of each command's columns and its rows, for parameters that refer to them.
    returned: Vec<(Vec<String>, Vec<Row>)>,
}

impl Steps {
    fn run(&mut self, conn: &Connection, command: &Command) -> rusqlite::Result<()> {
        let (step, columns) = match command {
            Command::Sql(SqlCommand::Statement(statement)) => self.statement(conn, statement)?,
            Command::Sql(SqlCommand::Bulk(bulk)) => (many_steps(conn, bulk)?, Vec::new()),
            Command::Sql(SqlCommand::Vacuum | SqlCommand::Extend(_))
            | Command::Control(_)
            | Command::Keys(_)
            | Command::Locks(_)
            | Command::Events(_)
            | Command::Items(_) => {
                self.returned.push(Default::default());
                return Ok(());
            }
        };
        self.returned.push((columns, step.2.clone()));
        self.done.push(Ok(step));
        Ok(())
    }

    /// Runs a command of a pipeline, whose failure undoes only that command. Returns an error code only if the command
    /// ended the transaction.
    fn run_apart(&mut self, conn: &Connection, command: &Command) -> Result<(), i32> {
        let own = |sql: &str| conn.execute_batch(sql).map_err(|error| code(&error));
        own("SAVEPOINT command")?;
        let done = self.run(conn, command).map_err(|error| code(&error));
        if let Err(code) = done
            && conn.is_autocommit()
        {
            return Err(code);
        }
        // A deferred foreign key that is still violated is the failure of the command that left it so.
        let is_open = done.is_ok() && hooks::deferred_keys_are_open(conn);
        if is_open {
            self.returned.pop();
            self.done.pop();
        }
        if let Some(code) = done.err().or_else(|| is_open.then_some(rusqlite::ffi::SQLITE_CONSTRAINT)) {
            own("ROLLBACK TO command")?;
            self.fail(code);
        }
        own("RELEASE command")
    }

    fn fail(&mut self, code: i32) {
        self.returned.push(Default::default());
        self.done.push(Err(code));
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

/// Runs a bulk statement, with a separate statement for each row.
fn many_steps(conn: &Connection, bulk: &Bulk) -> rusqlite::Result<Step> {
    // Even without rows, the text must be a valid statement.
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

/// Converts an outcome of apply to the same form. Results of commands that are not statements are left out.
pub fn seen(outcome: &Outcome) -> Seen {
    let reply = outcome.as_ref().map_err(|failure| failure.sqlite_code & 0xff)?;
    let step = |result: &CommandResult| match result {
        CommandResult::Sql(SqlReply::Statement(result)) => {
            Some(Ok((result.changes, result.last_insert_rowid, result.rows.clone())))
        }
        CommandResult::Failed(failure) => Some(Err(failure.sqlite_code & 0xff)),
        CommandResult::Sql(SqlReply::Done)
        | CommandResult::Control(_)
        | CommandResult::Keys(_)
        | CommandResult::Locks(_)
        | CommandResult::Events(_)
        | CommandResult::Items(_) => None,
    };
    Ok(reply.results.iter().filter_map(step).collect())
}
