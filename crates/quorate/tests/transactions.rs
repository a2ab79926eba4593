//! Optimistic transactions: they commit only if their reads are unchanged, and run again otherwise.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use quorate::sql::Committed;
use quorate::{Error, Level, Optimistic, Position, Sql, Step, Value};
use support::{Cluster, on_both, run};

async fn counters(sql: &Sql) -> Result<Position, Error> {
    let table = "CREATE TABLE counters (name TEXT PRIMARY KEY, n NOT NULL) WITHOUT ROWID";
    Ok(sql.batch([table, "INSERT INTO counters VALUES ('a', 0), ('b', 0)"]).await?.position)
}

async fn read(tx: &Optimistic, name: &str) -> Result<i64, Error> {
    tx.query_one("SELECT n FROM counters WHERE name = ?", (name,)).await
}

fn write(tx: &Optimistic, name: &str, n: i64) -> Result<Step, Error> {
    tx.execute("UPDATE counters SET n = ? WHERE name = ?", (n, name))
}

/// Increments a counter by reading and writing it.
async fn increment(sql: &Sql, name: &str) -> Result<Committed<i64>, Error> {
    sql.transact(|tx| async move {
        let n = read(&tx, name).await?;
        write(&tx, name, n + 1)?;
        Ok(n + 1)
    })
    .await
}

async fn value(sql: &Sql, name: &str) -> Result<i64, Error> {
    sql.at(Level::Linearizable).query_one("SELECT n FROM counters WHERE name = ?", (name,)).await
}

/// Returns the text of an expected error.
fn text<T>(result: Result<T, Error>) -> String {
    result.map(drop).unwrap_err().to_string()
}

/// Runs a transaction that reads with a query, while another client writes during its first runs, and then writes.
/// Returns the number of runs.
async fn runs_beside(sql: &Sql, query: &'static str, other: &'static str, disturbed: usize) -> Result<usize, Error> {
    let mut runs = 0;
    let transaction = sql.transact(|tx| {
        runs += 1;
        let run = runs;
        async move {
            let before = tx.query(query, ()).await?;
            if run <= disturbed {
                sql.execute(other, ()).await?;
            }
            assert_eq!(tx.query(query, ()).await?.len(), before.len());
            tx.execute("INSERT OR REPLACE INTO counters VALUES ('rows', ?)", (i64::try_from(before.len()).unwrap(),))?;
            Ok::<_, Error>(())
        }
    });
    transaction.await?;
    Ok(runs)
}

#[test]
fn a_closure_reruns_only_if_its_reads_changed() {
    on_both(async |sql| {
        counters(&sql).await?;
        let one = "SELECT n FROM counters WHERE name = 'a'";
        let some = "SELECT name FROM counters WHERE name <> 'rows' ORDER BY name";
        let own = "SELECT random(), hex(randomblob(9)), julianday('now'), CURRENT_TIMESTAMP";
        let cases = [
            (one, "UPDATE counters SET n = n + 1 WHERE name = 'a'", 2),
            (one, "UPDATE counters SET n = n + 1 WHERE name = 'b'", 1),
            (one, "UPDATE counters SET n = n WHERE name = 'a'", 1),
            // A value of another storage class is another value.
            (one, "UPDATE counters SET n = CAST(n AS REAL) WHERE name = 'a'", 2),
            (some, "INSERT INTO counters VALUES ('c', 0)", 2),
            (some, "DELETE FROM counters WHERE name = 'c'", 2),
            (some, "UPDATE counters SET n = n + 1", 1),
            (some, "CREATE INDEX counters_by_n ON counters (n)", 1),
            (own, "UPDATE counters SET n = 0 WHERE name = 'a'", 1),
        ];
        for (query, other, runs) in cases {
            assert_eq!(runs_beside(&sql, query, other, 1).await, Ok(runs), "{query} beside {other}");
        }
        Ok(())
    });
}

#[test]
fn a_table_that_was_read_may_be_dropped() {
    on_both(async |sql| {
        counters(&sql).await?;
        let failed = runs_beside(&sql, "SELECT * FROM counters", "DROP TABLE counters", 1).await;
        assert_eq!(text(failed), "no such table: counters");
        Ok(())
    });
}

#[test]
fn all_reads_see_one_state_and_one_time() {
    on_both(async |sql| {
        counters(&sql).await?;
        let look = "SELECT sum(n), strftime('%f', 'now') FROM counters WHERE name IN ('a', 'b')";
        let (other, now) = (&sql, "SELECT unixepoch('subsec')");
        let done = sql.transact(|tx| async move {
            let before: (i64, String) = tx.query_one(look, ()).await?;
            let now: f64 = tx.query_one(now, ()).await?;
            increment(other, "a").await?;
            assert_eq!(tx.query_one::<(i64, String)>(look, ()).await?, before);
            let drawn: Vec<i64> =
                vec![tx.query_one("SELECT random()", ()).await?, tx.query_one("SELECT random()", ()).await?];
            assert_ne!(drawn[0], drawn[1], "but each draws its own numbers");
            Ok::<_, Error>((before.0, tx.query_one::<f64>("SELECT unixepoch('subsec')", ()).await? - now))
        });
        let done = done.await?;
        assert_eq!((done.value, done.results.len()), ((0, 0.0), 0));
        assert_eq!(value(&sql, "a").await, Ok(1));
        // A read-only transaction has only the position of its state.
        assert!(done.position < increment(&sql, "a").await?.position);
        Ok(())
    });
}

