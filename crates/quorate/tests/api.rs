//! The operations of handles; each test runs on a node's own handle and on a remote one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests stop at the first surprise"
)]

mod support;

use quorate::{Error, FailureKind, Level, Params, Sql, Value, named, params};
use support::{Single, on_both};

async fn users(sql: &Sql) -> Result<(), Error> {
    sql.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE, born DATETIME)", ()).await.map(drop)
}

/// Returns the kind of the failure with which a call ended.
fn kind<T>(result: Result<T, Error>) -> Option<FailureKind> {
    result.err().and_then(|error| error.failure().map(|failure| failure.kind))
}

#[test]
fn writes_return_their_results() {
    on_both(async |sql| {
        users(&sql).await?;
        let first = sql.execute("INSERT INTO users (name) VALUES (?)", ("ann",)).await?;
        let second = sql.execute("INSERT INTO users (name) VALUES (?1), (?2)", ["bob", "cid"]).await?;
        assert_eq!((first.changes, first.last_insert_rowid), (1, 1));
        assert_eq!((second.changes, second.last_insert_rowid), (2, 3));
        assert!(second.position > first.position);
        let third = sql.execute("UPDATE users SET born = :born WHERE id > :id", named! { id: 1, born: 2000 }).await?;
        assert_eq!(third.changes, 2);
        Ok(())
    });
}

#[test]
fn writes_return_rows() {
    on_both(async |sql| {
        users(&sql).await?;
        let returned = sql
            .execute_returning(
                "INSERT INTO users (name, born) VALUES (?, ?) RETURNING id, name, born",
                ("ann", "1970-01-01"),
            )
            .await?;
        // The storage class of the value decides, not the declared type of its column.
        assert_eq!(returned.rows.one::<(i64, String, Value)>().unwrap(), (1, "ann".to_owned(), "1970-01-01".into()));
        assert_eq!(returned.rows.columns().as_ref(), ["id", "name", "born"]);
        Ok(())
    });
}

#[test]
fn queries_come_as_rows_values_and_tuples() {
    on_both(async |sql| {
        users(&sql).await?;
        sql.batch([
            ("INSERT INTO users (name, born) VALUES (?, ?)", params!["ann", 1.5]),
            ("INSERT INTO users (name, born) VALUES (?, ?)", params!["bob", Value::Null]),
        ])
        .await?;
        let rows = sql.query("SELECT * FROM users ORDER BY id", ()).await?;
        assert_eq!((rows.len(), rows.columns().as_ref()), (2, &["id", "name", "born"].map(str::to_owned)[..]));
        assert_eq!(
            sql.query_as::<(i64, String)>("SELECT id, name FROM users WHERE id > ?", (1,)).await?,
            [(2, "bob".to_owned())]
        );
        assert_eq!(
            sql.query_one::<Option<f64>>("SELECT born FROM users WHERE name = @n", named! { "@n": "ann" }).await?,
            Some(1.5)
        );
        assert_eq!(sql.query_optional::<String>("SELECT name FROM users WHERE id = 9", ()).await?, None);
        for wrong in
            ["SELECT id FROM users", "SELECT id FROM users WHERE id = 9", "SELECT name FROM users WHERE id = 1"]
        {
            let result = sql.query_one::<i64>(wrong, ()).await;
            assert!(matches!(result, Err(Error::Row(_))), "{result:?}");
        }
        Ok(())
    });
}

#[test]
fn a_batch_is_atomic() {
    on_both(async |sql| {
        users(&sql).await?;
        let insert = |name: &str| ("INSERT INTO users (name) VALUES (?)", params![name]);
        let done = sql.batch([insert("ann"), ("UPDATE users SET born = 1 RETURNING id", Params::default())]).await?;
        assert_eq!((done.results.len(), done.results[0].changes, done.results[1].rows.len()), (2, 1, 1));
        let failed = sql.batch([insert("bob"), insert("cid"), insert("bob")]).await.unwrap_err();
        let failure = failed.failure().unwrap();
        assert_eq!((failure.kind, failure.command), (FailureKind::Constraint, Some(2)));
        assert_eq!(sql.query_one::<i64>("SELECT count(*) FROM users", ()).await?, 1);
        assert_eq!(kind(sql.batch(Vec::<String>::new()).await), Some(FailureKind::Refused));
        Ok(())
    });
}

