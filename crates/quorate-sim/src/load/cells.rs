//! Clients that write and read a few keys, the cells, which others write at the same time, and that wait for changes of
//! keys.
//!
//! Invariant: each entry that writes a cell also adds a row that says what the cell holds then. So the end of a run
//! shows what each entry did, whatever the clients got.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorate::keys::{KeyInfo, Replies, Seen, Version};
use quorate::sql::{BatchStep, PipelineResult};
use quorate::{Error, FailureKind, Keys, Level, Sql, params, steps};
use quorate_env::{Rng, sleep, timeout};
use quorate_model::keys::RELATIVE_LEVEL;

use super::WRITE_LIMIT;
use crate::cluster::Cluster;
use crate::coverage::{CELL_CONFLICT, CELL_EXEC, CELL_EXPIRED, CELL_READ, KEY_AWAITED, KEY_WATCHED};
use crate::ledger::Ledger;
use crate::ledger::cells::{Action, CellEnd, CellRow, Cells, PARTNER};

/// How many of them there are.
pub(super) const CLIENTS: u64 = 2;

/// How many cells there are. The first is neither deleted nor expires.
const CELLS: u64 = 4;

/// The table of the rows.
pub(super) const TABLE: &str = "CREATE TABLE cells (number INTEGER NOT NULL, cell INTEGER NOT NULL, value INTEGER,
    version INTEGER, expires INTEGER, now INTEGER NOT NULL)";

/// Adds the row of a cell.
const ADD_ROW: &str = "INSERT INTO cells (number, cell, value, version, expires, now)
    SELECT ?1, ?2, CAST(k.value AS INTEGER), k.version,
        CAST(round(unixepoch(k.expires_at, 'subsec') * 1000) AS INTEGER),
        CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER)
    FROM (SELECT 1) LEFT JOIN quorate_keys k ON k.space = 0 AND k.key = ?3";

/// The longest pause between two steps, in milliseconds.
const PAUSE_MILLIS: u64 = 700;

/// The shortest and the longest time after which a cell expires, in milliseconds.
const EXPIRES_MILLIS: (u64, u64) = (50, 2_500);

/// At most so long after the expiry of a cell its client writes it again, in milliseconds: mostly before it is swept.
const AFTER_MILLIS: u64 = 20;

/// How long a waiter may take to be told after its node has applied the change.
const TOLD_MAX: Duration = Duration::from_secs(20);

/// A client.
pub(super) struct CellClient {
    cluster: Cluster,
    ledger: Ledger,
    cells: Cells,
    rng: Rng,
    stop: Arc<AtomicBool>,
    calm: u64,
    client: u64,
    /// The number of the next key to wait for.
    next: u64,
}

impl CellClient {
    pub(super) fn new(cluster: &Cluster, ledger: &Ledger, stop: &Arc<AtomicBool>, calm: u32, client: u64) -> Self {
        let (ledger, cells, rng) = (ledger.clone(), ledger.cells(), cluster.world().rng().fork());
        let (cluster, stop) = (cluster.clone(), Arc::clone(stop));
        Self { cluster, ledger, cells, rng, stop, calm: calm.into(), client, next: 0 }
    }

