//! Actions of processes outside Quorate on a node's database: they read it for a long time, or change it without the
//! node's knowledge, as faulty memory or a careless user could.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use quorate::{Error, Level};
use quorate_env::{Instant, sleep};
use quorate_model::{StateMachine as _, StoreFault};
use quorate_sql::connection::{self, Attached};
use quorate_sql::store::SqlStore;

use super::compare::snapshot;
use super::life::Life;
use super::{CACHE_BYTES, Cluster, DATA_DIR};
use crate::damage;
use crate::history::Losses;

/// How often a node is queried after its start, and at what intervals.
const EARLY_READS: u32 = 20;
const EARLY_EVERY: Duration = Duration::from_millis(20);

/// The deadline of a local read, which need not wait for anything.
const AT_ONCE: Duration = Duration::from_millis(1);

/// How long a read of all rows may take, and how long a node may take to record damage that the read finds. The node
/// checks its database before it does, for up to ten seconds.
const READ_MAX: Duration = Duration::from_secs(2);
const NOTICE_MAX: Duration = Duration::from_secs(15);

/// A number that is larger than any real count of batches.
const FOREIGN: i64 = 1_000_000;

impl Cluster {
    /// Opens a read transaction on a node's database file from outside, and keeps it until `end`.
    pub fn read_until(&self, name: &'static str, end: Instant) {
        let store = self.with_life(name, |life| life.store.upgrade()).flatten();
        let reader = store.and_then(|store| snapshot(store.store()).ok());
        self.with_life(name, |life| life.reader = reader.map(|reader| (reader, end)));
    }

    /// Marks a node as a target: its data are changed from outside as soon as all nodes hold everything and no other
    /// connection writes to them.
    pub fn tamper(&self, name: &'static str) {
        self.with_life(name, |life| life.is_target = true);
    }

    /// Whether a node's data are about to be changed.
    pub fn is_target(&self, name: &'static str) -> bool {
        self.with_life(name, |life| life.is_target) == Some(true)
    }

    /// Cancels all changes of data that have not been made yet.
    pub fn spare(&self) {
        for name in self.names {
            self.with_life(name, |life| life.is_target = false);
        }
    }

    /// Records that all nodes have the clients' tables.
    pub fn has_tables(&self) {
        let mut lives = self.lives();
        lives.lost_before_tables = Some(lives.losses.clone());
    }

    /// Whether a majority of the nodes has failed to apply some entry, so that a write of any kind may have been
    /// rejected.
    pub fn may_reject(&self) -> bool {
        self.history.may_reject(self.names.len() / 2 + 1)
    }

    /// Reads from a node that has lost data, as soon as it serves and without retries, which would hide a wrong answer.
    /// As long as the node is not a member, or has not caught up to where the cluster was when it joined, it must not
    /// answer from an empty database. A member that was only down may answer from the data that it had.
    pub(super) async fn ask_early(&self, name: &'static str, who: &str) {
        let has_lost = {
            let lives = self.lives();
            let losses = |all: &BTreeMap<_, Losses>| all.get(name).map_or(0, |losses| losses.all);
            lives.lost_before_tables.as_ref().is_some_and(|before| losses(before) < losses(&lives.losses))
        };
        if !has_lost {
            return;
        }
        for _ in 0..EARLY_READS {
            let is_same = self.with_life(name, |life| life.who == who) == Some(true);
            let Some(sql) = self.sql(name).filter(|_| is_same) else { return };
            let sql = sql.at(Level::Local).with_deadline(AT_ONCE);
            if let Err(Error::Failed(failure)) = sql.query_one::<i64>("SELECT count(*) FROM events", ()).await {
                return self.history.violation(format!("{who} serves before it has the cluster's data: {failure}"));
            }
            sleep(EARLY_EVERY).await;
        }
    }

    /// Whether a node has applied the statement with this number that some nodes can't apply.
    pub fn has_applied_ail(&self, name: &'static str, number: i64) -> bool {
        let store = self.with_life(name, |life| life.store.upgrade()).flatten();
        let conn = store.and_then(|store| snapshot(store.store()).ok());
        let found = conn.map(|conn| conn.query_row("SELECT 1 FROM ails WHERE number = ?", (number,), |_| Ok(())));
        matches!(found, Some(Ok(())))
    }

    /// Removes the file that names the cluster from the directory of a node that is down.
    pub fn lose_cluster_file(&self, name: &'static str) {
        if let Err(error) = damage::remove_cluster_file(&self.world.disk(name), Path::new(DATA_DIR)) {
            self.history.violation(format!("the file CLUSTER of {name} can't be removed: {error}"));
        }
    }

