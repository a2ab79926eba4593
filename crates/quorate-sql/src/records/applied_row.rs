//! The [applied row](AppliedRow): table `_quorate_applied`.
//!
//! Invariant: there is exactly one row in a database that was opened by a [`SqlMachine`](crate::machine::SqlMachine).

use bytes::Bytes;
use quorate_apply::AppliedRow;
use quorate_model::events::EVENTS_LEVEL;
use quorate_model::keys::{KEYS_LEVEL, MEMBER_EXPIRY_LEVEL};
use quorate_model::limits::BASE_LEVEL;
use quorate_model::users::USERS_LEVEL;
use quorate_model::{ARCHIVER_LEVEL, Applied, Archiver, Epoch, GroupId, LogId, NodeId, StoreFault, StoreIdentity};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::classify;

/// The level of the layout of the store's own tables. A file with a higher level is not opened; one with a lower level
/// is upgraded when it is opened.
///
/// Since level 2 sessions have a column `recent`, since level 3 there is a table of enabled extensions, since level 4
/// one of rejected entries, since level 5 the applied row has the columns `format_level` and `due`, since level 6 there
/// are tables of users and of requests with keys, since level 7 the applied row has the columns `archiver_node` and
/// `archiver_token`, since level 8 there are the tables of keys and the views on them, since level 9 there are those of
/// locks and of events, and since level 10 sorted sets have elements, too, for members that expire.
///
/// A row says level 4 as long as the columns of level 5 hold their defaults, level 5 until the tables of level 6 may
/// hold rows, level 6 until there may be an archiver, level 7 until there may be keys, level 8 until there may be locks
/// or events, and level 9 until members of sorted sets may expire. An older program can then use the database, so a
/// cluster can be upgraded node by node, and back, until the format level rises.
pub const STORE_LEVEL: u32 = 10;

/// The level of the layout since which the row has a format level and a due time.
const WITH_FORMAT_LEVEL: u32 = 5;

/// The level of the layout since which there are users and requests with keys.
const WITH_USERS: u32 = 6;

/// The level of the layout since which there may be an archiver.
const WITH_ARCHIVER: u32 = 7;

/// The level of the layout since which there may be keys.
const WITH_KEYS: u32 = 8;

/// The level of the layout since which there may be locks and events.
const WITH_LOCKS: u32 = 9;

/// Returns the lowest level of the layout that holds a row.
fn layout_of(row: &AppliedRow) -> u32 {
    match row.applied.level {
        MEMBER_EXPIRY_LEVEL.. => STORE_LEVEL,
        EVENTS_LEVEL.. => WITH_LOCKS,
        KEYS_LEVEL.. => WITH_KEYS,
        _ if row.archiver.is_some() => WITH_ARCHIVER,
        BASE_LEVEL if row.applied.due.is_none() => WITH_FORMAT_LEVEL - 1,
        ..USERS_LEVEL => WITH_FORMAT_LEVEL,
        USERS_LEVEL..ARCHIVER_LEVEL => WITH_USERS,
        ARCHIVER_LEVEL.. => WITH_ARCHIVER,
    }
}

/// Creates the table.
pub(crate) const TABLE: &str = "CREATE TABLE _quorate_applied (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    level INTEGER NOT NULL,
    cluster BLOB NOT NULL, epoch INTEGER NOT NULL, \"group\" INTEGER NOT NULL,
    term INTEGER, node INTEGER, \"index\" INTEGER,
    members_term INTEGER, members_node INTEGER, members_index INTEGER, members BLOB,
    now INTEGER NOT NULL, outcome_hash INTEGER NOT NULL,
    format_level INTEGER NOT NULL DEFAULT 1, due INTEGER,
    archiver_node INTEGER, archiver_token INTEGER
) STRICT";

/// The table, the names and the types of the columns that older layouts do not have.
pub(super) const ADDED: [(&str, &str, &str); 4] = [
    ("_quorate_applied", "format_level", "INTEGER NOT NULL DEFAULT 1"),
    ("_quorate_applied", "due", "INTEGER"),
    ("_quorate_applied", "archiver_node", "INTEGER"),
    ("_quorate_applied", "archiver_token", "INTEGER"),
];

/// The columns of every layout, in the order in which [`of`] reads them.
const COLUMNS: &str = "level, cluster, epoch, \"group\", term, node, \"index\",
    members_term, members_node, members_index, members, now, outcome_hash";

/// Writes the whole row.
pub(crate) const WRITE: &str = "REPLACE INTO _quorate_applied
    (id, level, cluster, epoch, \"group\", term, node, \"index\",
     members_term, members_node, members_index, members, now, outcome_hash, format_level, due,
     archiver_node, archiver_token)
    VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";