#[test]
fn statements_of_a_pipeline_fail_separately() {
    on_both(async |sql| {
        users(&sql).await?;
        let insert = |name: &str| ("INSERT INTO users (name) VALUES (?) RETURNING id", params![name]);
        let done = sql.pipeline([insert("ann"), insert("ann"), insert("bob")]).await?;
        let [Ok(first), Err(failure), Ok(last)] = done.results.as_slice() else { panic!("{done:?}") };
        assert_eq!((&first.rows[0][0], &last.rows[0][0]), (&1.into(), &2.into()));
        assert_eq!((failure.kind, failure.command), (FailureKind::Constraint, Some(1)));
        assert!(failure.is_unique_violation());
        let ending = ("INSERT OR ROLLBACK INTO users (name) VALUES (?)", params!["ann"]);
        let done = sql.pipeline([insert("cid"), ending, insert("dan")]).await?;
        let kinds: Vec<_> = done.results.iter().map(|result| result.as_ref().err().map(|error| error.kind)).collect();
        assert_eq!(kinds, [None, Some(FailureKind::Constraint), Some(FailureKind::NotRun)]);
        let names = sql.query_as::<String>("SELECT name FROM users ORDER BY id", ()).await?;
        assert_eq!(names, ["ann", "bob", "cid"]);
        // If a statement can't be proposed at all, the call fails and nothing is done.
        let refused = sql.pipeline([insert("eve"), ("SELEC 1", params![])]).await;
        assert_eq!(kind(refused), Some(FailureKind::Sql));
        assert_eq!(sql.query_one::<i64>("SELECT count(*) FROM users", ()).await?, 3);
        Ok(())
    });
}

#[test]
fn a_batch_can_create_and_use_a_table() {
    on_both(async |sql| {
        sql.batch(["CREATE TABLE t (x)", "INSERT INTO t VALUES (1), (2)", "CREATE INDEX i ON t (x)"]).await?;
        assert_eq!(sql.query_one::<i64>("SELECT sum(x) FROM t", ()).await?, 3);
        sql.execute("VACUUM", ()).await?;
        sql.execute("DROP TABLE t", ()).await?;
        assert_eq!(kind(sql.query("SELECT * FROM t", ()).await), Some(FailureKind::Sql));
        Ok(())
    });
}

#[test]
fn bad_statements_are_refused_without_effect() {
    on_both(async |sql| {
        users(&sql).await?;
        sql.execute("INSERT INTO users (name) VALUES ('ann')", ()).await?;
        let cases: [(String, Params, &[FailureKind]); 14] = [
            ("SELEC 1".into(), params![], &[FailureKind::Sql]),
            ("INSERT INTO users (name) VALUES (?, ?".into(), params![1, 2], &[FailureKind::Sql]),
            ("INSERT INTO users (name) VALUES (?)".into(), params![], &[FailureKind::Sql]),
            ("INSERT INTO users (name) VALUES (?)".into(), params![1, 2], &[FailureKind::Sql]),
            ("INSERT INTO users (name) VALUES (:a)".into(), named! { b: 1 }, &[FailureKind::Sql]),
            (
                format!("INSERT INTO users (name) VALUES ('{}')", "x".repeat(100 << 20)),
                params![],
                &[FailureKind::TooBig],
            ),
            ("INSERT INTO users (name) VALUES (?)".into(), params!["x".repeat(17 << 20)], &[FailureKind::TooBig]),
            ("BEGIN".into(), params![], &[FailureKind::Refused]),
            ("ATTACH ':memory:' AS x".into(), params![], &[FailureKind::Refused]),
            ("PRAGMA journal_mode=DELETE".into(), params![], &[FailureKind::Refused]),
            ("INSERT INTO users (name) VALUES ('ann')".into(), params![], &[FailureKind::Constraint]),
            ("INSERT INTO nowhere VALUES (1)".into(), params![], &[FailureKind::Sql]),
            ("DELETE FROM users; DELETE FROM users".into(), params![], &[FailureKind::Refused]),
            ("SELECT * FROM users".into(), params![], &[FailureKind::Refused]),
        ];
        for (statement, params, expected) in cases {
            let shown: String = statement.chars().take(60).collect();
            let error = sql.execute(statement, params).await.expect_err(&shown);
            let kind = error.failure().map(|failure| failure.kind);
            assert!(kind.is_some_and(|kind| expected.contains(&kind)), "{shown}: {error:?}");
            assert!(!error.is_retryable(), "{shown}");
        }
        let hint = sql.execute("SELECT 1", ()).await.unwrap_err().to_string();
        assert!(hint.contains("query"), "{hint}");
        assert_eq!(sql.query_as::<String>("SELECT name FROM users", ()).await?, ["ann"]);
        Ok(())
    });
}

