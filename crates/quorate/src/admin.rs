//! The handle of an operator: who the members of a cluster are, and changes of them.
//!
//! Invariants:
//! - Every request may be sent again: it says how things shall be, and what is so already is a success.
//! - A change that may have been made is [`AdminError::Unconfirmed`], never a guess.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quorate_env::{Instant, sleep};
use quorate_model::NodeId;
use quorate_wire::CallError;
use tokio::sync::oneshot;

use crate::error::Error;
use crate::protocol::admin::{Admit, Change, Changed, NoChange, Probe, RejectEntry, Remove, Transfer};
use crate::protocol::{self, StatusReply, method};
use crate::remote::nodes::{Nodes, Reached, unreachable};
use crate::runtime::Runtime;
use crate::status::Status;
use crate::submitter::Attempt;

pub use quorate_consensus::{Admission, Admitted, Blocked, Living, MemberStatus, Standing};

pub use crate::readiness::BEHIND_MAX;
pub use crate::verify::{Difference, Verification, VerifiedNode, VerifyError};

/// The pause before a request is sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// How long one attempt may take: handing leadership over, a joint change, and a hop.
const ATTEMPT_MAX: Duration = Duration::from_secs(25);

/// The handle of an operator: of a [`Client`](crate::Client), or of a [`Node`](crate::Node). It finds the leader and
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
    deadline: Duration,
    /// A client's runtime ends with the last of these.
    _alive: Option<Arc<oneshot::Sender<()>>>,
}

/// Why an operator's request was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// It can't be done as the cluster stands.
    #[error("{0}")]
    Refused(String),
    /// It may have been done, or may still be. Look at the members.
    #[error("it is not known whether that was done: {0}; look at the members")]
    Unconfirmed(String),
    /// No leader, or no node at all, could be reached until the deadline. Nothing was done.
    #[error("the cluster is not available: {0}")]
    Unavailable(String),
    /// The nodes do not let this client do that, or do not know how.
    #[error("refused: {0}")]
    Forbidden(String),
    /// The handle's thread has ended.
    #[error("closed")]
    Closed,
}

impl AdminError {
    /// Whether the same request may succeed later. It may be sent again after every error.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unconfirmed(_) | Self::Unavailable(_))
    }
}

/// What a node said of itself when it was measured, and what measuring it gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// From the request to the answer.
    pub round_trip: Duration,
    /// The node's clock minus that of this machine, in nanoseconds; wrong by half of the round trip at most.
    pub clock_offset: i64,
    /// The version of the library that it runs.
    pub version: String,
    /// How often its leader says that it lives.
    pub heartbeat: Duration,
    /// The shortest time that it waits for that before it wants an election.
    pub election_min: Duration,
    /// The longest.
    pub election_max: Duration,
}

/// How an attempt ended, if not with an answer.
enum Failed {
    /// Nothing was done.
    NotDone(String),
    InDoubt(String),
    Finally(AdminError),
}

impl Admin {
    /// A handle over these nodes, in this runtime, which lives as long as `alive` if it is the handle's own.
    pub(crate) fn new(
        runtime: Runtime,
        nodes: Arc<Nodes>,
        deadline: Duration,
        alive: Option<Arc<oneshot::Sender<()>>>,
    ) -> Self {
        Self { runtime, nodes, deadline, _alive: alive }
    }

