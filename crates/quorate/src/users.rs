//! Users: who may use a cluster, and what each of them may do.
//!
//! Every node keeps all users. [`Node::users`](crate::Node::users) and [`Client::users`](crate::Client::users) return
//! the check of credentials, which doors call for each request. [`Admin`](crate::Admin) changes the users.
//!
//! # Invariants
//!
//! - A check sees what this node has applied, and reads no SQL. A change of users holds on a node as soon as the node
//!   has applied it.
//! - No password and no token is printed, logged, or kept on a disk.
//! - A password is checked on another thread, few at a time. A failed login makes the next ones wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quorate_apply::Users as Present;
use quorate_model::User;
pub use quorate_model::{TokenHash, TokenId, UserRole};

mod check;
mod failures;
mod secrets;

pub(crate) use check::Logins;
pub use check::{HASHES_AT_ONCE, HASHES_WAITING_MAX, PROVEN_FOR, PROVEN_MAX};
pub use failures::{ADDRESS_DELAY_MAX, FAILURES_KEPT_FOR, FAILURES_MAX, FIRST_DELAY, NAME_DELAY_MAX, WAIT_MAX};
pub use secrets::{
    ARGON2_ITERATIONS, ARGON2_LANES, ARGON2_MEMORY_KIB, NewToken, PASSWORD_BYTES_MAX, PASSWORD_BYTES_MIN, PasswordError,
};
pub(crate) use secrets::{check_verifier, hash_password};

/// The name of the user that a cluster is founded with; see [`Config::admin_token`](crate::Config).
pub const FIRST_ADMIN: &str = "admin";

/// What someone shows to log in. It is never printed.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credentials {
    /// A user's name and password.
    Password {
        /// The name.
        name: String,
        /// The password.
        password: String,
    },
    /// A token, which names its user.
    Token(String),
}

impl Credentials {
    /// Returns the credentials of a name and a password.
    pub fn password(name: impl Into<String>, password: impl Into<String>) -> Self {
        Self::Password { name: name.into(), password: password.into() }
    }

    /// Returns the credentials of a token if the password looks like one, and else those of the name and the password.
    /// It is for clients that can send a password only.
    pub fn password_or_token(name: impl Into<String>, password: impl Into<String>) -> Self {
        let password = password.into();
        if secrets::is_like_token(&password) { Self::Token(password) } else { Self::password(name, password) }
    }

    /// Returns the credentials of a token.
    pub fn token(token: impl Into<String>) -> Self {
        Self::Token(token.into())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { name, .. } => f.debug_tuple("Password").field(name).finish_non_exhaustive(),
            Self::Token(_) => f.write_str("Token(..)"),
        }
    }
}

/// Who has logged in. It holds for one moment: for the next request, check the credentials again, or
/// [renew](Users::renew) it.
#[derive(Clone, Debug)]
pub struct Identity {
    role: UserRole,
    proof: Proof,
}

/// By what someone has logged in.
#[derive(Clone, Debug)]
enum Proof {
    /// By nothing: the cluster has no users.
    Open,
    /// By a password.
    Password(Arc<User>),
    /// By the token with this hash.
    Token(Arc<User>, TokenHash),
    /// A node has said so.
    Told(String),
}

impl Identity {
    /// Returns the user's name; `None` if the cluster has no users.
    pub fn name(&self) -> Option<&str> {
        match &self.proof {
            Proof::Open => None,
            Proof::Password(user) | Proof::Token(user, _) => Some(&user.name),
            Proof::Told(name) => Some(name),
        }
    }

    /// Returns what the user may do.
    pub fn role(&self) -> UserRole {
        self.role
    }

    /// Fails unless the user has this role or one that may do more.
    ///
    /// # Errors
    ///
    /// Returns [`Denied::Forbidden`].
    pub fn needs(&self, role: UserRole) -> Result<(), Denied> {
        if self.role >= role {
            return Ok(());
        }
        Err(Denied::Forbidden { name: self.name().unwrap_or_default().to_owned(), has: self.role, needs: role })
    }

    /// Returns what a node has said; without a name, that the cluster has no users.
    pub(crate) fn told(name: String, role: UserRole) -> Self {
        Self { role, proof: if name.is_empty() { Proof::Open } else { Proof::Told(name) } }
    }

    fn open() -> Self {
        Self { role: UserRole::Admin, proof: Proof::Open }
    }

    fn of_password(user: &Arc<User>) -> Self {
        Self { role: user.role, proof: Proof::Password(Arc::clone(user)) }
    }

    fn of_token(user: &Arc<User>, hash: TokenHash) -> Self {
        Self { role: user.role, proof: Proof::Token(Arc::clone(user), hash) }
    }
}

