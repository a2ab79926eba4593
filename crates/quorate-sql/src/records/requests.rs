//! The table of requests with keys: `_quorate_requests`.
//!
//! [`quorate_apply::requests`] says what it means. A key may have several rows; the one with the highest number counts.

use bytes::Bytes;
use quorate_apply::{RequestPlace, RequestRecord};
use quorate_model::RequestKey;
use rusqlite::Row;

/// The table. Its constraint has an index, which an index of its own would not do: REINDEX names every such one.
pub(super) const TABLE: &str = "CREATE TABLE IF NOT EXISTS _quorate_requests (
    number INTEGER PRIMARY KEY, low INTEGER NOT NULL, high INTEGER NOT NULL, used INTEGER NOT NULL,
    entry INTEGER NOT NULL, key BLOB NOT NULL, hash BLOB NOT NULL, outcome BLOB NOT NULL, UNIQUE (key, number)
) STRICT";

/// The latest request with a key.
pub(super) const OF_KEY: &str = "SELECT number, low, high, used, entry, key, hash, outcome FROM _quorate_requests
    WHERE key = ?1 ORDER BY number DESC LIMIT 1";
/// The places of the requests with the lowest number, and with the highest.
pub(super) const OLDEST: &str = "SELECT number, low, high, used FROM _quorate_requests ORDER BY number LIMIT 1";
pub(super) const LATEST: &str = "SELECT number, low, high, used FROM _quorate_requests ORDER BY number DESC LIMIT 1";
pub(super) const ADD: &str = "INSERT INTO _quorate_requests (number, low, high, used, entry, key, hash, outcome)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
pub(super) const REMOVE: &str = "DELETE FROM _quorate_requests WHERE number = ?1";

/// Decodes a row of [`OLDEST`] or [`LATEST`].
pub(super) fn place(row: &Row<'_>) -> rusqlite::Result<RequestPlace> {
    let number = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(RequestPlace { number: number(0)?, low: number(1)?, high: number(2)?, used: number(3)? })
}

/// Decodes a row of [`OF_KEY`].
pub(super) fn request(row: &Row<'_>) -> rusqlite::Result<RequestRecord> {
    let blob = |column| row.get::<_, Vec<u8>>(column).map(Bytes::from);
    Ok(RequestRecord {
        place: place(row)?,
        entry: row.get::<_, i64>(4)?.cast_unsigned(),
        key: blob(5)?,
        hash: row.get::<_, [u8; RequestKey::HASH_BYTES]>(6)?,
        outcome: blob(7)?,
    })
}
