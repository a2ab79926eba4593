//! Writers' transactions, which read what they write.

use std::time::Duration;

use quorate::{Error, Level, Position, Sql, Transaction, Value};
use quorate_env::sleep;

use super::{WRITE_LIMIT, Writer};
use crate::coverage::{INTERACTIVE, RERUN, ROLLED_BACK, TRANSACTION};

/// The longest pause within a transaction.
const THOUGHT_MILLIS: u64 = 100;

/// How long a transaction may try that is in a hurry.
const HURRY_LIMIT: Duration = Duration::from_millis(150);

impl Writer {
    /// Counts one move more than there are, unless there is another by then.
    pub(super) async fn transact(&self, sql: &Sql) -> Result<Position, Error> {
        let mut runs = 0;
        let all = "SELECT sum(moves), random(), julianday('now') FROM totals";
        // A node that was wiped holds nothing at first.
        let level = self.last.map_or(Level::Linearizable, Level::AtLeast);
        // Some have no time to run again.
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
                    self.violation(format!("one transaction reads the sums {before} and {after}, and {moves} in them"));
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

    /// A row and one move more than there are, both or none, by statements one after the other: the database says at
    /// once what it draws for the row. Sometimes a statement fails meanwhile, and sometimes nothing is committed.
    pub(super) async fn interact(&self, sql: &Sql, number: i64, body: Value) -> Result<(Position, Option<i64>), Error> {
        let mut tx = sql.begin().await?;
        let before = self.moves(&mut tx).await?;
        let insert = "INSERT INTO events (client, number, body) VALUES (?, ?, ?) RETURNING draw";
        let draw: i64 = tx.query(insert, (self.client, number, body)).await?.one()?;
        if self.rng.below(3) == 0 {
            match tx.execute(insert, (self.client, number, "broken")).await {
                Err(Error::Failed(_)) => {}
                Err(error) => return Err(error),
                Ok(_) => self.violation(format!("({}, {number}) breaks a rule in a transaction", self.client)),
            }
        }
        if self.rng.below(3) == 0 {
            sleep(Duration::from_millis(self.rng.below(THOUGHT_MILLIS))).await;
        }
        let update = "UPDATE totals SET moves = ?, moved = julianday('now') WHERE client = ?";
        tx.execute(update, (before + 1, self.client)).await?;
        let after = self.moves(&mut tx).await?;
        if after != before + 1 {
            self.violation(format!("a transaction finds {after} moves where it has made {before} one more"));
        }
        if self.rng.below(8) == 0 {
            tx.rollback();
            return Err(Error::TransactionAborted(ROLLED_BACK.to_owned()));
        }
        let position = tx.commit().await?.position;
        self.ledger.happened(INTERACTIVE);
        Ok((position, Some(draw)))
    }

    async fn moves(&self, tx: &mut Transaction) -> Result<i64, Error> {
        tx.query_one("SELECT moves FROM totals WHERE client = ?", (self.client,)).await
    }
}
