//! Calls all other voters.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use quorate_model::NodeId;

use super::gateway::Gateway;

/// The other voters, and whether this node is a voter itself.
pub(super) struct Voters {
    pub(super) others: Vec<NodeId>,
    /// Whether this node votes.
    pub(super) own: bool,
}

impl Voters {
    pub(super) fn of(gateway: &Gateway) -> Self {
        let status = gateway.consensus.status();
        let ids: Vec<NodeId> = status.members.iter().filter(|member| member.voter).map(|member| member.id).collect();
        let own = ids.contains(&status.node);
        Self { others: ids.into_iter().filter(|id| *id != status.node).collect(), own }
    }

    pub(super) fn count(&self) -> usize {
        self.others.len() + usize::from(self.own)
    }

    /// Calls the other voters, and returns the answers that arrive within the time limit.
    pub(super) async fn ask<T>(
        &self,
        gateway: &Gateway,
        method: u16,
        ask: Bytes,
        limit: Duration,
        read: impl Fn(Bytes) -> Option<T>,
    ) -> Vec<(NodeId, T)> {
        let calls = self.others.iter().map(|id| gateway.consensus.call_member(*id, method, ask.clone(), limit));
        let answers = join_all(calls).await.into_iter().map(|answer| answer.ok().and_then(&read));
        self.others.iter().copied().zip(answers).filter_map(|(id, answer)| Some((id, answer?))).collect()
    }
}
