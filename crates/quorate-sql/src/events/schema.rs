//! The tables of events, and the view on them. `docs/sqlite-store.md` describes the tables, `docs/events.md` the view.

/// The start of the names of the tables. They hold data of users.
pub(crate) const PREFIX: &str = "_quorate_events";

/// The name of the view.
pub(crate) const VIEW_NAME: &str = "quorate_events";

/// Creates the tables and the view, where they are missing.
pub(crate) const ALL: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS _quorate_events (
    id INTEGER PRIMARY KEY, channel TEXT NOT NULL, payload BLOB NOT NULL
) STRICT",
    "CREATE TABLE IF NOT EXISTS _quorate_events_kept (
    id INTEGER PRIMARY KEY CHECK (id = 1), events INTEGER NOT NULL, bytes INTEGER NOT NULL,
    removed INTEGER NOT NULL, last INTEGER NOT NULL
) STRICT",
    "CREATE VIEW IF NOT EXISTS quorate_events AS
    SELECT id, id >> 16 AS position, id & 65535 AS ordinal, channel, payload FROM _quorate_events",
];
