//! The memory of queries is bounded, for each query and for all queries of a process together.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests stop at the first surprise")]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};

use quorate::{Error, FailureKind};
use support::{Single, run};

/// Returns a query for a row with `columns` columns of 16 MB each, all of which are in memory at once.
fn wide(columns: usize) -> String {
    format!("SELECT {}", vec!["printf('%.*c', 16000000, 'a')"; columns].join(", "))
}

/// Returns the peak memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn a_query_with_too_much_memory_fails_alone() {
    run(async {
        let single = Single::start().await;
        let sql = single.node.sql();
        let error = sql.query(wide(500), ()).await.unwrap_err();
        let Error::Failed(failure) = error else { panic!("{error:?}") };
        assert_eq!(failure.kind, FailureKind::TooBig, "{failure}");
        assert!(failure.message.contains("needs more memory than"), "{failure}");
        assert_eq!(sql.query_one::<i64>("SELECT 1", ()).await.unwrap(), 1);
        assert!(single.node.metrics().fault.is_none());
        let together = (0..8).map(|_| {
            let sql = sql.clone();
            tokio::spawn(async move { sql.query(wide(6), ()).await.map(drop) })
        });
        for query in together.collect::<Vec<_>>() {
            match query.await.unwrap() {
                Err(Error::Overloaded(_) | Error::TooLarge(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(peak() < 2 << 30, "{}", peak());
        single.node.stop().await;
    });
}

/// SQLite counts the rows of a table in one step, and allocates memory for each page of it. The first attempt, on the
/// caller's thread, is interrupted after a millisecond; if it failed for lack of memory instead, SQLite would roll the
/// snapshot back.
#[test]
fn a_slow_first_attempt_keeps_the_snapshot() {
    run(async {
        let single = Single::start().await;
        let sql = single.node.sql();
        sql.execute("CREATE TABLE many (a)", ()).await.unwrap();
        let insert = "INSERT INTO many WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 5000)
            SELECT zeroblob(3000) FROM n";
        for _ in 0..4 {
            sql.execute(insert, ()).await.unwrap();
        }
        let attempts = AtomicU32::new(0);
        let counted = sql.transact(|tx| {
            attempts.fetch_add(1, Ordering::Relaxed);
            async move { tx.query_one::<i64>("SELECT count(*) FROM many", ()).await }
        });
        assert_eq!(counted.await.unwrap().value, 20_000);
        assert_eq!(attempts.into_inner(), 1);
        single.node.stop().await;
    });
}
