//! Writers' requests with a key: one whose outcome is unknown is sent again through another node, and so are some whose
//! answer came, as if it had been lost.
//!
//! Invariant: all attempts of a request have the same statement, parameters and key, so one of them has an effect,
//! unless the cluster has forgotten the key in between.

use std::time::Duration;

use quorate::{Error, FailureKind, Position, Sql, Value};
use quorate_apply::requests::KEY_TIME;
use quorate_env::sleep;

use super::Writer;
use crate::coverage::{DOUBT_ENDED, SENT_AGAIN};

/// The deadline of an attempt, which is short, so that outcomes are often unknown.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(3);

/// The most attempts of a request.
const ATTEMPTS_MAX: u32 = 5;

/// One request in this many is sent again although it was answered.
const AGAIN_ONE_IN: u64 = 3;

/// The longest pause between attempts, in milliseconds.
const PAUSE_MILLIS: u64 = 500;

impl Writer {
    /// Inserts a row by a request with a key. All answers must be the same.
    pub(super) async fn request(&self, sql: &Sql, number: i64, body: Value) -> Result<(Position, Option<i64>), Error> {
        let begun = self.cluster.history().time();
        let (mut sql, mut told, mut error) = (sql.clone(), None, None);
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(&sql, number, &body).await {
                Ok(answer) => {
                    let is_same = *told.get_or_insert(answer) == answer;
                    if !is_same && !self.is_forgotten(begun) {
                        self.violation(format!("({}, {number}) had the answers {told:?}, {answer:?}", self.client));
                    }
                    if matches!(error, Some(Error::Unknown(_))) {
                        self.ledger.happened(DOUBT_ENDED);
                    }
                    if self.rng.below(AGAIN_ONE_IN) > 0 {
                        break;
                    }
                    self.ledger.happened(SENT_AGAIN);
                }
                Err(failed) if is_final(&failed) => {
                    if told.is_some() && !self.is_forgotten(begun) {
                        self.violation(format!("({}, {number}) had the answers {told:?}, {failed}", self.client));
                    }
                    return told.map_or(Err(failed), |(position, draw)| Ok((position, Some(draw))));
                }
                // If one attempt may have had an effect, an attempt that had none does not change that.
                Err(failed) if !matches!(error, Some(Error::Unknown(_))) => error = Some(failed),
                Err(_) => {}
            }
            sleep(Duration::from_millis(self.rng.below(PAUSE_MILLIS))).await;
            sql = self.some_node().unwrap_or(sql);
        }
        told.map(|(position, draw)| (position, Some(draw))).ok_or(error.unwrap_or(Error::Closed))
    }

    async fn attempt(&self, sql: &Sql, number: i64, body: &Value) -> Result<(Position, i64), Error> {
        let insert = "INSERT INTO events (client, number, body) VALUES (?, ?, ?) RETURNING draw";
        let sql = sql.with_deadline(ATTEMPT_LIMIT).with_key(format!("{} {number}", self.client));
        let returned = sql.execute_returning(insert, (self.client, number, body.clone())).await?;
        Ok((returned.position, returned.rows.one::<i64>()?))
    }

    /// Whether the cluster may have forgotten a key that it learned at this time or later.
    pub(super) fn is_forgotten(&self, begun: u64) -> bool {
        self.cluster.history().time().saturating_sub(begun) > KEY_TIME
    }
}

/// Whether an error is the outcome of the request. A node that has not learned of the present format level refuses it.
fn is_final(error: &Error) -> bool {
    match error {
        Error::Failed(failure) => failure.kind != FailureKind::Unsupported,
        Error::Row(_) | Error::Forbidden(_) => true,
        _ => false,
    }
}
