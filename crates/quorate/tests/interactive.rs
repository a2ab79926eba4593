//! Interactive transactions: statements take effect with the results that they returned, and other writes wait for a
//! limited time.

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
use quorate::{Client, ClientConfig, Error, HOLD_MAX, Level, SAVEPOINT_BYTES_MAX, SAVEPOINTS_MAX, Sql, Transaction};
use support::{Cluster, Single, on_both, run, secret};

async fn accounts(sql: &Sql) -> Result<(), Error> {
    let table = "CREATE TABLE accounts (name TEXT PRIMARY KEY, balance INTEGER CHECK (balance >= 0)) STRICT";
    sql.batch([table, "INSERT INTO accounts VALUES ('ann', 50), ('bob', 50)"]).await.map(drop)
}

async fn add(tx: &mut Transaction, name: &str, amount: i64) -> Result<i64, Error> {
    let add = "UPDATE accounts SET balance = balance + ? WHERE name = ? RETURNING balance";
    let rows = tx.query(add, (amount, name)).await?;
    Ok(rows.one()?)
}

async fn balances(sql: &Sql) -> Result<Vec<i64>, Error> {
    sql.at(Level::Linearizable).query_as("SELECT balance FROM accounts ORDER BY name", ()).await
}

/// Returns the text of an expected error.
fn text<T>(result: Result<T, Error>) -> String {
    result.map(drop).unwrap_err().to_string()
}

/// Checks that another client's write takes effect, which requires that no transaction holds writes back: one that
/// began a moment ago would do so for longer than this waits.
async fn writes_go_on(sql: &Sql) {
    sql.with_deadline(HOLD_MAX / 10 * 9).execute("UPDATE accounts SET balance = balance", ()).await.unwrap();
}

#[test]
fn a_savepoint_undoes_what_ran_after_it() {
    on_both(async |sql| {
        accounts(&sql).await?;
        let mut tx = sql.begin().await?;
        assert_eq!(add(&mut tx, "ann", -20).await, Ok(30));
        tx.savepoint("outer")?;
        assert_eq!(add(&mut tx, "ann", 1).await, Ok(31));
        tx.savepoint("inner")?;
        tx.execute("CREATE TABLE notes (text)", ()).await?;
        tx.rollback_to("INNER").await?;
        assert!(text(tx.query("SELECT * FROM notes", ()).await).contains("no such table"));
        assert_eq!(add(&mut tx, "ann", 2).await, Ok(33), "what ran before the savepoint is kept");

        tx.rollback_to("outer").await?;
        assert!(text(tx.rollback_to("inner").await).contains("no such savepoint: inner"), "it was set after `outer`");
        tx.execute("UPDATE accounts SET balance = abs(random() % 100)", ()).await?;
        let drawn: i64 = tx.query_one("SELECT balance FROM accounts WHERE name = 'ann'", ()).await?;
        tx.release("outer")?;
        assert!(tx.release("outer").is_err_and(|error| error.failure().is_some_and(|failed| failed.sqlite_code == 1)));
        let done = tx.commit().await?;
        assert_eq!(done.results.len(), 2, "the first update, and the last one");
        assert_eq!(balances(&sql).await?[0], drawn);

        let mut tx = sql.begin().await?;
        tx.savepoint("empty")?;
        add(&mut tx, "bob", 1).await?;
        tx.rollback_to("empty").await?;
        assert_eq!(tx.commit().await?.results.len(), 0, "nothing is left to commit");

        let mut tx = sql.begin().await?;
        for number in 0..SAVEPOINTS_MAX {
            tx.savepoint(number.to_string())?;
        }
        assert!(text(tx.savepoint("more")).contains("at most 1024 savepoints"));
        tx.release("1")?;
        assert!(text(tx.savepoint("x".repeat(SAVEPOINT_BYTES_MAX + 1))).contains("at most 1024 bytes"));
        tx.rollback();
        writes_go_on(&sql).await;
        Ok(())
    });
}

#[test]
fn statements_take_effect_together() {
    on_both(async |sql| {
        accounts(&sql).await?;
        let mut tx = sql.begin().await?;
        assert_eq!(add(&mut tx, "ann", -20).await, Ok(30));
        assert_eq!(tx.query_one::<i64>("SELECT balance FROM accounts WHERE name = 'ann'", ()).await, Ok(30));
        assert_eq!(balances(&sql).await, Ok(vec![50, 50]), "no other client sees it");
        assert_eq!(add(&mut tx, "bob", 20).await, Ok(70));
        let made = tx.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text)", ()).await?;
        assert_eq!(made.changes, 0);
        let noted = tx.execute("INSERT INTO notes (text) VALUES (?), (?)", ("a", "b")).await?;
        assert_eq!((noted.changes, noted.last_insert_rowid), (2, 2));
        let done = tx.commit().await?;
        assert_eq!((done.results.len(), &done.results[3]), (4, &noted));
        assert_eq!(balances(&sql).await, Ok(vec![30, 70]));
        let seen: i64 = sql.at(Level::AtLeast(done.position)).query_one("SELECT count(*) FROM notes", ()).await?;
        assert_eq!(seen, 2);
        Ok(())
    });
}

