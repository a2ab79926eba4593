//! Compares two answers, or two databases.

use quorate::Value;
use rusqlite::Connection;

use super::cluster::Cluster;
use super::generate::SCHEMA;
use super::generate::schema::{Kind, Schema};
use super::plain;
use super::unit::{Answer, Failed, Rowid, Seen, Table};
use crate::harness::Result;

/// The queries for every database, besides the rows of its tables.
const QUESTIONS: [&str; 4] =
    [SCHEMA, "PRAGMA user_version", "PRAGMA foreign_key_check", "SELECT integrity_check FROM pragma_integrity_check"];
/// The query for databases that have this table.
const SEQUENCES: &str = "SELECT name, seq FROM sqlite_sequence ORDER BY name, seq";
/// The query for statistics. Shadow tables of virtual tables are left out, because Quorate keeps no statistics of them:
/// their names have a `_` after the name of the virtual table.
const STATISTICS: &str = "SELECT tbl, idx, stat FROM sqlite_stat1
    WHERE tbl NOT LIKE '%!_%' ESCAPE '!' ORDER BY tbl, idx, stat";

/// Returns whether the cluster's answer equals that of plain SQLite, in everything that the cluster reports.
pub fn same_answer(cluster: &Answer, plain: &Answer) -> bool {
    let ends = match (&cluster.end, &plain.end) {
        (Ok(()), Ok(())) => true,
        (Err(one), Err(other)) => same_failure(one, other),
        _ => false,
    };
    let same = |(one, other): (&_, &_)| match (one, other) {
        (Ok(one), Ok(other)) => same_step(one, other),
        (Err(one), Err(other)) => same_failure(one, other),
        _ => false,
    };
    ends && cluster.steps.len() == plain.steps.len() && cluster.steps.iter().zip(&plain.steps).all(same)
}

fn same_step(cluster: &Seen, plain: &Seen) -> bool {
    let rowids = |found: Rowid| match plain.last_rowid {
        Some(Rowid::Perhaps(rowid)) => found == Rowid::Is(0) || found == Rowid::Is(rowid),
        known => known == Some(found),
    };
    cluster.changes.is_none_or(|changes| plain.changes.is_none_or(|known| known == changes))
        && (cluster.last_rowid.is_none_or(rowids) || plain.last_rowid.is_none())
        && cluster.rows.as_ref().is_none_or(|rows| plain.rows.as_ref().is_some_and(|known| same_table(rows, known)))
}

/// Compares places of a failure. If one side does not name the statement or the row, the other may.
fn same_failure(cluster: &Failed, plain: &Failed) -> bool {
    let same = |one: Option<usize>, other: Option<usize>| one.is_none() || other.is_none() || one == other;
    cluster.code == plain.code && same(cluster.step, plain.step) && same(cluster.row, plain.row)
}

fn same_table(one: &Table, other: &Table) -> bool {
    let same = |(one, other): (&Vec<Value>, &Vec<Value>)| same_row(one, other);
    one.columns == other.columns && one.rows.len() == other.rows.len() && one.rows.iter().zip(&other.rows).all(same)
}

/// Compares values by storage class, and reals by their bits.
fn same_row(one: &[Value], other: &[Value]) -> bool {
    let same = |(one, other): (&Value, &Value)| match (one, other) {
        (Value::Real(one), Value::Real(other)) => one.to_bits() == other.to_bits(),
        _ => one == other,
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// Compares the data of a node with that of plain SQLite. Returns the number of rows. The error describes the first
/// difference.
pub async fn node(cluster: &mut Cluster, number: usize, conn: &Connection) -> Result<usize> {
    let mut rows = 0;
    for question in questions(conn)? {
        let expected = plain::query(conn, &question);
        let found = cluster.of_node(number, &question).await?;
        if !same_answer(&found, &expected) {
            let difference = first_difference(&found, &expected);
            return Err(format!("node {} has other data\n{question}\n{difference}", number + 1).into());
        }
        rows += expected.rows().count();
    }
    Ok(rows)
}

/// Returns queries that together return all data.
fn questions(conn: &Connection) -> Result<Vec<String>> {
    let mut questions: Vec<String> = QUESTIONS.iter().map(|question| (*question).to_owned()).collect();
    for (name, question) in [("sqlite_sequence", SEQUENCES), ("sqlite_stat1", STATISTICS)] {
        let exists = "SELECT count(*) FROM sqlite_schema WHERE name = ?1";
        if conn.query_row(exists, [name], |row| row.get::<_, bool>(0))? {
            questions.push(question.to_owned());
        }
    }
    for table in Schema::read(conn)?.tables {
        let key = table.key.join(", ");
        let rowid = if table.kind == Kind::Rows && key != "rowid" { "" } else { "rowid, " };
        questions.push(format!("SELECT {rowid}* FROM {} ORDER BY {key}", table.name));
    }
    Ok(questions)
}

fn first_difference(found: &Answer, expected: &Answer) -> String {
    let (mut one, mut other) = (found.rows(), expected.rows());
    for number in 0.. {
        match (one.next(), other.next()) {
            (Some(one), Some(other)) if same_row(one, other) => {}
            (None, None) => break,
            (one, other) => return format!("row {number}\n  cluster: {one:?}\n  plain:   {other:?}"),
        }
    }
    format!("cluster: {found}\nplain: {expected}")
}