    /// Overwrites a page of the clients' rows on a node's disk. Returns whether the disk held such a page.
    pub fn spoil_page(&self, name: &'static str) -> bool {
        let Some(store) = self.with_life(name, |life| life.store.upgrade()).flatten() else { return false };
        let table = if self.world.rng().chance(0.5) { "events" } else { "relics" };
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = ?";
        let root = |conn: Attached| conn.query_row(root, (table,), |row| row.get(0)).ok();
        let root = snapshot(store.store()).ok().and_then(root);
        let disk = self.world.disk(name).watcher();
        let spoiled = root.map(|root| damage::overwrite_page(&disk, Path::new(DATA_DIR), root, self.world.rng()));
        match spoiled.unwrap_or(Ok(false)) {
            Ok(true) => {
                self.history.spoiled(name);
                true
            }
            Ok(false) => false,
            Err(error) => {
                self.history.violation(format!("the database of {name} can't be damaged: {error}"));
                false
            }
        }
    }

    /// Reads all rows of a node. If the read finds the database damaged, the node must record the damage soon, or be
    /// healed. Returns whether the read found damage and the node noticed it in time.
    pub async fn read_all(&self, name: &'static str) -> bool {
        let (Some(who), Some(sql)) = (self.with_life(name, |life| life.who.clone()), self.sql(name)) else {
            return false;
        };
        let sql = sql.at(Level::Local).with_deadline(READ_MAX);
        let all =
            "SELECT sum(length(body)) FROM (SELECT body FROM events NOT INDEXED UNION ALL SELECT body FROM relics)";
        let read = sql.query_one::<Option<i64>>(all, ()).await;
        let Err(Error::Store(StoreFault::Damaged(what))) = read else { return false };
        self.world.trace().add(&who, format_args!("a read finds damage: {what}"));
        let is_over = |cluster: &Self| {
            let is_same = cluster.with_life(name, |life| life.who == who) == Some(true);
            !is_same || !cluster.history.is_spoiled(name) || cluster.has_ended_of_damage(name)
        };
        let is_noticed = self.until(NOTICE_MAX, is_over).await;
        if !is_noticed {
            self.history
                .violation(format!("a read found the database of {who} damaged, but the node does not record it"));
        }
        is_noticed
    }

    /// Whether a node has a bad page, and has stopped serving because its database is damaged.
    pub(super) fn has_ended_of_damage(&self, name: &'static str) -> bool {
        let store = self.with_life(name, |life| life.store.upgrade()).flatten();
        let fault = store.filter(|_| self.history.is_spoiled(name)).and_then(|store| store.fault());
        matches!(fault, Some(StoreFault::Damaged(_)))
    }

    /// Whether a page of a node's database is bad, and the node has not received the data of the others yet.
    pub fn is_spoiled(&self, name: &'static str) -> bool {
        self.history.is_spoiled(name)
    }

    fn has_bad_page(&self, name: &'static str) -> bool {
        let found = damage::has_bad_page(&self.world.disk(name).watcher(), Path::new(DATA_DIR));
        found.unwrap_or_else(|error| {
            self.history.violation(format!("the database of {name} can't be examined: {error}"));
            true
        })
    }

    /// Whether a node's data were changed and not restored yet, or are about to be changed.
    pub(super) fn is_tampered(&self, name: &'static str) -> bool {
        self.is_target(name) || self.history.is_tampered(name)
    }

    /// Whether this applies to any node.
    pub fn has_foreign_data(&self) -> bool {
        self.names.iter().any(|name| self.is_tampered(name))
    }

    /// Ends outside readers whose time is over, changes the data of target nodes where that is possible now, and checks
    /// which nodes hold good data again.
    pub(super) fn see_outsiders(&self) {
        let is_over = |reader: &mut (Attached, Instant)| Instant::now() >= reader.1;
        for name in self.names {
            drop(self.with_life(name, |life| life.reader.take_if(is_over)));
            let seen = |life: &mut Life| Some((life.is_target, life.store.upgrade().filter(|_| !life.is_doomed)?));
            let Some((is_target, store)) = self.with_life(name, seen).flatten() else { continue };
            // A node sends no image of changed data, so it must not be the only one that has some entry.
            if is_target && self.is_complete() && change(store.store()) {
                self.with_life(name, |life| life.is_target = false);
                self.history.tampered(name);
            } else if self.history.is_tampered(name) && is_clean(store.store()) && !self.has_bad_page(name) {
                self.history.is_good_again(name);
            }
        }
    }
}

/// Adds a large number to each count of batches. Returns whether it succeeded.
fn change(store: &SqlStore) -> bool {
    let Ok(conn) = connection::open_writer(&store.generation(), CACHE_BYTES) else { return false };
    let alone = conn.busy_timeout(Duration::ZERO);
    alone.and_then(|()| conn.execute("UPDATE totals SET batches = batches + ?", (FOREIGN,))).is_ok()
}

/// Whether no count of batches shows the change.
fn is_clean(store: &SqlStore) -> bool {
    let largest = snapshot(store).ok().and_then(|conn| {
        let largest = conn.query_row("SELECT max(batches) FROM totals", (), |row| row.get::<_, Option<i64>>(0));
        largest.ok().flatten()
    });
    largest.is_some_and(|largest| largest < FOREIGN)
}
