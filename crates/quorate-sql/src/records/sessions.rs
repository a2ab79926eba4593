//! The tables of sessions: `_quorate_sessions`, each with its small outcomes, and `_quorate_outcomes` with the others.
//!
//! [`quorate_apply::session`] says what they mean.

use quorate_apply::SessionRecord;
use rusqlite::{Connection, Row};

/// The tables of sessions.
pub(crate) const TABLES: [&str; 2] = [
    "CREATE TABLE _quorate_sessions (
    session INTEGER PRIMARY KEY, used INTEGER NOT NULL, floor INTEGER NOT NULL, highest INTEGER NOT NULL, recent BLOB
) STRICT",
    "CREATE TABLE _quorate_outcomes (
    session INTEGER NOT NULL, sequence INTEGER NOT NULL, outcome BLOB, PRIMARY KEY (session, sequence)
) STRICT, WITHOUT ROWID",
];

/// The table, the name and the type of the column that the first layout did not have.
pub(super) const ADDED: [(&str, &str, &str); 1] = [("_quorate_sessions", "recent", "BLOB")];

const ANY: &str = "SELECT session, used, floor, highest FROM _quorate_sessions LIMIT 0";
const ALL: &str = "SELECT session, used, floor, highest, recent,
    (SELECT max(sequence) FROM _quorate_outcomes o WHERE o.session = s.session) FROM _quorate_sessions s";
pub(super) const PUT: &str =
    "REPLACE INTO _quorate_sessions (session, used, floor, highest, recent) VALUES (?1, ?2, ?3, ?4, ?5)";
pub(super) const REMOVE: &str = "DELETE FROM _quorate_sessions WHERE session = ?1";
const END_ALL: [&str; 2] = ["DELETE FROM _quorate_sessions", "DELETE FROM _quorate_outcomes"];
const ANY_OUTCOME: &str = "SELECT session, sequence, outcome FROM _quorate_outcomes LIMIT 0";
pub(super) const OUTCOME: &str = "SELECT outcome FROM _quorate_outcomes WHERE session = ?1 AND sequence = ?2";
pub(super) const KEEP: &str = "REPLACE INTO _quorate_outcomes (session, sequence, outcome) VALUES (?1, ?2, ?3)";
pub(super) const FORGET: &str = "DELETE FROM _quorate_outcomes WHERE session = ?1 AND sequence <= ?2";

/// Fails if the tables do not exist, or do not have the layout of this version or an earlier one.
pub(crate) fn check_tables(conn: &Connection) -> rusqlite::Result<()> {
    [ANY, ANY_OUTCOME].iter().try_for_each(|sql| conn.prepare(sql).map(drop))
}

/// Ends all sessions.
pub(crate) fn end_all(conn: &Connection) -> rusqlite::Result<()> {
    END_ALL.iter().try_for_each(|sql| conn.execute(sql, []).map(drop))
}

/// Returns every session with its highest sequence in `_quorate_outcomes`, or 0 if it has no row there.
pub(super) fn all(conn: &Connection) -> rusqlite::Result<Vec<(SessionRecord, u64)>> {
    conn.prepare(ALL)?.query_map([], session)?.collect()
}

/// Decodes a row of [`ALL`].
fn session(row: &Row<'_>) -> rusqlite::Result<(SessionRecord, u64)> {
    let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let highest_in_table = row.get::<_, Option<i64>>(5)?.map_or(0, i64::cast_unsigned);
    let recent = row.get_ref(4)?.as_blob_or_null()?.unwrap_or_default().to_vec();
    let record = SessionRecord { id: number(0)?, used: number(1)?, floor: number(2)?, highest: number(3)?, recent };
    Ok((record, highest_in_table))
}
