//! Users: who may log in and what each of them may do, and the commands that change them.
//!
//! # Invariants
//!
//! - A user never holds a secret: a password is kept as a verifier, a token as its hash. Neither is ever printed.
//! - Each command changes one fact about one user, so that changes of two operators do not overwrite each other.

use std::fmt;

use crate::limits::{USER_NAME_BYTES_MAX, VERIFIER_BYTES_MAX, limit};
use crate::{Failure, FailureKind};

/// The format level since which there are users.
pub const USERS_LEVEL: u32 = 3;

/// What a user may do. Each role may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UserRole {
    /// May read the data.
    Read = 1,
    /// May change the data and the schema.
    Write = 2,
    /// May do everything: change users and members, take backups, verify.
    Admin = 3,
}

impl UserRole {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// Returns the number that stands for the role in logs.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Returns the role with a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.number() == number)
    }

    /// Returns the role's name, as operators write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    /// Returns the role with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for UserRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a password is checked against: the text of an Argon2id hash in PHC format. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier(String);

impl Verifier {
    /// Takes the text of a hash.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text of the hash.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn check_limits(&self) -> Result<(), Failure> {
        limit("bytes of a password's hash", self.0.len(), VERIFIER_BYTES_MAX, "use the parameters of this version")?;
        let is_text = self.0.bytes().all(|byte| byte.is_ascii_graphic());
        if is_text && self.0.starts_with("$argon2id$") {
            return Ok(());
        }
        Err(Failure::new(FailureKind::Refused, "a password is kept as an Argon2id hash in PHC format; send that"))
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(..)")
    }
}

/// Names a token, for people: the first 8 bytes of its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(pub u64);

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The SHA-256 of a random token. Only the id that it begins with is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; Self::BYTES]);

impl TokenHash {
    /// Bytes of a hash.
    pub const BYTES: usize = 32;

    /// Takes the bytes of a hash.
    pub fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the hash.
    pub fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns the id of the token.
    pub fn id(&self) -> TokenId {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        TokenId(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({}..)", self.id())
    }
}

/// A token of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserToken {
    /// Its hash.
    pub hash: TokenHash,
    /// The stamp of the entry that added it, in nanoseconds since 1970-01-01 UTC.
    pub created: u64,
}

/// A user, as every node keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// What the user may do.
    pub role: UserRole,
    /// What the password is checked against; `None` if the user has no password.
    pub verifier: Option<Verifier>,
    /// The tokens, in the order in which they were added.
    pub tokens: Vec<UserToken>,
}

impl User {
    /// Returns whether there is a way for the user to log in.
    pub fn can_log_in(&self) -> bool {
        self.verifier.is_some() || !self.tokens.is_empty()
    }
}

/// A change of the users. It fails with [`FailureKind::UserUnknown`] if it names a user or a token that does not exist,
/// and with [`FailureKind::NoAdmin`] if no administrator who can log in would be left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserCommand {
    /// Adds a user. Fails with [`FailureKind::UserExists`] if there is one with this name.
    Add {
        /// The name.
        name: String,
        /// What the user may do.
        role: UserRole,
        /// What the password is checked against.
        verifier: Option<Verifier>,
        /// The first token.
        token: Option<TokenHash>,
    },
    /// Removes a user.
    Remove(String),
    /// Sets what a user may do.
    SetRole {
        /// The user's name.
        name: String,
        /// What the user may do.
        role: UserRole,
    },
    /// Sets what a password is checked against, or takes the password away.
    SetVerifier {
        /// The user's name.
        name: String,
        /// What the password is checked against.
        verifier: Option<Verifier>,
    },
    /// Adds a token to a user.
    AddToken {
        /// The user's name.
        name: String,
        /// The hash of the token.
        hash: TokenHash,
    },
    /// Removes a token of a user.
    RemoveToken {
        /// The user's name.
        name: String,
        /// The id of the token.
        id: TokenId,
    },
}

impl UserCommand {
    /// Returns the name of the user that the command is about.
    pub fn name(&self) -> &str {
        match self {
            Self::Add { name, .. }
            | Self::Remove(name)
            | Self::SetRole { name, .. }
            | Self::SetVerifier { name, .. }
            | Self::AddToken { name, .. }
            | Self::RemoveToken { name, .. } => name,
        }
    }

    /// Checks the limits that do not depend on the users that exist.
    pub fn check_limits(&self) -> Result<(), Failure> {
        check_user_name(self.name())?;
        match self {
            Self::Add { verifier: Some(verifier), .. } | Self::SetVerifier { verifier: Some(verifier), .. } => {
                verifier.check_limits()
            }
            _ => Ok(()),
        }
    }
}

/// Checks the name of a user: letters and digits of ASCII, `-`, `_`, `.` and `@`. No such name needs quotes in a shell,
/// and none holds the colon that ends a name in HTTP.
pub fn check_user_name(name: &str) -> Result<(), Failure> {
    limit("bytes of a user's name", name.len(), USER_NAME_BYTES_MAX, "choose a shorter one")?;
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.bytes().all(is_usual) {
        return Ok(());
    }
    let text =
        "a user's name begins with a letter or a digit of ASCII, and consists of these and of '-', '_', '.', '@'";
    Err(Failure::new(FailureKind::Refused, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_no_quotes() {
        for name in ["a", "7", "ann@example.org", "a-b_c.d", &"x".repeat(USER_NAME_BYTES_MAX)] {
            assert_eq!(check_user_name(name), Ok(()), "{name}");
        }
        for name in ["", "-a", ".a", "a b", "a:b", "a'", "a\n", "é", &"x".repeat(USER_NAME_BYTES_MAX + 1)] {
            assert!(check_user_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn no_secret_is_printed() {
        let hash = TokenHash::new([0xab; TokenHash::BYTES]);
        let verifier = Some(Verifier::new("$argon2id$v=19$m=1,t=1,p=1$c2FsdA$aGFzaA"));
        let add = UserCommand::Add { name: "ann".to_owned(), role: UserRole::Read, verifier, token: Some(hash) };
        let text = format!("{add:?}");
        assert!(text.contains("Verifier(..)") && text.contains("TokenHash(abababababababab..)"), "{text}");
        assert!(!text.contains("c2FsdA") && !text.contains("171, 171"), "{text}");
    }

    #[test]
    fn only_hashes_of_passwords_are_taken() {
        let set = |text: &str| UserCommand::SetVerifier { name: "a".to_owned(), verifier: Some(Verifier::new(text)) };
        assert_eq!(set("$argon2id$v=19$m=1,t=1,p=1$c2FsdA$aGFzaA").check_limits(), Ok(()));
        let long = "$argon2id$".to_owned() + &"x".repeat(VERIFIER_BYTES_MAX);
        for text in ["", "password", "$argon2i$v=19$x", "$argon2id$ \n", &long] {
            assert!(set(text).check_limits().is_err(), "{text}");
        }
    }
}
