//! Reads the states and the logs of nodes, to compare them with each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use quorate_model::GroupId;
use quorate_sql::connection::{self, Attached};
use quorate_sql::logical_hash;
use quorate_sql::records::applied_row;
use quorate_sql::store::SqlStore;
use quorate_wal::{Wal, WalOptions};
use xxhash_rust::xxh3::xxh3_64;

use super::{CACHE_BYTES, Cluster, DATA_DIR, SEGMENT_BYTES};
use crate::history::State;

impl Cluster {
    /// Compares the state of each running node with the state that other nodes had at the same index.
    pub fn sample(&self) {
        for name in self.names {
            let store = self.with_life(name, |life| Some((life.who.clone(), life.store.upgrade()?))).flatten();
            let Some((who, store)) = store else { continue };
            if self.with_life(name, |life| life.is_doomed) == Some(true) || self.history.is_tampered(name) {
                continue;
            }
            match state(store.store()) {
                Ok(Some((index, state))) => self.history.state(&who, index, state),
                Ok(None) => {}
                Err(error) => self.history.violation(format!("the database of {who} can't be read: {error}")),
            }
            self.sample_beside(name, &who);
        }
    }

    /// Returns the hash of each entry, by index, in the log of a group on a node that is down.
    pub fn log(&self, name: &'static str, group: GroupId) -> Result<BTreeMap<u64, String>, String> {
        let options = WalOptions { segment_bytes: SEGMENT_BYTES, ..WalOptions::new(1) };
        let dir = Path::new(DATA_DIR).join("log");
        let opened = Wal::open(Arc::new(self.world.disk(name)), &dir, options).map_err(|error| error.to_string())?;
        let first = opened.wal.purged(group).map_or(1, |id| id.index + 1);
        let last = opened.wal.last_log_id(group).map_or(0, |id| id.index);
        let entries = opened.wal.entries(group, first..last + 1, usize::MAX);
        let hash =
            |(id, bytes): (quorate_model::LogId, bytes::Bytes)| (id.index, format!("{id} {:x}", xxh3_64(&bytes)));
        Ok(entries.map_err(|error| error.to_string())?.into_iter().map(hash).collect())
    }
}

/// Opens a read transaction on the current content of a database.
pub(super) fn snapshot(store: &SqlStore) -> Result<Attached, String> {
    let conn = connection::open_reader(&store.generation(), CACHE_BYTES).map_err(|error| error.to_string())?;
    let begun = conn.execute_batch("BEGIN; SELECT count(*) FROM sqlite_schema;");
    begun.map_err(|error| error.to_string()).map(|()| conn)
}

/// Returns the index up to which a database has applied entries, and its hashes at that index; `None` before the first
/// entry.
fn state(store: &SqlStore) -> Result<Option<(u64, State)>, String> {
    let conn = snapshot(store)?;
    let row = applied_row::read(&conn).map_err(|error| error.to_string())?;
    let Some(row) = row.filter(|row| row.applied.log_id.is_some()) else { return Ok(None) };
    let user = logical_hash::user(&conn).map_err(|unread| unread.to_string())?;
    let reserved = logical_hash::reserved(&conn).map_err(|unread| unread.to_string())?;
    Ok(Some((row.applied.index(), State { outcomes: row.outcome_hash, user, reserved, archiver: row.archiver })))
}