#[test]
fn a_failed_statement_does_not_end_the_transaction() {
    on_both(async |sql| {
        accounts(&sql).await?;
        let mut tx = sql.begin().await?;
        assert_eq!(add(&mut tx, "bob", 60).await, Ok(110));
        assert_eq!(text(add(&mut tx, "ann", -60).await), "CHECK constraint failed: balance >= 0");
        let half = "INSERT OR FAIL INTO accounts VALUES ('cid', 1), ('bob', 1)";
        assert_eq!(text(tx.execute(half, ()).await), "UNIQUE constraint failed: accounts.name");
        for sql in ["COMMIT", "VACUUM", "ATTACH 'x' AS x", "SELEC 1"] {
            assert!(matches!(tx.execute(sql, ()).await, Err(Error::Failed(_))), "{sql}");
        }
        assert_eq!(tx.query_as::<i64>("SELECT balance FROM accounts ORDER BY name", ()).await, Ok(vec![50, 110]));
        assert_eq!(tx.commit().await?.results.len(), 1);
        assert_eq!(balances(&sql).await, Ok(vec![50, 110]));
        Ok(())
    });
}

#[test]
fn uncommitted_statements_have_no_effect() {
    on_both(async |sql| {
        accounts(&sql).await?;
        let mut tx = sql.begin().await?;
        add(&mut tx, "ann", 1).await?;
        tx.rollback();
        writes_go_on(&sql).await;
        let mut tx = sql.begin().await?;
        add(&mut tx, "ann", 1).await?;
        drop(tx);
        writes_go_on(&sql).await;
        // A transaction that only reads commits nothing.
        let mut tx = sql.begin().await?;
        let sum: i64 = tx.query_one("SELECT sum(balance) FROM accounts", ()).await?;
        let position = tx.position();
        assert_eq!((sum, tx.commit().await?.position), (100, position));
        assert_eq!(balances(&sql).await, Ok(vec![50, 50]));
        Ok(())
    });
}

#[test]
fn deferred_keys_are_checked_at_commit() {
    on_both(async |sql| {
        accounts(&sql).await?;
        let table = "CREATE TABLE cards (owner REFERENCES accounts DEFERRABLE INITIALLY DEFERRED)";
        sql.execute(table, ()).await?;
        let mut tx = sql.begin().await?;
        tx.execute("INSERT INTO cards VALUES ('cid')", ()).await?;
        let open =
            "a deferred foreign key refers to a row that does not exist; write that too, in the same transaction";
        assert_eq!(text(tx.commit().await), open);
        let mut tx = sql.begin().await?;
        tx.execute("INSERT INTO cards VALUES ('cid')", ()).await?;
        tx.execute("INSERT INTO accounts VALUES ('cid', 0)", ()).await?;
        tx.commit().await?;
        assert_eq!(balances(&sql).await, Ok(vec![50, 50, 0]));
        Ok(())
    });
}

/// Moves 1 from one account to the other, if it has something.
async fn transfer_once(sql: &Sql, from: &str, to: &str) -> Result<(), Error> {
    let mut tx = sql.begin().await?;
    let balance: i64 = tx.query_one("SELECT balance FROM accounts WHERE name = ?", (from,)).await?;
    if balance > 0 {
        assert_eq!(add(&mut tx, from, -1).await?, balance - 1);
        add(&mut tx, to, 1).await?;
        tx.commit().await?;
    }
    Ok(())
}

#[test]
fn other_writes_wait_and_none_is_lost() {
    run(async {
        let mut cluster = Cluster::start().await;
        accounts(&cluster.sql("a")).await.unwrap();
        let transfer = async |sql: Sql, from: &str, to: &str| {
            for _ in 0..15 {
                // On a busy machine the leader may be lost meanwhile; the transaction has no effect then.
                while let Err(error) = transfer_once(&sql, from, to).await {
                    let Error::TransactionAborted(_) = error else { return Err(error) };
                }
            }
            Ok::<_, Error>(())
        };
        let write = async |sql: Sql| {
            for _ in 0..50 {
                sql.execute("UPDATE accounts SET balance = balance + 1", ()).await?;
            }
            Ok::<_, Error>(())
        };
        // Runs from the leader, from followers, which pass it on, and from a client that talks to one node only.
        let addr = cluster.addrs()[1].clone();
        let remote = Client::connect(ClientConfig::pinned(addr, secret())).await.unwrap();
        let transfers = [("a", "ann", "bob"), ("b", "bob", "ann"), ("c", "ann", "bob")];
        let transfers = transfers.map(|(node, from, to)| transfer(cluster.sql(node), from, to));
        let all = futures_util::join!(
            join_all(transfers),
            transfer(remote.sql(), "bob", "ann"),
            write(cluster.sql("a")),
            write(cluster.sql("b"))
        );
        assert!(all.0.into_iter().chain([all.1, all.2, all.3]).all(|done| done.is_ok()));
        assert_eq!(balances(&cluster.sql("c")).await.unwrap().iter().sum::<i64>(), 300);
        cluster.stop_all().await;
    });
}

