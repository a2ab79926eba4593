//! Waits for the archive on behalf of those who write: at the archiver itself, or at the node that they call, which
//! asks the archiver.
//!
//! Invariants:
//! - An entry counts as archived only if the archiver, which knows what the store has confirmed, has said so.
//! - A node has one request under way to the archiver, however many writes wait.
//! - If another node becomes the archiver meanwhile, that one is asked.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use quorate_env::{Instant, timeout_at};
use quorate_model::{Failure, FailureKind, NodeId, Position};

use super::gateway::{Gateway, served_until};
use crate::error::Error;
use crate::protocol::archived::{ArchivedAsk, ArchivedTold};
use crate::protocol::{self, method};
use crate::rights::Right;
use crate::submitter::Attempt;

/// How long a write waits for the first archiver of a cluster as long as no member is known that can archive. The
/// appointment follows the founding, or the first such member, within about a second.
const APPOINTED_MAX: Duration = Duration::from_secs(5);

const NOBODY: &str = "no node archives: set [archive] in the configuration of the nodes";

const NOT_APPOINTED: &str = "no node was appointed to archive in time";

/// Answers a node or a client.
pub(super) async fn answer(gateway: &Gateway, held: Right, ask: ArchivedAsk) -> Bytes {
    let deadline = served_until(Duration::from_millis(ask.millis));
    let reached = gateway.archived(ask.position.map(Position::from), held, deadline).await;
    protocol::encode(&ArchivedTold::from(reached))
}

impl Gateway {
    /// Returns the last archived index once it is not lower than that of the position; without a position, once there
    /// is an archiver. A node that is asked by another one does not ask a third.
    pub(crate) async fn archived(
        &self,
        position: Option<Position>,
        held: Right,
        deadline: Instant,
    ) -> Result<u64, Error> {
        self.serves()?;
        let Some(position) = position else {
            return self.has_archiver(deadline).await.map(|()| 0);
        };
        let position = self.comparable(position)?;
        if held == Right::Node {
            return self.next_archived(position, false, deadline).await;
        }
        self.archived.reach(position, deadline, |next| self.next_archived(next, true, deadline)).await
    }

    /// Fails if no node archives.
    async fn has_archiver(&self, deadline: Instant) -> Result<(), Error> {
        let mut roles = self.store.watch_archiver();
        if roles.borrow().is_some() {
            return Ok(());
        }
        let nobody = || Error::from(Failure::new(FailureKind::Refused, NOBODY));
        let (status, can) = (self.consensus.status(), |id| self.consensus.can_archive(id));
        if !status.members.is_empty() && status.members.iter().all(|member| can(member.id) == Some(false)) {
            return Err(nobody());
        }
        // The leader appoints this one as soon as there is a leader, and the format level is raised.
        // Just after the founding, this node may not have heard yet who the members are.
        let this_can = status.members.is_empty() && can(status.node) == Some(true);
        let somebody_can = this_can || status.members.iter().any(|member| can(member.id) == Some(true));
        let latest = if somebody_can { deadline } else { deadline.min(Instant::now() + APPOINTED_MAX) };
        match timeout_at(latest, roles.wait_for(Option::is_some)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(Error::Closed),
            Err(_) if somebody_can => Err(Error::Unavailable(NOT_APPOINTED.into())),
            Err(_) => Err(nobody()),
        }
    }

    /// Waits until the archive has come to this position, without sharing the wait.
    async fn next_archived(&self, position: Position, may_ask: bool, deadline: Instant) -> Result<u64, Error> {
        let own = self.consensus.status().node;
        let mut roles = self.store.watch_archiver();
        loop {
            let role = *roles.borrow_and_update();
            let reached = async {
                match role {
                    Some(role) if role.node != own && may_ask => self.ask_archiver(role.node, position, deadline).await,
                    Some(role) if role.node != own => {
                        Err(Error::Unavailable(format!("node {} archives", role.node).into()))
                    }
                    Some(_) => in_time(self.archive.reached(position.index), deadline, || self.late()).await,
                    None => in_time(std::future::pending(), deadline, || NOBODY.to_owned()).await,
                }
            };
            match select(pin!(reached), pin!(roles.changed())).await {
                Either::Left((reached, _)) => return reached,
                Either::Right((changed, _)) => changed.map_err(|_| Error::Closed)?,
            }
        }
    }

    /// Asks the archiver.
    async fn ask_archiver(&self, archiver: NodeId, position: Position, deadline: Instant) -> Result<u64, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let ask = ArchivedAsk::new(Some(position), left);
        let call = self.consensus.call_member(archiver, method::ARCHIVED, protocol::encode(&ask), left).boxed();
        let reply =
            call.await.map_err(|error| match Attempt::of_call(error, &format!("the archiver, node {archiver}")) {
                Attempt::Refused(error) => error,
                Attempt::NotDone(why) => why.into(),
                Attempt::InDoubt(why) => Error::Unavailable(why),
            })?;
        protocol::decode::<ArchivedTold>(reply).map_err(|error| Error::Unavailable(error.into()))?.into()
    }

    /// Says why the archiver, this node, is late.
    fn late(&self) -> String {
        match self.archive.status().and_then(|archive| archive.failure) {
            Some(failure) => format!("the archiver last failed: {failure}"),
            None => "the archiver has not stored it yet".to_owned(),
        }
    }
}

async fn in_time(
    reached: impl Future<Output = u64>,
    deadline: Instant,
    late: impl Fn() -> String,
) -> Result<u64, Error> {
    timeout_at(deadline, reached).await.map_err(|_| Error::TimedOut(late().into()))
}
