//! What the program that opens the doors tells them about the cluster.

use std::fmt;

use futures_util::future::BoxFuture;

/// Tells the doors of the cluster. Without one, they show the server that answers as the only node.
pub trait Cluster: Send + Sync + fmt::Debug {
    /// Returns the state of the cluster now.
    fn view(&self) -> BoxFuture<'_, View>;
}

/// The state of a cluster, as one node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The name of the node that answers.
    pub name: String,
    /// Why it can't serve, if it can't.
    pub not_ready: Vec<String>,
    /// The members.
    pub members: Vec<MemberView>,
}

/// A member of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    /// Its name.
    pub name: String,
    /// The URL of its doors, if it is known.
    pub api_addr: Option<String>,
    /// `host:port` for nodes.
    pub addr: String,
    /// Whether it votes.
    pub is_voter: bool,
    /// Whether it leads.
    pub is_leader: bool,
    /// Whether the node that answers has heard from it recently.
    pub is_reachable: bool,
}

impl View {
    /// Returns the view of a server that knows nothing of its cluster.
    pub(crate) fn alone() -> Self {
        let member = MemberView {
            name: "quorate".to_owned(),
            api_addr: None,
            addr: String::new(),
            is_voter: true,
            is_leader: true,
            is_reachable: true,
        };
        Self { name: member.name.clone(), not_ready: Vec::new(), members: vec![member] }
    }

    /// Returns the member that leads, if one is known.
    pub(crate) fn leader(&self) -> Option<&MemberView> {
        self.members.iter().find(|member| member.is_leader)
    }
}