    pub(super) async fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(self.rng.below(PAUSE_MILLIS * self.calm))).await;
            if !self.cluster.statuses().iter().any(|status| status.format_level >= RELATIVE_LEVEL) {
                continue;
            }
            let cell = self.rng.below(CELLS).cast_signed();
            match self.rng.below(10) {
                0 if self.next.is_multiple_of(2) => self.wait().await,
                0 => self.watch().await,
                1 => self.read(cell).await,
                2..4 => self.set_both(cell).await,
                4..6 => self.write(cell, Action::Set { expires_in: None }).await,
                6 if cell > 0 => self.write(cell, Action::Delete).await,
                7..9 if cell > 0 => self.expire(cell).await,
                _ => self.write(cell, Action::Add).await,
            }
        }
    }

    /// Returns the handle of a random node, if that node serves, with its name.
    fn some_node(&self) -> Option<(&'static str, Sql)> {
        let names = self.cluster.names();
        let name = names.get(usize::try_from(self.rng.below(names.len() as u64)).unwrap_or(0))?;
        Some((*name, self.cluster.sql(name)?.with_deadline(WRITE_LIMIT)))
    }

    /// Sets a cell that expires. Often adds to it about when it does.
    async fn expire(&self, cell: i64) {
        let (least, most) = EXPIRES_MILLIS;
        let millis = least + self.rng.below(most - least);
        self.write(cell, Action::Set { expires_in: Some(millis.cast_signed()) }).await;
        if self.rng.below(3) > 0 {
            let is_early = self.rng.below(3) == 0;
            let pause = if is_early { self.rng.below(millis) } else { millis + self.rng.below(AFTER_MILLIS) };
            sleep(Duration::from_millis(pause)).await;
            self.ledger.happened(CELL_EXPIRED);
            self.write(cell, Action::Add).await;
        }
    }

    /// Writes a cell by a batch of keys and SQL.
    async fn write(&self, cell: i64, action: Action) {
        let Some((_, sql)) = self.some_node() else { return };
        let (keys, key, number) = (sql.keys(), name_of(cell), self.cells.begin(cell, action));
        let command: BatchStep = match action {
            Action::Add => keys.increment(key, 1).into(),
            Action::Delete => keys.delete([key]).into(),
            Action::Set { expires_in: Some(millis) } => {
                keys.set(key, number.to_string()).expires(Duration::from_millis(millis.unsigned_abs())).into()
            }
            Action::Set { expires_in: None } | Action::SetBoth { .. } => keys.set(key, number.to_string()).into(),
        };
        let done = sql.batch([command, row(number, cell), keys.describe(name_of(cell)).into()]).await.map(|done| {
            let told = match action {
                Action::Add => done.replies.get::<i64>(0),
                Action::Delete => done.replies.get::<u64>(0).map(u64::cast_signed),
                Action::Set { .. } | Action::SetBoth { .. } => done.replies.get::<bool>(0).map(i64::from),
            };
            CellEnd::Done { version: version_in(&done.replies, 2), told: told.unwrap_or(-1) }
        });
        self.ended(cell, number, done);
    }

    /// Reads the version of a cell, and sets it and its partner if it still has that. A step in between fails.
    async fn set_both(&self, cell: i64) {
        let Some((_, sql)) = self.some_node() else { return };
        let (keys, key, partner) = (sql.keys(), name_of(cell), cell + PARTNER);
        let Ok(info) = keys.at(Level::Linearizable).describe(key.as_str()).await else { return };
        let premise = info.map(|info| info.version);
        // Another client may write it meanwhile.
        sleep(Duration::from_millis(self.rng.below(PAUSE_MILLIS))).await;
        let number = self.cells.begin(cell, Action::SetBoth { premise });
        let commands = steps![
            keys.set(key.as_str(), number.to_string()),
            keys.list(key.as_str()).push_right(["no list"]),
            keys.set(name_of(partner), number.to_string()),
            row(number, cell),
            row(number, partner),
            keys.describe(key.as_str()),
        ];
        let premise = Keys::expect(&keys, key.as_str(), premise);
        let done = keys.pipeline_if([premise], commands).await;
        let done = done.map(|PipelineResult { results, replies, .. }| {
            let kinds: Vec<_> =
                results.iter().map(|result| result.as_ref().err().map(|failure| failure.kind)).collect();
            if kinds != [None, Some(FailureKind::WrongType), None, None, None, None] {
                self.violation(format!(
                    "a pipeline of keys, of which the second step is to fail, failed with {kinds:?}"
                ));
            }
            self.ledger.happened(CELL_EXEC);
            CellEnd::Done { version: version_in(&replies, 5), told: 1 }
        });
        self.ended(cell, number, done);
    }

    /// Reads a cell. Its version must not be below the highest one that a client had seen before the read began.
    async fn read(&self, cell: i64) {
        let Some((name, sql)) = self.some_node() else { return };
        let floor = self.cells.floor(cell);
        let Ok(info) = sql.keys().at(Level::Linearizable).describe(name_of(cell)).await else { return };
        let version = info.map(|info| info.version);
        let is_old = version.map_or(cell == 0 && floor > Version::default(), |version| version < floor);
        if is_old && !self.cluster.history().is_forced() {
            self.violation(format!("{name} shows version {version:?} of cell {cell}, and {floor:?} was there before"));
        }
        version.into_iter().for_each(|version| self.cells.saw(cell, version));
        self.ledger.happened(CELL_READ);
    }

    /// Waits on one node for a key that is written through another.
    async fn wait(&mut self) {
        self.next += 1;
        let key = format!("awaited:{}:{}", self.client, self.next);
        let (Some((name, sql)), Some((_, other))) = (self.some_node(), self.some_node()) else { return };
        let Some(life) = self.cluster.items(name) else { return };
        let Ok(turn) = sql.keys().line([key.as_str()]).await else { return };
        let pushed = other.keys().list(key.as_str()).push_right(["item"]).with_position().await;
        let Ok((_, position)) = pushed else { return };
        let list = sql.keys().at(Level::AtLeast(position)).list(key.as_str());
        let Ok(items) = list.range(0, -1).await else { return };
        let is_told = timeout(TOLD_MAX, turn).await.is_ok();
        // The waiters of a node end with it.
        let is_same_life = self.cluster.items(name).is_some_and(|now| Arc::ptr_eq(&now, &life));
        if is_same_life && !(is_told && items == ["item"]) && !self.cluster.history().is_forced() {
            self.violation(format!(
                "{name} has applied {position} and shows {items:?}; its waiter was told: {is_told}"
            ));
        }
        self.ledger.happened(KEY_AWAITED);
    }

    /// Watches a key on one node while it is written through another. The watch must end at the last state.
    async fn watch(&mut self) {
        self.next += 1;
        let key = format!("watched:{}:{}", self.client, self.next);
        let (Some((name, sql)), Some((_, other))) = (self.some_node(), self.some_node()) else { return };
        let Some(life) = self.cluster.items(name) else { return };
        let mut watch = sql.keys().at(Level::Local).watch(key.as_str());
        let Ok(Seen { info: None, .. }) = watch.next().await else { return };
        let Ok((_, position)) = other.keys().set(key.as_str(), "1").with_position().await else { return };
        let set = sql.keys().at(Level::AtLeast(position)).describe(key.as_str());
        let Ok(info) = set.await else { return };
        let seen = timeout(TOLD_MAX, watch.next()).await;
        let is_same_life = self.cluster.items(name).is_some_and(|now| Arc::ptr_eq(&now, &life));
        let is_right = match &seen {
            Ok(Ok(seen)) => seen.info == info && info.is_some(),
            // The node was asked and could not answer.
            Ok(Err(_)) => true,
            Err(_) => false,
        };
        if is_same_life && !is_right && !self.cluster.history().is_forced() {
            self.violation(format!("{name} has applied {position} and shows {info:?}; its watch shows {seen:?}"));
        }
        self.ledger.happened(KEY_WATCHED);
    }

    /// Records how a write ended.
    fn ended(&self, cell: i64, number: i64, done: Result<CellEnd, Error>) {
        self.cluster.world().trace().add("cells", format_args!("{number} {done:?}"));
        let end = done.unwrap_or_else(|error| match error {
            Error::Failed(failure) if failure.kind == FailureKind::Conflict => {
                self.ledger.happened(CELL_CONFLICT);
                CellEnd::NotDone
            }
            error => {
                let what = format_args!("write {number} of a cell");
                if is_in_doubt(&self.cluster, what, &error) { CellEnd::Unknown } else { CellEnd::NotDone }
            }
        });
        self.cells.ended(cell, number, end);
    }

    fn violation(&self, what: String) {
        self.cluster.history().violation(what);
    }
}