    /// The same handle, trying for another time before a request fails.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { deadline, ..self.clone() }
    }

    /// Who the members are and how they do, as the leader knows it, or, where no leader is known, the node that
    /// answers.
    ///
    /// # Errors
    ///
    /// [`AdminError::Unavailable`] where no node answers.
    pub async fn members(&self) -> Result<Status, AdminError> {
        self.run(async |deadline| {
            loop {
                match self.call(method::STATUS, Bytes::new(), deadline).await {
                    Ok(reply) => {
                        let status: StatusReply = protocol::decode(reply).map_err(unreadable)?;
                        return Ok(status.into());
                    }
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

    /// Permits a node that answers at an address to become a member, and tells how far that is. The permission lasts
    /// for some seconds: call this about once a second until it says [`Admitted::Voter`].
    ///
    /// The node is started with a configuration that lists the cluster and itself, and asks by itself.
    ///
    /// # Errors
    ///
    /// [`AdminError::Refused`] where another node answers at the address, or none, or the name is taken.
    pub async fn admit(&self, admission: Admission) -> Result<Admitted, AdminError> {
        match self.change(method::ADMIT, protocol::encode(&Admit::from(admission))).await? {
            Change::Waiting(admitted) => Ok(admitted),
            Change::Done(_) => Ok(Admitted::Voter),
        }
    }

    /// Removes a member for good: its data directory never comes back, a new one under its name may. The leader hands
    /// its leadership over first. Refuses, unless forced, where no majority of the voters that are left can be reached.
    ///
    /// # Errors
    ///
    /// [`AdminError::Refused`] where there is no such member, or it is the last voter.
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

    /// Hands leadership to a voter, or to the one that is best for it, and returns who leads then.
    ///
    /// # Errors
    ///
    /// [`AdminError::Refused`] where there is no such voter, or no other one.
    pub async fn transfer(&self, to: Option<&str>) -> Result<NodeId, AdminError> {
        let request = Transfer { name: to.unwrap_or_default().to_owned() };
        match self.change(method::TRANSFER, protocol::encode(&request)).await? {
            Change::Done(Some(leads)) => Ok(leads),
            other => Err(AdminError::Unconfirmed(format!("the answer does not fit: {other:?}"))),
        }
    }

    /// Has the cluster reject the entry at which its leader waits: a majority can't apply it, and voters that may have
    /// applied it can't be reached. Such a voter takes a copy of the others' data when it comes back. The caller of the
    /// write gets a failure; nobody was told that it succeeded, unless such a voter did so.
    ///
    /// # Errors
    ///
    /// [`AdminError::Refused`] where the leader does not wait at this entry.
    pub async fn reject_entry(&self, index: u64) -> Result<(), AdminError> {
        self.change(method::REJECT_ENTRY, protocol::encode(&RejectEntry { index })).await.map(drop)
    }

    /// Measures the node that this client talks to. For a particular node, connect with
    /// [`ClientConfig::pinned`](crate::ClientConfig::pinned).
    ///
    /// # Errors
    ///
    /// [`AdminError::Unavailable`] where it does not answer at once.
    pub async fn probe(&self) -> Result<Probed, AdminError> {
        self.run(async |deadline| {
            let env = self.runtime.env();
            // So that the time of making a connection does not count.
            let reached = self.nodes.reach().await.map_err(|error| failed_to_reach(unreachable(&error)))?;
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

    /// Closes the connections, for all clones.
    pub(crate) async fn close(&self) {
        // The message is lost if the runtime has ended, and with it the connections.
        let _ = self.runtime.run(self.nodes.close()).await;
    }

    /// Asks for a change until it is answered. A refusal after an attempt in doubt is in doubt too: what was asked for
    /// may be what the refusal is about.
    async fn change(&self, method: u16, body: Bytes) -> Result<Change, AdminError> {
        self.run(async |deadline| {
            let mut doubt: Option<String> = None;
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
        let changed: Changed = protocol::decode(reply).map_err(|error| Failed::InDoubt(error.text))?;
        self.nodes.redirect(&changed.leader);
        changed.result().map_err(|error| match error {
            NoChange::Refused(why) => Failed::Finally(AdminError::Refused(why)),
            NoChange::NoLeader(why) => Failed::NotDone(why),
            NoChange::Unconfirmed(why) => Failed::InDoubt(why),
        })
    }

    async fn call(&self, method: u16, body: Bytes, deadline: Instant) -> Result<Bytes, Failed> {
        let reached = self.nodes.reach().await.map_err(|error| match unreachable(&error) {
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
            Attempt::NotDone(why) => Failed::NotDone(Error::from(why).to_string()),
            Attempt::InDoubt(why) => Failed::InDoubt(why),
            Attempt::Refused(error) => Failed::Finally(failed_to_reach(error)),
        })
    }

    async fn run<T>(&self, ask: impl AsyncFnOnce(Instant) -> Result<T, AdminError>) -> Result<T, AdminError> {
        // Instants are of the runtime's clock.
        let asked = self.runtime.run(async { ask(Instant::now() + self.deadline).await });
        asked.await.unwrap_or(Err(AdminError::Closed))
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admin").field(&self.nodes).finish()
    }
}

/// Whether a leader tells that the name has gone.
fn is_settled_without(status: &Status, name: &str) -> bool {
    status.leader == Some(status.node) && status.members.iter().all(|member| member.name != name)
}

fn failed_to_reach(error: Error) -> AdminError {
    match error {
        Error::Unavailable(why) => AdminError::Unavailable(why),
        Error::Forbidden(why) => AdminError::Forbidden(why),
        other => AdminError::Forbidden(other.to_string()),
    }
}

fn unreadable(error: quorate_wire::CallFailure) -> AdminError {
    AdminError::Forbidden(format!("the answer can't be read: {}", error.text))
}

/// Pauses; `false` at once if the deadline would come first.
async fn pause_before(deadline: Instant) -> bool {
    if Instant::now() + PAUSE >= deadline {
        return false;
    }
    sleep(PAUSE).await;
    true
}
