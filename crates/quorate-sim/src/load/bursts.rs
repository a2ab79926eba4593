//! Bursts: many writes of one session at once, which end in any order and some of which are dropped on their way; and
//! more interactive transactions or snapshots than nodes allow.
//!
//! Invariant: a write that is dropped on its way is in doubt; it may still be done.

use std::time::Duration;

use futures_util::future::{join, join_all};
use quorate::{Position, Sql};
use quorate_env::{sleep, timeout};

use super::{WRITE_LIMIT, Writer};
use crate::coverage::{DROPPED, ENDED};
use crate::ledger::{End, Kind};

/// The number of writes of a burst is at most this.
const ROWS_MAX: u64 = 200;

/// The number of interactive transactions, and of snapshots, is at most this, which is more than a node allows at once.
const TRANSACTIONS_MAX: u64 = 12;
const SNAPSHOTS_MAX: u64 = 8;

/// The deadline of each of these, which is too short for the last ones.
const ROOM_LIMIT: Duration = Duration::from_millis(500);

/// The longest time after which an impatient caller drops its write, in milliseconds.
const PATIENCE_MILLIS: u64 = 60;

impl Writer {
    /// Does many writes or reads at once. Each write must have a later position than the last write acknowledged before
    /// the burst.
    pub(super) async fn burst(&mut self, sql: &Sql) {
        let (kind, count) = match self.rng.below(4) {
            0 => return self.many_states(&sql.with_deadline(ROOM_LIMIT)).await,
            1 => (Kind::Interact, self.rng.below(TRANSACTIONS_MAX)),
            _ => (Kind::Insert, self.rng.below(ROWS_MAX)),
        };
        let sql = if kind == Kind::Interact { sql.with_deadline(ROOM_LIMIT) } else { sql.clone() };
        let writes = (0..=count).map(|_| self.one_of_many(&sql, kind));
        let (ended, ()) = join(join_all(writes), self.end_session_among_them(&sql)).await;
        self.last = ended.into_iter().flatten().max().or(self.last);
    }

    /// Sometimes ends the session while its writes are in progress. They must continue in the next session and be done
    /// once.
    async fn end_session_among_them(&self, sql: &Sql) {
        if self.rng.below(4) == 0 {
            sleep(Duration::from_millis(self.rng.below(PATIENCE_MILLIS))).await;
            sql.end_session().await;
            self.ledger.happened(ENDED);
        }
    }

    async fn many_states(&self, sql: &Sql) {
        let states = (0..=self.rng.below(SNAPSHOTS_MAX)).map(|_| self.read_state(sql));
        join_all(states).await;
    }

    async fn one_of_many(&self, sql: &Sql, kind: Kind) -> Option<Position> {
        let key = self.next_key();
        self.ledger.begin(key, kind);
        let is_patient = self.rng.below(4) > 0;
        let patience =
            if is_patient { WRITE_LIMIT * 2 } else { Duration::from_millis(self.rng.below(PATIENCE_MILLIS)) };
        let Ok(result) = timeout(patience, self.write(sql, kind, key.1)).await else {
            self.cluster.world().trace().add("client", format_args!("{key:?} is dropped"));
            self.ledger.happened(DROPPED);
            self.ledger.ended(key, End::Unknown);
            return None;
        };
        let position = self.ended(key, kind, result)?;
        self.follows(key, position);
        Some(position)
    }
}
