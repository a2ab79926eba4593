//! Users on the wire (`docs/wire-format.md`, "Users"): what someone logs in with, the answer, and the list of users,
//! which holds no hash of a password or a token.

use std::fmt;
use std::time::Duration;

use prost::{Message, Oneof};
use quorate_model::{TokenId, UserRole};

use crate::users::{Credentials, Denied, Identity, TokenInfo, UserInfo};

/// What someone shows to log in: as the message LOGIN of a handshake, or in a request of a proxy to check it.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct Shown {
    #[prost(oneof = "ShownKind", tags = "1, 2")]
    pub kind: Option<ShownKind>,
    /// The address that it came from; only a proxy says that.
    #[prost(string, tag = "3")]
    pub from: String,
}

#[derive(Clone, PartialEq, Oneof)]
#[prost(skip_debug)]
pub(crate) enum ShownKind {
    #[prost(string, tag = "1")]
    Token(String),
    #[prost(message, tag = "2")]
    Password(ShownPassword),
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct ShownPassword {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

/// A password or a token is never printed.
impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("from", &self.from).finish_non_exhaustive()
    }
}

impl fmt::Debug for ShownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShownKind(..)")
    }
}

impl fmt::Debug for ShownPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShownPassword").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Shown {
    /// What someone shows at an address; nothing, if `credentials` is `None`.
    pub(crate) fn new(credentials: Option<&Credentials>, from: &str) -> Self {
        let kind = credentials.map(|credentials| match credentials.clone() {
            Credentials::Token(token) => ShownKind::Token(token),
            Credentials::Password { name, password } => ShownKind::Password(ShownPassword { name, password }),
        });
        Self { kind, from: from.to_owned() }
    }

    /// Returns the credentials; `None` if nothing is shown.
    pub(crate) fn credentials(&self) -> Option<Credentials> {
        self.kind.clone().map(|kind| match kind {
            ShownKind::Token(token) => Credentials::Token(token),
            ShownKind::Password(ShownPassword { name, password }) => Credentials::Password { name, password },
        })
    }
}

/// Answers a request to check credentials.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Checked {
    #[prost(oneof = "CheckedKind", tags = "1, 2")]
    pub kind: Option<CheckedKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum CheckedKind {
    #[prost(message, tag = "1")]
    LetIn(LetIn),
    #[prost(message, tag = "2")]
    Denied(DeniedReply),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LetIn {
    /// Empty if the cluster has no users.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint32, tag = "2")]
    pub role: u32,
}

/// Why nobody is let in: 1 nothing was shown, 2 wrong, 3 too many failures, 4 too many at once, 5 not known yet.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct DeniedReply {
    #[prost(uint32, tag = "1")]
    pub why: u32,
    /// With 3: after what time to try again.
    #[prost(uint64, tag = "2")]
    pub millis: u64,
}

impl From<Result<Identity, Denied>> for Checked {
    fn from(checked: Result<Identity, Denied>) -> Self {
        let denied = |why, millis| CheckedKind::Denied(DeniedReply { why, millis });
        let kind = match checked {
            Ok(identity) => {
                let name = identity.name().unwrap_or_default().to_owned();
                CheckedKind::LetIn(LetIn { name, role: identity.role().number() })
            }
            Err(Denied::Missing) => denied(1, 0),
            Err(Denied::TooMany(time)) => denied(3, u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            Err(Denied::Busy) => denied(4, 0),
            Err(Denied::NotYet | Denied::Closed) => denied(5, 0),
            Err(Denied::Wrong | Denied::NoUsers | Denied::Forbidden { .. }) => denied(2, 0),
        };
        Self { kind: Some(kind) }
    }
}

impl Checked {
    /// Returns the result; what a later version may have sent in addition denies.
    pub(crate) fn result(self) -> Result<Identity, Denied> {
        match self.kind {
            Some(CheckedKind::LetIn(LetIn { name, role })) => {
                UserRole::from_number(role).map(|role| Identity::told(name, role)).ok_or(Denied::Wrong)
            }
            Some(CheckedKind::Denied(DeniedReply { why, millis })) => Err(match why {
                1 => Denied::Missing,
                3 => Denied::TooMany(Duration::from_millis(millis)),
                4 => Denied::Busy,
                5 => Denied::NotYet,
                _ => Denied::Wrong,
            }),
            None => Err(Denied::NotYet),
        }
    }
}

/// Answers a request for the users.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UserList {
    #[prost(message, repeated, tag = "1")]
    pub users: Vec<ListedUser>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListedUser {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint32, tag = "2")]
    pub role: u32,
    #[prost(bool, tag = "3")]
    pub has_password: bool,
    #[prost(message, repeated, tag = "4")]
    pub tokens: Vec<ListedToken>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ListedToken {
    #[prost(fixed64, tag = "1")]
    pub id: u64,
    /// Nanoseconds since 1970-01-01 UTC.
    #[prost(uint64, tag = "2")]
    pub created: u64,
}

impl UserList {
    /// Returns the users; `None` if a later version has sent a role that this version does not know.
    pub(crate) fn read(self) -> Option<Vec<UserInfo>> {
        self.users.into_iter().map(ListedUser::read).collect()
    }
}

impl ListedUser {
    fn read(self) -> Option<UserInfo> {
        let Self { name, role, has_password, tokens } = self;
        let tokens = tokens.into_iter().map(|token| TokenInfo::new(TokenId(token.id), token.created)).collect();
        Some(UserInfo::new(name, UserRole::from_number(role)?, has_password, tokens))
    }
}

impl FromIterator<UserInfo> for UserList {
    fn from_iter<I: IntoIterator<Item = UserInfo>>(users: I) -> Self {
        let token = |token: TokenInfo| ListedToken { id: token.id.0, created: token.created };
        let listed = |user: UserInfo| ListedUser {
            name: user.name,
            role: user.role.number(),
            has_password: user.has_password,
            tokens: user.tokens.into_iter().map(token).collect(),
        };
        Self { users: users.into_iter().map(listed).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_someone_shows_is_not_printed() {
        for shown in [Credentials::password("ann", "hidden"), Credentials::token("hidden")] {
            let shown = Shown::new(Some(&shown), "10.0.0.1:1");
            assert!(!format!("{shown:?} {:?}", shown.kind).contains("hidden"));
            assert_eq!(Shown::decode(shown.encode_to_vec().as_slice()), Ok(shown));
        }
    }
}
