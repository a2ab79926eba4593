//! Snapshots of both kinds of handles: one state, results of any size, and queries that end when no caller waits.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::time::Duration;

use quorate::sql::RowStream;
use quorate::{Client, ClientConfig, Config, Error, FailureKind, Level, Node, Snapshot, Sql};
use support::{PATIENCE, Single, on_both, run, secret};
use tempfile::TempDir;

/// A query that never ends by itself.
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";

/// A query that returns rows without end.
const ENDLESS_ROWS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";

/// A query that returns more than a call may, in rows and in bytes.
const MANY: i64 = 1_500_000;

async fn snapshot(sql: &Sql) -> Snapshot {
    sql.at(Level::Linearizable).with_deadline(PATIENCE).snapshot().await.unwrap()
}

/// Returns the number of rows, and the largest number that came at once.
async fn drain(mut rows: RowStream<'_>) -> (i64, usize) {
    let (mut count, mut most) = (0, 0);
    while let Some(piece) = rows.next().await.unwrap() {
        count += i64::try_from(piece.len()).unwrap();
        most = most.max(piece.len());
    }
    assert_eq!(rows.next().await, Ok(None));
    (count, most)
}

#[test]
fn a_snapshot_shows_one_state_of_any_size() {
    on_both(async |sql| {
        sql.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)", ()).await?;
        let before = sql.execute("INSERT INTO t VALUES (1), (2)", ()).await?;
        let mut old = snapshot(&sql).await;
        sql.execute("DELETE FROM t WHERE a = 1", ()).await?;
        let mut new = snapshot(&sql).await;
        assert!(old.position() >= before.position && new.position() > old.position());
        for _ in 0..2 {
            assert_eq!(old.query("SELECT count(*) FROM t", ()).await?.one(), Ok(2_i64));
            assert_eq!(new.query("SELECT count(*) FROM t WHERE a > ?", (0,)).await?.one(), Ok(1_i64));
        }
        let numbers = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?)
                       SELECT i, 'some text that makes the rows larger' FROM n";
        let (count, most) = drain(old.stream(numbers, (MANY,)).await?).await;
        assert!(count == MANY && most < 10_000, "{count}, {most}");
        // A result that was not read to its end is replaced by the next one.
        let mut begun = old.stream(numbers, (MANY,)).await?;
        assert!(begun.next().await?.is_some());
        assert_eq!(drain(old.stream(numbers, (5,)).await?).await.0, 5);
        let nothing = old.stream("SELECT a, a AS b FROM t WHERE 0", ()).await?;
        assert_eq!(nothing.columns()[..], ["a", "b"]);
        assert_eq!(drain(nothing).await, (0, 0));
        Ok(())
    });
}

#[test]
fn a_failed_query_leaves_the_snapshot_as_it_was() {
    on_both(async |sql| {
        let mut snapshot = snapshot(&sql).await;
        for (query, kind) in [("SELECT x", FailureKind::Sql), ("CREATE TABLE t (a)", FailureKind::Refused)] {
            let error = snapshot.query(query, ()).await.unwrap_err();
            assert_eq!(error.failure().map(|failure| failure.kind), Some(kind), "{query}");
        }
        assert_eq!(snapshot.query("SELECT 1", ()).await?.one(), Ok(1_i64));
        let hasty = sql.at(Level::Local).with_deadline(Duration::from_millis(20));
        let mut hasty = loop {
            // On a busy machine, to open it may take longer.
            if let Ok(opened) = hasty.snapshot().await {
                break opened;
            }
        };
        assert!(matches!(hasty.query(ENDLESS, ()).await, Err(Error::TimedOut(_))));
        Ok(())
    });
}

/// A snapshot that outlived its node would prevent every process, including a restarted node, from using the directory.
#[test]
fn a_snapshot_does_not_outlive_its_node() {
    run(async {
        let Single { dir, node } = Single::start().await;
        let remote = Client::connect(ClientConfig::new([node.local_addr()], secret())).await.unwrap();
        let (mut kept, mut streamed) = (snapshot(&node.sql()).await, snapshot(&node.sql()).await);
        let mut elsewhere = snapshot(&remote.sql()).await;
        let mut rows = streamed.stream(ENDLESS_ROWS, ()).await.unwrap();
        assert!(rows.next().await.unwrap().is_some());
        node.stop().await;
        assert_eq!(kept.query("SELECT 1", ()).await, Err(Error::Closed));
        assert_eq!(rows.next().await, Err(Error::Closed));
        assert!(matches!(elsewhere.query("SELECT 1", ()).await, Err(Error::Unavailable(_))));
        let node = Node::start(Single::config(&dir)).await.unwrap();
        assert_eq!(kept.query("SELECT 1", ()).await, Err(Error::Closed), "that of another life");
        node.stop().await;
    });
}

/// The node has one reader: getting it shows that the previous query has ended, long before its own end.
#[test]
fn a_dropped_query_ends_on_the_node() {
    run(async {
        let dir = TempDir::new().unwrap();
        let mut config = Config::single(dir.path()).with_secret(secret());
        config.sql.readers = 1;
        let node = Node::start(config).await.unwrap();
        let remote = Client::connect(ClientConfig::new([node.local_addr()], secret())).await.unwrap();
        for sql in [node.sql(), remote.sql(), node.sql()] {
            let mut kept = sql.at(Level::Local).with_deadline(PATIENCE * 10).snapshot().await.unwrap();
            let endless = kept.query(ENDLESS, ());
            assert!(tokio::time::timeout(Duration::from_millis(50), endless).await.is_err());
            // The snapshot and its state are still there.
            assert_eq!(kept.query("SELECT 1", ()).await.unwrap().one(), Ok(1_i64));
            let endless = kept.query(ENDLESS, ());
            assert!(tokio::time::timeout(Duration::from_millis(50), endless).await.is_err());
            drop(kept);
            assert_eq!(snapshot(&sql).await.query("SELECT 2", ()).await.unwrap().one(), Ok(2_i64));
        }
        node.stop().await;
    });
}

#[test]
fn the_number_of_snapshots_is_limited() {
    run(async {
        let dir = TempDir::new().unwrap();
        let mut config = Config::single(dir.path()).with_secret(secret());
        config.sql.readers = 4;
        let node = Node::start(config).await.unwrap();
        let remote = Client::connect(ClientConfig::new([node.local_addr()], secret())).await.unwrap();
        for sql in [node.sql(), remote.sql()] {
            let (first, _second) = (snapshot(&sql).await, snapshot(&sql).await);
            let third = sql.at(Level::Local).with_deadline(Duration::from_millis(300)).snapshot().await;
            assert!(matches!(third, Err(Error::Overloaded(_) | Error::TimedOut(_))), "{third:?}");
            assert_eq!(sql.query_one::<i64>("SELECT 1", ()).await, Ok(1), "other reads find a reader");
            let waiting = snapshot(&sql);
            drop(first);
            drop(waiting.await);
        }
        node.stop().await;
    });
}