#[test]
fn bad_queries_are_refused() {
    on_both(async |sql| {
        users(&sql).await?;
        for write in
            ["DELETE FROM users", "DROP TABLE users", "BEGIN", "PRAGMA journal_mode=DELETE", "SELECT 1; SELECT 2"]
        {
            assert_eq!(kind(sql.query(write, ()).await), Some(FailureKind::Refused), "{write}");
        }
        let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";
        let result = sql.query(endless, ()).await;
        assert!(matches!(result, Err(Error::TimedOut(_))), "{result:?}");
        let many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100) SELECT x FROM n";
        let result = sql.with_limits(99, 1 << 20).query(many, ()).await;
        assert!(matches!(result, Err(Error::TooLarge(_))), "{result:?}");
        assert_eq!(sql.with_limits(100, 1 << 20).query(many, ()).await?.len(), 100);
        Ok(())
    });
}

#[test]
fn a_single_node_sees_its_writes_at_every_level() {
    on_both(async |sql| {
        users(&sql).await?;
        let written = sql.execute("INSERT INTO users (name) VALUES ('ann')", ()).await?;
        let minute = Level::Bounded(std::time::Duration::from_secs(60));
        for level in [Level::Local, Level::AtLeast(written.position), Level::Linearizable, minute] {
            assert_eq!(sql.at(level).query_one::<i64>("SELECT count(*) FROM users", ()).await?, 1, "{level:?}");
        }
        let mut other = written.position;
        other.epoch.0 += 1;
        assert_eq!(kind(sql.at(Level::AtLeast(other)).query("SELECT 1", ()).await), Some(FailureKind::Refused));
        let mut later = written.position;
        later.index += 1_000_000;
        // A call that is not even sent in time has another error.
        let hurried = sql.with_deadline(std::time::Duration::from_secs(1)).at(Level::AtLeast(later));
        assert!(matches!(hurried.query("SELECT 1", ()).await, Err(Error::TimedOut(_))));
        Ok(())
    });
}

#[test]
fn many_concurrent_writes_take_effect() {
    on_both(async |sql| {
        users(&sql).await?;
        let insert = |i: i64| sql.execute("INSERT INTO users (name) VALUES (?)", (i,));
        let results = futures_util::future::join_all((0..500).map(insert)).await;
        let results: Vec<_> = results.into_iter().collect::<Result<_, _>>()?;
        let mut rowids: Vec<i64> = results.iter().map(|done| done.last_insert_rowid).collect();
        rowids.sort_unstable();
        assert_eq!(rowids, (1..=500).collect::<Vec<_>>());
        sql.end_session().await;
        insert(1000).await?;
        assert_eq!(sql.query_one::<i64>("SELECT count(*) FROM users", ()).await?, 501);
        Ok(())
    });
}

#[test]
fn a_loop_of_local_reads_lets_other_tasks_run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let single = Single::start().await;
        let sql = single.node.sql().at(Level::Local);
        sql.query("SELECT 1", ()).await.unwrap();
        let other = tokio::spawn(async {});
        let mut reads = 0;
        while !other.is_finished() && reads < 10_000 {
            sql.query("SELECT 1", ()).await.unwrap();
            reads += 1;
        }
        assert!(other.is_finished(), "{reads} reads, and no other task ran");
        single.node.stop().await;
    });
}
