//! What can go wrong in consensus.

use quorate_model::{NodeId, StoreFault};
use quorate_wal::Durability;

use crate::Member;

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The log could not be opened.
    #[error("the log can't be opened: {0}")]
    Log(#[from] quorate_wal::OpenError),
    /// The log could not be written.
    #[error("the log can't be written: {0}")]
    LogWrite(#[from] quorate_wal::WalError),
    /// The node's own record in its log can't be read.
    #[error("the node's identity in its log can't be read: {0}; a newer version may have written it")]
    Identity(String),
    /// The data directory belongs to a node of another name.
    #[error("this data directory belongs to the node '{found}', not to '{expected}'; check the name and the directory")]
    Name {
        /// The name in the configuration.
        expected: String,
        /// The name in the directory.
        found: String,
    },
    /// The configuration does not fit together.
    #[error("the configuration can't be used: {0}")]
    Config(String),
    /// The durability in the configuration is not that of the cluster.
    #[error(
        "'durability' is '{configured}' in this node's configuration, but that of {whose} is '{found}': it is the same \
         on all nodes of a cluster, and fixed when that is founded; set it to the same on all of them, or restore a \
         backup, which begins a new cluster"
    )]
    Durability {
        /// What the configuration says.
        configured: Durability,
        /// Who says otherwise.
        whose: String,
        /// What that says.
        found: String,
    },
    /// The machine of a node that runs alone was restarted without a clean stop, or it can't be told that it was not,
    /// and with [`Durability::Os`] its log may have lost acknowledged entries. Nothing was changed.
    #[error(
        "the machine was restarted while this node ran, or its boot id can't be read: with durability 'os', and \
         without other members to bring the node up to date, acknowledged writes may be lost. Nothing was changed. \
         Restore a backup, or what this node's own database holds ('When power fails' in docs/operate.md): 'quorate \
         restore' begins a new history; if the cluster has other members, list them in this node's configuration"
    )]
    Rebooted,
    /// The log of a node that runs alone is damaged. Nothing was changed.
    #[error(
        "the log is damaged: {0}. Nothing was changed, and without other members nothing can bring the node up to \
         date. Restore a backup, or what this node's own database holds ('When nothing brings a node back' in \
         docs/operate.md): 'quorate restore' begins a new history; if the cluster has other members, list them in this \
         node's configuration"
    )]
    LogDamaged(String),
    /// The data directory of a node that runs alone belonged to a cluster, and its log is gone. Nothing was changed.
    #[error("{0}")]
    Bereft(String),
    /// The address to listen on is not to be had.
    #[error(
        "can't listen on {addr}: {error}; it is what 'listen' says in the configuration, or 'members' of this node"
    )]
    Listen {
        /// The address.
        addr: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// This node was removed from its cluster, and a removed id never comes back.
    #[error("{0}")]
    Removed(String),
    /// The log ends before what the database holds: its end was lost, and with it what this node has promised.
    /// [`put_log_aside`](crate::put_log_aside) lets it come back as a new member, if there are others.
    #[error(
        "the log is damaged: it ends at entry {log}, but the database holds entry {database}; other members bring this \
         node back, alone it needs a backup"
    )]
    LogCut {
        /// The last entry of the log.
        log: u64,
        /// The last entry that was applied.
        database: u64,
    },
    /// The database ends before what it durably held: its files are damaged.
    #[error(
        "the database is damaged: it {}, but it held entry {held}; other members bring this node back, alone it needs \
         a backup",
        .database.map_or("is empty".to_owned(), |index| format!("ends at entry {index}"))
    )]
    StoreCut {
        /// The last entry that the database holds; `None` for one that is empty.
        database: Option<u64>,
        /// An entry that it held before.
        held: u64,
    },
    /// The store could not be opened.
    #[error("the database can't be opened: {0}")]
    Store(Box<dyn std::error::Error + Send + Sync>),
    /// The core did not start.
    #[error("consensus did not start: {0}")]
    Core(String),
    /// The system refused a thread.
    #[error("can't start a thread: {0}")]
    Thread(std::io::Error),
}

impl StartError {
    /// Whether the same start may succeed later without help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Listen { .. } | Self::Thread(_))
    }
}

/// Why a proposal has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProposeError {
    /// This node does not lead. Nothing was proposed.
    #[error("this node does not lead the cluster; {}", leader_text(.leader.as_ref()))]
    NotLeader {
        /// Who does, if it is known.
        leader: Option<(NodeId, Member)>,
    },
    /// The leader can't be reached. Nothing was proposed.
    #[error("{0} can't be reached")]
    Unreachable(String),
    /// Too much is waiting. Nothing was proposed.
    #[error("too many writes are waiting; try again later")]
    Overloaded,
    /// It was proposed, and whether it takes effect is not known.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
    /// The node has stopped. Nothing was proposed.
    #[error("the node is stopped: {0}")]
    Stopped(String),
}

impl ProposeError {
    /// Whether nothing was proposed, so that trying again can't apply it twice.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }
}

/// Why there is no read position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadPositionError {
    /// No leader with a quorum answered in time.
    #[error("no leader with a majority answered: {0}; try again, or read with a weaker level")]
    Unavailable(String),
    /// The node has stopped.
    #[error("the node is stopped")]
    Stopped,
}

impl ReadPositionError {
    /// Whether the same call may succeed later without help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// Why a change of the members was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// This node does not lead. Nothing was done.
    #[error("this node does not lead the cluster; {}", leader_text(.leader.as_ref()))]
    NotLeader {
        /// Who does, if it is known.
        leader: Option<(NodeId, Member)>,
    },
    /// The request can't be done as the cluster stands.
    #[error("{0}")]
    Refused(String),
    /// It may be done later, or may have been done.
    #[error("the change is not confirmed: {0}; look at the members and try again")]
    Unconfirmed(String),
}

impl MembershipError {
    /// Whether the same call may succeed later without help.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

fn leader_text(leader: Option<&(NodeId, Member)>) -> String {
    let none = || "no leader is known".to_owned();
    leader.map_or_else(none, |(_, member)| format!("the leader is {} at {}", member.name, member.addr))
}

/// What ended a node's part in consensus.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// It was asked to.
    #[error("stopped")]
    Stopped,
    /// It was removed from its cluster.
    #[error("{0}")]
    Removed(String),
    /// Its store failed.
    #[error("the database failed: {0}")]
    Store(StoreFault),
    /// Its core failed.
    #[error("{0}")]
    Core(String),
}
