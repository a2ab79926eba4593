//! The statements of the tables of keys.
//!
//! A span is a range of row values, and both of its ends are sought in the index. `tests/plans.rs` shows how SQLite
//! runs each of them.

use quorate_keys::{Order, Part};

/// A statement in two orders.
pub(super) struct Ordered {
    up: &'static str,
    down: &'static str,
}

impl Ordered {
    pub(super) fn of(&self, order: Order) -> &'static str {
        match order {
            Order::Up => self.up,
            Order::Down => self.down,
        }
    }
}

/// A query whose rows are in the order of some columns, up or down.
macro_rules! ordered {
    ($query:literal by $first:literal $(, $column:literal)*) => {
        Ordered {
            up: concat!($query, " ORDER BY ", $first $(, ", ", $column)*),
            down: concat!($query, " ORDER BY ", $first, " DESC" $(, ", ", $column, " DESC")*),
        }
    };
}

pub(super) const LAST_ID: &str = "SELECT last FROM _quorate_keys_ids WHERE id = 1";
pub(super) const SET_LAST_ID: &str = "INSERT INTO _quorate_keys_ids (id, last) VALUES (1, ?1)
    ON CONFLICT (id) DO UPDATE SET last = excluded.last";

pub(super) const COUNT_KEYS: &str = "SELECT keys FROM _quorate_keys_generations WHERE space = ?1";
/// There are as many rows as spaces, and some for those that were flushed.
pub(super) const COUNT_ALL: &str = "SELECT ifnull(sum(keys) FILTER (WHERE space IS NOT NULL), 0),
    ifnull(sum(keys) FILTER (WHERE space IS NULL), 0) FROM _quorate_keys_generations";
pub(super) const GROW_SPACE: &str = "UPDATE _quorate_keys_generations SET keys = keys + 1 WHERE space = ?1";
/// A generation that has no row any more has no keys, so its number may be used again.
pub(super) const ADD_SPACE: &str = "INSERT INTO _quorate_keys_generations (generation, space, keys)
    VALUES ((SELECT ifnull(max(generation), 0) + 1 FROM _quorate_keys_generations), ?1, 1)";
/// Takes the key with an id from the number of keys of its generation.
pub(super) const SHRINK: &str = "UPDATE _quorate_keys_generations SET keys = keys - 1
    WHERE generation = (SELECT generation FROM _quorate_keys WHERE id = ?1)";
pub(super) const FORGET_EMPTY: &str = "DELETE FROM _quorate_keys_generations WHERE space IS NULL AND keys = 0";
pub(super) const DETACH: &str = "UPDATE _quorate_keys_generations SET space = NULL WHERE space = ?1 AND keys > 0";
pub(super) const FIRST_DETACHED: &str =
    "SELECT id, kind, version, expires_at, due, count, volatile, head, x'' FROM _quorate_keys WHERE generation =
    (SELECT generation FROM _quorate_keys_generations WHERE space IS NULL ORDER BY generation LIMIT 1)
    ORDER BY key LIMIT 1";

pub(super) const FIND_KEY: &str = "SELECT id, kind, version, expires_at, due, count, volatile, head, value
    FROM _quorate_keys
    WHERE generation = (SELECT generation FROM _quorate_keys_generations WHERE space = ?1) AND key = ?2";
pub(super) const KEY: &str = "SELECT id, kind, version, expires_at, due, count, volatile, head, value, key, space
    FROM _quorate_keys JOIN _quorate_keys_generations USING (generation) WHERE id = ?1 AND space IS NOT NULL";