/// Why someone was not let in, or may not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// The cluster has users, and nothing was shown.
    #[error("log in with a user's name and password, or with a token")]
    Missing,
    /// There is no such user, or the password or the token is not the user's. Which of these it is, is not said.
    #[error("wrong name, password or token")]
    Wrong,
    /// After failed logins the next one has to wait longer than a connection should be kept for.
    #[error("too many logins have failed; try again in {} s", .0.as_secs().saturating_add(1))]
    TooMany(Duration),
    /// Too many passwords are waiting to be checked.
    #[error("too many passwords are being checked; try again, or use a token")]
    Busy,
    /// This node can't know yet whether there are users: it has not joined its cluster, or the first one is being
    /// added.
    #[error("this node does not know the users of its cluster yet; try again")]
    NotYet,
    /// The user's role does not permit it.
    #[error("the user '{name}' has the role '{has}', and this needs '{needs}'; an administrator can change the role")]
    Forbidden {
        /// The user's name.
        name: String,
        /// The user's role.
        has: UserRole,
        /// The role that is needed.
        needs: UserRole,
    },
    /// The cluster has no users to log in as.
    #[error("the cluster has no users: connect with its secret")]
    NoUsers,
    /// The node was stopped, or no node could be asked.
    #[error("the users can't be asked for: the node was stopped, or no node can be reached")]
    Closed,
}

impl Denied {
    /// Returns whether the same credentials may be accepted later without intervention.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::TooMany(_) | Self::Busy | Self::NotYet | Self::Closed)
    }
}

/// The check of credentials, by a [`Node`](crate::Node) of this process or by a remote cluster. Cheap to clone; it does
/// not keep a node alive.
#[derive(Clone)]
pub struct Users(Arc<dyn Check>);

/// Who is asked for users.
pub(crate) trait Check: Send + Sync {
    /// Returns who shows these credentials, or nothing, from this address.
    fn check<'a>(
        &'a self,
        credentials: Option<&'a Credentials>,
        from: &'a str,
    ) -> BoxFuture<'a, Result<Identity, Denied>>;

    /// Returns an identity as it is now. Only a node of this process knows that.
    fn renew(&self, _identity: &Identity) -> Result<Identity, Denied> {
        Err(Denied::Wrong)
    }
}

impl Users {
    pub(crate) fn new(asked: impl Check + 'static) -> Self {
        Self(Arc::new(asked))
    }

    /// Returns who shows these credentials, or nothing, from this address (`host:port`). While the cluster has no
    /// users, everyone may do everything, whatever they show. After failed logins under the same name or from the same
    /// address, this waits. A node of this process asks nobody; a remote cluster is asked each time.
    ///
    /// # Errors
    ///
    /// Returns the reason for which nobody is let in with these credentials, or not now.
    pub async fn check(&self, credentials: Option<&Credentials>, from: &str) -> Result<Identity, Denied> {
        self.0.check(credentials, from).await
    }

    /// Returns who has logged in as the users are now, so perhaps with another role. It hashes no password and never
    /// waits, so a door that keeps connections calls it for each request of a connection.
    ///
    /// # Errors
    ///
    /// [`Denied::Wrong`] if the user, or the password or token that was shown, is gone, and always for the users of a
    /// remote cluster; [`Denied::Closed`].
    pub fn renew(&self, identity: &Identity) -> Result<Identity, Denied> {
        self.0.renew(identity)
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Users")
    }
}

/// Returns the identity as these users make it; `None` if they do not know it.
pub(crate) fn renewed(users: &Present, identity: &Identity) -> Option<Identity> {
    match &identity.proof {
        Proof::Open => users.is_empty().then(Identity::open),
        Proof::Password(before) => {
            let user = users.get(&before.name).filter(|user| user.verifier == before.verifier)?;
            Some(Identity::of_password(user))
        }
        Proof::Token(before, hash) => {
            let user = users.of_token(hash.id()).filter(|user| user.name == before.name)?;
            user.tokens.iter().any(|token| token.hash == *hash).then(|| Identity::of_token(user, *hash))
        }
        // Only doors of a proxy know such identities; no connection to a node has one.
        Proof::Told(_) => None,
    }
}

/// Returns who someone without credentials is, if these are all users.
pub(crate) fn anonymous(users: &Present) -> Result<Identity, Denied> {
    if users.is_empty() { Ok(Identity::open()) } else { Err(Denied::Missing) }
}

/// A user, as [`Admin::users`](crate::Admin::users) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserInfo {
    /// The name.
    pub name: String,
    /// What the user may do.
    pub role: UserRole,
    /// Whether the user has a password.
    pub has_password: bool,
    /// The tokens, in the order in which they were added.
    pub tokens: Vec<TokenInfo>,
}

/// A token of a user, as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenInfo {
    /// Its id, by which it can be removed.
    pub id: TokenId,
    /// When it was added, in nanoseconds since 1970-01-01 UTC.
    pub created: u64,
}

impl From<&User> for UserInfo {
    fn from(user: &User) -> Self {
        let token = |token: &quorate_model::UserToken| TokenInfo { id: token.hash.id(), created: token.created };
        Self {
            name: user.name.clone(),
            role: user.role,
            has_password: user.verifier.is_some(),
            tokens: user.tokens.iter().map(token).collect(),
        }
    }
}

impl UserInfo {
    pub(crate) fn new(name: String, role: UserRole, has_password: bool, tokens: Vec<TokenInfo>) -> Self {
        Self { name, role, has_password, tokens }
    }
}

impl TokenInfo {
    pub(crate) fn new(id: TokenId, created: u64) -> Self {
        Self { id, created }
    }
}
