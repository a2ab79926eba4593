//! Compares what a node finds on its disk when it starts with what its earlier lives had made durable.
//!
//! Invariant: of the nodes that lost nothing, a majority remembers each leader that was elected and each entry that was
//! committed. After a kill the log holds every entry that the database holds. A database holds every entry that its log
//! no longer holds.

use std::path::Path;

use quorate_consensus::inspect::{self, Inspection};
use quorate_model::{GroupId, StateMachine};

use super::{Cluster, DATA_DIR};
use crate::watched::Logged;

impl Cluster {
    /// Checks the log of a group and its store in a node's new life (`who`), which has opened both and changed neither
    /// yet.
    pub(super) fn found(&self, name: &'static str, who: &str, group: GroupId, store: &impl StateMachine) {
        let log = Inspection::read(&self.world.disk(name).watcher(), &Path::new(DATA_DIR).join("log"));
        let Some(log) = log.ok().and_then(|mut log| log.groups.remove(&group)) else { return };
        let history = self.history_of(group);
        if self.lives().unsound.contains(name) {
            return;
        }
        if let Some(vote) = log.vote.and_then(|vote| inspect::vote(&vote).ok()) {
            history.remembers_votes(name, (vote.term, vote.node), self.names.len());
        }
        let (applied, purged, last) = (store.applied().log_id, log.purged, log.last);
        history.remembers_entries(name, last.map_or(0, |id| id.index), self.names.len());
        if applied.map(|id| id.index) < purged.map(|id| id.index) {
            history.violation(format!("the database of {who} ends at {applied:?}, its log begins at {purged:?}"));
        }
        let is_ahead = applied.map(|id| id.index) > last.map(|id| id.index);
        if is_ahead && !self.lives().ahead.contains(&(name, group)) {
            history.violation(format!("the database of {who} ends at {applied:?}, its log at {last:?}"));
        }
        self.set_ahead(name, group, is_ahead);
    }

    /// Returns a function that reads the last index in the log of a group in a node's present life.
    pub(super) fn logged(&self, name: &'static str, group: GroupId) -> Logged {
        let (disk, log) = (self.world.disk(name).watcher(), Path::new(DATA_DIR).join("log"));
        Box::new(move || Inspection::read(&disk, &log).ok()?.groups.get(&group)?.last.map(|id| id.index))
    }

    /// Sets whether a node's store of a group may end after its log.
    pub(super) fn set_ahead(&self, name: &'static str, group: GroupId, may_be: bool) {
        let ahead = &mut self.lives().ahead;
        if may_be {
            ahead.insert((name, group))
        } else {
            ahead.remove(&(name, group))
        };
    }

    /// Records that all nodes have recovered what they had lost.
    pub fn all_is_good(&self) {
        self.lives().unsound.clear();
    }
}
