//! The requests of an operator, which go over the network and have a time limit.

use std::time::Duration;

use quorate::admin::AdminError;
use quorate::types::{GroupId, NodeId};
use quorate::{Client, ClientConfig, Error, Status};
use quorate_env::timeout;
use quorate_model::{Appointment, ControlReply};

use super::{Cluster, End};

/// The deadline of an operator's request.
const OPERATOR_LIMIT: Duration = Duration::from_secs(10);

/// How long an operator waits for the result of a verification.
const AUDIT_MAX: Duration = Duration::from_secs(15);

/// A node that lags by more entries than this is assumed to need an image.
const LAG: u64 = 100;

impl Cluster {
    /// Lets a node propose a tick, if the node serves.
    pub async fn tick(&self, name: &'static str) -> Option<Result<(), Error>> {
        let node = self.node(name)?;
        Some(quorate::sim::tick(&node).await)
    }

    /// Lets a node propose an appointment of the archiver, if the node serves.
    pub async fn appoint(&self, name: &'static str, appointment: Appointment) -> Option<Result<ControlReply, Error>> {
        let node = self.node(name)?;
        Some(quorate::sim::appoint(&node, appointment).await)
    }

    /// Requests a verification that all nodes hold the same data, and checks that it finds no difference. A
    /// verification that fails or takes too long is ignored.
    pub async fn verify(&self) {
        let config = ClientConfig::new(self.addrs(), Self::secret()).with_deadline(OPERATOR_LIMIT);
        let tampered = self.history.tamperings();
        // Without this limit the verification would wait long for a node that is down.
        let verification = timeout(AUDIT_MAX, quorate::sim::verify_in(self.world.node("auditor"), config));
        let Ok(result) = verification.await else { return };
        let reported = result.as_ref().map(|found| found.nodes.iter().filter(|node| node.tables.is_ok()).count());
        self.world.trace().add("auditor", format_args!("nodes that reported their tables: {reported:?}"));
        let differences = result.map(|found| found.differences()).unwrap_or_default();
        let is_excused = self.history.tamperings() != tampered || self.names.iter().any(|name| self.is_tampered(name));
        if !differences.is_empty() && !is_excused {
            self.history.violation(format!("a verification found {differences:?}"));
        }
    }

    /// Makes the decisions that need an operator.
    ///
    /// If two nodes hold different data and a third one needs an image, no majority can tell which data are right. Then
    /// the node whose data were changed gets an empty disk, and the others are restarted, so that they forget the
    /// disagreement. Otherwise, if the cluster waits at an entry for the answer of a voter whose disk was lost, the
    /// operator rejects the entry. A node that is only down may have applied it, so the operator waits for that one.
    pub async fn decide(&self) {
        let committed = self.statuses().iter().map(|status| status.committed_index).max().unwrap_or_default();
        let lags = |status: &Status| status.applied.index + LAG < committed && !self.history.is_tampered(&status.name);
        let is_any_tampered = self.names.iter().any(|name| self.history.is_tampered(name));
        let leader = self.leader().and_then(|name| self.node(name));
        let blocked = leader.and_then(|leader| leader.status().blocked);
        if (is_any_tampered || blocked.is_none()) && self.statuses().iter().any(lags) {
            for name in self.names {
                let end = if self.history.is_tampered(name) { End::Wipe } else { End::Kill };
                self.end(name, end).await;
                self.start(name);
            }
            return;
        }
        let statuses = self.statuses();
        let may_reject =
            |index| statuses.len() == self.names.len() && statuses.iter().all(|of| of.applied.index < index);
        if let Some(blocked) = blocked.filter(|blocked| may_reject(blocked.index)) {
            self.history.forced();
            let rejected = self.reject(blocked.index).await;
            self.world.trace().add("operator", format_args!("rejects entry {}: {rejected:?}", blocked.index));
        }
    }

    /// Whether a node waits for the cluster's verdict on an entry.
    pub(super) fn is_blocked(&self, name: &'static str) -> bool {
        self.node(name).is_some_and(|node| node.status().blocked.is_some())
    }

    /// Whether a node waits for the cluster's verdict on an entry that it has not tried to apply.
    pub fn has_promised(&self, name: &'static str) -> bool {
        let blocked = self.node(name).and_then(|node| node.status().blocked);
        blocked.is_some_and(|blocked| blocked.why.contains("the cluster decides"))
    }

    async fn reject(&self, index: u64) -> Result<(), AdminError> {
        // Only the leader is asked: a node that has just joined may not know yet who leads.
        let leader =
            self.leader().map(|name| self.addr(name)).ok_or(AdminError::Unavailable("no node leads".into()))?;
        let client = self.operator_at([leader]).await?;
        let rejected = client.admin().reject_entry(GroupId::MAIN, index).await;
        client.close().await;
        rejected
    }

    /// Removes a node from the cluster, as an operator does.
    pub async fn remove(&self, name: &str) -> Result<(), AdminError> {
        let client = self.operator_at(self.addrs()).await?;
        let removed = client.admin().remove(name, false).await;
        client.close().await;
        removed
    }

    /// Hands leadership to a node, as an operator does.
    pub async fn transfer(&self, name: &str) -> Result<NodeId, AdminError> {
        let client = self.operator_at(self.addrs()).await?;
        let leads = client.admin().transfer(Some(name)).await;
        client.close().await;
        leads
    }

    async fn operator_at(&self, addrs: impl IntoIterator<Item = String>) -> Result<Client, AdminError> {
        let config = ClientConfig::new(addrs, Self::secret()).with_deadline(OPERATOR_LIMIT);
        let connected = Client::connect_in(self.world.node("operator"), config).await;
        connected.map_err(|error| AdminError::Unavailable(error.into()))
    }
}
