//! Quorate's consensus: openraft on our log and our network, behind a neutral interface.
//!
//! [`Consensus::start`] opens the node's log, finds or founds its cluster, opens the store and runs the core. Then
//! [`Consensus::propose`] replicates an encoded proposal and returns its outcome, [`Consensus::read_position`] tells up
//! to where a linearizable read must see the state, and [`Consensus::status`] who the members are, which
//! [`Consensus::admit`] and [`Consensus::remove`] change. Floors above answer their own methods through a [`Service`].
//! [`inspect`] explains what is in a log.
//!
//! # Invariants
//!
//! - This is the only crate that sees openraft, and no type of it leaves. It knows nothing of SQL.
//! - A Raft id belongs to one data directory for ever; a lost or damaged log comes back under a new id.
//! - An acknowledged proposal is durable on a majority, by `fdatasync`, before its outcome is known; with
//!   [`Durability::Os`], in the operating systems of a majority.
//! - The leader of a term is never restored after a restart: it would give log ids out again that a follower may hold
//!   with other contents.

#![forbid(unsafe_code)]

mod belong;
mod birth;
mod combiner;
mod config;
mod error;
mod events;
#[doc(hidden)]
pub mod fuzzing;
mod home;
mod identity;
mod images;
pub mod inspect;
mod leader_contact;
mod lineage;
mod link;
mod membership;
mod metrics;
mod node;
mod peer;
mod peer_service;
mod peers;
mod permits;
mod purge;
mod raft;
mod reads;
mod reboot;
mod reconcile;
mod restore;
mod stages;
mod stamp;
mod standing;
mod start;
mod status;
#[cfg(test)]
mod tests;
mod verdict;

pub use combiner::{HOLD_MAX, Hold};
pub use config::{ConsensusConfig, KEEP_LOG_BYTES, LOG_SEGMENT_BYTES, Timing};
pub use error::{Ended, MembershipError, ProposeError, ReadPositionError, StartError};
pub use identity::ClusterId;
pub use images::{ImageError, ImagePieces, take_image};
pub use lineage::CLUSTER_FILE;
pub use metrics::{ConsensusMetrics, FailureCounts, WriteMetrics};
pub use node::Consensus;
pub use peer_service::{SERVICE_METHODS, Service};
pub use permits::{Admission, Admitted};
pub use quorate_wal::{Durability, LONG_SYNC, LongSync, LongSyncs, WalMetrics, WalStats};
pub use raft::types::Member;
pub use restore::{INDEX_GAP, Living, Restored, check_nobody_lives};
pub use stages::WriteTrace;
pub use standing::Standing;
pub use start::{OpenStore, StoreIdentity, put_log_aside};
pub use status::{ClusterStatus, MemberStatus, lag};
pub use verdict::Blocked;