/// Returns the row of a database, or `None` if the database was never used by a store. In a read transaction, the
/// row matches the data that the transaction sees.
pub fn read(conn: &Connection) -> Result<Option<AppliedRow>, StoreFault> {
    let own = |error| classify::own(&error);
    let table = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_quorate_applied'";
    if conn.query_row(table, [], |_| Ok(())).optional().map_err(own)?.is_none() {
        return Ok(None);
    }
    let level: Option<u32> = conn
        .query_row("SELECT level FROM _quorate_applied WHERE id = 1", [], |row| row.get(0))
        .optional()
        .map_err(own)?;
    match level {
        None => Err(StoreFault::Damaged("the applied row is missing".to_owned())),
        Some(level) if level > STORE_LEVEL => Err(StoreFault::Unsupported(format!(
            "the database has the layout level {level}; this version knows levels up to {STORE_LEVEL}"
        ))),
        Some(level) => {
            let added = if level < WITH_FORMAT_LEVEL { "1, NULL" } else { "format_level, due" };
            let archiver = if level < WITH_ARCHIVER { "NULL, NULL" } else { "archiver_node, archiver_token" };
            let read = format!("SELECT {COLUMNS}, {added}, {archiver} FROM _quorate_applied WHERE id = 1");
            conn.query_row(&read, [], of).map(Some).map_err(own)
        }
    }
}

fn of(row: &Row<'_>) -> rusqlite::Result<AppliedRow> {
    let cluster: [u8; 16] = row.get(1)?;
    let members: Option<Vec<u8>> = row.get(10)?;
    let membership = log_id(row, 7)?.zip(members.map(Bytes::from));
    Ok(AppliedRow {
        identity: StoreIdentity {
            cluster: u128::from_be_bytes(cluster),
            epoch: Epoch(unsigned(row, 2)?),
            group: GroupId(row.get(3)?),
        },
        applied: Applied { log_id: log_id(row, 4)?, membership, level: row.get(13)?, due: optional(row, 14)? },
        now: unsigned(row, 11)?,
        outcome_hash: unsigned(row, 12)?,
        archiver: optional(row, 15)?
            .zip(optional(row, 16)?)
            .map(|(node, token)| Archiver { node: NodeId(node), token }),
    })
}

/// Calls `write` with the values for [`WRITE`].
pub(crate) fn write<R>(row: &AppliedRow, write: impl FnOnce(&[&dyn rusqlite::ToSql]) -> R) -> R {
    let id = row.applied.log_id;
    let members = row.applied.membership.as_ref();
    let members_id = members.map(|(id, _)| *id);
    write(params![
        layout_of(row),
        row.identity.cluster.to_be_bytes(),
        row.identity.epoch.0.cast_signed(),
        row.identity.group.0,
        id.map(|id| id.term.cast_signed()),
        id.map(|id| id.node.0.cast_signed()),
        id.map(|id| id.index.cast_signed()),
        members_id.map(|id| id.term.cast_signed()),
        members_id.map(|id| id.node.0.cast_signed()),
        members_id.map(|id| id.index.cast_signed()),
        members.map(|(_, bytes)| bytes.as_ref()),
        row.now.cast_signed(),
        row.outcome_hash.cast_signed(),
        row.applied.level,
        row.applied.due.map(u64::cast_signed),
        row.archiver.map(|archiver| archiver.node.0.cast_signed()),
        row.archiver.map(|archiver| archiver.token.cast_signed()),
    ])
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

fn optional(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    row.get::<_, Option<i64>>(column).map(|value| value.map(i64::cast_unsigned))
}

/// Returns the log id in three columns, or `None` if they are NULL.
fn log_id(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<LogId>> {
    let (term, node, index) = (optional(row, first)?, optional(row, first + 1)?, optional(row, first + 2)?);
    Ok(match (term, node, index) {
        (Some(term), Some(node), Some(index)) => Some(LogId { term, node: NodeId(node), index }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn stored(row: &AppliedRow) -> AppliedRow {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(TABLE).unwrap();
        write(row, |values| conn.execute(WRITE, values)).unwrap();
        read(&conn).unwrap().unwrap()
    }

    #[test]
    fn every_value_is_read_back() {
        let id = LogId { term: u64::MAX, node: NodeId(1 << 63), index: 7 };
        let identity = StoreIdentity { cluster: u128::MAX - 1, epoch: Epoch(u64::MAX), group: GroupId(u32::MAX) };
        let full = AppliedRow {
            identity,
            applied: Applied {
                log_id: Some(id),
                membership: Some((id, Bytes::from_static(b"members"))),
                level: u32::MAX,
                due: Some(u64::MAX - 3),
            },
            now: u64::MAX,
            outcome_hash: u64::MAX - 2,
            archiver: Some(Archiver { node: NodeId(u64::MAX), token: u64::MAX - 4 }),
        };
        assert_eq!(stored(&full), full);
        let new = AppliedRow::new(identity);
        assert_eq!(stored(&new), new);
    }

    #[test]
    fn files_without_a_row_and_newer_files_are_detected() {
        let conn = Connection::open_in_memory().unwrap();
        assert_eq!(read(&conn), Ok(None));
        conn.execute_batch(TABLE).unwrap();
        assert!(matches!(read(&conn), Err(StoreFault::Damaged(_))));
        write(&AppliedRow::default(), |values| conn.execute(WRITE, values)).unwrap();
        let newer = STORE_LEVEL + 1;
        conn.execute("UPDATE _quorate_applied SET level = ?1", [newer]).unwrap();
        assert!(matches!(read(&conn), Err(StoreFault::Unsupported(_))));
    }
}
