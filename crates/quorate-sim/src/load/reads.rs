//! The reads of clients, and what each of them must show.

use std::time::Duration;

use quorate::{Error, Level, Position, Sql};
use quorate_env::sleep;

use super::Writer;
use crate::coverage::{OVERLOADED, SNAPSHOT};
use crate::ledger::{AGE_MAX, Kind, makes_row};

/// The deadline of a read.
const READ_LIMIT: Duration = Duration::from_secs(3);

/// The longest pause between two reads of a snapshot, in milliseconds.
const KEPT_MILLIS: u64 = 800;

/// Random numbers are reduced modulo this before they are added, so that no sum overflows.
const SUM_OF: i64 = 1_000_003;

/// Counts the rows of `mirrors` whose number is not that of the row that the same batch inserted.
const STRAY: &str = "SELECT count(*) FROM mirrors m WHERE NOT EXISTS (
    SELECT 1 FROM events e WHERE (e.client, e.number, e.draw) = (m.client, m.number, m.draw))";

impl Writer {
    /// Checks that any node shows the row in a read at its position.
    pub(super) async fn read_own(&self, kind: Kind, number: i64, position: Position) {
        if let Some(sql) = self.some_node() {
            self.find_own(&sql.at(Level::AtLeast(position)), kind, number).await;
        }
    }

    /// Checks that the handle which wrote the row shows it, if it promises to see its own writes.
    pub(super) async fn read_by_same(&self, sql: &Sql, kind: Kind, number: i64) {
        let sql = if self.rng.below(2) == 0 { sql.at(Level::Local) } else { sql.at(self.some_age().0) };
        self.find_own(&sql.with_own_writes(), kind, number).await;
    }

    async fn find_own(&self, sql: &Sql, kind: Kind, number: i64) {
        if makes_row(kind) {
            let (sql, count) =
                (sql.with_deadline(READ_LIMIT), "SELECT count(*) FROM events WHERE client = ? AND number = ?");
            self.judge(sql.query_one::<i64>(count, (self.client, number)).await, |found| match found {
                1 => None,
                found => Some(format!("{sql:?} shows its own ({}, {number}) {found} times", self.client)),
            });
        }
    }

    pub(super) async fn read_some(&self) {
        if let Some(sql) = self.remote.clone().or_else(|| self.some_node()) {
            self.read_all(sql).await;
        }
    }

    /// Counts all rows. A linearizable read must show every row that was acknowledged, or shown by another read, before
    /// it began. A read of bounded age must show the rows of which this was true that long before.
    pub(super) async fn read_all(&self, sql: Sql) {
        let (level, before) = match self.rng.below(3) {
            0 => self.some_age(),
            _ => (Level::Linearizable, self.ledger.rows()),
        };
        let sql = sql.at(level).with_deadline(READ_LIMIT);
        let count = match self.rng.below(32) {
            0 => self.one_state(&sql).await,
            1 => self.forward(&sql).await,
            _ => sql.query_one("SELECT count(*) FROM events", ()).await,
        };
        self.judge_rows(count, level, before);
    }

    fn judge_rows(&self, count: Result<i64, Error>, level: Level, before: u64) {
        self.judge(count, |found| {
            let found = u64::try_from(found).unwrap_or(0);
            self.ledger.shown(found);
            (found < before).then(|| format!("a read at {level:?} shows {found} of {before} rows"))
        });
    }

    /// Reads a snapshot of bounded age.
    pub(super) async fn read_state(&self, sql: &Sql) {
        let (level, before) = self.some_age();
        let count = self.one_state(&sql.at(level)).await;
        self.judge_rows(count, level, before);
    }

    /// Returns how many rows a snapshot has. Checks that the snapshot is one state, in which each batch is whole,
    /// however long it is kept and however it is read.
    async fn one_state(&self, sql: &Sql) -> Result<i64, Error> {
        let sums =
            format!("SELECT count(*), sum(draw % {SUM_OF}), (SELECT sum(moves) FROM totals), ({STRAY}) FROM events");
        let mut snapshot = sql.snapshot().await?;
        let first: (i64, Option<i64>, i64, i64) = snapshot.query(sums.clone(), ()).await?.one()?;
        let (mut count, mut sum) = (0, 0);
        let mut stream = snapshot.stream("SELECT draw, body FROM events", ()).await?;
        while let Some(rows) = stream.next().await? {
            for (draw, _) in rows.all::<(i64, Option<&str>)>()? {
                (count, sum) = (count + 1, sum + draw % SUM_OF);
            }
            sleep(Duration::from_millis(self.rng.below(KEPT_MILLIS))).await;
        }
        let second = snapshot.query(sums.clone(), ()).await?.one()?;
        if first != second || (count, sum) != (first.0, first.1.unwrap_or(0)) || first.3 != 0 {
            let position = snapshot.position();
            self.violation(format!("a snapshot at {position} has {first:?}, then {count} and {sum}, then {second:?}"));
        }
        self.ledger.happened(SNAPSHOT);
        Ok(count)
    }

    /// Returns how many rows there are. Checks that a later local read of a node shows at least as many.
    async fn forward(&self, sql: &Sql) -> Result<i64, Error> {
        let count = "SELECT count(*) FROM events";
        let found: i64 = sql.query_one(count, ()).await?;
        if self.remote.is_none() {
            let later: i64 = sql.at(Level::Local).query_one(count, ()).await?;
            if later < found {
                self.violation(format!("a node shows {found} rows and later only {later}"));
            }
        }
        Ok(found)
    }

    /// Returns a level of bounded age, and how many rows a read that begins now must show.
    fn some_age(&self) -> (Level, u64) {
        let age = Duration::from_millis(self.rng.below(u64::try_from(AGE_MAX.as_millis()).unwrap_or(0)));
        (Level::Bounded(age), self.ledger.rows_before(age))
    }

    fn judge(&self, result: Result<i64, Error>, wrong: impl FnOnce(i64) -> Option<String>) {
        match result {
            Ok(found) => {
                self.ledger.read();
                if let Some(wrong) = wrong(found) {
                    self.violation(wrong);
                }
            }
            Err(error @ (Error::Failed(_) | Error::Forbidden(_) | Error::Row(_))) => {
                self.violation(format!("a read failed: {error}"));
            }
            Err(Error::Overloaded(_)) => self.ledger.happened(OVERLOADED),
            // The node was killed or cut off.
            Err(_) => {}
        }
    }
}