#[test]
fn a_transaction_has_a_time_limit() {
    on_both(async |sql| {
        accounts(&sql).await?;
        let hasty = sql.with_deadline(Duration::from_millis(300));
        let mut tx = loop {
            // On a busy machine its time may be up before.
            if let Ok(mut tx) = hasty.begin().await
                && add(&mut tx, "ann", 1).await.is_ok()
            {
                break tx;
            }
        };
        // Another transaction begins when the first one reaches its time limit: it held back other writes for that
        // long, and no longer.
        let mut other = sql.begin().await?;
        add(&mut other, "ann", 2).await?;
        other.commit().await?;
        let late = "the transaction was aborted: ";
        let failed = text(add(&mut tx, "ann", 1).await);
        assert!(failed.starts_with(late), "{failed}");
        let ended = "the transaction was aborted: it has already ended; it had no effect, run it again";
        assert_eq!(text(tx.commit().await), ended);
        assert_eq!(balances(&sql).await, Ok(vec![52, 50]));
        Ok(())
    });
}

#[test]
fn a_dropped_call_ends_the_transaction() {
    on_both(async |sql| {
        accounts(&sql).await?;
        let mut tx = sql.begin().await?;
        // A call that is answered at once is not dropped; the next one may be.
        let is_dropped = (0..1000).any(|_| futures_util::FutureExt::now_or_never(add(&mut tx, "ann", 1)).is_none());
        assert!(is_dropped);
        assert!(matches!(add(&mut tx, "ann", 1).await, Err(Error::TransactionAborted(_))));
        writes_go_on(&sql).await;
        assert!(matches!(tx.commit().await, Err(Error::TransactionAborted(_))));
        assert_eq!(balances(&sql).await, Ok(vec![50, 50]));
        Ok(())
    });
}

#[test]
fn a_lost_leader_aborts_or_a_retry_finds_the_commit() {
    run(async {
        let mut cluster = Cluster::start().await;
        let client = cluster.client().await;
        accounts(&client.sql()).await.unwrap();
        for round in 0..3 {
            let leader = cluster.leader().await;
            let mut tx = client.sql().begin().await.unwrap();
            let before: i64 = tx.query_one("SELECT balance FROM accounts WHERE name = 'ann'", ()).await.unwrap();
            add(&mut tx, "ann", 1).await.unwrap();
            cluster.kill(&leader);
            let done = tx.commit().await;
            assert!(matches!(done, Ok(_) | Err(Error::TransactionAborted(_))), "{done:?}");
            let after = before + i64::from(done.is_ok());
            assert_eq!(balances(&client.sql()).await.unwrap()[0], after, "round {round}: {done:?}");
            // The next leader holds nothing back.
            writes_go_on(&client.sql()).await;
            cluster.restart(&leader).await;
        }
        cluster.stop_all().await;
    });
}

#[test]
fn a_transaction_ends_with_its_node() {
    run(async {
        let single = Single::start().await;
        let sql = single.node.sql();
        accounts(&sql).await.unwrap();
        let mut tx = sql.begin().await.unwrap();
        add(&mut tx, "ann", 1).await.unwrap();
        let Single { dir, node } = single;
        node.stop().await;
        assert_eq!(
            text(add(&mut tx, "ann", 1).await),
            "closed: the node or this handle was stopped; start the node or connect again"
        );
        // The directory can be used although the transaction's handle still exists.
        let again = quorate::Node::start(Single::config(&dir)).await.unwrap();
        assert_eq!(balances(&again.sql()).await, Ok(vec![50, 50]));
        drop(tx);
        again.stop().await;
    });
}

#[test]
fn a_disconnected_client_is_rolled_back() {
    run(async {
        let single = Single::start().await;
        let sql = single.node.sql();
        accounts(&sql).await.unwrap();
        let remote = single.client().await;
        let mut tx = remote.sql().begin().await.unwrap();
        add(&mut tx, "ann", 1).await.unwrap();
        let waiting = tokio::spawn({
            let sql = sql.clone();
            async move { writes_go_on(&sql).await }
        });
        // The client's connections end with it, without a message to the node.
        drop((tx, remote));
        waiting.await.unwrap();
        assert_eq!(balances(&sql).await, Ok(vec![50, 50]));
        single.node.stop().await;
    });
}
