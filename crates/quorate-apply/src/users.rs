//! The users of a state machine: the rules by which commands change them.
//!
//! They are few, so all of them are in memory, and each change makes a new set. Who checks a login holds one set, and
//! sees no change of it. The records hold the same users; they change in the transaction of the entries.
//!
//! # Invariants
//!
//! - Once there is a user, there is an administrator who can log in.
//! - The ids of all tokens differ.
//! - A command that fails changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_model::limits::{USER_TOKENS_MAX, USERS_MAX};
use quorate_model::{Failure, FailureKind, StoreFault, TokenHash, TokenId, User, UserCommand, UserRole, UserToken};

use crate::Records;

/// The users as of one entry. See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    by_name: BTreeMap<String, Arc<User>>,
    /// The owner of each token.
    tokens: BTreeMap<TokenId, Arc<User>>,
    /// The number of administrators who can log in.
    admins: usize,
}

impl Users {
    /// Loads the users from the records.
    pub(crate) fn load(records: &mut impl Records) -> Result<Self, StoreFault> {
        let mut users = Self::default();
        records.users()?.into_iter().for_each(|user| users.put(user));
        Ok(users)
    }

    /// Returns whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns the user with a name.
    pub fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// Returns the user who has a token with this id. The token itself is the right one only if its whole hash is.
    pub fn of_token(&self, id: TokenId) -> Option<&Arc<User>> {
        self.tokens.get(&id)
    }

    /// Returns all users in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.by_name.values()
    }

    /// Runs a command at the time `now`.
    pub(crate) fn change(&mut self, command: &UserCommand, now: u64) -> Result<(), Failure> {
        let name = command.name();
        let known = || self.by_name.get(name).map(|user| User::clone(user)).ok_or_else(|| unknown_user(name));
        let after = match command {
            UserCommand::Add { role, verifier, token, .. } => {
                Some(self.added(name, *role, verifier.clone(), *token, now)?)
            }
            UserCommand::Remove(_) => {
                known()?;
                None
            }
            UserCommand::SetRole { role, .. } => Some(User { role: *role, ..known()? }),
            UserCommand::SetVerifier { verifier, .. } => Some(User { verifier: verifier.clone(), ..known()? }),
            UserCommand::AddToken { hash, .. } => {
                let mut user = known()?;
                self.add_token(&mut user, *hash, now)?;
                Some(user)
            }
            UserCommand::RemoveToken { id, .. } => {
                let mut user = known()?;
                let before = user.tokens.len();
                user.tokens.retain(|token| token.hash.id() != *id);
                if user.tokens.len() == before {
                    return Err(unknown_token(name, *id));
                }
                Some(user)
            }
        };
        let admins = self.admins.saturating_sub(self.by_name.get(name).map_or(0, |user| as_admin(user)));
        if admins.saturating_add(after.as_ref().map_or(0, as_admin)) == 0 {
            return Err(no_admin(name));
        }
        self.remove(name);
        after.into_iter().for_each(|user| self.put(user));
        Ok(())
    }

    fn added(
        &self,
        name: &str,
        role: UserRole,
        verifier: Option<quorate_model::Verifier>,
        token: Option<TokenHash>,
        now: u64,
    ) -> Result<User, Failure> {
        if self.by_name.contains_key(name) {
            let text = format!("there is a user '{name}' already; choose another name, or change that user");
            return Err(Failure::new(FailureKind::UserExists, text));
        }
        if self.by_name.len() >= USERS_MAX {
            let text = format!("there are {USERS_MAX} users, which is the limit; remove one that is no longer needed");
            return Err(Failure::new(FailureKind::TooBig, text));
        }
        let mut user = User { name: name.to_owned(), role, verifier, tokens: Vec::new() };
        token.iter().try_for_each(|hash| self.add_token(&mut user, *hash, now))?;
        Ok(user)
    }

    fn add_token(&self, user: &mut User, hash: TokenHash, now: u64) -> Result<(), Failure> {
        if self.tokens.contains_key(&hash.id()) {
            let text = format!("there is a token {} already; make another one", hash.id());
            return Err(Failure::new(FailureKind::UserExists, text));
        }
        if user.tokens.len() >= USER_TOKENS_MAX {
            let text = format!("'{}' has {USER_TOKENS_MAX} tokens, which is the limit; remove one of them", user.name);
            return Err(Failure::new(FailureKind::TooBig, text));
        }
        user.tokens.push(UserToken { hash, created: now });
        Ok(())
    }

    fn put(&mut self, user: User) {
        let user = Arc::new(user);
        self.admins = self.admins.saturating_add(as_admin(&user));
        self.tokens.extend(user.tokens.iter().map(|token| (token.hash.id(), Arc::clone(&user))));
        self.by_name.insert(user.name.clone(), user);
    }

    fn remove(&mut self, name: &str) {
        if let Some(user) = self.by_name.remove(name) {
            self.admins = self.admins.saturating_sub(as_admin(&user));
            user.tokens.iter().for_each(|token| drop(self.tokens.remove(&token.hash.id())));
        }
    }

    /// Writes what differs from `before`, which the records hold.
    fn write(&self, before: &Self, records: &mut impl Records) -> Result<(), StoreFault> {
        for name in before.by_name.keys().filter(|name| !self.by_name.contains_key(*name)) {
            records.remove_user(name)?;
        }
        let is_new = |user: &&Arc<User>| before.by_name.get(&user.name) != Some(user);
        self.by_name.values().filter(is_new).try_for_each(|user| records.write_user(user))
    }
}

/// The users as of the last entry of the open transaction.
#[derive(Debug, Default)]
pub(crate) struct StagedUsers {
    present: Arc<Users>,
    /// What the records hold in the open transaction.
    written: Arc<Users>,
}

impl StagedUsers {
    /// Nothing is changed since these users were committed.
    pub(crate) fn new(committed: &Arc<Users>) -> Self {
        Self { present: Arc::clone(committed), written: Arc::clone(committed) }
    }

    /// Returns the users as of the last entry.
    pub(crate) fn present(&self) -> &Arc<Users> {
        &self.present
    }

    /// Takes the users as of the next entry.
    pub(crate) fn set(&mut self, users: Users) {
        self.present = Arc::new(users);
    }

    /// Writes the changes into the open transaction.
    pub(crate) fn write(&mut self, records: &mut impl Records) -> Result<(), StoreFault> {
        if !Arc::ptr_eq(&self.present, &self.written) {
            self.present.write(&self.written, records)?;
            self.written = Arc::clone(&self.present);
        }
        Ok(())
    }
}

/// Counts a user as an administrator who can log in: 1, or 0.
fn as_admin(user: &User) -> usize {
    usize::from(user.role == UserRole::Admin && user.can_log_in())
}

fn unknown_user(name: &str) -> Failure {
    Failure::new(FailureKind::UserUnknown, format!("there is no user '{name}'; list the users, or add this one"))
}

fn unknown_token(name: &str, id: TokenId) -> Failure {
    Failure::new(FailureKind::UserUnknown, format!("'{name}' has no token {id}; list the users to see their tokens"))
}

fn no_admin(name: &str) -> Failure {
    let text = format!(
        "no administrator who can log in would be left; give another user the role admin and a password or a token \
         first, then change '{name}'"
    );
    Failure::new(FailureKind::NoAdmin, text)
}

#[cfg(test)]
mod tests;
