//! The side of plain SQLite: one database file, and for each unit a new connection and a transaction.
//!
//! This implements the rules of `docs/sql.md` for entries with SQLite's own means. An entry is a transaction, which a
//! failure rolls back. A statement of an interactive transaction that fails is rolled back to its savepoint. A
//! statement that can never work is refused before anything is done.

use std::path::PathBuf;

use quorate::Value;
use quorate::sql::{Column, Param};
use quorate_sql::plain;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql};

use super::generate::{call_of, is_hopeless, plain_value};
use super::unit::{Answer, Call, Failed, Rowid, Savepoint, Seen, Table, Unit};
use crate::harness::Result;

pub struct Plain(plain::Plain);

impl Plain {
    pub fn at(path: PathBuf) -> Self {
        Self(plain::Plain::at(path))
    }

    pub fn connect(&self) -> Result<Connection> {
        Ok(self.0.connect()?)
    }

    /// Does a unit.
    pub fn answer(&self, unit: &Unit) -> Result<Answer> {
        let conn = self.connect()?;
        Ok(match unit {
            Unit::Execute(call) | Unit::Returning(call) => Answer::of(entry(&conn, std::slice::from_ref(call))?),
            Unit::Batch(calls) => Answer::of(entry(&conn, calls)?),
            Unit::Many(sql, rows) => Answer::of(transaction(&conn, || Ok(vec![many(&conn, sql, rows)?]))?),
            Unit::Closure { reads, writes, passes } => Answer::of(closure(&conn, reads, writes, *passes)?),
            Unit::Query { call, .. } => Answer::of(run(&conn, call).map(|seen| vec![seen])),
            Unit::Interactive { calls, commits } => self.interactive(conn, calls, *commits)?,
            Unit::Vacuum => {
                conn.execute_batch("VACUUM")?;
                Answer::of(Ok(vec![Seen::default()]))
            }
        })
    }

    fn interactive(&self, mut conn: Connection, calls: &[Call], commits: bool) -> Result<Answer> {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let mut done: Vec<&Call> = Vec::new();
        let mut steps = Vec::new();
        for call in calls {
            if Savepoint::of(call).is_some() {
                let step = conn.execute_batch(&call.sql).map(|()| Seen::default()).map_err(|error| failed(&error));
                done.extend(step.is_ok().then_some(call));
                steps.push(step);
                continue;
            }
            conn.execute_batch("SAVEPOINT one")?;
            let step = run(&conn, call);
            if step.is_ok() {
                conn.execute_batch("RELEASE one")?;
                done.push(call);
            } else if conn.is_autocommit() {
                // The statement has rolled back the whole transaction. Do the other statements again without it.
                conn = self.connect()?;
                conn.execute_batch("BEGIN IMMEDIATE")?;
                for call in &done {
                    run(&conn, call).map_err(|failed| format!("done again it fails: {failed:?}"))?;
                }
            } else {
                conn.execute_batch("ROLLBACK TO one; RELEASE one")?;
            }
            steps.push(step);
        }
        let end = if commits { conn.execute_batch("COMMIT").map_err(|error| failed(&error)) } else { Ok(()) };
        if !conn.is_autocommit() {
            conn.execute_batch("ROLLBACK")?;
        }
        Ok(Answer { steps, end })
    }
}

/// The result of a unit that is done as a whole or not at all.
type Done = std::result::Result<Vec<Seen>, Failed>;

fn entry(conn: &Connection, calls: &[Call]) -> Result<Done> {
    if let Err(failed) = check(conn, calls) {
        return Ok(Err(failed));
    }
    transaction(conn, || commands(conn, calls))
}

/// Fails with the first statement that fails under any schema.
fn check(conn: &Connection, calls: &[Call]) -> std::result::Result<(), Failed> {
    for (number, call) in calls.iter().enumerate().filter(|(_, call)| is_hopeless(&call.sql)) {
        conn.prepare(&call.sql).map_err(|error| Failed { step: Some(number), ..failed(&error) })?;
    }
    Ok(())
}

fn transaction(conn: &Connection, run: impl FnOnce() -> Done) -> Result<Done> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    let done = run().and_then(|seen| conn.execute_batch("COMMIT").map(|()| seen).map_err(|error| failed(&error)));
    if !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK")?;
    }
    Ok(done)
}

fn commands(conn: &Connection, calls: &[Call]) -> Done {
    let mut steps: Vec<Seen> = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        let at = |failed: Failed| Failed { step: Some(number), ..failed };
        // A statement is prepared before its values are bound.
        conn.prepare(&call.sql).map_err(|error| at(failed(&error)))?;
        let call = resolved(call, &steps).map_err(at)?;
        steps.push(run(conn, &call).map_err(at)?);
    }
    Ok(steps)
}

/// Returns a statement with its references to earlier results replaced by values.
fn resolved(call: &Call, steps: &[Seen]) -> std::result::Result<Call, Failed> {
    let value = |param: &Param| {
        let Param::Returned(returned) = param else { return Some(param.clone()) };
        let rows = steps.get(usize::try_from(returned.step).ok()?)?.rows.as_ref()?;
        let place = match &returned.column {
            Column::Number(number) => usize::try_from(*number).ok()?,
            Column::Name(name) => rows.columns.iter().position(|column| column == name)?,
        };
        let [row] = rows.rows.as_slice() else { return None };
        Some(Param::Value(row.get(place)?.clone()))
    };
    let params = call.params.iter().map(value).collect::<Option<_>>();
    let missing = || Failed { code: 0, step: None, row: None, message: "refers to nothing".to_owned() };
    Ok(Call { params: params.ok_or_else(missing)?, ..call.clone() })
}

