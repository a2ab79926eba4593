//! Errors of reads that take too long, return too much, or get no reader or snapshot.

use std::sync::Arc;
use std::time::Duration;

use quorate::config::SqlOptions;
use quorate::sim::{SimHooks, TuneStore};
use quorate::{Client, ClientConfig, Error, Level, Node, Sql};
use quorate_env::Env;

use crate::support::{PATIENCE, Single, on_both, run, secret};
use crate::{error_of, fails, fails_for_now, overloaded};

/// A query that runs until it is stopped.
const ENDLESS: &str =
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0";

const SHORT: Duration = Duration::from_millis(300);

/// Starts a node whose store is opened with changed options; returns both kinds of handles.
async fn start(sql: SqlOptions, tune: TuneStore) -> (tempfile::TempDir, Node, [Sql; 2], Client) {
    let dir = tempfile::TempDir::new().unwrap();
    let seams = SimHooks { tune: Some(tune), ..SimHooks::default() };
    let config = Single::config(&dir).with_sql(sql);
    let node = Node::start_with(Env::real(), config, seams).await.unwrap();
    let remote = Client::connect(ClientConfig::new([node.local_addr()], secret())).await.unwrap();
    let handles = [node.sql(), remote.sql()];
    (dir, node, handles, remote)
}

#[test]
fn a_query_that_takes_too_long() {
    on_both(async |sql| {
        let short = sql.with_query_timeout(Duration::from_millis(20));
        let text = "the read took too long: the query did not end within 20ms; make it cheaper, or raise its timeout \
                    (with_query_timeout) and the node's ('sql.query_timeout')";
        fails_for_now(short.query(ENDLESS, ()).await, text);
        fails_for_now(short.transact(async |tx| tx.query(ENDLESS, ()).await).await, text);
        Ok(())
    });
}

#[test]
fn a_result_that_is_too_large() {
    on_both(async |sql| {
        let few = sql.with_limits(2, 1000);
        let rows = "the result is too large: more than 2 rows; ask for fewer, raise the limit (with_limits), or \
                    stream them from a snapshot";
        fails(few.query("VALUES (1), (2), (3)", ()).await, rows);
        let bytes = "the result is too large: more than 1000 bytes; ask for less, raise the limit (with_limits), or \
                     stream it from a snapshot";
        fails(few.query("SELECT zeroblob(1001)", ()).await, bytes);
        Ok(())
    });
}

#[test]
fn a_result_larger_than_a_connection_carries() {
    run(async {
        let single = Single::start().await;
        let remote = single.client().await;
        let large = remote.sql().query("SELECT zeroblob(13000000), zeroblob(13000000), zeroblob(13000000)", ()).await;
        let text = "the result is too large: 39000030 bytes as a reply, the limit is 36700160; ask for fewer rows, or \
                    stream them from a snapshot";
        fails(large, text);
        let blob = || vec![0_u8; 13_000_000];
        let (text, is_retryable) = error_of(remote.sql().query("SELECT ?, ?, ?", (blob(), blob(), blob())).await);
        let (begin, end) = (single.node.local_addr().to_string(), ", the limit is 37748736; send less at once");
        let begin = format!("{begin}: the call was not sent: its body has 3900");
        assert!(text.starts_with(&begin) && text.ends_with(end) && !is_retryable, "{text}");
        remote.close().await;
        single.node.stop().await;
    });
}

#[test]
fn a_position_that_was_not_reached_or_never_will_be() {
    on_both(async |sql| {
        let position = sql.execute("CREATE TABLE t (a)", ()).await?.position;
        let (mut later, mut other) = (position, position);
        later.index += 1_000_000;
        other.epoch.0 += 1;
        // A call that is not even sent in time has another error.
        let hasty = sql.with_deadline(Duration::from_secs(1)).at(Level::AtLeast(later));
        let entry = format!(
            "the read took too long: entry {} was not applied here in time; try again, or ask another node",
            later.index
        );
        let (text, is_retryable) = error_of(hasty.query("SELECT 1", ()).await);
        // A remote call may time out first.
        let is_late = text.contains(": there was no answer in time; wait longer (with_deadline), or try again");
        assert!((text == entry || is_late) && is_retryable, "{text}");
        let history = format!(
            "the position {other} is of another history: this database is in epoch {}; take positions from what it \
             answers now",
            position.epoch.0
        );
        fails(sql.at(Level::AtLeast(other)).query("SELECT 1", ()).await, &history);
        Ok(())
    });
}

#[test]
fn a_node_without_free_readers_or_snapshots() {
    run(async {
        let sql = SqlOptions::default().with_readers(1).with_query_timeout(PATIENCE);
        let tune: TuneStore = Arc::new(|options| options.readers.wait = SHORT);
        let (_dir, node, handles, _remote) = start(sql, tune).await;
        let places = overloaded("too many snapshots are open on this node (one for each two of its 'sql.readers')");
        let readers = overloaded("all readers of the node are in use ('sql.readers' says how many it has)");
        for sql in &handles {
            let first = sql.snapshot().await.unwrap();
            fails_for_now(node.sql().with_deadline(SHORT).snapshot().await, &places);
            drop(first);
            let endless = tokio::spawn({
                let sql = sql.clone();
                async move { sql.query(ENDLESS, ()).await }
            });
            let busy = || async { node.sql().with_deadline(SHORT / 10).query("SELECT 1", ()).await };
            let error = loop {
                if let Err(error) = busy().await {
                    break error;
                }
            };
            fails_for_now(Err::<(), _>(error), &readers);
            endless.abort();
        }
        node.stop().await;
    });
}

#[test]
fn a_snapshot_that_is_kept_for_too_long() {
    run(async {
        let sql = SqlOptions::default().with_query_timeout(Duration::from_millis(20));
        let tune: TuneStore = Arc::new(|options| {
            (options.checkpoint_bytes, options.hold_bytes_max) = (64 << 10, 128 << 10);
        });
        let (_dir, node, handles, _remote) = start(sql, tune).await;
        handles[0].execute("CREATE TABLE t (a)", ()).await.unwrap();
        for sql in &handles {
            let mut kept = sql.snapshot().await.unwrap();
            let error = loop {
                sql.execute("INSERT INTO t VALUES (randomblob(100000))", ()).await.unwrap();
                match kept.query("SELECT 1", ()).await {
                    // On a busy machine even this takes longer than a query may.
                    Ok(_) | Err(Error::TimedOut(_)) => {}
                    Err(error) => break error,
                }
            };
            let text = "the snapshot has ended (too old, or out of memory or disk); read again, in smaller steps";
            fails_for_now(Err::<(), Error>(error), text);
        }
        node.stop().await;
    });
}
