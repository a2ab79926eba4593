//! The errors of this crate.

use quorate_env::Cause;
use quorate_model::{GroupId, NodeId, StoreFault};
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
    Identity(#[source] Cause),
    /// The data directory belongs to a node of another name.
    #[error("this data directory belongs to the node '{found}', not to '{expected}'; check the name and the directory")]
    Name {
        /// The name in the configuration.
        expected: String,
        /// The name in the directory.
        found: String,
    },
    /// The configuration contradicts itself.
    #[error("the configuration can't be used: {0}")]
    Config(String),
    /// The durability in the configuration is not that of the cluster.
    #[error(
        "'durability' is '{configured}' in this node's configuration, but that of {whose} is '{found}'. All nodes of a \
         cluster have the same durability, and it can't be changed once the cluster is founded. Set the same on all of \
         them, or restore a backup, which begins a new cluster"
    )]
    Durability {
        /// The durability in the configuration.
        configured: Durability,
        /// The node or the directory that has another durability.
        whose: String,
        /// The name of that durability.
        found: String,
    },
    /// The machine of a node that runs alone was restarted without a clean stop, or may have been, and with
    /// [`Durability::Os`] its log may have lost acknowledged entries. Nothing was changed.
    #[error(
        "the machine was restarted while this node ran, or its boot id can't be read. With durability 'os' \
         acknowledged writes may be lost, and there are no other members to bring the node up to date. Nothing was \
         changed. Restore a backup, or the contents of this node's own database (see 'When power fails' in \
         docs/operate.md): 'quorate restore' begins a new history. If the cluster has other members, list them in this \
         node's configuration"
    )]
    Rebooted,
    /// The log of a node that runs alone is damaged. Nothing was changed.
    #[error(
        "the log is damaged: {0}. Nothing was changed, and there are no other members to bring the node up to date. \
         Restore a backup, or the contents of this node's own database (see 'When nothing brings a node back' in \
         docs/operate.md): 'quorate restore' begins a new history. If the cluster has other members, list them in this \
         node's configuration"
    )]
    LogDamaged(#[source] quorate_wal::OpenError),
    /// The data directory of a node that runs alone belonged to a cluster, and its log is gone. Nothing was changed.
    #[error("{0}")]
    Bereft(String),
    /// The cluster is new, and to begin with a restored state, which this node has to restore. Nothing was changed.
    #[error("the cluster begins with a restored state, which is not restored yet; restore it, then start the node")]
    Unborn,
    /// The node can't listen on its address.
    #[error(
        "can't listen on {addr}: {error}; the address is that of 'listen' in the configuration, or of this node in \
         'members'"
    )]
    Listen {
        /// The address.
        addr: String,
        /// The system's error.
        #[source]
        error: std::io::Error,
    },
    /// This node was removed from its cluster, and a removed id never comes back.
    #[error("{0}")]
    Removed(String),
    /// The log ends before what the database holds: its end was lost, and perhaps votes with it. If there are other
    /// members, call [`put_log_aside`](crate::put_log_aside), and the node comes back as a new member.
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
    /// The database ends before an entry that it held durably: its files are damaged.
    #[error(
        "the database{} is damaged: it {}, but it held entry {held}; other members bring this node back, alone it \
         needs a backup",
        of_group(*.group),
        .database.map_or("is empty".to_owned(), |index| format!("ends at entry {index}"))
    )]
    StoreCut {
        /// The group of the database.
        group: GroupId,
        /// The last entry that the database holds; `None` for an empty database.
        database: Option<u64>,
        /// The last entry that it is known to have held.
        held: u64,
    },
    /// The store of a group could not be opened.
    #[error("the database{} can't be opened: {source}", of_group(*.group))]
    Store {
        /// The group of the database.
        group: GroupId,
        /// The error of the store.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The core did not start.
    #[error("consensus did not start: {0}")]
    Core(#[source] Cause),
    /// The system did not start a thread.
    #[error("can't start a thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl StartError {
    /// Whether the same start may succeed later without a change by an operator.
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
        /// The leader, if it is known.
        leader: Option<(NodeId, Member)>,
    },
    /// The leader can't be reached. Nothing was proposed.
    #[error("{0} can't be reached")]
    Unreachable(String),
    /// Too many proposals are queued. Nothing was proposed.
    #[error("too many writes are waiting; try again later")]
    Overloaded,
    /// The proposal was made, or may have been, and it is not known whether it takes effect.
    #[error("the outcome is not known: {0}")]
    Unknown(String),
    /// The node has stopped. Nothing was proposed.
    #[error("the node is stopped: {0}")]
    Stopped(String),
}

impl ProposeError {
    /// Whether nothing was proposed, so that another try can't apply the proposal twice.
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
    /// Whether the same call may succeed later without a change by an operator.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// Why entries of the log can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntriesError {
    /// The log no longer holds the entry.
    #[error("the log no longer holds entry {from}: it begins with entry {first}; what came before is in the database")]
    Purged {
        /// The entry that was asked for.
        from: u64,
        /// The first entry that the log holds, or will hold if it holds none.
        first: u64,
    },
    /// The log can't be read.
    #[error("the log can't be read: {0}")]
    Log(#[source] quorate_wal::ReadError),
    /// The node has stopped.
    #[error("the node is stopped")]
    Stopped,
}

impl EntriesError {
    /// Whether the same call may succeed later without a change by an operator.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Log(error) if error.is_retryable())
    }
}

/// Why a change of the members was not made, or is not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// This node does not lead. Nothing was done.
    #[error("this node does not lead the cluster; {}", leader_text(.leader.as_ref()))]
    NotLeader {
        /// The leader, if it is known.
        leader: Option<(NodeId, Member)>,
    },
    /// The state of the cluster does not allow the change.
    #[error("{0}")]
    Refused(String),
    /// The change may have been made, or may be possible later.
    #[error("the change is not confirmed: {0}; check the list of members and try again")]
    Unconfirmed(String),
}

impl MembershipError {
    /// Whether the same call may succeed later without a change by an operator.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

fn leader_text(leader: Option<&(NodeId, Member)>) -> String {
    let none = || "no leader is known".to_owned();
    leader.map_or_else(none, |(_, member)| format!("the leader is {} at {}", member.name, member.addr))
}

/// Why a node's part in consensus ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// The node was asked to stop.
    #[error("stopped")]
    Stopped,
    /// The node was removed from its cluster.
    #[error("{0}")]
    Removed(String),
    /// The store failed.
    #[error("the database failed: {0}")]
    Store(#[source] StoreFault),
    /// The core failed.
    #[error("{0}")]
    Core(String),
}

/// Names a group beside `main` in a text about its database.
fn of_group(group: GroupId) -> String {
    if group == GroupId::MAIN { String::new() } else { format!(" of group {}", group.0) }
}