/// Returns whether a write that failed may have been done. No such write may fail by what it does.
pub(super) fn is_in_doubt(cluster: &Cluster, what: fmt::Arguments<'_>, error: &Error) -> bool {
    match error {
        Error::Unknown(_) => return true,
        // The latter if not all members understand it yet.
        Error::Failed(failure)
            if failure.kind == FailureKind::Rejected && cluster.may_reject()
                || failure.kind == FailureKind::Unsupported => {}
        Error::Failed(_) | Error::Forbidden(_) | Error::Row(_) => {
            cluster.history().violation(format!("{what} failed: {error}"));
        }
        _ => {}
    }
    false
}

fn name_of(cell: i64) -> String {
    format!("cell:{cell}")
}

fn row(number: i64, cell: i64) -> BatchStep {
    (ADD_ROW, params![number, cell, name_of(cell).into_bytes()]).into()
}

/// Returns the version that a step has shown.
fn version_in(replies: &Replies, step: usize) -> Option<Version> {
    replies.get::<Option<KeyInfo>>(step).flatten().map(|info| info.version)
}

/// Reads the rows in the order in which they were written.
pub(super) async fn held(sql: &Sql) -> Result<Vec<CellRow>, Error> {
    sql.query_as("SELECT number, cell, value, version, expires, now FROM cells ORDER BY rowid", ()).await
}
