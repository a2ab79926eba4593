//! The transactions of writers, which read what they write.

use std::time::Duration;

use quorate::{Error, Level, Position, Sql, Transaction, Value};
use quorate_env::sleep;

use super::{WRITE_LIMIT, Writer};
use crate::coverage::{INTERACTIVE, RERUN, ROLLED_BACK, TRANSACTION, UNDONE};
use crate::ledger::COMMON;

/// The longest pause within a transaction, in milliseconds.
const THOUGHT_MILLIS: u64 = 100;

/// The deadline of a transaction that has no time to run again.
const HURRY_LIMIT: Duration = Duration::from_millis(150);

impl Writer {
    /// Increments the counter of moves in a transaction. It conflicts if the counter changes in the meantime.
    pub(super) async fn transact(&self, sql: &Sql) -> Result<Position, Error> {
        let mut runs = 0;
        let all = "SELECT sum(moves), random(), julianday('now') FROM totals";
        // A node that was wiped is empty at first, so a local read is not enough.
        let level = self.last.map_or(Level::Linearizable, Level::AtLeast);
        // Some transactions have no time to run again.
        let limit = if self.rng.below(8) == 0 { HURRY_LIMIT } else { WRITE_LIMIT };
        let sql = sql.at(level).with_deadline(limit);
        let committed = sql.transact(|tx| {
            runs += 1;
            async move {
                let (before, ..): (i64, Value, Value) = tx.query_one(all, ()).await?;
                let own = "SELECT moves FROM totals WHERE client = ?";
                let moves: i64 = tx.query_one(own, (self.client,)).await?;
                if self.rng.below(4) == 0 {
                    sleep(Duration::from_millis(self.rng.below(THOUGHT_MILLIS))).await;
                }
                let (after, ..): (i64, Value, Value) = tx.query_one(all, ()).await?;
                if before != after || moves > after {
                    self.violation(format!(
                        "one transaction reads the sums {before} and {after}, and {moves} as one of their terms"
                    ));
                }
                let update = "UPDATE totals SET moves = ?, moved = julianday('now') WHERE client = ?";
                tx.execute(update, (moves + 1, self.client))?;
                Ok::<_, Error>(())
            }
        });
        let position = committed.await?.position;
        self.ledger.happened(if runs > 1 { RERUN } else { TRANSACTION });
        Ok(position)
    }

    /// Inserts a row, and increments the client's counter of moves and the common one, in an interactive transaction,
    /// which must do all or nothing.
    /// The client gets the random number of the row before the commit. Sometimes a statement fails in between, and
    /// sometimes the client rolls back.
    pub(super) async fn interact(&self, sql: &Sql, number: i64, body: Value) -> Result<(Position, Option<i64>), Error> {
        let mut tx = sql.begin().await?;
        let before = moves(&mut tx, self.client).await?;
        let common = moves(&mut tx, COMMON).await?;
        let insert = "INSERT INTO events (client, number, body) VALUES (?, ?, ?) RETURNING draw";
        let draw: i64 = tx.query(insert, (self.client, number, body)).await?.one()?;
        if self.rng.below(3) == 0 {
            match tx.execute(insert, (self.client, number, "broken")).await {
                Err(Error::Failed(_)) => {}
                Err(error) => return Err(error),
                Ok(_) => self.violation(format!(
                    "({}, {number}) violates a constraint in a transaction, but did not fail",
                    self.client
                )),
            }
        }
        if self.rng.below(3) == 0 {
            sleep(Duration::from_millis(self.rng.below(THOUGHT_MILLIS))).await;
        }
        let update = "UPDATE totals SET moves = ?, moved = julianday('now') WHERE client = ?";
        if self.rng.below(3) == 0 {
            tx.savepoint("before")?;
            tx.execute(update, (before + 1_000_000, self.client)).await?;
            tx.execute("DELETE FROM events WHERE client = ? AND number = ?", (self.client, number)).await?;
            tx.rollback_to("before").await?;
            let undone = moves(&mut tx, self.client).await?;
            if undone != before {
                self.violation(format!("after ROLLBACK TO, a transaction reads {undone} moves instead of {before}"));
            }
            self.ledger.happened(UNDONE);
        }
        tx.execute(update, (before + 1, self.client)).await?;
        tx.execute(update, (common + 1, COMMON)).await?;
        let after = moves(&mut tx, self.client).await?;
        if after != before + 1 {
            self.violation(format!("a transaction has incremented {before} moves, but reads {after}"));
        }
        if self.rng.below(8) == 0 {
            tx.rollback();
            return Err(Error::TransactionAborted(ROLLED_BACK.into()));
        }
        let position = tx.commit().await?.position;
        self.ledger.happened(INTERACTIVE);
        Ok((position, Some(draw)))
    }
}

async fn moves(tx: &mut Transaction, client: i64) -> Result<i64, Error> {
    tx.query_one("SELECT moves FROM totals WHERE client = ?", (client,)).await
}
