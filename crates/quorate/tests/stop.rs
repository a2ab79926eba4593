//! A node that is asked to stop does so quickly, even if long statements are running.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests stop at the first surprise")]

mod support;

use std::time::{Duration, Instant};

use quorate::config::SqlOptions;
use quorate::limits::BUDGET_MAX;
use quorate::{Error, Node};
use support::{Single, run, until};

/// The time within which the node must stop: much less than the statements take, and more than a slow disk does.
const SOON: Duration = Duration::from_secs(40);

const ENDLESS: &str = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";

#[test]
fn long_statements_do_not_keep_a_node_from_stopping() {
    run(async {
        let dir = tempfile::TempDir::new().unwrap();
        let sql = SqlOptions::default().with_query_timeout(Duration::from_secs(600));
        let config = Single::config(&dir).with_sql(sql);
        let node = Node::start(config.clone()).await.unwrap();
        node.sql().execute("CREATE TABLE t (a)", ()).await.unwrap();
        let (reader, writer) = (node.sql(), node.sql().with_budget(BUDGET_MAX));
        let position = node.status().last_index;
        let read = tokio::spawn(async move { reader.query(ENDLESS, ()).await });
        let write = tokio::spawn(async move { writer.execute(format!("INSERT INTO t {ENDLESS}"), ()).await });
        until("the write is in the log", || node.status().last_index > position).await;
        let begun = Instant::now();
        node.stop().await;
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert_eq!(read.await.unwrap().unwrap_err(), Error::Closed);
        let error = write.await.unwrap().unwrap_err();
        // The write was not done, or may be done after the next start.
        assert!(matches!(error, Error::Closed | Error::Unknown(_) | Error::Unavailable(_)), "{error:?}");
    });
}
