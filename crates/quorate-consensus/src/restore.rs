//! Restores a database as that of the only voter of a new epoch, with an empty log.
//!
//! Nothing of the former cluster can join the new one, or be mistaken for a part of it:
//!
//! - The cluster has a new id, so the handshake refuses the former nodes and clients.
//! - The log begins [`INDEX_GAP`] after the last entry of the backup. A session's id is the index of an entry, so the
//!   id of a session that was opened after the backup is never used again.
//! - The log holds no entry and is purged up to the applied one, so a new member gets an image, and never entries for
//!   an empty database.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use quorate_env::{Env, Instant, sleep, timeout};
use quorate_model::{Applied, Epoch, GroupId, LogId, NodeId};
use quorate_wal::{Completion, Wal, WalError};
use quorate_wire::{CONNECT_MAX, ConnectError, Dialer, DialerConfig, Identity as WireIdentity, Purpose, Role};
use tokio::sync::oneshot;

use crate::config::ConsensusConfig;
use crate::error::StartError;
use crate::identity::{ClusterId, Identity, durability_number};
use crate::lineage;
use crate::peer::messages::{MemberInfo, Promise, StatusReply, decode, method};
use crate::peers::STATUS_MAX;
use crate::raft::codec::{self, VoteBytes};
use crate::raft::types::Member;
use crate::start::{log_options, run_workers};

/// The distance from the last entry of a backup to the first entry of the restored history: more entries than a cluster
/// ever has after the backup.
pub const INDEX_GAP: u64 = 1_000_000_000_000;

/// The maximum time for the log to make a record durable.
const WRITE_MAX: Duration = Duration::from_secs(60);

/// How often a member is asked whose answer is unclear, and the pause between.
const ASKS_MAX: u32 = 3;
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The node that becomes the only voter of a restored cluster.
#[derive(Clone, Debug)]
pub struct Restored {
    identity: Identity,
    applied: LogId,
    membership: Bytes,
}

/// Why a cluster can't be restored: one of the configured members is running, or may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Living {
    /// A node answers as a member of a cluster.
    #[error(
        "'{name}' at {addr} is running as a member of the living cluster {cluster}; a restore replaces a cluster, so \
         stop all of its nodes first"
    )]
    Member {
        /// The name of the node.
        name: String,
        /// The address at which it answered.
        addr: String,
        /// The cluster of the node.
        cluster: ClusterId,
    },
    /// A process answers that may be a member of a cluster.
    #[error(
        "a process answers at {addr}, where '{name}' is expected, and does not say whether it belongs to a living \
         cluster: {reason}; stop it first, or correct the configuration"
    )]
    Unclear {
        /// The member that is expected there.
        name: String,
        /// The address at which the process answered.
        addr: String,
        /// Why the answer is unclear.
        reason: String,
    },
}

impl Living {
    /// Whether the same call may succeed later without help: never, because an operator has to stop the nodes.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

impl Restored {
    /// Draws the ids of a restored cluster with the given epoch. `last` is the last entry of the backup.
    pub fn draw(env: &Env, config: &ConsensusConfig, epoch: Epoch, last: Option<LogId>) -> Self {
        let id = env.rng().next_u64().max(1);
        let cluster = ClusterId::draw(env).to_bytes();
        let durability = durability_number(config.durability);
        let applied = LogId {
            term: last.map_or(0, |last| last.term).saturating_add(1),
            node: NodeId(id),
            index: last.map_or(0, |last| last.index.saturating_add(INDEX_GAP)),
        };
        let addr = config.advertise.clone().unwrap_or_else(|| config.listen.clone());
        // The groups beside `main` are founded with the members of the promise.
        let members = vec![MemberInfo { id, name: config.name.clone(), addr: addr.clone(), voter: true }];
        let promise = Some(Promise { attempt: 1, cluster: cluster.clone(), members });
        let identity = Identity { cluster, epoch: epoch.0, durability, promise, ..Identity::new(id, &config.name) };
        let membership = codec::encode_founders(&BTreeMap::from([(id, Member { name: config.name.clone(), addr })]));
        Self { identity, applied, membership }
    }

    /// Returns the id of the new cluster.
    pub fn cluster(&self) -> ClusterId {
        self.identity.cluster()
    }

    /// Returns the applied state that the restored store must have.
    pub fn applied(&self) -> Applied {
        Applied {
            log_id: Some(self.applied),
            membership: Some((self.applied, self.membership.clone())),
            ..Applied::default()
        }
    }