#[test]
fn writes_act_like_those_of_a_batch() {
    on_both(async |sql| {
        counters(&sql).await?;
        sql.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, counter INTEGER, said TEXT UNIQUE)", ()).await?;
        let write = |said: &'static str| {
            sql.transact(move |tx| async move {
                let n = read(&tx, "a").await?;
                let first = tx.execute("INSERT INTO log (counter) VALUES (?) RETURNING id", (n,))?;
                tx.execute_many("INSERT INTO log (counter) VALUES (?)", [(1,), (2,)])?;
                tx.execute("INSERT INTO log (counter, said) VALUES (?, ?)", (first.column("id"), said))?;
                Ok::<_, Error>(first)
            })
        };
        let done = write("once").await?;
        assert_eq!(done.value, Step(0));
        assert_eq!(done.results[0].rows, [[Value::from(1)]]);
        assert_eq!(done.results.iter().map(|result| result.changes).collect::<Vec<_>>(), [1, 2, 1]);
        let all: Vec<i64> =
            sql.at(Level::AtLeast(done.position)).query_as("SELECT counter FROM log ORDER BY id", ()).await?;
        assert_eq!(all, [0, 1, 2, 1]);
        let failure = write("once").await.unwrap_err();
        assert_eq!(failure.to_string(), "statement 3: UNIQUE constraint failed: log.said");
        assert_eq!(sql.at(Level::Linearizable).query_one("SELECT count(*) FROM log", ()).await, Ok(4_i64));
        Ok(())
    });
}

#[test]
fn errors_are_reported_without_effects() {
    on_both(async |sql| {
        counters(&sql).await?;
        let kept = std::sync::Mutex::new(None);
        let done = sql.transact(|tx| {
            *kept.lock().unwrap() = Some(tx.clone());
            async move {
                assert_eq!(
                    text(tx.query("DELETE FROM counters", ()).await),
                    "this statement writes, which a query can't; execute it instead"
                );
                write(&tx, "a", 7)?;
                let early = "a transaction reads before it writes, because a read would not see its writes; read \
                             first, or use `begin`";
                assert_eq!(text(read(&tx, "a").await), early);
                Err::<(), _>(Error::TooLarge("enough".into()))
            }
        });
        assert_eq!(text(done.await), "the result is too large: enough");
        let tx = kept.into_inner().unwrap().unwrap();
        let late = "the closure of this transaction has returned; nothing can be read or written with it any more";
        assert_eq!(text(read(&tx, "a").await), late);
        assert_eq!(text(write(&tx, "a", 8)), late);
        assert_eq!(value(&sql, "a").await, Ok(0));
        Ok(())
    });
}

/// A failed read can't be checked again.
#[test]
fn nothing_is_written_after_a_failed_read() {
    on_both(async |sql| {
        sql.execute("CREATE TABLE decisions (what)", ()).await?;
        let decide = |writes: bool| {
            sql.transact(move |tx| async move {
                let is_there = tx.query_one::<i64>("SELECT count(*) FROM later", ()).await.is_ok();
                if writes {
                    tx.execute("INSERT INTO decisions VALUES (?)", (is_there,))?;
                }
                Ok::<_, Error>(is_there)
            })
        };
        assert!(text(decide(true).await).contains("no such table: later"));
        assert!(!decide(false).await?.value, "it may read");
        sql.execute("CREATE TABLE later (a)", ()).await?;
        assert!(decide(true).await?.value);
        assert_eq!(sql.query_one::<i64>("SELECT count(*) FROM decisions", ()).await, Ok(1));
        Ok(())
    });
}

#[test]
fn conflicts_are_retried_until_the_deadline() {
    on_both(async |sql| {
        counters(&sql).await?;
        let mut deadline = Duration::from_millis(300);
        let (query, other) = ("SELECT n FROM counters WHERE name = 'a'", "UPDATE counters SET n = n + 1");
        let conflict = loop {
            let hasty = sql.with_deadline(deadline);
            match runs_beside(&hasty, query, other, usize::MAX).await.unwrap_err() {
                Error::Conflict(text) => break text,
                // The deadline was reached during one of the two writes.
                error => assert!(error.is_retryable() || matches!(error, Error::Unknown(_)), "{error:?}"),
            }
            deadline *= 2;
        };
        let why =
            format!("what the transaction had read was changed by another write: {query:?} now returns other rows");
        assert_eq!(conflict.to_string(), format!("{why}; run it again"));
        assert_eq!(sql.at(Level::Linearizable).query_one("SELECT count(*) FROM counters", ()).await, Ok(2_i64));
        Ok(())
    });
}

#[test]
fn no_increment_is_lost_or_duplicated() {
    run(async {
        const EACH: i64 = 25;
        let mut cluster = Cluster::start().await;
        let remote = cluster.client().await;
        let made = Level::AtLeast(counters(&remote.sql()).await.unwrap());
        let handles = ["a", "b", "c"].map(|name| cluster.sql(name)).into_iter().chain([remote.sql()]);
        // Tasks of one runtime, like those of a service.
        let tasks = handles.map(|sql| {
            let sql = sql.at(made);
            tokio::spawn(async move {
                let mut values = Vec::new();
                for _ in 0..EACH {
                    values.push(increment(&sql, "a").await.unwrap().value);
                }
                values
            })
        });
        let mut values: Vec<i64> = join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
        values.sort_unstable();
        assert_eq!(values, (1..=EACH * 4).collect::<Vec<_>>(), "each number is given once");
        assert_eq!(value(&remote.sql(), "a").await, Ok(EACH * 4));
        remote.close().await;
        cluster.stop_all().await;
    });
}
