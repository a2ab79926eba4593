//! The transactions that `docs/sql.md` recommends work as described, when many callers run them on all nodes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::collections::BTreeSet;

use futures_util::future::join_all;
use quorate::{Error, Level, Sql};
use support::{Cluster, run};

const GUIDE: &str = include_str!("../../../docs/sql.md");
const OWN: &str = include_str!("recipes.rs");

/// The number of callers of each kind, and how often each calls.
const CALLERS: usize = 6;
const TIMES: usize = 5;

// The functions of the guide begin here.
/// Moves money if the balance is sufficient.
async fn transfer(sql: &Sql, from: &str, to: &str, amount: i64) -> Result<bool, Error> {
    let done = sql.transact(|tx| async move {
        let balance: i64 = tx.query_one("SELECT balance FROM accounts WHERE name = ?", (from,)).await?;
        if balance < amount {
            return Ok::<_, Error>(false);
        }
        tx.execute("UPDATE accounts SET balance = balance - ? WHERE name = ?", (amount, from))?;
        tx.execute("UPDATE accounts SET balance = balance + ? WHERE name = ?", (amount, to))?;
        Ok(true)
    });
    Ok(done.await?.value)
}

/// Books the first free room; no two callers get the same room.
async fn book(sql: &Sql, guest: &str) -> Result<Option<i64>, Error> {
    let done = sql.transact(|tx| async move {
        let free = "SELECT number FROM rooms WHERE guest IS NULL ORDER BY number LIMIT 1";
        let room: Option<i64> = tx.query_optional(free, ()).await?;
        if let Some(room) = room {
            tx.execute("UPDATE rooms SET guest = ? WHERE number = ?", (guest, room))?;
        }
        Ok::<_, Error>(room)
    });
    Ok(done.await?.value)
}

/// Increments a counter and returns its new value.
async fn count(sql: &Sql, name: &str) -> Result<i64, Error> {
    let done = sql.transact(|tx| async move {
        let before: Option<i64> = tx.query_optional("SELECT n FROM counters WHERE name = ?", (name,)).await?;
        let n = before.unwrap_or(0) + 1;
        tx.execute("REPLACE INTO counters (name, n) VALUES (?, ?)", (name, n))?;
        Ok::<_, Error>(n)
    });
    Ok(done.await?.value)
}

/// Changes a document with a Rust function.
async fn edit(sql: &Sql, id: i64, change: impl Fn(String) -> String) -> Result<(), Error> {
    let change = &change;
    let done = sql.transact(|tx| async move {
        let text: String = tx.query_one("SELECT text FROM documents WHERE id = ?", (id,)).await?;
        tx.execute("UPDATE documents SET text = ? WHERE id = ?", (change(text), id))?;
        Ok::<_, Error>(())
    });
    done.await.map(drop)
}
// The functions of the guide end here.

#[test]
fn the_guide_shows_the_tested_code() {
    let (_, shown) = OWN.split_once("guide begin here.\n").unwrap();
    let (shown, _) = shown.split_once("// The functions of the guide end here.").unwrap();
    assert!(GUIDE.contains(shown), "docs/sql.md shows other functions than these");
}

const SCHEMA: [&str; 7] = [
    "CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER CHECK (balance >= 0))",
    "INSERT INTO accounts VALUES ('ann', 40), ('bob', 10)",
    "CREATE TABLE rooms (number INTEGER PRIMARY KEY, guest TEXT)",
    "WITH n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20) INSERT INTO rooms (number) SELECT i FROM n",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, n INTEGER NOT NULL)",
    "CREATE TABLE documents (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
    "INSERT INTO documents VALUES (1, '')",
];

/// The results that one caller got: transfers that were made, rooms, counts.
#[derive(Default)]
struct CallerResults {
    moved: i64,
    rooms: Vec<i64>,
    counts: Vec<i64>,
}

async fn call(sql: Sql, caller: usize) -> Result<CallerResults, Error> {
    let mut results = CallerResults::default();
    for time in 0..TIMES {
        results.moved += i64::from(transfer(&sql, "ann", "bob", 3).await?);
        results.rooms.extend(book(&sql, &format!("guest {caller}.{time}")).await?);
        results.counts.push(count(&sql, "calls").await?);
        edit(&sql, 1, |text| format!("{text} {caller}.{time}")).await?;
    }
    Ok(results)
}

#[test]
fn the_recipes_work_with_many_callers() {
    run(async {
        let mut cluster = Cluster::start().await;
        cluster.sql("a").batch(SCHEMA.map(|statement| (statement, ()))).await.unwrap();
        let names = ["a", "b", "c"].iter().cycle();
        let handles = names.map(|name| cluster.sql(name).at(Level::Linearizable)).take(CALLERS);
        let results = join_all(handles.zip(0..).map(|(sql, caller)| call(sql, caller))).await;
        let results: Vec<CallerResults> = results.into_iter().collect::<Result<_, _>>().unwrap();

        let sql = cluster.sql("b").at(Level::Linearizable);
        let moved: i64 = results.iter().map(|results| results.moved).sum();
        assert_eq!(moved, 13, "as often as 3 goes into 40");
        let balances: Vec<i64> = sql.query_as("SELECT balance FROM accounts ORDER BY name", ()).await.unwrap();
        assert_eq!(balances, [40 - 3 * moved, 10 + 3 * moved]);

        let rooms: Vec<i64> = results.iter().flat_map(|results| results.rooms.clone()).collect();
        assert_eq!((rooms.len(), rooms.iter().collect::<BTreeSet<_>>().len()), (20, 20), "{rooms:?}");
        let counts: BTreeSet<i64> = results.iter().flat_map(|results| results.counts.clone()).collect();
        let calls = i64::try_from(CALLERS * TIMES).unwrap();
        assert_eq!(counts, (1..=calls).collect());
        let text: String = sql.query_one("SELECT text FROM documents", ()).await.unwrap();
        assert_eq!(text.split_whitespace().collect::<BTreeSet<_>>().len(), CALLERS * TIMES, "{text}");
        cluster.stop_all().await;
    });
}
