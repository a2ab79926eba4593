//! The tables of keys, and the views on them. `docs/sqlite-store.md` describes the tables, `docs/keys.md` the views.
//!
//! # Invariants
//!
//! - The value is the last column of its row, so that SQLite reads what stands before it without its pages.
//! - A view shows what the logic finds: nothing that has expired by the time of the statement, whether or not it was
//!   swept. It needs no function of ours, so any program can read it in a copy of the file.

use quorate_keys::Kind;

/// The start of the names of the tables. Unlike the store's other tables, they hold data of users.
pub(crate) const PREFIX: &str = "_quorate_keys";

/// The numbers of the kinds, as rows have them.
pub(super) const KINDS: [(i64, Kind); 5] =
    [(1, Kind::String), (2, Kind::Hash), (3, Kind::Set), (4, Kind::SortedSet), (5, Kind::List)];

/// Creates the tables, where they are missing.
const TABLES: [&str; 10] = [
    "CREATE TABLE IF NOT EXISTS _quorate_keys_generations (
    generation INTEGER PRIMARY KEY, space INTEGER UNIQUE, keys INTEGER NOT NULL
) STRICT",
    "CREATE TABLE IF NOT EXISTS _quorate_keys (
    id INTEGER PRIMARY KEY, generation INTEGER NOT NULL, key BLOB NOT NULL, kind INTEGER NOT NULL,
    version INTEGER NOT NULL, expires_at INTEGER, due INTEGER, count INTEGER NOT NULL, volatile INTEGER NOT NULL,
    head INTEGER NOT NULL, value BLOB NOT NULL, UNIQUE (generation, key)
) STRICT",
    "CREATE TABLE IF NOT EXISTS _quorate_keys_elements (
    key_id INTEGER NOT NULL, field BLOB NOT NULL, version INTEGER NOT NULL, expires_at INTEGER, value BLOB NOT NULL,
    PRIMARY KEY (key_id, field)
) STRICT, WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS _quorate_keys_expiry ON _quorate_keys_elements (key_id, expires_at)
    WHERE expires_at IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS _quorate_keys_members (
    key_id INTEGER NOT NULL, member BLOB NOT NULL, score REAL NOT NULL,
    PRIMARY KEY (key_id, member), UNIQUE (key_id, score, member)
) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS _quorate_keys_blocks (
    key_id INTEGER NOT NULL, level INTEGER NOT NULL, score REAL NOT NULL, member BLOB NOT NULL,
    count INTEGER NOT NULL, PRIMARY KEY (key_id, level, score, member)
) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS _quorate_keys_items (
    key_id INTEGER NOT NULL, position INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (key_id, position)
) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS _quorate_keys_due (
    due INTEGER NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (due, id)
) STRICT, WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS _quorate_keys_trash (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS _quorate_keys_ids (
    id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL
) STRICT",
];

/// Returns the statements that create what is missing.
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    TABLES.into_iter().chain(VIEWS)
}

/// The names of the views.
pub(crate) const VIEW_NAMES: [&str; 5] =
    ["quorate_keys", "quorate_hashes", "quorate_sets", "quorate_sorted_sets", "quorate_lists"];

/// A view that lacks a column in older layouts, the column, and the statement that removes the view, before it is
/// created anew.
pub(crate) const CHANGED_VIEW: (&str, &str, &str) =
    ("quorate_sorted_sets", "expires_at", "DROP VIEW IF EXISTS quorate_sorted_sets");

/// Whether something that expires at a time, or never, exists at the time of the statement, which is in milliseconds.
macro_rules! is_alive {
    ($at:literal) => {
        concat!("ifnull(", $at, " > CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000000, 1)")
    };
}

/// A time as text, in the form of `datetime('now', 'subsec')`.
macro_rules! time {
    ($at:literal) => {
        concat!("datetime(", $at, " / 1000000 / 1000.0, 'unixepoch', 'subsec')")
    };
}

pub(crate) use {is_alive, time};

/// Creates the views, where they are missing.
const VIEWS: [&str; 5] = [
    concat!(
        "CREATE VIEW IF NOT EXISTS quorate_keys AS SELECT g.space, key,
    CASE kind WHEN 1 THEN 'string' WHEN 2 THEN 'hash' WHEN 3 THEN 'set' WHEN 4 THEN 'sorted set' WHEN 5 THEN 'list' END
    AS type, version, ",
        time!("expires_at"),
        " AS expires_at, CASE kind WHEN 1 THEN value END AS value FROM _quorate_keys k
    JOIN _quorate_keys_generations g USING (generation) WHERE g.space IS NOT NULL AND ",
        is_alive!("expires_at"),
        " AND (volatile = 0 OR count > volatile OR EXISTS (SELECT 1 FROM _quorate_keys_elements e
    WHERE e.key_id = k.id AND e.expires_at IS NOT NULL AND ",
        is_alive!("e.expires_at"),
        "))"
    ),
    concat!(
        "CREATE VIEW IF NOT EXISTS quorate_hashes AS SELECT g.space, k.key, e.field, e.version, ",
        time!("e.expires_at"),
        " AS expires_at, e.value FROM _quorate_keys k JOIN _quorate_keys_generations g USING (generation)
    JOIN _quorate_keys_elements e ON e.key_id = k.id
    WHERE g.space IS NOT NULL AND k.kind = 2 AND ",
        is_alive!("k.expires_at"),
        " AND ",
        is_alive!("e.expires_at")
    ),
    concat!(
        "CREATE VIEW IF NOT EXISTS quorate_sets AS SELECT g.space, k.key, e.field AS member, e.version, ",
        time!("e.expires_at"),
        " AS expires_at FROM _quorate_keys k JOIN _quorate_keys_generations g USING (generation)
    JOIN _quorate_keys_elements e ON e.key_id = k.id
    WHERE g.space IS NOT NULL AND k.kind = 3 AND ",
        is_alive!("k.expires_at"),
        " AND ",
        is_alive!("e.expires_at")
    ),
    concat!(
        "CREATE VIEW IF NOT EXISTS quorate_sorted_sets AS SELECT g.space, k.key, m.member, m.score, ",
        time!("e.expires_at"),
        " AS expires_at FROM _quorate_keys k JOIN _quorate_keys_generations g USING (generation)
    JOIN _quorate_keys_members m ON m.key_id = k.id
    LEFT JOIN _quorate_keys_elements e ON k.volatile > 0 AND e.key_id = m.key_id AND e.field = m.member
    WHERE g.space IS NOT NULL AND k.kind = 4 AND ",
        is_alive!("k.expires_at"),
        " AND ",
        is_alive!("e.expires_at")
    ),
    concat!(
        "CREATE VIEW IF NOT EXISTS quorate_lists AS SELECT g.space, k.key, i.position - k.head AS position, i.value
    FROM _quorate_keys k JOIN _quorate_keys_generations g USING (generation)
    JOIN _quorate_keys_items i ON i.key_id = k.id WHERE g.space IS NOT NULL AND k.kind = 5 AND ",
        is_alive!("k.expires_at")
    ),
];
