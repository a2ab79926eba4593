//! Changes of users.
//!
//! Invariant: a password is hashed here, in the process of the operator; neither it nor a token is sent to a node.

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quorate_env::Cause;
use quorate_model::{ControlCommand, TokenId, UserCommand, UserRole, Verifier};

use super::{Admin, AdminError};
use crate::error::Error;
use crate::protocol::users::{Checked, Shown, UserList};
use crate::protocol::{self, method};
use crate::users::{Check, Credentials, Denied, Identity, NewToken, PasswordError, UserInfo, hash_password};

/// The first way in which a new user can log in.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Login {
    /// With this password.
    Password(String),
    /// With a token, which is drawn now.
    Token,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Password(_) => "Password(..)",
            Self::Token => "Token",
        })
    }
}

/// Users. Each change is made exactly once, and holds on every node as soon as the node has applied it.
impl Admin {
    /// Returns all users, in the order of their names.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Unavailable`] if no majority answers.
    pub async fn users(&self) -> Result<Vec<UserInfo>, AdminError> {
        let list: UserList = self.ask(method::USERS, Bytes::new()).await?;
        let newer = || AdminError::Forbidden("a user has a role of a newer version".into());
        list.read().ok_or_else(newer)
    }

    /// Adds a user, and returns the token if one was drawn. The first user must be an administrator; with it, the doors
    /// of the cluster are closed to everyone who does not log in.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Refused`] if there is a user with this name, if the name or the password is not allowed,
    /// or if there would be no administrator.
    pub async fn add_user(&self, name: &str, role: UserRole, login: Login) -> Result<Option<NewToken>, AdminError> {
        let (verifier, token) = match login {
            Login::Password(password) => (Some(self.hashed(password).await?), None),
            Login::Token => (None, Some(NewToken::draw(self.runtime.env()))),
        };
        let hash = token.as_ref().map(NewToken::hash);
        self.change_users(UserCommand::Add { name: name.to_owned(), role, verifier, token: hash }).await?;
        Ok(token)
    }

    /// Removes a user.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Refused`] if there is no such user, or if no administrator who can log in would be left.
    pub async fn remove_user(&self, name: &str) -> Result<(), AdminError> {
        self.change_users(UserCommand::Remove(name.to_owned())).await
    }

    /// Sets what a user may do.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Admin::remove_user`].
    pub async fn set_role(&self, name: &str, role: UserRole) -> Result<(), AdminError> {
        self.change_users(UserCommand::SetRole { name: name.to_owned(), role }).await
    }

    /// Sets the password of a user, or takes it away (`None`).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Admin::remove_user`], and [`AdminError::Refused`] if the password is too short or too
    /// long.
    pub async fn set_password(&self, name: &str, password: Option<&str>) -> Result<(), AdminError> {
        let verifier = match password {
            Some(password) => Some(self.hashed(password.to_owned()).await?),
            None => None,
        };
        self.change_users(UserCommand::SetVerifier { name: name.to_owned(), verifier }).await
    }

    /// Draws a token, gives it to a user, and returns it. It can't be shown again.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Refused`] if there is no such user, or the user has too many tokens.
    pub async fn add_token(&self, name: &str) -> Result<NewToken, AdminError> {
        let token = NewToken::draw(self.runtime.env());
        self.change_users(UserCommand::AddToken { name: name.to_owned(), hash: token.hash() }).await?;
        Ok(token)
    }

    /// Removes a token of a user.
    ///
    /// # Errors
    ///
    /// Returns [`AdminError::Refused`] if the user has no such token, or if no administrator who can log in would be
    /// left.
    pub async fn remove_token(&self, name: &str, id: TokenId) -> Result<(), AdminError> {
        self.change_users(UserCommand::RemoveToken { name: name.to_owned(), id }).await
    }

    /// Hashes a password on another thread.
    async fn hashed(&self, password: String) -> Result<Verifier, AdminError> {
        let env = self.runtime.env().clone();
        let hashing = self.runtime.run(self.runtime.env().blocking(move || hash_password(&env, &password)));
        let hashed: Result<Verifier, PasswordError> = hashing.await.ok().flatten().ok_or(AdminError::Closed)?;
        hashed.map_err(|error| AdminError::Refused(Cause::from(error)))
    }

    async fn change_users(&self, command: UserCommand) -> Result<(), AdminError> {
        let command = ControlCommand::User(command).into();
        self.submitter.write(vec![command], self.deadline).await.map(drop).map_err(not_changed)
    }
}

impl Check for Admin {
    fn check<'a>(
        &'a self,
        credentials: Option<&'a Credentials>,
        from: &'a str,
    ) -> BoxFuture<'a, Result<Identity, Denied>> {
        let body = protocol::encode(&Shown::new(credentials, from));
        async move {
            let checked: Result<Checked, AdminError> = self.ask(method::CHECK_LOGIN, body).await;
            checked.map_err(|_| Denied::Closed)?.result()
        }
        .boxed()
    }
}

/// Converts the error of a change of users.
fn not_changed(error: Error) -> AdminError {
    match error {
        Error::Failed(failure) => AdminError::Refused(Cause::from(failure)),
        Error::Unknown(why) => AdminError::Unconfirmed(why),
        Error::Forbidden(why) => AdminError::Forbidden(why),
        Error::Closed => AdminError::Closed,
        error if error.is_retryable() => AdminError::Unavailable(error.reason()),
        error => AdminError::Refused(Cause::from(error)),
    }
}
