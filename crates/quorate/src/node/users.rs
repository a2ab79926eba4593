//! The users on a running node: the list for operators, the checks before a change is proposed, and the administrator
//! that a cluster is founded with.

use std::sync::Weak;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quorate_env::{Instant, sleep};
use quorate_model::{ControlCommand, Failure, Proposal, TokenHash, UserCommand, UserRole, codec};
use quorate_wire::{CallFailure, FailureKind as CallFailureKind};

use super::gateway::Gateway;
use crate::error::Error;
use crate::level::Level;
use crate::protocol;
use crate::protocol::users::{Checked, Shown, UserList};
use crate::runtime::Runtime;
use crate::users::{self, Check, Credentials, Denied, FIRST_ADMIN, Identity, UserInfo, check_verifier};

/// How long a node tries to learn what the leader has committed.
const REACH_MAX: Duration = Duration::from_secs(5);

impl Gateway {
    /// Returns who someone without credentials is.
    fn anonymous(&self) -> Result<Identity, Denied> {
        match users::anonymous(&self.store.users()) {
            // Until then the database may be empty although the cluster has users.
            Ok(_) if self.expects_admin || self.has_state().is_err() => Err(Denied::NotYet),
            known => known,
        }
    }

    /// Returns who shows these credentials at this address.
    pub(crate) async fn let_in(&self, credentials: Option<&Credentials>, from: &str) -> Result<Identity, Denied> {
        match (self.anonymous(), credentials) {
            (Err(Denied::Missing), Some(credentials)) => self.logins.check(self, credentials, from).await,
            (anonymous, _) => anonymous,
        }
    }

    /// Returns the same identity as it is now.
    pub(crate) fn renew(&self, identity: &Identity) -> Result<Identity, Denied> {
        users::renewed(&self.store.users(), identity).ok_or(Denied::Wrong)
    }
}

/// The users of a node of this process, which it does not keep alive.
pub(super) struct OfNode(pub(super) Weak<Gateway>, pub(super) Runtime);

impl Check for OfNode {
    fn check<'a>(
        &'a self,
        credentials: Option<&'a Credentials>,
        from: &'a str,
    ) -> BoxFuture<'a, Result<Identity, Denied>> {
        async move {
            let Self(gateway, runtime) = self;
            let gateway = gateway.upgrade().ok_or(Denied::Closed)?;
            let checked = runtime.run(async { gateway.let_in(credentials, from).await });
            checked.await.unwrap_or(Err(Denied::Closed))
        }
        .boxed()
    }

    fn renew(&self, identity: &Identity) -> Result<Identity, Denied> {
        self.0.upgrade().ok_or(Denied::Closed)?.renew(identity)
    }
}

/// Lets someone in over the native protocol.
pub(super) async fn log_in(gateway: &Gateway, shown: Bytes, from: &str) -> Result<Identity, Denied> {
    let shown: Shown = protocol::decode(shown).map_err(|_| Denied::Wrong)?;
    let identity = gateway.let_in(shown.credentials().as_ref(), from).await?;
    // The native protocol is never open to everyone: a cluster without users has its secret.
    if identity.name().is_some() { Ok(identity) } else { Err(Denied::NoUsers) }
}

/// Answers who shows these credentials to a proxy.
pub(super) async fn check_for_proxy(gateway: &Gateway, shown: Shown) -> Bytes {
    let identity = gateway.let_in(shown.credentials().as_ref(), &shown.from).await;
    protocol::encode(&Checked::from(identity))
}

/// Answers with the users, as of the latest committed change.
pub(super) async fn list(gateway: &Gateway) -> Result<Bytes, CallFailure> {
    let reached = gateway.reach(Level::Linearizable, Instant::now() + REACH_MAX).await;
    reached.map_err(|error| CallFailure::new(CallFailureKind::Unavailable, error.to_string()))?;
    let users = gateway.store.users();
    Ok(protocol::encode(&users.iter().map(|user| UserInfo::from(&**user)).collect::<UserList>()))
}

/// Fails if a command holds a hash that nodes can't check.
pub(super) fn check(command: &UserCommand) -> Result<(), Failure> {
    match command {
        UserCommand::Add { verifier: Some(verifier), .. }
        | UserCommand::SetVerifier { verifier: Some(verifier), .. } => check_verifier(verifier),
        _ => Ok(()),
    }
}

/// Adds the administrator with this token once this node leads a cluster without users, and returns when there are
/// users. No command removes all users, so the administrator is not added again later.
pub(super) async fn add_first(gateway: Weak<Gateway>, token: TokenHash) {
    loop {
        let Some(gateway) = gateway.upgrade() else { return };
        let pause = gateway.consensus.timing().election_min;
        if !gateway.store.users().is_empty() {
            return;
        }
        if gateway.consensus.main().is_leader()
            && let Err(error) = propose_first(&gateway, token).await
        {
            tracing::debug!(%error, "the first administrator could not be added yet; the leader tries again");
        }
        drop(gateway);
        sleep(pause).await;
    }
}

async fn propose_first(gateway: &Gateway, token: TokenHash) -> Result<(), Error> {
    let (name, role) = (FIRST_ADMIN.to_owned(), UserRole::Admin);
    let add = ControlCommand::User(UserCommand::Add { name, role, verifier: None, token: Some(token) }).into();
    gateway.check(&add)?;
    // A new leader may not have applied yet that there are users.
    gateway.reach(Level::Linearizable, Instant::now() + REACH_MAX).await?;
    if !gateway.store.users().is_empty() {
        return Ok(());
    }
    let proposed = gateway.consensus.main().propose(codec::encode_proposal(&Proposal::new(None, vec![add]))?).await;
    let (_, outcome) = proposed.map_err(|error| Error::Unavailable(error.into()))?;
    outcome?;
    tracing::info!(event = "first_user", user = FIRST_ADMIN, "the administrator of the configuration was added");
    Ok(())
}
