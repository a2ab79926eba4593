//! A node's part in each group, as the metrics show it.
//!
//! Invariant: the values of a group come from its own status and its own metrics.

use quorate::admin::GroupStatus;
use quorate::metrics::{GroupMetrics, Metrics};
use quorate::types::{GroupId, NodeId};

use super::{Family, Value};

/// A node's part in a group.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// The value of the label `group`.
    pub(super) group: String,
    pub(super) is_leader: bool,
    pub(super) is_voter: bool,
    pub(super) term: u64,
    pub(super) last: u64,
    pub(super) committed: u64,
    pub(super) applied: u64,
    pub(super) lag: Option<u64>,
    pub(super) voters: usize,
    /// Voters that were heard from lately, including the node.
    pub(super) reachable: usize,
    /// The index of the entry before which the node waits, or 0.
    pub(super) blocked: u64,
    pub(super) counted: &'a GroupMetrics,
}

/// The parts of a node: that in `main`, and those in the other groups.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) main: Part<'a>,
    pub(super) others: Vec<Part<'a>>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(metrics: &'a Metrics) -> Self {
        let others = metrics.status.groups.iter().filter_map(|group| {
            let counted = metrics.groups.get(&group.id())?;
            Some(Part::of_group(metrics, group, counted))
        });
        Self { main: Part::of_main(metrics), others: others.collect() }
    }

    fn all(&self) -> impl Iterator<Item = &Part<'a>> {
        [&self.main].into_iter().chain(&self.others)
    }
}

impl<'a> Part<'a> {
    fn of_main(metrics: &'a Metrics) -> Self {
        let status = &metrics.status;
        let (reachable, voters) = status.reachable_voters(metrics.silence_max);
        Self {
            group: GroupId::MAIN.to_string(),
            is_leader: status.leader == Some(status.node),
            is_voter: status.members.iter().any(|member| member.id == status.node && member.voter),
            term: status.term,
            last: status.last_index,
            committed: status.committed_index,
            applied: status.applied.index,
            lag: status.lag(),
            voters,
            reachable,
            blocked: status.blocked.as_ref().map_or(0, |blocked| blocked.index),
            counted: &metrics.main,
        }
    }

    fn of_group(metrics: &Metrics, group: &GroupStatus, counted: &'a GroupMetrics) -> Self {
        let status = &metrics.status;
        let is_heard = |voter: &&NodeId| {
            status.members.iter().any(|member| member.id == **voter && member.silent_for <= metrics.silence_max)
        };
        Self {
            group: group.id().to_string(),
            is_leader: group.leader == Some(status.node),
            is_voter: group.voters.contains(&status.node),
            term: group.term,
            last: group.last.map_or(0, |id| id.index),
            committed: group.committed.map_or(0, |id| id.index),
            applied: group.applied.index,
            lag: group.lag(),
            voters: group.voters.len(),
            reachable: group.voters.iter().filter(is_heard).count(),
            blocked: group.blocked.as_ref().map_or(0, |blocked| blocked.index),
            counted,
        }
    }
}

impl Family {
    /// Adds a sample of each group.
    pub(super) fn of_each<'p, V>(self, parts: &'p Parts<'_>, value: impl Fn(&'p Part<'_>) -> V) -> Self
    where
        V: Into<Value>,
    {
        self.of_each_known(parts, |part| Some(value(part)))
    }

    /// Adds a sample of each group of which there is a value.
    pub(super) fn of_each_known<'p, V>(self, parts: &'p Parts<'_>, value: impl Fn(&'p Part<'_>) -> Option<V>) -> Self
    where
        V: Into<Value>,
    {
        parts.all().fold(self, |family, part| match value(part) {
            Some(value) => family.with(&[("group", &part.group)], value),
            None => family,
        })
    }

    /// Adds samples of each group that differ in the value of `label`.
    pub(super) fn of_each_by<'p, V, S>(
        self,
        parts: &'p Parts<'_>,
        label: &'static str,
        samples: impl Fn(&'p Part<'_>) -> S,
    ) -> Self
    where
        V: Into<Value>,
        S: IntoIterator<Item = (&'static str, V)>,
    {
        parts.all().fold(self, |family, part| family.with_each(&[("group", &part.group)], label, samples(part)))
    }
}
