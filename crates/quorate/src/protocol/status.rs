//! The state of a node and its cluster on the wire.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use quorate_consensus::{Blocked, ClusterId, GroupStatus, MemberStatus, Standing};
use quorate_model::{Archiver, LogId, NodeId};

use super::WirePosition;
use crate::status::{ArchiveStatus, Status};

/// Answers `STATUS`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusReply {
    /// 16 bytes, little-endian.
    #[prost(bytes = "bytes", tag = "1")]
    pub cluster: Bytes,
    #[prost(fixed64, tag = "2")]
    pub node: u64,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(fixed64, optional, tag = "4")]
    pub leader: Option<u64>,
    #[prost(uint64, tag = "5")]
    pub term: u64,
    #[prost(uint64, tag = "6")]
    pub last_index: u64,
    #[prost(uint64, tag = "7")]
    pub committed_index: u64,
    #[prost(message, required, tag = "8")]
    pub applied: WirePosition,
    #[prost(uint64, tag = "9")]
    pub durable_index: u64,
    #[prost(uint64, tag = "10")]
    pub log_bytes: u64,
    #[prost(uint64, tag = "11")]
    pub database_bytes: u64,
    #[prost(message, repeated, tag = "12")]
    pub members: Vec<MemberReply>,
    #[prost(string, optional, tag = "13")]
    pub stopped: Option<String>,
    /// The entry before which the node waits, and the reason.
    #[prost(uint64, optional, tag = "14")]
    pub blocked: Option<u64>,
    #[prost(string, tag = "15")]
    pub blocked_why: String,
    /// The fault of its database.
    #[prost(string, optional, tag = "16")]
    pub fault: Option<String>,
    /// The format level that the cluster uses.
    #[prost(uint32, tag = "17")]
    pub format_level: u32,
    /// The groups beside `main`.
    #[prost(message, repeated, tag = "18")]
    pub groups: Vec<GroupReply>,
    /// The node that writes the archive.
    #[prost(message, optional, tag = "19")]
    pub archiver: Option<WireArchiver>,
    /// How far the archive has come, if the node that answers writes it.
    #[prost(message, optional, tag = "20")]
    pub archive: Option<WireArchive>,
    #[prost(message, optional, tag = "30")]
    pub standing: Option<StandingReply>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GroupReply {
    /// It names the group.
    #[prost(message, required, tag = "1")]
    pub applied: WirePosition,
    #[prost(fixed64, optional, tag = "2")]
    pub leader: Option<u64>,
    #[prost(uint64, tag = "3")]
    pub term: u64,
    #[prost(message, optional, tag = "4")]
    pub last: Option<WireLogId>,
    #[prost(message, optional, tag = "5")]
    pub committed: Option<WireLogId>,
    #[prost(uint32, tag = "6")]
    pub format_level: u32,
    #[prost(fixed64, repeated, tag = "7")]
    pub voters: Vec<u64>,
    /// The entry before which the node waits, and the reason.
    #[prost(uint64, optional, tag = "8")]
    pub blocked: Option<u64>,
    #[prost(string, tag = "9")]
    pub blocked_why: String,
    #[prost(string, optional, tag = "10")]
    pub stopped: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WireLogId {
    #[prost(uint64, tag = "1")]
    pub term: u64,
    #[prost(fixed64, tag = "2")]
    pub node: u64,
    #[prost(uint64, tag = "3")]
    pub index: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WireArchiver {
    #[prost(fixed64, tag = "1")]
    pub node: u64,
    #[prost(uint64, tag = "2")]
    pub token: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WireArchive {
    #[prost(uint64, tag = "1")]
    pub archived_index: u64,
    #[prost(uint64, tag = "2")]
    pub boundary_index: u64,
    #[prost(uint64, tag = "3")]
    pub lag_millis: u64,
    #[prost(uint64, tag = "4")]
    pub failures: u64,
    #[prost(string, optional, tag = "5")]
    pub failure: Option<String>,
    #[prost(uint64, optional, tag = "6")]
    pub rehearsed_at: Option<u64>,
}

impl From<ArchiveStatus> for WireArchive {
    fn from(archive: ArchiveStatus) -> Self {
        let ArchiveStatus { archived_index, boundary_index, lag, failures, failure, rehearsed_at } = archive;
        Self { archived_index, boundary_index, lag_millis: millis(lag), failures, failure, rehearsed_at }
    }
}

impl From<WireArchive> for ArchiveStatus {
    fn from(archive: WireArchive) -> Self {
        let WireArchive { archived_index, boundary_index, lag_millis, failures, failure, rehearsed_at } = archive;
        let lag = Duration::from_millis(lag_millis);
        Self { archived_index, boundary_index, lag, failures, failure, rehearsed_at }
    }
}

impl From<Archiver> for WireArchiver {
    fn from(archiver: Archiver) -> Self {
        Self { node: archiver.node.0, token: archiver.token }
    }
}

impl From<WireArchiver> for Archiver {
    fn from(archiver: WireArchiver) -> Self {
        Self { node: NodeId(archiver.node), token: archiver.token }
    }
}

impl From<LogId> for WireLogId {
    fn from(id: LogId) -> Self {
        Self { term: id.term, node: id.node.0, index: id.index }
    }
}

impl From<WireLogId> for LogId {
    fn from(id: WireLogId) -> Self {
        Self { term: id.term, node: NodeId(id.node), index: id.index }
    }
}

impl From<GroupStatus> for GroupReply {
    fn from(group: GroupStatus) -> Self {
        Self {
            applied: group.applied.into(),
            leader: group.leader.map(|leader| leader.0),
            term: group.term,
            last: group.last.map(WireLogId::from),
            committed: group.committed.map(WireLogId::from),
            format_level: group.format_level,
            voters: group.voters.iter().map(|voter| voter.0).collect(),
            blocked: group.blocked.as_ref().map(|blocked| blocked.index),
            blocked_why: group.blocked.map(|blocked| blocked.why).unwrap_or_default(),
            stopped: group.stopped,
        }
    }
}

impl From<GroupReply> for GroupStatus {
    fn from(reply: GroupReply) -> Self {
        Self {
            leader: reply.leader.map(NodeId),
            term: reply.term,
            last: reply.last.map(LogId::from),
            committed: reply.committed.map(LogId::from),
            applied: reply.applied.into(),
            format_level: reply.format_level,
            voters: reply.voters.into_iter().map(NodeId).collect(),
            blocked: reply.blocked.map(|index| Blocked { index, why: reply.blocked_why }),
            stopped: reply.stopped,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StandingReply {
    #[prost(fixed64, optional, tag = "1")]
    pub last_leader: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub leader_silent_millis: Option<u64>,
    #[prost(bool, tag = "3")]
    pub joined: bool,
    #[prost(bool, tag = "4")]
    pub votes: bool,
}

impl From<Standing> for StandingReply {
    fn from(standing: Standing) -> Self {
        Self {
            last_leader: standing.last_leader.map(|leader| leader.0),
            leader_silent_millis: standing.leader_silent_for.map(millis),
            joined: standing.joined,
            votes: standing.votes,
        }
    }
}

impl From<StandingReply> for Standing {
    fn from(reply: StandingReply) -> Self {
        Self {
            last_leader: reply.last_leader.map(NodeId),
            leader_silent_for: reply.leader_silent_millis.map(Duration::from_millis),
            joined: reply.joined,
            votes: reply.votes,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberReply {
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub addr: String,
    #[prost(bool, tag = "4")]
    pub voter: bool,
    #[prost(uint64, tag = "5")]
    pub silent_millis: u64,
    #[prost(uint64, tag = "6")]
    pub applied_index: u64,
    #[prost(uint32, tag = "7")]
    pub format_level: u32,
}

impl From<Status> for StatusReply {
    fn from(status: Status) -> Self {
        let members = status.members.into_iter().map(|member| MemberReply {
            id: member.id.0,
            name: member.name,
            addr: member.addr,
            voter: member.voter,
            silent_millis: millis(member.silent_for),
            applied_index: member.applied_index,
            format_level: member.format_level,
        });
        Self {
            cluster: Bytes::copy_from_slice(&status.cluster.0.to_le_bytes()),
            node: status.node.0,
            name: status.name,
            leader: status.leader.map(|leader| leader.0),
            term: status.term,
            last_index: status.last_index,
            committed_index: status.committed_index,
            applied: status.applied.into(),
            durable_index: status.durable_index,
            format_level: status.format_level,
            log_bytes: status.log_bytes,
            database_bytes: status.database_bytes,
            members: members.collect(),
            stopped: status.stopped,
            blocked: status.blocked.as_ref().map(|blocked| blocked.index),
            blocked_why: status.blocked.map(|blocked| blocked.why).unwrap_or_default(),
            fault: status.fault,
            groups: status.groups.into_iter().map(GroupReply::from).collect(),
            archiver: status.archiver.map(WireArchiver::from),
            archive: status.archive.map(WireArchive::from),
            standing: Some(status.standing.into()),
        }
    }
}

impl From<StatusReply> for Status {
    fn from(reply: StatusReply) -> Self {
        let members = reply.members.into_iter().map(|member| MemberStatus {
            id: NodeId(member.id),
            name: member.name,
            addr: member.addr,
            voter: member.voter,
            silent_for: Duration::from_millis(member.silent_millis),
            applied_index: member.applied_index,
            format_level: member.format_level,
        });
        Self {
            cluster: ClusterId(reply.cluster.as_ref().try_into().map_or(0, u128::from_le_bytes)),
            node: NodeId(reply.node),
            name: reply.name,
            leader: reply.leader.map(NodeId),
            archiver: reply.archiver.map(Archiver::from),
            archive: reply.archive.map(ArchiveStatus::from),
            term: reply.term,
            last_index: reply.last_index,
            committed_index: reply.committed_index,
            applied: reply.applied.into(),
            durable_index: reply.durable_index,
            format_level: reply.format_level,
            log_bytes: reply.log_bytes,
            database_bytes: reply.database_bytes,
            members: members.collect(),
            blocked: reply.blocked.map(|index| Blocked { index, why: reply.blocked_why }),
            fault: reply.fault,
            stopped: reply.stopped,
            standing: reply.standing.map(Standing::from).unwrap_or_default(),
            groups: reply.groups.into_iter().map(GroupStatus::from).collect(),
        }
    }
}
