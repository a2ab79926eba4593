//! The handle of an operator: lists the members and the users of a cluster and changes them.
//!
//! Invariants:
//! - Every request may be sent again: it describes the desired state, and succeeds if that state already holds.
//! - A change that may have been made results in [`AdminError::Unconfirmed`], never in a guess.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use quorate_env::{Cause, Instant, sleep};
use quorate_model::{Failure, GroupId, NodeId};
use quorate_wire::CallError;

use crate::backup::{BackupError, BackupInfo, BackupOptions};
use crate::error::Error;
use crate::protocol::admin::{Admit, Change, Changed, NoChange, Probe, RejectEntry, Remove, Transfer};
use crate::protocol::{self, StatusReply, method};
use crate::remote::nodes::{Nodes, Reached, unreachable};
use crate::remote::{Alive, fetch};
use crate::runtime::Runtime;
use crate::status::Status;
use crate::submitter::{Attempt, Submitter};

mod users;

pub use quorate_consensus::{Admission, Admitted, Blocked, GroupStatus, Living, MemberStatus, Standing};

pub use crate::readiness::BEHIND_MAX;
pub use crate::verify::{Difference, Verification, VerifiedNode, VerifyError};
pub use users::Login;

/// The pause before a request is sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// The time limit of one attempt, which may hand over leadership, make a joint change, and be passed on to the leader.
const ATTEMPT_MAX: Duration = Duration::from_secs(25);

/// The handle of an operator, from a [`Client`](crate::Client) or a [`Node`](crate::Node). It finds the leader and
/// follows it. Cheap to clone.
///
/// ```no_run
/// # async fn f(client: quorate::Client) -> Result<(), quorate::admin::AdminError> {
/// let admin = client.admin();
/// for member in admin.members().await?.members {
///     println!("{} at {}", member.name, member.addr);
/// }
/// admin.remove("c", false).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Admin {
    runtime: Runtime,
    nodes: Arc<Nodes>,
    /// Proposes changes of users, exactly once.
    submitter: Arc<Submitter>,
    deadline: Duration,
    /// Keeps the client's runtime alive, which ends when the last of these is dropped.
    _alive: Option<Arc<Alive>>,
}

/// Why an operator's request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The request can't be done in the current state of the cluster.
    #[error(transparent)]
    Refused(Cause),
    /// The request may have been done, or may still be done. Check the members.
    #[error("it is not known whether the request was done: {0}; check the members")]
    Unconfirmed(#[source] Cause),
    /// No leader, or no node at all, could be reached until the deadline. Nothing was done.
    #[error("the cluster is not available: {0}")]
    Unavailable(#[source] Cause),
    /// The nodes do not allow this client to make the request, or do not know the request.
    #[error("refused: {0}")]
    Forbidden(#[source] Cause),
    /// The handle's thread has ended.
    #[error("closed")]
    Closed,
}

impl AdminError {
    /// Returns whether the same request may succeed later. Sending a request again is safe after every error.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unconfirmed(_) | Self::Unavailable(_))
    }

    /// Returns why the state machine refused a change of users, if this is [`AdminError::Refused`] for that reason.
    pub fn failure(&self) -> Option<&Failure> {
        if let Self::Refused(cause) = self { cause.downcast_ref() } else { None }
    }
}

/// The answer of a node to a probe, with measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The time from the request to the answer.
    pub round_trip: Duration,
    /// The node's clock minus that of this machine, in nanoseconds; the error is at most half of the round trip.
    pub clock_offset: i64,
    /// The version of the library that it runs.
    pub version: String,
    /// The interval of the leader's heartbeats.
    pub heartbeat: Duration,
    /// The shortest time without heartbeats after which the node starts an election.
    pub election_min: Duration,
    /// The longest such time.
    pub election_max: Duration,
}

/// The error of one attempt.
enum Failed {
    /// Nothing was done.
    NotDone(Cause),
    InDoubt(Cause),
    Finally(AdminError),
}

impl Admin {
    /// Creates a handle over these nodes, in the runtime of the submitter. `alive` keeps the runtime alive if it is the
    /// handle's own.
    pub(crate) fn new(
        submitter: Arc<Submitter>,
        nodes: Arc<Nodes>,
        deadline: Duration,
        alive: Option<Arc<Alive>>,
    ) -> Self {
        Self { runtime: submitter.runtime().clone(), nodes, submitter, deadline, _alive: alive }
    }

    /// Returns the same handle with another deadline for its requests.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// Returns the members and their state, as known to the leader, or, if no leader is known, to the node that
    /// answers.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Unavailable`] if no node answers.
    pub async fn members(&self) -> Result<Status, AdminError> {
        let status: StatusReply = self.ask(method::STATUS, Bytes::new()).await?;
        Ok(status.into())
    }

