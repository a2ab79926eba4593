//! Errors of closures and interactive transactions that do not commit.

use std::sync::Mutex;
use std::time::Duration;

use quorate::{Error, HOLD_MAX, Level};

use crate::support::on_both;
use crate::{aborted, error_of, fails, fails_for_now, overloaded};

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn closures_that_do_not_commit() {
    on_both(async |sql| {
        sql.batch(["CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (0)"]).await?;
        let kept = Mutex::new(None);
        let early = sql.transact(|tx| {
            *kept.lock().unwrap() = Some(tx.clone());
            async move {
                tx.execute("UPDATE t SET a = 1", ())?;
                tx.query("SELECT a FROM t", ()).await
            }
        });
        let reads = "a transaction reads before it writes, because a read would not see its writes; read first, or use \
                     `begin`";
        fails(early.await, reads);
        let tx = kept.into_inner().unwrap().unwrap();
        let late = "the closure of this transaction has returned; nothing can be read or written with it any more";
        fails(tx.query("SELECT a FROM t", ()).await, late);
        fails(tx.execute("UPDATE t SET a = 1", ()), late);
        let many = sql.transact(async |tx| (0..65_537).try_for_each(|_| tx.execute("DELETE FROM t", ()).map(drop)));
        fails(many.await, "a transaction has at most 65536 statements that write; split it");
        let vacuum = sql.transact(async |tx| tx.execute("VACUUM", ()).and(tx.execute("DELETE FROM t", ())).map(drop));
        fails(vacuum.await, "VACUUM can't be combined with other statements; run it by itself");
        Ok(())
    });
}

#[test]
fn a_closure_that_conflicts_until_its_deadline() {
    on_both(async |sql| {
        sql.batch(["CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (0)"]).await?;
        let (mut deadline, other) = (SHORT, &sql);
        let text = loop {
            let hasty = sql.with_deadline(deadline);
            let disturbed = hasty.transact(async |tx| {
                tx.query("SELECT a FROM t", ()).await?;
                other.execute("UPDATE t SET a = a + 1", ()).await?;
                tx.execute("UPDATE t SET a = 0", ()).map(drop)
            });
            match disturbed.await.map(drop).unwrap_err() {
                error @ Error::Conflict(_) => break error_of(Err::<(), _>(error)),
                // The deadline was reached during one of the two writes.
                error => assert!(error.is_retryable() || matches!(error, Error::Unknown(_)), "{error:?}"),
            }
            deadline *= 2;
        };
        let conflict = "conflict: what the transaction had read was changed by another write: \"SELECT a FROM t\" \
                        now returns other rows; run it again";
        assert_eq!(text, (conflict.to_owned(), true));
        Ok(())
    });
}

#[test]
fn interactive_transactions_that_end_early() {
    on_both(async |sql| {
        sql.execute("CREATE TABLE t (a INTEGER)", ()).await?;
        let mut tx = sql.begin().await?;
        fails(tx.query("SELECT b FROM t", ()).await, "no such column: b");
        let vacuum = "VACUUM is a command of its own; run it outside of the transaction";
        fails(tx.execute("VACUUM", ()).await, vacuum);
        tx.execute("INSERT INTO t VALUES (1)", ()).await?;
        let hasty = sql.with_deadline(SHORT);
        let waited = overloaded("the writes before it, or another transaction, took too long");
        let (text, is_retryable) = error_of(hasty.begin().await);
        let is_late = text.contains(": there was no answer in time; wait longer (with_deadline), or try again");
        assert!((text == waited || is_late) && is_retryable, "{text}");
        tx.rollback();
        let mut tx = loop {
            // On a busy machine its time may be up before.
            if let Ok(mut tx) = hasty.begin().await
                && tx.execute("INSERT INTO t VALUES (1)", ()).await.is_ok()
            {
                break tx;
            }
        };
        let up = format!("its time limit was reached: the handle's deadline, at most {HOLD_MAX:?}");
        // The query takes longer than the deadline, but few steps of the budget.
        let long = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000)
                    SELECT sum(length(hex(zeroblob(50000 + i % 2)))) FROM n";
        let error = loop {
            if let Err(error) = tx.query(long, ()).await {
                break error;
            }
        };
        fails_for_now(Err::<(), _>(error), &aborted(&up));
        fails_for_now(tx.execute("INSERT INTO t VALUES (1)", ()).await, &aborted("it has already ended"));
        fails_for_now(tx.commit().await, &aborted("it has already ended"));
        assert_eq!(sql.at(Level::Linearizable).query_one("SELECT count(*) FROM t", ()).await, Ok(0_i64));
        Ok(())
    });
}
