//! Answers the calls of clients, and of other nodes on their behalf.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_consensus::Service;
use quorate_model::{Failure, Proposal, codec};
use quorate_wire::{CallFailure, FailureKind as CallFailureKind, PeerInfo, Role, StreamReceiver, StreamSender, User};

use super::agreement;
use super::archived;
use super::backup;
use super::extensions;
use super::gateway::{Gateway, served_until};
use super::operate;
use super::snapshots;
use super::transaction;
use super::users;
use super::waits;
use crate::error::Error;
use crate::protocol::{
    self, Answer, Empty, Execute, Executed, Query, StatusReply, Verified, VerifiedKind, Verify, malformed,
};
use crate::rights::{Method, Right, StreamMethod};
use crate::submitter::{Attempt, ReadAnswer};
use crate::users::Identity;

/// The most bytes of a reply; a client's connection carries 36 MiB.
const REPLY_BYTES_MAX: usize = 35 << 20;

/// The service of a node. It fails calls until the node runs and after the node has ended.
#[derive(Clone, Default)]
pub(super) struct ClientService(Arc<OnceLock<Weak<Gateway>>>);

/// The most bytes of a proposal that is checked on the core's thread, provided that all its statements are known.
const CHECKED_HERE_BYTES: usize = 4 << 10;

/// How many proposals are checked on other threads at a time. Others wait before they are decoded.
pub(super) const CHECKS_MAX: usize = 2;

type Reply = Result<Bytes, CallFailure>;

/// The result of checking a proposal, or why it could not be checked.
type Checked = Result<Result<(), Failure>, CallFailure>;

impl ClientService {
    /// Connects the service to the running node; called once.
    pub(super) fn open(&self, gateway: &Arc<Gateway>) {
        let _ = self.0.set(Arc::downgrade(gateway));
    }

    fn gateway(&self) -> Result<Arc<Gateway>, CallFailure> {
        let not_now = || CallFailure::new(CallFailureKind::Unavailable, "the node is starting or stopping");
        self.0.get().and_then(Weak::upgrade).ok_or_else(not_now)
    }

    async fn answer(self, caller: Caller, number: u16, body: Bytes) -> Reply {
        let gateway = self.gateway()?;
        let held = caller.right(&gateway)?;
        let unknown = || CallFailure::new(CallFailureKind::UnknownMethod, format!("method {number}"));
        let method = Method::of(number).ok_or_else(unknown)?;
        method.right().check(held)?;
        match method {
            Method::Execute => execute(&gateway, held, protocol::decode(body)?).await,
            Method::Outcomes => agreement::answer_outcomes(&gateway, protocol::decode(body)?).await,
            Method::Extensions => Ok(extensions::announce(&gateway)),
            Method::Verify => verify(&gateway, held, protocol::decode(body)?).await,
            Method::Query => query(&gateway, protocol::decode(body)?).await,
            Method::Status => Ok(protocol::encode(&StatusReply::from(gateway.status()))),
            Method::Archived => Ok(archived::answer(&gateway, held, protocol::decode(body)?).await),
            Method::Users => users::list(&gateway).await,
            Method::CheckLogin => Ok(users::check_for_proxy(&gateway, protocol::decode(body)?).await),
            Method::Probe => Ok(operate::probe(&gateway)),
            Method::Admit | Method::Remove | Method::Transfer | Method::RejectEntry => {
                operate::answer(&gateway, held, method as u16, body).await
            }
        }
    }
}

impl ClientService {
    /// Serves a stream until it ends.
    async fn serve(
        &self,
        caller: Caller,
        number: u16,
        sender: &mut StreamSender,
        receiver: &mut StreamReceiver,
    ) -> Result<(), CallFailure> {
        let gateway = self.gateway()?;
        let held = caller.right(&gateway)?;
        let unknown = || CallFailure::new(CallFailureKind::UnknownMethod, format!("stream {number}"));
        let method = StreamMethod::of(number).ok_or_else(unknown)?;
        method.right().check(held)?;
        match method {
            StreamMethod::Backup => backup::serve(&gateway, sender, receiver).await,
            StreamMethod::Interactive => transaction::serve(&gateway, held, sender, receiver).await,
            StreamMethod::Snapshot => snapshots::serve(&gateway, sender, receiver).await,
            StreamMethod::Wait => waits::serve(&gateway, sender, receiver).await,
        }
    }
}

impl Service for ClientService {
    fn call(&self, peer: &PeerInfo, method: u16, body: Bytes) -> BoxFuture<'static, Reply> {
        self.clone().answer(Caller::of(peer), method, body).boxed()
    }

    fn login(&self, credentials: Bytes, from: &str) -> BoxFuture<'static, Result<User, String>> {
        let (service, from) = (self.clone(), from.to_owned());
        async move {
            let gateway = service.gateway().map_err(|failure| failure.text)?;
            let identity = users::log_in(&gateway, credentials, &from).await.map_err(|denied| denied.to_string())?;
            Ok(Arc::new(identity) as User)
        }
        .boxed()
    }

    fn stream(
        &self,
        peer: &PeerInfo,
        method: u16,
        mut sender: StreamSender,
        mut receiver: StreamReceiver,
    ) -> BoxFuture<'static, ()> {
        let (service, caller) = (self.clone(), Caller::of(peer));
        let serve = async move {
            match service.serve(caller, method, &mut sender, &mut receiver).await {
                Ok(()) => sender.finish(),
                Err(failure) => sender.fail(failure),
            }
        };
        serve.boxed()
    }
}

