//! Quorate's consensus: openraft on our log and our network, behind a neutral interface.
//!
//! [`Consensus::start`] opens the node's log, finds or founds its cluster, opens the stores and runs the core of each
//! group. [`Group::propose`] then replicates an encoded proposal and returns its outcome, and [`Group::read_position`]
//! returns the position up to which a linearizable read must see the state. [`Consensus::status`] returns the members,
//! which [`Consensus::admit`] and [`Consensus::remove`] change. [`Group::entries`] reads the log for an
//! archive. The layers above answer their own methods through a
//! [`Service`]. [`inspect`] decodes the contents of a log.
//!
//! # Invariants
//!
//! - This is the only crate that uses openraft, and it exports none of openraft's types. It knows nothing of SQL.
//! - A Raft id belongs to one data directory for ever. A node whose log is lost or damaged comes back under a new id.
//! - A proposal is acknowledged only after a majority has made it durable by `fdatasync` or, with [`Durability::Os`],
//!   has handed it to its operating systems.
//! - A node that led before a restart does not go on leading in the same term: it would assign log ids again that a
//!   follower may hold with other contents.

#![forbid(unsafe_code)]

mod archive;
mod belong;
mod birth;
mod combiner;
mod config;
mod error;
mod events;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod group_log;
mod home;
mod identity;
mod images;
pub mod inspect;
mod leader_contact;
mod levels;
mod lineage;
mod link;
mod membership;
mod metrics;
mod node;
mod pace;
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
mod ticks;
mod verdict;

pub use archive::LoggedEntry;
pub use combiner::{HOLD_MAX, Hold};
pub use config::{ConsensusConfig, KEEP_FOR_ARCHIVE_BYTES, KEEP_LOG_BYTES, LOG_SEGMENT_BYTES, Timing};
pub use error::{Ended, EntriesError, MembershipError, ProposeError, ReadPositionError, StartError};
pub use group::Group;
pub use identity::ClusterId;
pub use images::{ImageError, ImagePieces, take_image};
pub use levels::LevelTooLow;
pub use lineage::CLUSTER_FILE;
pub use metrics::{FailureCounts, GroupMetrics, WriteMetrics};
pub use node::Consensus;
pub use peer_service::{SERVICE_METHODS, Service};
pub use permits::{Admission, Admitted};
pub use quorate_wal::{Durability, LONG_SYNC, LongSync, LongSyncs, WalMetrics, WalStats};
pub use raft::types::Member;
pub use restore::{INDEX_GAP, Living, Restored, check_nobody_lives};
pub use stages::WriteTrace;
pub use standing::Standing;
pub use start::{OpenStore, put_log_aside};
pub use status::{ClusterStatus, GroupStatus, MemberStatus, lag};
pub use verdict::Blocked;
