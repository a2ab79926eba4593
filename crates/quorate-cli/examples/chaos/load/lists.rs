//! Lists: transactions that append to several and read several, in one batch; and others that only read, in one query.
//!
//! A batch holds only statements that write: one that reads a list there writes it as it is, and returns it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quorate::{BatchResult, Params, Value, params};
use quorate_history::Outcome;
use quorate_history::append::{Step, Transaction};

use super::{Client, Result, Window, int};

pub const TABLES: &[&str] = &["CREATE TABLE lists (key INTEGER PRIMARY KEY, elements TEXT NOT NULL)"];

/// Lists in use at a time.
const WIDTH: u64 = 5;
/// Steps on them together, before the next are taken.
const USES_MAX: u64 = 600;
/// Steps of a transaction.
const STEPS_MAX: u64 = 4;
const APPEND: &str = "INSERT INTO lists VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE
                      SET elements = elements || ',' || excluded.elements RETURNING elements";
const READ_IN_BATCH: &str = "UPDATE lists SET elements = elements WHERE key = ? RETURNING elements";

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
            // Reads may fail: then they say nothing.
            let _ = read(client, &client.read(), keys).await;
            return;
        }
        let mut steps: Transaction = Vec::new();
        let mut statements: Vec<(&str, Params)> = Vec::new();
        for number in 0..count {
            let key = key();
            if number == 0 || client.rng.chance(0.5) {
                let value = self.value.fetch_add(1, Ordering::Relaxed);
                steps.push(Step::Append { key, value });
                statements.push((APPEND, params![int(key), value.to_string()]));
            } else {
                statements.push((READ_IN_BATCH, params![int(key)]));
            }
            steps.push(Step::Read { key, values: Vec::new() });
        }
        let ended = client.run("list transaction", true, client.write().batch(statements)).await;
        let mut op = ended.with(steps);
        if let Some(answer) = &ended.answer {
            fill_in(&mut op.what, answer);
        }
        client.ledger.told().lists.push(op);
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
async fn read(client: &Client, sql: &quorate::Sql, keys: Vec<u64>) -> Outcome {
    let marks = vec!["?"; keys.len()].join(", ");
    let query = format!("SELECT key, elements FROM lists WHERE key IN ({marks})");
    let params: Vec<Value> = keys.iter().map(|key| int(*key).into()).collect();
    let read = async { sql.query_as::<(u64, String)>(query, params).await };
    let ended = client.run("list read", false, read).await;
    let lists = ended.answer.as_deref().unwrap_or_default();
    let list = |key: &u64| lists.iter().find(|(of, _)| of == key).map_or("", |(_, elements)| elements.as_str());
    let steps = keys.iter().map(|key| Step::Read { key: *key, values: numbers(list(key)) }).collect();
    client.ledger.told().lists.push(ended.with(steps));
    ended.outcome
}

/// Puts what a batch returned into its steps: one read for each statement.
fn fill_in(steps: &mut Transaction, answer: &BatchResult) {
    let reads = steps.iter_mut().filter_map(|step| match step {
        Step::Read { values, .. } => Some(values),
        Step::Append { .. } => None,
    });
    for (values, result) in reads.zip(&answer.results) {
        let text = result.rows.first().and_then(|row| match row.first() {
            Some(Value::Text(text)) => Some(text.as_str()),
            _ => None,
        });
        *values = numbers(text.unwrap_or_default());
    }
}

/// The numbers of a text; what is none becomes one that nobody appends.
fn numbers(text: &str) -> Vec<u64> {
    text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().unwrap_or(u64::MAX)).collect()
}
