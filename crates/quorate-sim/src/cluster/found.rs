//! What a node finds when it starts, held against what its earlier lives have promised.
//!
//! Invariant: of the nodes that lost nothing a majority remembers each leader that was elected and each entry that was
//! committed; after a kill a log has all that its database holds; a database has all that its log holds no more.

use std::path::Path;

use quorate_consensus::inspect::{self, Inspection};
use quorate_model::{GroupId, Store as _};
use quorate_sql::store::SqlStore;

use super::{Cluster, DATA_DIR};
use crate::watched::Logged;

impl Cluster {
    /// A life (`who`) of a node has opened its log and its store, and changed neither yet.
    pub(super) fn found(&self, name: &'static str, who: &str, store: &SqlStore) {
        let log = Inspection::read(&self.world.disk(name).watcher(), &Path::new(DATA_DIR).join("log"));
        let Some(log) = log.ok().and_then(|mut log| log.groups.remove(&GroupId::MAIN)) else { return };
        if self.lives().unsound.contains(name) {
            return;
        }
        if let Some(vote) = log.vote.and_then(|vote| inspect::vote(&vote).ok()) {
            self.history.remembers_votes(name, (vote.term, vote.node), self.names.len());
        }
        let (applied, purged, last) = (store.applied().log_id, log.purged, log.last);
        self.history.remembers_entries(name, last.map_or(0, |id| id.index), self.names.len());
        if applied.map(|id| id.index) < purged.map(|id| id.index) {
            self.history.violation(format!("the database of {who} ends at {applied:?}, its log begins at {purged:?}"));
        }
        let is_ahead = applied.map(|id| id.index) > last.map(|id| id.index);
        if is_ahead && !self.lives().ahead.contains(name) {
            self.history.violation(format!("the database of {who} ends at {applied:?}, its log at {last:?}"));
        }
        self.set_ahead(name, is_ahead);
    }

    /// What says where the log of a node's present life ends.
    pub(super) fn logged(&self, name: &'static str) -> Logged {
        let (disk, log) = (self.world.disk(name).watcher(), Path::new(DATA_DIR).join("log"));
        Box::new(move || Inspection::read(&disk, &log).ok()?.groups.get(&GroupId::MAIN)?.last.map(|id| id.index))
    }

    /// From now on, or no longer, a node's database may end behind its log.
    pub(super) fn set_ahead(&self, name: &'static str, may_be: bool) {
        let ahead = &mut self.lives().ahead;
        if may_be {
            ahead.insert(name)
        } else {
            ahead.remove(name)
        };
    }

    /// Whatever nodes had lost was made good.
    pub fn all_is_good(&self) {
        self.lives().unsound.clear();
    }
}
