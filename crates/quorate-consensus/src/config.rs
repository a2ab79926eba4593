//! The configuration of consensus.

use std::time::Duration;

use quorate_wal::Durability;
use quorate_wire::Secret;

use crate::error::StartError;
use crate::identity::{durability_name, durability_number};
use crate::raft::types::Member;

/// How a node takes part in consensus.
#[derive(Clone, Debug)]
pub struct ConsensusConfig {
    /// This node's name: one of the names in `members`, or any name for a node that runs alone.
    pub name: String,
    /// `host:port` to listen on for peers and clients.
    pub listen: String,
    /// `host:port` under which the others reach this node. `None` for the address that it listens on.
    pub advertise: Option<String>,
    /// The nodes that found the cluster, the same list on each of them. Empty for a node that runs alone.
    pub members: Vec<Member>,
    /// The secret that all nodes and clients of the cluster share.
    pub secret: Secret,
    /// Intervals and deadlines.
    pub timing: Timing,
    /// What must have happened to a proposal before it is acknowledged. It is fixed when the cluster is founded, and
    /// the same on all nodes.
    pub durability: Durability,
    /// How many bytes of applied and durable log are kept for followers that lag. The rest is purged.
    pub keep_log_bytes: u64,
    /// How many bytes of the log are kept for an archive that lags ([`Group::keep_from`](crate::Group::keep_from)).
    pub keep_for_archive_bytes: u64,
    /// The size of one file of the log in bytes. The same number of bytes of the newest entries is kept in memory.
    pub log_segment_bytes: u64,
    /// The highest format level that this program understands.
    pub level: u32,
    /// Whether the node announces that it can write an archive.
    pub archives: bool,
    /// Whether the data directory contains the store's files, in use or put aside, so that it belonged to a cluster.
    pub had_store: bool,
    /// Whether a new cluster begins with a restored state. Then the node founds none: where it would, its start ends
    /// with [`StartError::Unborn`].
    pub begins_restored: bool,
}

impl ConsensusConfig {
    /// Whether `members` lists no other node.
    pub(crate) fn is_alone(&self) -> bool {
        self.members.iter().all(|member| member.name == self.name)
    }

    /// Fails if the durability with this number, which `whose` has, differs from this node's.
    pub(crate) fn check_durability(&self, whose: &str, number: u32) -> Result<(), StartError> {
        if number == durability_number(self.durability) {
            return Ok(());
        }
        let (configured, found) = (self.durability, durability_name(number));
        Err(StartError::Durability { configured, whose: whose.to_owned(), found })
    }
}

/// Intervals and deadlines of consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The interval of the leader's heartbeats.
    pub heartbeat: Duration,
    /// A follower that receives nothing from a leader waits for a random time between this and `election_max`.
    pub election_min: Duration,
    /// See `election_min`. Failover takes this time plus one random time.
    pub election_max: Duration,
    /// How long a member must have been silent before a new data directory may take over its name.
    pub silence: Duration,
    /// The interval at which nodes ask each other for their status.
    pub status: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(80),
            election_min: Duration::from_millis(300),
            election_max: Duration::from_millis(600),
            silence: Duration::from_secs(30),
            status: Duration::from_secs(1),
        }
    }
}

/// The default of [`ConsensusConfig::keep_log_bytes`].
pub const KEEP_LOG_BYTES: u64 = 64 << 20;

/// The default of [`ConsensusConfig::keep_for_archive_bytes`].
pub const KEEP_FOR_ARCHIVE_BYTES: u64 = 1 << 30;

/// The default of [`ConsensusConfig::log_segment_bytes`].
pub const LOG_SEGMENT_BYTES: u64 = 64 << 20;
