//! What consensus is told at the start.

use std::time::Duration;

use quorate_wal::Durability;
use quorate_wire::Secret;

use crate::error::StartError;
use crate::identity::{durability_name, durability_number};
use crate::raft::types::Member;

/// How a node takes part in consensus.
#[derive(Clone, Debug)]
pub struct ConsensusConfig {
    /// This node's name; one of the names in `members`, or any for a node that runs alone.
    pub name: String,
    /// `host:port` to listen on for peers and clients.
    pub listen: String,
    /// `host:port` under which the others reach this node; the address that it listens on where `None`.
    pub advertise: Option<String>,
    /// The nodes that found the cluster, the same list on each of them. Empty for a node that runs alone.
    pub members: Vec<Member>,
    /// What all nodes and clients of the cluster know.
    pub secret: Secret,
    /// Intervals and deadlines.
    pub timing: Timing,
    /// When a proposal is acknowledged: fixed when the cluster is founded, and the same on all nodes.
    pub durability: Durability,
    /// Bytes of applied and durable log kept for followers that lag; more is purged.
    pub keep_log_bytes: u64,
    /// Bytes of one file of the log, and of the newest entries that are kept in memory.
    pub log_segment_bytes: u64,
    /// Whether the store's files are in the data directory, or some that were put aside: it belonged to a cluster.
    pub had_store: bool,
}

impl ConsensusConfig {
    /// Whether no other node is listed.
    pub(crate) fn is_alone(&self) -> bool {
        self.members.iter().all(|member| member.name == self.name)
    }

    /// Fails if somebody has another durability, whose number is given.
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
    /// How often the leader says that it lives.
    pub heartbeat: Duration,
    /// A follower that heard nothing waits for a time drawn between this and `election_max`.
    pub election_min: Duration,
    /// See `election_min`. Failover takes this much plus one draw.
    pub election_max: Duration,
    /// How long a member must have been silent before a new data directory may take over its name.
    pub silence: Duration,
    /// How often nodes ask each other how they are.
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

/// Bytes of log kept by default.
pub const KEEP_LOG_BYTES: u64 = 64 << 20;

/// Bytes of one file of the log by default.
pub const LOG_SEGMENT_BYTES: u64 = 64 << 20;