    /// Writes the new log into `dir`, where there must be none, or that of a node which never belonged to a cluster. A
    /// node that starts with it is a member that was stopped: it founds no cluster and asks no other node.
    pub async fn write_log(&self, env: &Env, config: &ConsensusConfig, dir: &Path) -> Result<(), StartError> {
        let opened = Wal::open(env.disk().clone(), dir, log_options(env, config))?;
        let wal = run_workers(env, opened)?;
        let group = GroupId::MAIN;
        let identity = wal.identity().map(|bytes| Identity::read(&bytes)).transpose()?;
        let has_belonged = identity.is_some_and(|identity| identity.has_belonged());
        if has_belonged || wal.last_log_id(group).is_some() {
            return Err(StartError::Config(format!("{} already holds a log", dir.display())));
        }
        wal.purge(group, self.applied)?;
        // The vote is that of a node which led the term of the last entry, so this node can win the next term.
        let vote = VoteBytes { term: self.applied.term, node: self.identity.id, committed: true };
        written(|done| wal.save_vote(group, vote.encode_to_vec().into(), done)).await?;
        wal.save_committed(group, self.applied)?;
        written(|done| wal.save_identity(self.identity.encode_to_vec().into(), done)).await?;
        written(|done| wal.close_clean(done)).await?;
        lineage::keep(env, dir, &self.identity)
    }
}

/// Writes a record to the log and waits until it is durable.
async fn written(write: impl FnOnce(Completion) -> Result<(), WalError>) -> Result<(), StartError> {
    let (sender, receiver) = oneshot::channel();
    write(Box::new(move |result| drop(sender.send(result))))?;
    let result = timeout(WRITE_MAX, receiver).await;
    Ok(result.ok().and_then(Result::ok).unwrap_or(Err(WalError::Closed))?)
}

/// Fails if a configured member, or this node's own address, answers as a member of a cluster, or does not clearly
/// answer as none. Nodes that wait for a cluster are no obstacle.
pub async fn check_nobody_lives(env: &Env, config: &ConsensusConfig) -> Result<(), Living> {
    let own = Member { name: config.name.clone(), addr: config.listen.clone() };
    let asked = if config.members.is_empty() { std::slice::from_ref(&own) } else { config.members.as_slice() };
    // Port 0 stands for any free port, so no node can answer there.
    for member in asked.iter().filter(|member| !member.addr.ends_with(":0")) {
        let mut answer = ask(env, config, member).await;
        for _ in 1..ASKS_MAX {
            // A process that is just ending still holds its port.
            if !matches!(answer, Err(Living::Unclear { .. })) {
                break;
            }
            sleep(ASK_AGAIN).await;
            answer = ask(env, config, member).await;
        }
        answer?;
    }
    Ok(())
}

async fn ask(env: &Env, config: &ConsensusConfig, member: &Member) -> Result<(), Living> {
    let Member { name, addr } = member;
    let unclear = |reason: &dyn std::fmt::Display| Living::Unclear {
        name: name.clone(),
        addr: addr.clone(),
        reason: reason.to_string(),
    };
    let dialer = Dialer::new(
        env,
        DialerConfig {
            addr: addr.clone(),
            identity: WireIdentity::default(),
            secret: config.secret.clone(),
            role: Role::Peer,
            purpose: Purpose::Heartbeat,
            expected: None,
            connect_limit: CONNECT_MAX,
        },
    );
    let client = match dialer.connect().await {
        Ok(client) => client,
        Err(ConnectError::Unreachable { .. }) => return Ok(()),
        // The machine is off, or the process is suspended and may continue. Only the latter accepts a connection.
        Err(error @ ConnectError::TimedOut { .. }) => {
            let connected = timeout(CONNECT_MAX, env.net().connect(addr)).await;
            return if matches!(connected, Ok(Ok(_))) { Err(unclear(&error)) } else { Ok(()) };
        }
        Err(error @ ConnectError::Handshake { .. }) => return Err(unclear(&error)),
    };
    let answer = client.call(method::STATUS, Bytes::new(), Instant::now() + STATUS_MAX).await;
    let status: StatusReply = decode(answer.map_err(|error| unclear(&error))?).map_err(|error| unclear(&error))?;
    if !status.member {
        return Ok(());
    }
    let cluster = ClusterId::from_bytes(&status.cluster).unwrap_or_default();
    Err(Living::Member { name: status.name, addr: addr.clone(), cluster })
}