fn closure(conn: &Connection, reads: &[Call], writes: &[Call], passes: bool) -> Result<Done> {
    let mut seen = Vec::new();
    for call in reads {
        match run(conn, call) {
            Ok(read) => seen.push(read),
            Err(failed) => return Ok(Err(failed)),
        }
    }
    let writes = if passes { passed(writes, &seen) } else { writes.to_vec() };
    if writes.is_empty() {
        return Ok(Ok(seen));
    }
    let written = entry(conn, &writes)?;
    Ok(written.map(|written| {
        seen.extend(written);
        seen
    }))
}

/// Returns the statements with the first value of the last read as their first parameter.
pub fn passed(writes: &[Call], read: &[Seen]) -> Vec<Call> {
    let rows = read.last().and_then(|seen| seen.rows.as_ref());
    let value = rows.and_then(|rows| rows.rows.first()?.first().cloned());
    // By design this value is refused as a rowid, in any storage class.
    let value = value.filter(|value| value.to_string() != i64::MAX.to_string());
    let with = |call: &Call| {
        let mut call = call.clone();
        if let (Some(param), Some(value)) = (call.params.first_mut(), &value) {
            *param = Param::Value(value.clone());
        }
        call
    };
    writes.iter().map(with).collect()
}

fn many(conn: &Connection, sql: &str, rows: &[Vec<Value>]) -> std::result::Result<Seen, Failed> {
    let at = |number, error: &rusqlite::Error| Failed { step: Some(0), row: number, ..failed(error) };
    let mut statement = conn.prepare(sql).map_err(|error| at(None, &error))?;
    let before = conn.last_insert_rowid();
    let mut changes = 0;
    for (number, row) in rows.iter().enumerate() {
        let bind = (1..).zip(row).try_for_each(|(place, value)| statement.raw_bind_parameter(place, Bound(value)));
        let ran = bind.and_then(|()| statement.raw_execute());
        ran.map_err(|error| at(Some(number), &error))?;
        changes += conn.changes();
    }
    let last_rowid = Some(last_rowid(conn, sql, changes, before));
    Ok(Seen { changes: Some(changes), last_rowid, rows: None })
}

/// Runs a statement to its end.
fn run(conn: &Connection, call: &Call) -> std::result::Result<Seen, Failed> {
    try_run(conn, call).map_err(|error| failed(&error))
}

fn try_run(conn: &Connection, call: &Call) -> rusqlite::Result<Seen> {
    let before = conn.last_insert_rowid();
    let mut statement = conn.prepare(&call.sql)?;
    for (place, param) in call.params.iter().enumerate() {
        let number = match call.names.get(place) {
            Some(name) => statement.parameter_index(name)?.unwrap_or(0),
            None => place + 1,
        };
        statement.raw_bind_parameter(number, Bound(plain_value(param).unwrap_or(&Value::Null)))?;
    }
    let width = statement.column_count();
    let mut found = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        found.push((0..width).map(|column| row.get_ref(column).and_then(owned)).collect::<rusqlite::Result<_>>()?);
    }
    drop(rows);
    let columns = statement.column_names().map(str::to_owned).collect();
    let counts = !statement.readonly() && !NEVER_COUNT.iter().any(|verb| call.sql.starts_with(verb));
    let changes = if counts { conn.changes() } else { 0 };
    let last_rowid = Some(last_rowid(conn, &call.sql, changes, before));
    Ok(Seen { changes: Some(changes), last_rowid, rows: Some(Table { columns, rows: found }) })
}

/// Statements that change no rows that SQLite counts.
const NEVER_COUNT: [&str; 6] = ["CREATE", "ALTER", "DROP", "REINDEX", "ANALYZE", "PRAGMA"];

/// Returns the rowid that a statement inserted last.
fn last_rowid(conn: &Connection, sql: &str, changes: u64, before: i64) -> Rowid {
    let inserts = sql.starts_with("INSERT") || sql.starts_with("REPLACE") || sql.starts_with("WITH s AS (SELECT *");
    match conn.last_insert_rowid() {
        _ if !inserts || changes == 0 => Rowid::Is(0),
        same if same == before => Rowid::Perhaps(same),
        other => Rowid::Is(other),
    }
}

/// A value that rusqlite can bind.
struct Bound<'a>(&'a Value);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Integer(value) => ValueRef::Integer(*value),
            Value::Real(value) => ValueRef::Real(*value),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Converts a value that SQLite returned. Text that is not UTF-8 is an error, as in Quorate.
fn owned(value: ValueRef<'_>) -> rusqlite::Result<Value> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(text) => {
            Value::Text(std::str::from_utf8(text).map_err(|_| rusqlite::Error::InvalidQuery)?.to_owned())
        }
        ValueRef::Blob(bytes) => Value::from(bytes),
    })
}

fn failed(error: &rusqlite::Error) -> Failed {
    let code = match error {
        rusqlite::Error::SqlInputError { error, .. } => error.extended_code,
        other => other.sqlite_error().map_or(0, |code| code.extended_code),
    };
    Failed { code, step: None, row: None, message: error.to_string() }
}

/// Returns the result of a query without parameters.
pub fn query(conn: &Connection, sql: &str) -> Answer {
    Answer::of(run(conn, &call_of(sql.to_owned())).map(|seen| vec![seen]))
}