    /// Permits the node at an address to become a member, and returns its progress. The permission lasts for some
    /// seconds: call this method about once a second until it returns [`Admitted::Voter`].
    ///
    /// The node must be started with a configuration that lists the cluster and the node itself; it requests its
    /// admission by itself.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Refused`] if another node or no node answers at the address, or if the name is taken.
    pub async fn admit(&self, admission: Admission) -> Result<Admitted, AdminError> {
        match self.change(method::ADMIT, protocol::encode(&Admit::from(admission))).await? {
            Change::Waiting(admitted) => Ok(admitted),
            Change::Done(_) => Ok(Admitted::Voter),
        }
    }

    /// Removes a member permanently: its data directory can never be used again, but a new node may have its name. A
    /// leader that is removed first hands over leadership. Refuses, unless forced, if no majority of the remaining
    /// voters can be reached.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Refused`] if there is no such member, or it is the last voter.
    pub async fn remove(&self, name: &str, force: bool) -> Result<(), AdminError> {
        let request = protocol::encode(&Remove { name: name.to_owned(), force });
        match self.change(method::REMOVE, request).await {
            Ok(_) => Ok(()),
            Err(AdminError::Unconfirmed(why)) => {
                let is_gone = self.members().await.is_ok_and(|status| is_settled_without(&status, name));
                if is_gone { Ok(()) } else { Err(AdminError::Unconfirmed(why)) }
            }
            Err(error) => Err(error),
        }
    }

    /// Hands leadership to a voter, or to the most suitable one, and returns the new leader.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Refused`] if there is no such voter, or no other voter.
    pub async fn transfer(&self, to: Option<&str>) -> Result<NodeId, AdminError> {
        let request = Transfer { name: to.unwrap_or_default().to_owned() };
        match self.change(method::TRANSFER, protocol::encode(&request)).await? {
            Change::Done(Some(leads)) => Ok(leads),
            other => Err(AdminError::Unconfirmed(format!("unexpected answer: {other:?}").into())),
        }
    }

    /// Writes a copy of the live database to `file`, as a plain SQLite file; see [`backup`](crate::backup()). The node
    /// that the handle calls sends it, which may be the leader.
    ///
    /// # Errors
    ///
    /// Returns a [`BackupError`] if the backup can't be made or written. After an error, a file of that name does not
    /// exist or is unchanged.
    pub async fn backup(&self, file: impl AsRef<Path>, options: &BackupOptions) -> Result<BackupInfo, BackupError> {
        let fetched = self.runtime.run(fetch(&self.nodes, file.as_ref(), options, self.deadline));
        fetched.await.unwrap_or(Err(BackupError::Cluster(Error::Closed)))
    }

    /// Makes the cluster reject the entry at which the leader of a group waits; the database is the group
    /// [`GroupId::MAIN`]. The leader waits because a majority can't apply the entry and some voters that may have
    /// applied it can't be reached. Such a voter takes a copy of the others' data when it comes back. The caller of the
    /// write gets a failure. Only a voter that can't be reached may already have reported success.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Refused`] if the leader does not wait at this entry.
    pub async fn reject_entry(&self, group: GroupId, index: u64) -> Result<(), AdminError> {
        let request = RejectEntry { index, group: group.0 };
        self.change(method::REJECT_ENTRY, protocol::encode(&request)).await.map(drop)
    }

