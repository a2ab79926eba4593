//! Sets: rows are only added, each once. There is no constraint that would hide a row added twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quorate_history::set::Access;

use super::{Client, Result, Window, int};

pub const TABLES: &[&str] = &[
    "CREATE TABLE elements (\"set\" INTEGER NOT NULL, element INTEGER NOT NULL)",
    "CREATE INDEX elements_by_set ON elements (\"set\")",
];

/// How many elements are added to a set before the next set is used.
const USES_MAX: u64 = 300;
const READ: &str = "SELECT element FROM elements WHERE \"set\" = ?";

#[derive(Clone, Default)]
pub struct Sets {
    window: Window,
    element: Arc<AtomicU64>,
}

impl Sets {
    pub async fn step(&self, client: &Client) {
        let op = if client.rng.chance(0.8) {
            let set = self.window.first(1, USES_MAX, 1);
            let element = self.element.fetch_add(1, Ordering::Relaxed);
            let add = client.write();
            let add = add.execute("INSERT INTO elements VALUES (?, ?)", (int(set), int(element)));
            client.run("set add", true, add).await.with(Access::Add { set, element })
        } else {
            let set = self.window.first(0, USES_MAX, 1);
            let ended = client.run("set read", false, client.read().query_as::<u64>(READ, (int(set),))).await;
            ended.with(Access::Read { set, elements: ended.answer.clone().unwrap_or_default() })
        };
        client.ledger.record().sets.push(op);
    }

    pub async fn finish(&self, client: &Client) -> Result<()> {
        for set in 0..=self.window.first(0, USES_MAX, 1) {
            let ended = client.run("set read", false, client.patient().query_as::<u64>(READ, (int(set),))).await;
            let elements = ended.answer.clone().ok_or("the sets can't be read at the end")?;
            client.ledger.record().sets.push(ended.with(Access::Read { set, elements }));
        }
        Ok(())
    }
}
