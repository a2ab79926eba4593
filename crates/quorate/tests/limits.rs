//! Limits on the time of queries and the size of results, and the log of slow statements.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use std::time::Duration;

use quorate::config::SqlOptions;
use quorate::{Client, ClientConfig, Error, Level, Node, Sql};
use quorate_model::limits::FORMAT_LEVEL;
use support::{PATIENCE, Single, on_both, run, secret, until};

/// A query that runs until it is stopped.
const ENDLESS: &str =
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0";

/// A query that takes a while.
const LONG: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 200000) SELECT sum(i) FROM n";

#[test]
fn a_handle_limits_the_time_of_its_queries() {
    on_both(async |sql| {
        let short = sql.with_query_timeout(Duration::from_millis(20));
        let text = "the read took too long: the query did not end within 20ms; make it cheaper, or raise its \
                    timeout (with_query_timeout) and the node's ('sql.query_timeout')";
        let text_of = |result: Result<i64, Error>| result.unwrap_err().to_string();
        assert_eq!(text_of(short.query_one(ENDLESS, ()).await), text);
        assert_eq!(text_of(short.at(Level::Linearizable).query_one(ENDLESS, ()).await), text);
        // A transaction's reads have the same limit.
        let transaction = short.transact(async |tx| tx.query_one::<i64>(ENDLESS, ()).await);
        assert_eq!(text_of(transaction.await.map(|done| done.value)), text);
        // The failed query leaves no trace: the handle still works, and its clone has its own limit.
        assert_eq!(short.query_one::<i64>("SELECT 1", ()).await, Ok(1));
        assert!(sql.query(LONG, ()).await.is_ok());
        Ok(())
    });
}

#[test]
fn a_handle_limits_the_size_of_results() {
    on_both(async |sql| {
        let few = sql.with_limits(2, 1000).with_query_timeout(PATIENCE);
        assert_eq!(few.query_as::<i64>("VALUES (1), (2)", ()).await, Ok(vec![1, 2]));
        let rows = few.query("VALUES (1), (2), (3)", ()).await.unwrap_err();
        let bytes = few.query("SELECT zeroblob(1001)", ()).await.unwrap_err();
        assert!(matches!((&rows, &bytes), (Error::TooLarge(_), Error::TooLarge(_))), "{rows}, {bytes}");
        Ok(())
    });
}

async fn start(sql: SqlOptions) -> (tempfile::TempDir, Node, [Sql; 2], Client) {
    let dir = tempfile::TempDir::new().unwrap();
    let node = Node::start(Single::config(&dir).with_sql(sql)).await.unwrap();
    let remote = Client::connect(ClientConfig::new([node.local_addr()], secret())).await.unwrap();
    let handles = [node.sql(), remote.sql()];
    (dir, node, handles, remote)
}

#[test]
fn a_node_limits_the_time_of_all_queries() {
    run(async {
        let query_timeout = Duration::from_millis(20);
        let (_dir, node, handles, _remote) = start(SqlOptions::default().with_query_timeout(query_timeout)).await;
        for sql in &handles {
            let result = sql.with_query_timeout(PATIENCE).query_one::<i64>(ENDLESS, ()).await;
            assert!(matches!(&result, Err(Error::TimedOut(text)) if text.to_string().contains("20ms")), "{result:?}");
            // The limit also applies to a query of a snapshot and of a transaction's closure.
            let mut snapshot = sql.with_deadline(PATIENCE).snapshot().await.unwrap();
            let result = snapshot.query(ENDLESS, ()).await;
            assert!(matches!(&result, Err(Error::TimedOut(text)) if text.to_string().contains("20ms")), "{result:?}");
            let patient = sql.with_deadline(PATIENCE);
            let ran = patient.transact(|tx| async move { tx.query_one::<i64>(ENDLESS, ()).await });
            let result = ran.await.map(|committed| committed.value);
            assert!(matches!(&result, Err(Error::TimedOut(text)) if text.to_string().contains("20ms")), "{result:?}");
        }
        node.stop().await;
    });
}

/// The client refuses them, because a node could not decode them.
#[test]
fn too_many_parameters_are_refused_with_the_limit() {
    run(async {
        let (_dir, node, _, remote) = start(SqlOptions::default()).await;
        let many = || vec![1; 32_767];
        let is_refused = |error: Error| error.to_string().contains("the limit is 32766");
        assert!(is_refused(remote.sql().query("SELECT ?", many()).await.unwrap_err()));
        assert!(is_refused(remote.sql().snapshot().await.unwrap().query("SELECT ?", many()).await.unwrap_err()));
        assert!(is_refused(remote.sql().begin().await.unwrap().query("SELECT ?", many()).await.unwrap_err()));
        node.stop().await;
    });
}

#[test]
fn a_query_whose_future_is_dropped_ends() {
    run(async {
        // There is one reader, so the next query shows that the dropped one has ended.
        let sql = SqlOptions::default().with_readers(1).with_query_timeout(PATIENCE * 10);
        let (_dir, node, handles, _remote) = start(sql).await;
        for sql in &handles {
            let endless = sql.query_one::<i64>(ENDLESS, ());
            assert!(tokio::time::timeout(Duration::from_millis(50), endless).await.is_err());
            assert_eq!(sql.query_one::<i64>("SELECT 1", ()).await, Ok(1));
        }
        node.stop().await;
    });
}

#[test]
fn slow_statements_are_counted() {
    run(async {
        let slow = |slow_statement| SqlOptions::default().with_slow_statement(slow_statement);
        for (options, expected) in [(slow(Duration::from_millis(1)), 2), (slow(Duration::ZERO), 0)] {
            let (_dir, node, handles, _remote) = start(options).await;
            // Each handle has a session then.
            for sql in &handles {
                sql.execute("CREATE TABLE IF NOT EXISTS sums (sum)", ()).await.unwrap();
            }
            until("the format level is raised", || node.status().format_level == FORMAT_LEVEL).await;
            // On a busy machine each of these entries may be slow too.
            let before = node.metrics().store.slow.writes();
            for sql in &handles {
                sql.query(LONG, ()).await.unwrap();
                sql.execute(format!("INSERT INTO sums {LONG}"), ()).await.unwrap();
            }
            let slow = node.metrics().store.slow;
            assert_eq!((slow.queries(), slow.writes() - before), (expected, expected));
            node.stop().await;
        }
    });
}
