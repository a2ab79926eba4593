//! The tables of locks, and the view on them. `docs/sqlite-store.md` describes the tables, `docs/locks.md` the view.

use crate::keys::schema::{is_alive, time};

/// The start of the names of the tables. Unlike the store's other tables, they hold data of users.
pub(crate) const PREFIX: &str = "_quorate_locks";

/// The name of the view.
pub(crate) const VIEW_NAME: &str = "quorate_locks";

/// The statements that create what is missing.
pub(crate) const ALL: [&str; 6] = [
    "CREATE TABLE IF NOT EXISTS _quorate_locks (
    name BLOB PRIMARY KEY, permits INTEGER NOT NULL, held INTEGER NOT NULL, waiting INTEGER NOT NULL,
    due INTEGER NOT NULL
) STRICT, WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS _quorate_locks_due ON _quorate_locks (due, name)",
    "CREATE TABLE IF NOT EXISTS _quorate_locks_claims (
    name BLOB NOT NULL, holder BLOB NOT NULL, held INTEGER NOT NULL, number INTEGER NOT NULL, ttl INTEGER NOT NULL,
    ends_at INTEGER NOT NULL, note BLOB NOT NULL, PRIMARY KEY (name, holder), UNIQUE (name, held, number)
) STRICT, WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS _quorate_locks_ends ON _quorate_locks_claims (name, ends_at, holder)",
    "CREATE TABLE IF NOT EXISTS _quorate_locks_tokens (
    id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL
) STRICT",
    concat!(
        "CREATE VIEW IF NOT EXISTS quorate_locks AS SELECT c.name, l.permits, c.holder,
    CASE c.held WHEN 1 THEN 'held' ELSE 'waiting' END AS state, c.number AS token, ",
        time!("c.ends_at"),
        " AS expires_at, c.note FROM _quorate_locks l JOIN _quorate_locks_claims c USING (name) WHERE ",
        is_alive!("c.ends_at")
    ),
];
