//! Identifiers of nodes and of places in the history of a cluster.

use std::fmt;
use std::time::Duration;

/// The number of one uninterrupted history of a cluster; a restore or a forced recovery starts the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// One Raft group: one totally ordered log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The group of all replicated data.
    pub const MAIN: Self = Self(1);
}

/// The Raft id of a node: drawn at random for a data directory, and never used again for another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// The full id of an entry: the leader that proposed it, the term, and the index.
///
/// Ordered by term, then node, then index, as Raft compares logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId {
    /// The term of the leader that proposed it.
    pub term: u64,
    /// The leader that proposed it.
    pub node: NodeId,
    /// Its index in the group's log.
    pub index: u64,
}

/// The cluster, epoch and group whose data a state machine holds. It is stored with the data and checked whenever they
/// are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreIdentity {
    /// The cluster.
    pub cluster: u128,
    /// The uninterrupted history of the cluster.
    pub epoch: Epoch,
    /// The Raft group.
    pub group: GroupId,
}

/// A place in a group's history. A write returns it, and a read may ask for a state at least this recent.
///
/// Positions of one epoch and group are ordered by their index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The history.
    pub epoch: Epoch,
    /// The group.
    pub group: GroupId,
    /// The index in the group's log.
    pub index: u64,
}

/// How far the time of a stamp may be ahead of the median of the voters' clocks.
pub const STAMP_AHEAD_MAX: Duration = Duration::from_secs(1);

/// The only clock and the only randomness that applying code may see. The leader sets it when it proposes an entry; for
/// the reads of a transaction, the transaction sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Nanoseconds since 1970-01-01 UTC.
    pub now: u64,
    /// The seed of the entry's random numbers.
    pub seed: u64,
}

/// Writes `main` or the group's number.
impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::MAIN { f.write_str("main") } else { write!(f, "{}", self.0) }
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.term, self.node, self.index)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch.0, self.group.0, self.index)
    }
}
