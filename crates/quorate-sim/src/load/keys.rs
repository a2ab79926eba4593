//! Writers' batches of SQL and keys, which take effect together.
//!
//! Invariant: what a batch writes under keys can be told from its row of `events`, so the end of a run shows whether
//! both took effect, and how often.

use std::collections::BTreeMap;
use std::time::Duration;

use quorate::{Error, Position, Sql, Value, params, steps};

use super::Writer;
use crate::coverage::KEYS;
use crate::ledger::{Key, Keys};

/// The longest time after which a brief key expires, in milliseconds.
const BRIEF_MILLIS: u64 = 2_000;

/// A time after which no key has expired when a run ends. The time of the cluster may jump by two years, if the clocks
/// of most nodes are first a year behind and then a year ahead, and by some days.
const LONG: Duration = Duration::from_secs(3 * 365 * 86_400);

impl Writer {
    /// Inserts a row, counts it under a key, adds its number to a list and a set, and sets two strings, of which one
    /// soon expires.
    pub(super) async fn keys(&self, sql: &Sql, number: i64, body: Value) -> Result<(Position, Option<i64>), Error> {
        let (keys, client, name) = (sql.keys(), self.client, number.to_string());
        let brief = Duration::from_millis(1 + self.rng.below(BRIEF_MILLIS));
        let batch = steps![
            ("INSERT INTO events (client, number, body) VALUES (?, ?, ?)", params![client, number, body]),
            keys.increment(format!("count:{client}"), 1),
            keys.list(format!("list:{client}")).push_right([name.as_str()]),
            keys.set_of(format!("set:{client}")).add([name.as_str()]),
            keys.set(format!("brief:{client}"), name.as_str()).expires(brief),
            keys.set(format!("long:{client}"), name.as_str()).expires(LONG),
        ];
        let position = sql.batch(batch).await?.position;
        self.ledger.happened(KEYS);
        Ok((position, None))
    }
}

/// Reads through SQL what the cluster holds under keys.
pub(super) async fn held(sql: &Sql) -> Result<Keys, Error> {
    let client = "CAST(substr(key, instr(key, ':') + 1) AS INTEGER)";
    let numbers = |view: &str, value: &str, prefix: &str| {
        let (length, prefix) = (prefix.len(), hex(prefix));
        format!("SELECT {client}, CAST({value} AS INTEGER) FROM {view} WHERE substr(key, 1, {length}) = x'{prefix}'")
    };
    let strings = |prefix| numbers("quorate_keys", "value", prefix);
    let count = |rows: Vec<Key>| {
        let mut counts: BTreeMap<Key, u64> = BTreeMap::new();
        rows.into_iter().for_each(|key| *counts.entry(key).or_default() += 1);
        counts
    };
    Ok(Keys {
        lists: count(sql.query_as(numbers("quorate_lists", "value", "list:"), ()).await?),
        sets: count(sql.query_as(numbers("quorate_sets", "member", "set:"), ()).await?),
        counts: sql.query_as(strings("count:"), ()).await?.into_iter().collect(),
        long: sql.query_as(strings("long:"), ()).await?.into_iter().collect(),
    })
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