pub(super) const KEYS: Ordered = ordered!(
    "SELECT id, kind, version, expires_at, due, count, volatile, head, value, key FROM _quorate_keys
    WHERE (generation, key) >= ((SELECT generation FROM _quorate_keys_generations WHERE space = ?1), ?2)
    AND (generation, key) < ((SELECT generation + ?3 FROM _quorate_keys_generations WHERE space = ?1), ?4)"
    by "generation", "key"
);
pub(super) const ADD_KEY: &str = "INSERT INTO _quorate_keys
    (id, generation, key, kind, version, expires_at, due, count, volatile, head, value)
    VALUES (?1, (SELECT generation FROM _quorate_keys_generations WHERE space = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
    ?11)";
pub(super) const UPDATE_KEY: &str = "UPDATE _quorate_keys
    SET version = ?2, expires_at = ?3, due = ?4, count = ?5, volatile = ?6, head = ?7, value = ?8 WHERE id = ?1";
pub(super) const RENAME_KEY: &str = "UPDATE _quorate_keys
    SET generation = (SELECT generation FROM _quorate_keys_generations WHERE space = ?2), key = ?3 WHERE id = ?1";
pub(super) const REMOVE_KEY: &str = "DELETE FROM _quorate_keys WHERE id = ?1";

pub(super) const ELEMENT: &str =
    "SELECT version, expires_at, value FROM _quorate_keys_elements WHERE key_id = ?1 AND field = ?2";
pub(super) const ELEMENTS: Ordered = ordered!(
    "SELECT field, version, expires_at, value FROM _quorate_keys_elements
    WHERE (key_id, field) >= (?1, ?2) AND (key_id, field) < (?3, ?4)" by "key_id", "field"
);
pub(super) const PUT_ELEMENT: &str = "INSERT INTO _quorate_keys_elements (key_id, field, version, expires_at, value)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (key_id, field)
    DO UPDATE SET version = excluded.version, expires_at = excluded.expires_at, value = excluded.value";
pub(super) const REMOVE_ELEMENT: &str = "DELETE FROM _quorate_keys_elements WHERE key_id = ?1 AND field = ?2";
pub(super) const EXPIRIES: Ordered = ordered!(
    "SELECT expires_at, field FROM _quorate_keys_elements WHERE key_id = ?1 AND expires_at IS NOT NULL"
    by "expires_at", "field"
);
pub(super) const COUNT_EXPIRED: &str =
    "SELECT count(*) FROM _quorate_keys_elements WHERE key_id = ?1 AND expires_at <= ?2";

pub(super) const SCORE: &str = "SELECT score FROM _quorate_keys_members WHERE key_id = ?1 AND member = ?2";
pub(super) const MEMBERS: Ordered = ordered!(
    "SELECT score, member FROM _quorate_keys_members
    WHERE (key_id, score, member) >= (?1, ?2, ?3) AND (key_id, score, member) < (?4, ?5, ?6)"
    by "key_id", "score", "member"
);
pub(super) const SCORES: &str = "SELECT member, score FROM _quorate_keys_members
    WHERE (key_id, member) >= (?1, ?2) AND (key_id, member) < (?3, ?4) ORDER BY key_id, member";
pub(super) const COUNT_MEMBERS: &str = "SELECT count(*) FROM _quorate_keys_members
    WHERE (key_id, score, member) >= (?1, ?2, ?3) AND (key_id, score, member) < (?4, ?5, ?6)";
pub(super) const PUT_MEMBER: &str = "INSERT INTO _quorate_keys_members (key_id, member, score)
    VALUES (?1, ?2, ?3) ON CONFLICT (key_id, member) DO UPDATE SET score = excluded.score";
pub(super) const REMOVE_MEMBER: &str = "DELETE FROM _quorate_keys_members WHERE key_id = ?1 AND member = ?2";

pub(super) const BLOCKS: Ordered = ordered!(
    "SELECT score, member, count FROM _quorate_keys_blocks
    WHERE (key_id, level, score, member) >= (?1, ?2, ?3, ?4) AND (key_id, level, score, member) < (?1, ?5, ?6, ?7)"
    by "key_id", "level", "score", "member"
);
pub(super) const SUM_BLOCKS: &str = "SELECT ifnull(sum(count), 0) FROM _quorate_keys_blocks
    WHERE (key_id, level, score, member) >= (?1, ?2, ?3, ?4) AND (key_id, level, score, member) < (?1, ?5, ?6, ?7)";
pub(super) const PUT_BLOCK: &str = "INSERT INTO _quorate_keys_blocks (key_id, level, score, member, count)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (key_id, level, score, member) DO UPDATE SET count = excluded.count";
pub(super) const REMOVE_BLOCK: &str =
    "DELETE FROM _quorate_keys_blocks WHERE key_id = ?1 AND level = ?2 AND score = ?3 AND member = ?4";

pub(super) const ITEM: &str = "SELECT value FROM _quorate_keys_items WHERE key_id = ?1 AND position = ?2";
pub(super) const ITEMS: Ordered = ordered!(
    "SELECT position, value FROM _quorate_keys_items
    WHERE (key_id, position) >= (?1, ?2) AND (key_id, position) < (?3, ?4)" by "key_id", "position"
);
pub(super) const PUT_ITEM: &str = "INSERT INTO _quorate_keys_items (key_id, position, value) VALUES (?1, ?2, ?3)
    ON CONFLICT (key_id, position) DO UPDATE SET value = excluded.value";
pub(super) const REMOVE_ITEM: &str = "DELETE FROM _quorate_keys_items WHERE key_id = ?1 AND position = ?2";

pub(super) const ADD_DUE: &str = "INSERT INTO _quorate_keys_due (due, id) VALUES (?1, ?2)";
pub(super) const REMOVE_DUE: &str = "DELETE FROM _quorate_keys_due WHERE due = ?1 AND id = ?2";
pub(super) const FIRST_DUE: &str = "SELECT due, id FROM _quorate_keys_due ORDER BY due, id LIMIT 1";

pub(super) const ADD_TRASH: &str = "INSERT INTO _quorate_keys_trash (id, kind) VALUES (?1, ?2)";
pub(super) const REMOVE_TRASH: &str = "DELETE FROM _quorate_keys_trash WHERE id = ?1";
pub(super) const FIRST_TRASH: &str = "SELECT id, kind FROM _quorate_keys_trash ORDER BY id LIMIT 1";

/// Removes the first rows of an id, up to a limit.
pub(super) const fn clear(part: Part) -> &'static str {
    match part {
        Part::Elements => {
            "DELETE FROM _quorate_keys_elements WHERE key_id = ?1 AND field <= (SELECT max(field) FROM
            (SELECT field FROM _quorate_keys_elements WHERE key_id = ?1 ORDER BY field LIMIT ?2))"
        }
        Part::Members => {
            "DELETE FROM _quorate_keys_members WHERE key_id = ?1 AND member <= (SELECT max(member) FROM
            (SELECT member FROM _quorate_keys_members WHERE key_id = ?1 ORDER BY member LIMIT ?2))"
        }
        Part::Items => {
            "DELETE FROM _quorate_keys_items WHERE key_id = ?1 AND position <= (SELECT max(position) FROM
            (SELECT position FROM _quorate_keys_items WHERE key_id = ?1 ORDER BY position LIMIT ?2))"
        }
        // Blocks have too many columns for a maximum. There is only one for hundreds of members.
        Part::Blocks => {
            "DELETE FROM _quorate_keys_blocks WHERE (key_id, level, score, member) IN
            (SELECT key_id, level, score, member FROM _quorate_keys_blocks WHERE key_id = ?1
            ORDER BY level, score, member LIMIT ?2)"
        }
    }
}
