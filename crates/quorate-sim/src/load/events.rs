//! Writers' batches of SQL and events, which take effect together, and a listener that hears these while everything
//! fails.
//!
//! Invariant: a batch adds one event by a command and then two by a trigger, which say the number of its row of
//! `events`. So the end of a run shows whether all of them took effect, and whether the listener heard each in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorate::events::{EventId, ListenError};
use quorate::{
    Error, FailureKind, Position, Sql, Value, params,
    sql::{BatchStep, PipelineResult},
};
use quorate_env::{Env, Rng, sleep, timeout};

use super::{Writer, connected};
use crate::cluster::Cluster;
use crate::coverage::{EVENTS, LISTENER, LISTENER_GAP};
use crate::ledger::{Event, Key, Ledger};

/// How long a listener waits before it looks whether it shall stop.
const PATIENCE: Duration = Duration::from_secs(1);

/// A listener begins anew after one event in this many.
const ANEW_ONE_IN: u64 = 8;

/// A listener pauses after one event in this many, and the longest pause, in milliseconds: some events are not kept so
/// long.
const PAUSE_ONE_IN: u64 = 6;
const PAUSE_MILLIS: u64 = 20_000;

/// The channels of the events of a client, by a command and by a trigger.
const PATTERNS: [&str; 3] = ["told:*", "signal:*", "echo:*"];

impl Writer {
    /// Inserts a row, tells of it by a command, and inserts a row whose trigger tells of it too. Sometimes a statement
    /// comes in between that tells of it and fails then.
    pub(super) async fn events(&self, sql: &Sql, number: i64, body: Value) -> Result<(Position, Option<i64>), Error> {
        let client = self.client;
        let insert = "INSERT INTO events (client, number, body) VALUES (?, ?, ?)";
        let mut steps: Vec<BatchStep> = vec![
            (insert, params![client, number, body]).into(),
            sql.events().notify(format!("told:{client}"), number.to_string()).into(),
            ("INSERT INTO signals (client, number) VALUES (?, ?)", params![client, number]).into(),
        ];
        let position = if self.rng.below(2) == 0 {
            sql.batch(steps).await?.position
        } else {
            let broken = "INSERT INTO signals (client, number) VALUES (?1, ?2), (?1, NULL)";
            steps.insert(2, (broken, params![client, number]).into());
            let PipelineResult { results, position, .. } = sql.pipeline(steps).await?;
            let kinds: Vec<_> =
                results.iter().map(|result| result.as_ref().err().map(|failure| failure.kind)).collect();
            if kinds != [None, None, Some(FailureKind::Constraint), None] {
                self.violation(format!(
                    "a pipeline of events, of which the third step is to fail, failed with {kinds:?}"
                ));
            }
            position
        };
        self.ledger.happened(EVENTS);
        Ok((position, None))
    }
}

/// Runs a listener's process until it shall stop, from the first event on that nobody has heard. Records what it
/// hears.
pub(super) async fn listen(env: Env, cluster: Cluster, ledger: Ledger, rng: Rng, stop: Arc<AtomicBool>) {
    let Some(client) = connected(&env, &cluster).await else { return };
    let after = |event| client.events().listen([""; 0]).patterns(PATTERNS).after(event);
    let mut listener = after(ledger.last_heard());
    while !stop.load(Ordering::Relaxed) {
        match timeout(PATIENCE, listener.next()).await {
            Ok(Ok(event)) => {
                ledger.happened(LISTENER);
                let number = std::str::from_utf8(&event.payload).ok().and_then(|text| text.parse().ok());
                ledger.heard((event.id, event.channel, number.unwrap_or(-1)));
                if rng.below(ANEW_ONE_IN) == 0 {
                    listener = after(event.id);
                }
                if rng.below(PAUSE_ONE_IN) == 0 {
                    sleep(Duration::from_millis(rng.below(PAUSE_MILLIS))).await;
                }
            }
            Ok(Err(ListenError::Gap { .. })) => {
                ledger.happened(LISTENER_GAP);
                ledger.heard_of_gap();
            }
            Ok(Err(ListenError::Failed(error))) if !error.is_retryable() => return,
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

/// Reads the rows that were inserted with events, in their order.
pub(super) async fn signals(sql: &Sql) -> Result<Vec<Key>, Error> {
    sql.query_as("SELECT client, number FROM signals ORDER BY rowid", ()).await
}

/// Reads through SQL which events the cluster holds, in their order.
pub(super) async fn held(sql: &Sql) -> Result<Vec<Event>, Error> {
    let query = "SELECT id, channel, CAST(CAST(payload AS TEXT) AS INTEGER) FROM quorate_events
        WHERE channel GLOB 'told:*' OR channel GLOB 'signal:*' OR channel GLOB 'echo:*' ORDER BY id";
    let rows: Vec<(i64, String, i64)> = sql.query_as(query, ()).await?;
    let event = |(id, channel, number): (i64, String, i64)| (EventId::from_number(id.cast_unsigned()), channel, number);
    Ok(rows.into_iter().map(event).collect())
}
