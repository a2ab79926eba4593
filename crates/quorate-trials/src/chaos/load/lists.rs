//! Lists: transactions that append to several lists and read several, as a batch, as a closure, or interactively, and
//! queries that only read.
//!
//! A batch may hold only statements that write, so a read in a batch writes the list unchanged and returns it. The
//! other two kinds read lists and write them back longer, which reveals every lost update.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quorate::{Error, Rows, Sql, Value, params};
use quorate_history::Outcome;
use quorate_history::append::Step;

use super::{Client, Result, Window, int};

pub const TABLES: &[&str] = &["CREATE TABLE lists (key INTEGER PRIMARY KEY, elements TEXT NOT NULL)"];

/// How many lists are in use at a time.
const WIDTH: u64 = 5;
/// How many steps are done on these lists before the next lists are used.
const USES_MAX: u64 = 600;
/// The maximum number of steps of a transaction.
const STEPS_MAX: u64 = 4;
const APPEND: &str = "INSERT INTO lists VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE
                      SET elements = elements || ',' || excluded.elements RETURNING elements";
const READ: &str = "SELECT elements FROM lists WHERE key = ?";
const WRITE: &str = "REPLACE INTO lists VALUES (?, ?)";
const READ_IN_BATCH: &str = "UPDATE lists SET elements = elements WHERE key = ? RETURNING elements";

/// The steps of a transaction: the list that each reads, and what it appends before that.
type Plan = Vec<(u64, Option<u64>)>;

#[derive(Clone, Default)]
pub struct Lists {
    window: Window,
    value: Arc<AtomicU64>,
}

impl Lists {
    pub async fn step(&self, client: &Client) {
        let count = 1 + client.rng.below(STEPS_MAX);
        let first = self.window.first(count, USES_MAX, WIDTH);
        let key = || first + client.rng.below(WIDTH);
        if client.rng.chance(0.3) {
            let keys: Vec<u64> = (0..count).map(|_| key()).collect();
            // A failed read says nothing.
            let _ = read(client, &client.read(), keys).await;
            return;
        }
        let value =
            |number| (number == 0 || client.rng.chance(0.5)).then(|| self.value.fetch_add(1, Ordering::Relaxed));
        let plan: Plan = (0..count).map(|number| (key(), value(number))).collect();
        let sql = client.write();
        let ended = match client.rng.below(10) {
            0..4 => client.run("list batch", true, batch(&sql, &plan)).await,
            4..8 => client.run("list closure", true, closure(&sql, &plan)).await,
            _ => client.run("list interactive", true, interactive(&sql, &plan)).await,
        };
        let mut lists = ended.answer.iter().flatten();
        let steps = plan.iter().flat_map(|(key, value)| {
            let append = value.map(|value| Step::Append { key: *key, value });
            let values = lists.next().cloned().unwrap_or_default();
            append.into_iter().chain([Step::Read { key: *key, values }])
        });
        let steps = steps.collect();
        client.ledger.record().lists.push(ended.with(steps));
    }

    pub async fn finish(&self, client: &Client) -> Result<()> {
        for first in (0..=self.window.first(0, USES_MAX, WIDTH)).step_by(usize::try_from(WIDTH)?) {
            let outcome = read(client, &client.patient(), (first..first + WIDTH).collect()).await;
            if outcome != Outcome::Done {
                return Err("the lists can't be read at the end".into());
            }
        }
        Ok(())
    }
}

/// Reads lists in one query.
async fn read(client: &Client, sql: &Sql, keys: Vec<u64>) -> Outcome {
    let marks = vec!["?"; keys.len()].join(", ");
    let query = format!("SELECT key, elements FROM lists WHERE key IN ({marks})");
    let params: Vec<Value> = keys.iter().map(|key| int(*key).into()).collect();
    let read = async { sql.query_as::<(u64, String)>(query, params).await };
    let ended = client.run("list read", false, read).await;
    let lists = ended.answer.as_deref().unwrap_or_default();
    let list = |key: &u64| lists.iter().find(|(of, _)| of == key).map_or("", |(_, elements)| elements.as_str());
    let steps = keys.iter().map(|key| Step::Read { key: *key, values: numbers(list(key)) }).collect();
    client.ledger.record().lists.push(ended.with(steps));
    ended.outcome
}

/// Appends and reads with a batch of statements that do both.
async fn batch(sql: &Sql, plan: &Plan) -> Result<Vec<Vec<u64>>, Error> {
    let statements = plan.iter().map(|(key, value)| match value {
        Some(value) => (APPEND, params![int(*key), value.to_string()]),
        None => (READ_IN_BATCH, params![int(*key)]),
    });
    let results = sql.batch(statements).await?.results;
    let list = |result| Ok(numbers(&Rows::from(result).first::<String>()?.unwrap_or_default()));
    results.into_iter().map(list).collect()
}

/// Reads lists, and writes them back longer. An update is lost if the commit does not check that the lists are
/// unchanged since they were read.
async fn closure(sql: &Sql, plan: &Plan) -> Result<Vec<Vec<u64>>, Error> {
    let body = |tx: quorate::Optimistic| {
        let plan = plan.clone();
        async move {
            let mut seen = Seen::default();
            // A closure reads before it writes.
            for (key, _) in &plan {
                if let Entry::Vacant(list) = seen.lists.entry(*key) {
                    list.insert(tx.query_optional(READ, (int(*key),)).await?.unwrap_or_default());
                }
            }
            for (key, value) in plan {
                if let Some(list) = seen.step(key, value) {
                    tx.execute(WRITE, (int(key), list))?;
                }
            }
            Ok::<_, Error>(seen.shown)
        }
    };
    Ok(sql.transact(body).await?.value)
}

/// Does the same statement by statement, and reads each list again.
async fn interactive(sql: &Sql, plan: &Plan) -> Result<Vec<Vec<u64>>, Error> {
    let mut tx = sql.begin().await?;
    let mut seen = Seen::default();
    for (key, value) in plan {
        seen.lists.insert(*key, tx.query_optional(READ, (int(*key),)).await?.unwrap_or_default());
        if let Some(list) = seen.step(*key, *value) {
            tx.execute(WRITE, (int(*key), list)).await?;
        }
    }
    tx.commit().await?;
    Ok(seen.shown)
}

/// Lists as a transaction sees them.
#[derive(Default)]
struct Seen {
    lists: BTreeMap<u64, String>,
    /// What each step has read.
    shown: Vec<Vec<u64>>,
}

impl Seen {
    /// Does a step, and returns the list if it must be written.
    fn step(&mut self, key: u64, value: Option<u64>) -> Option<String> {
        let list = self.lists.entry(key).or_default();
        if let Some(value) = value {
            let comma = if list.is_empty() { "" } else { "," };
            *list = format!("{list}{comma}{value}");
        }
        self.shown.push(numbers(list));
        value.is_some().then(|| list.clone())
    }
}

/// Parses the numbers in a text. Anything else becomes a number that is never appended.
fn numbers(text: &str) -> Vec<u64> {
    text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().unwrap_or(u64::MAX)).collect()
}