/// Who calls: the role of a connection, and its user.
struct Caller {
    role: Role,
    user: Option<User>,
}

impl Caller {
    fn of(peer: &PeerInfo) -> Self {
        Self { role: peer.role, user: peer.user.clone() }
    }

    /// Returns what the caller may do now. A user may have changed since the connection was made.
    fn right(&self, gateway: &Gateway) -> Result<Right, CallFailure> {
        let user = self.user.as_ref().and_then(|user| user.downcast_ref::<Identity>());
        let user = user.and_then(|user| gateway.renew(user).ok());
        Right::of_connection(self.role, user.as_ref())
    }
}

/// Proposes on behalf of a client, at this node or at the leader.
async fn execute(gateway: &Arc<Gateway>, held: Right, Execute { proposal }: Execute) -> Reply {
    let result = match check(gateway, held, &proposal).await? {
        Ok(()) => gateway.propose(proposal).await,
        Err(failure) => Err(Attempt::Refused(Error::Failed(failure))),
    };
    Ok(protocol::encode(&Executed::new(result, gateway.leader_elsewhere())))
}

/// Checks a proposal: the log must not contain an entry that nodes can't decode or can't send to each other.
///
/// SQLite plans each statement whose text is new, which may take long, so that is done outside the core's thread.
pub(super) async fn check(gateway: &Arc<Gateway>, held: Right, proposal: &Bytes) -> Checked {
    if proposal.len() <= CHECKED_HERE_BYTES {
        let read = codec::decode_proposal(proposal).map_err(malformed)?;
        if read.commands.iter().all(|command| gateway.knows(command)) {
            return Ok(validate(gateway, held, &read));
        }
    }
    // The semaphore is never closed.
    let _permit = gateway.checks.acquire().await;
    let (inside, proposal) = (Arc::clone(gateway), proposal.clone());
    let checked = gateway.env.blocking(move || {
        if let Err(failure) = codec::check_size(proposal.len()) {
            return Ok(Err(failure));
        }
        Ok(validate(&inside, held, &codec::decode_proposal(&proposal).map_err(malformed)?))
    });
    let stopping = || Err(CallFailure::new(CallFailureKind::Unavailable, "the node is stopping"));
    checked.await.unwrap_or_else(stopping)
}

fn validate(gateway: &Gateway, held: Right, proposal: &Proposal) -> Result<(), Failure> {
    proposal.check_limits()?;
    gateway.check_level(proposal.level_needed())?;
    let mut commands = proposal.commands.iter().enumerate();
    commands.try_for_each(|(number, command)| {
        let checked = Right::check_command(command, held).and_then(|()| gateway.check(command));
        checked.map_err(|failure| failure.at(number))
    })
}

async fn verify(gateway: &Gateway, held: Right, Verify { position, millis }: Verify) -> Reply {
    let deadline = served_until(Duration::from_millis(millis));
    let verified = match gateway.verification(position.into(), held, deadline).await {
        Ok(verification) => Verified::from(verification),
        Err(Error::TimedOut(_)) => Verified { kind: Some(VerifiedKind::NotYet(Empty {})) },
        Err(error) => Verified { kind: Some(VerifiedKind::Failed(error.to_string())) },
    };
    Ok(protocol::encode(&verified))
}

async fn query(gateway: &Gateway, query: Query) -> Reply {
    let deadline = served_until(Duration::from_millis(query.millis));
    let answer = gateway.read_aside(query.read()?, deadline).await;
    // Counted before encoding, so that most replies that are too large are not encoded.
    let values = match &answer {
        Ok(ReadAnswer::Sql(rows)) => codec::row_len(rows.values()),
        Ok(ReadAnswer::Keys(reply)) => codec::keys_reply_len(reply),
        Ok(ReadAnswer::Locks(reply)) => codec::locks_reply_len(reply),
        Ok(ReadAnswer::Events(answer)) => codec::events_answer_len(answer),
        Err(_) => 0,
    };
    if values > REPLY_BYTES_MAX {
        drop(answer);
        return Ok(too_large(values));
    }
    let bytes = protocol::encode(&Answer::from(answer));
    Ok(if bytes.len() > REPLY_BYTES_MAX { too_large(bytes.len()) } else { bytes })
}

fn too_large(bytes: usize) -> Bytes {
    let text = format!(
        "{bytes} bytes as a reply, the limit is {REPLY_BYTES_MAX}; ask for fewer rows, or stream them from a snapshot"
    );
    protocol::encode(&Answer::from(Err(Error::TooLarge(text.into()))))
}
