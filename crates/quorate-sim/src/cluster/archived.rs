//! The archive of the cluster, as the scenario sees it.

use std::time::Duration;

use super::Cluster;
use crate::archive::SimArchive;

/// How long the archive may take to catch up: an archiver pauses for 30 s after failures.
const CATCH_UP_MAX: Duration = Duration::from_secs(120);

impl Cluster {
    /// Lets the nodes archive the cluster, if that is drawn.
    #[must_use]
    pub fn archived(mut self, calm: u32) -> Self {
        self.archive = SimArchive::draw(&self.world, &self.history, calm);
        self
    }

    /// Returns the archive, if the cluster has one.
    pub fn archive(&self) -> Option<&SimArchive> {
        self.archive.as_ref()
    }

    /// Returns the node that writes the archive, if one does.
    pub fn archiver(&self) -> Option<&'static str> {
        let writes =
            |status: &quorate::Status| status.archive.as_ref().is_some_and(|archive| archive.archived_index > 0);
        let archiver = self.statuses().into_iter().find(writes)?.name;
        self.names().iter().copied().find(|name| *name == archiver)
    }

    /// Examines the archive as it is now.
    pub async fn examine_archive(&self) {
        let Some(archive) = &self.archive else { return };
        if let Err(what) = archive.examine(&self.world).await {
            self.history.violation(what);
        }
    }

    /// Waits until everything that was applied is archived, and examines the archive.
    pub async fn end_archive(&self) {
        if self.archive.is_none() {
            return;
        }
        let is_archived = |cluster: &Self| {
            let statuses = cluster.statuses();
            let applied = statuses.iter().map(|status| status.applied.index).max();
            let archived = statuses.iter().filter_map(|status| Some(status.archive.as_ref()?.archived_index)).max();
            archived >= applied
        };
        if !self.until(CATCH_UP_MAX, is_archived).await {
            let tell = |status: quorate::Status| format!("{} {:?} {:?}", status.name, status.archiver, status.archive);
            let statuses: Vec<String> = self.statuses().into_iter().map(tell).collect();
            self.history.violation(format!("the archive does not catch up: {statuses:?}; {}", self.summary()));
        }
        self.look();
        self.examine_archive().await;
    }
}