    /// Measures the round trip and the clock offset of the node to which this client is connected, and returns its
    /// version and timing. To measure a particular node, connect with
    /// [`ClientConfig::pinned`](crate::ClientConfig::pinned).
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Unavailable`] if the node can't be reached or does not answer. The call is not retried.
    pub async fn probe(&self) -> Result<Probed, AdminError> {
        self.run(async |deadline| {
            let env = self.runtime.env();
            // Connects first, so that the time of making a connection is not measured.
            let reached = self.nodes.reach().await.map_err(|error| failed_to_reach(unreachable(error)))?;
            let (begun, sent) = (Instant::now(), env.unix_nanos());
            let reply = self.call_at(&reached, method::PROBE, Bytes::new(), deadline).await;
            let (round_trip, received) = (begun.elapsed(), env.unix_nanos());
            let reply = reply.map_err(|failed| match failed {
                Failed::NotDone(why) | Failed::InDoubt(why) => AdminError::Unavailable(why),
                Failed::Finally(error) => error,
            })?;
            let probe: Probe = protocol::decode(reply).map_err(unreadable)?;
            let middle = sent.saturating_add(received.saturating_sub(sent) / 2);
            Ok(Probed {
                round_trip,
                clock_offset: probe.now.wrapping_sub(middle).cast_signed(),
                version: probe.version,
                heartbeat: Duration::from_millis(probe.heartbeat_millis),
                election_min: Duration::from_millis(probe.election_min_millis),
                election_max: Duration::from_millis(probe.election_max_millis),
            })
        })
        .await
    }

    /// Closes the session and the connections, for all clones.
    pub(crate) async fn close(&self) {
        self.submitter.end_session().await;
        // If the runtime has ended, the connections have ended too.
        let _ = self.runtime.run(self.nodes.close()).await;
    }

    /// Asks for something that changes nothing, until there is an answer.
    async fn ask<M: Message + Default>(&self, method: u16, body: Bytes) -> Result<M, AdminError> {
        self.run(async |deadline| {
            loop {
                match self.call(method, body.clone(), deadline).await {
                    Ok(reply) => return protocol::decode(reply).map_err(unreadable),
                    Err(Failed::Finally(error)) => return Err(error),
                    Err(Failed::NotDone(why) | Failed::InDoubt(why)) if !pause_before(deadline).await => {
                        return Err(AdminError::Unavailable(why));
                    }
                    Err(_) => {}
                }
            }
        })
        .await
    }

    /// Requests a change until there is an answer. A refusal after an attempt in doubt is in doubt too, because the
    /// change may have been made by the earlier attempt and be the reason for the refusal.
    async fn change(&self, method: u16, body: Bytes) -> Result<Change, AdminError> {
        self.run(async |deadline| {
            let mut doubt: Option<Cause> = None;
            loop {
                let why = match self.change_once(method, body.clone(), deadline).await {
                    Ok(change) => return Ok(change),
                    Err(Failed::Finally(error)) => {
                        return Err(doubt.map_or(error, AdminError::Unconfirmed));
                    }
                    Err(Failed::NotDone(why)) => why,
                    Err(Failed::InDoubt(why)) => {
                        doubt = Some(why.clone());
                        why
                    }
                };
                if !pause_before(deadline).await {
                    return Err(doubt.map_or(AdminError::Unavailable(why), AdminError::Unconfirmed));
                }
            }
        })
        .await
    }

    async fn change_once(&self, method: u16, body: Bytes, deadline: Instant) -> Result<Change, Failed> {
        let reply = self.call(method, body, deadline).await?;
        let changed: Changed =
            protocol::decode(reply).map_err(|error| Failed::InDoubt(Cause::context(error.text.clone(), error)))?;
        self.nodes.redirect(&changed.leader);
        changed.result().map_err(|error| match error {
            NoChange::Refused(why) => Failed::Finally(AdminError::Refused(why.into())),
            NoChange::NoLeader(why) => Failed::NotDone(why.into()),
            NoChange::Unconfirmed(why) => Failed::InDoubt(why.into()),
        })
    }

    async fn call(&self, method: u16, body: Bytes, deadline: Instant) -> Result<Bytes, Failed> {
        let reached = self.nodes.reach().await.map_err(|error| match unreachable(error) {
            Error::Unavailable(why) => Failed::NotDone(why),
            other => Failed::Finally(failed_to_reach(other)),
        })?;
        self.call_at(&reached, method, body, deadline).await
    }

    async fn call_at(&self, reached: &Reached, method: u16, body: Bytes, deadline: Instant) -> Result<Bytes, Failed> {
        let limit = deadline.min(Instant::now() + ATTEMPT_MAX);
        let reply = reached.client.call(method, body, limit).await;
        match &reply {
            Ok(_) => self.nodes.answered(&reached.addr),
            Err(CallError::Failed(failure)) if !failure.is_retryable() => self.nodes.answered(&reached.addr),
            Err(_) => self.nodes.failed(&reached.addr),
        }
        reply.map_err(|error| match Attempt::of_call(error, &reached.addr) {
            Attempt::NotDone(why) => Failed::NotDone(Cause::from(Error::from(why))),
            Attempt::InDoubt(why) => Failed::InDoubt(why),
            Attempt::Refused(error) => Failed::Finally(failed_to_reach(error)),
        })
    }

    async fn run<T>(&self, ask: impl AsyncFnOnce(Instant) -> Result<T, AdminError>) -> Result<T, AdminError> {
        // The runtime's clock must be used.
        let asked = self.runtime.run(async { ask(Instant::now() + self.deadline).await });
        asked.await.unwrap_or(Err(AdminError::Closed))
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admin").field(&self.nodes).finish()
    }
}

/// Returns whether the leader reports that the name is not a member.
fn is_settled_without(status: &Status, name: &str) -> bool {
    status.leader == Some(status.node) && status.members.iter().all(|member| member.name != name)
}

fn failed_to_reach(error: Error) -> AdminError {
    match error {
        Error::Unavailable(why) => AdminError::Unavailable(why),
        Error::Forbidden(why) => AdminError::Forbidden(why),
        other => AdminError::Forbidden(Cause::from(other)),
    }
}

fn unreadable(error: quorate_wire::CallFailure) -> AdminError {
    AdminError::Forbidden(Cause::context(format!("the answer can't be read: {}", error.text), error))
}

/// Pauses; returns `false` at once if the deadline would come first.
async fn pause_before(deadline: Instant) -> bool {
    if Instant::now() + PAUSE >= deadline {
        return false;
    }
    sleep(PAUSE).await;
    true
}
