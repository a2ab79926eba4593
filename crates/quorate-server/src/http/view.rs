//! What the doors of SQL over HTTP show of a node and its cluster.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quorate::admin::MemberStatus;
use quorate::{NotReady, Observer, Status};
use quorate_http::{Cluster, MemberView, View};

use crate::ask::Asks;

/// The view of one node.
#[derive(Debug)]
pub(super) struct NodeView {
    observer: Observer,
    asks: Asks,
}

impl NodeView {
    pub(super) fn new(observer: Observer, asks: Asks) -> Self {
        Self { observer, asks }
    }

    async fn look(&self) -> View {
        let look = |observer: &Observer| (observer.status(), observer.not_ready());
        let (found, reasons) = match self.asks.ask(self.observer.clone(), look).await {
            Ok((found, reasons)) => (found, reasons.iter().map(NotReady::to_string).collect()),
            Err(why) => (None, vec![why.to_string()]),
        };
        let Some((status, silence_max)) = found else {
            return View { not_ready: reasons, ..View::default() };
        };
        View { members: members_of(&status, silence_max), name: status.name.clone(), not_ready: reasons }
    }
}

/// Returns the members of a cluster. One that was silent for longer than this counts as unreachable.
pub(super) fn members_of(status: &Status, silence_max: Duration) -> Vec<MemberView> {
    let view = |member: &MemberStatus| MemberView {
        name: member.name.clone(),
        api_addr: None,
        addr: member.addr.clone(),
        is_voter: member.voter,
        is_leader: Some(member.id) == status.leader,
        is_reachable: member.silent_for <= silence_max,
    };
    status.members.iter().map(view).collect()
}

impl Cluster for NodeView {
    fn view(&self) -> BoxFuture<'_, View> {
        self.look().boxed()
    }
}
