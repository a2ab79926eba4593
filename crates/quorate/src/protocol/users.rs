//! The list of users on the wire (`docs/wire-format.md`, "Admin methods"). It holds no hash of a password or a token.

use prost::Message;
use quorate_model::{TokenId, UserRole};

use crate::users::{TokenInfo, UserInfo};

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
