//! What each method and each command needs: the one place that decides it for the native protocol.
//!
//! Invariant: no `match` here has a wildcard, so a new method or command does not compile until someone has decided.

use quorate_model::{Command, ControlCommand, Failure, FailureKind, SqlCommand, UserRole};
use quorate_wire::{CallFailure, FailureKind as CallFailureKind, Role};

use crate::protocol::method;
use crate::users::Identity;

/// What a connection may do. Each may do what the ones before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Right {
    /// To read.
    Read,
    /// To change data and the schema.
    Write,
    /// To administrate: users, members, backups, verifications, decisions about entries.
    Admin,
    /// What only nodes ask of each other.
    Node,
    /// What nobody asks for: nodes propose it by themselves.
    Nobody,
}

impl Right {
    /// Returns what a connection of a role may do; one of a user, what the user may do now.
    pub(crate) fn of_connection(role: Role, user: Option<&Identity>) -> Result<Self, CallFailure> {
        match role {
            Role::ReadOnly => Ok(Self::Read),
            Role::ReadWrite => Ok(Self::Write),
            Role::Admin => Ok(Self::Admin),
            Role::Peer => Ok(Self::Node),
            Role::User => {
                let gone =
                    || CallFailure::new(CallFailureKind::Forbidden, "the user, or its password or token, is gone");
                user.map(|user| user.role().into()).ok_or_else(gone)
            }
        }
    }
}

impl From<UserRole> for Right {
    fn from(role: UserRole) -> Self {
        match role {
            UserRole::Read => Self::Read,
            UserRole::Write => Self::Write,
            UserRole::Admin => Self::Admin,
        }
    }
}

impl Right {
    /// Why someone without this right is refused.
    fn refusal(self) -> &'static str {
        match self {
            Self::Read => "this connection may not read; log in as a user who may",
            Self::Write => "this client or user may only read; connect without 'read_only', or as a user who may write",
            Self::Admin => "only an administrator may do this",
            Self::Node => "only nodes may ask for this",
            Self::Nobody => {
                "only nodes let time pass, raise the format level, appoint an archiver, and enable functions and \
                 collations, by themselves"
            }
        }
    }

    /// Fails unless `held` includes this right.
    pub(crate) fn check(self, held: Self) -> Result<(), CallFailure> {
        if held >= self { Ok(()) } else { Err(CallFailure::new(CallFailureKind::Forbidden, self.refusal())) }
    }

    /// Does the same for a command.
    pub(crate) fn check_command(command: &Command, held: Self) -> Result<(), Failure> {
        let needed = Self::of_command(command);
        if held >= needed { Ok(()) } else { Err(Failure::new(FailureKind::Refused, needed.refusal())) }
    }

    /// Returns the right that a command needs.
    pub(crate) fn of_command(command: &Command) -> Self {
        match command {
            Command::Control(ControlCommand::OpenSession | ControlCommand::CloseSession(_)) => Self::Write,
            Command::Control(ControlCommand::Verify | ControlCommand::User(_)) => Self::Admin,
            Command::Control(ControlCommand::Tick | ControlCommand::Raise(_) | ControlCommand::Appoint(_)) => {
                Self::Nobody
            }
            Command::Sql(SqlCommand::Statement(_) | SqlCommand::Bulk(_) | SqlCommand::Vacuum) => Self::Write,
            Command::Sql(SqlCommand::Extend(_)) => Self::Nobody,
            Command::Keys(_) | Command::Locks(_) | Command::Events(_) | Command::Items(_) => Self::Write,
        }
    }
}

/// A method of the service that nodes offer to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Method {
    Execute = method::EXECUTE,
    Query = method::QUERY,
    Status = method::STATUS,
    Verify = method::VERIFY,
    Outcomes = method::OUTCOMES,
    Admit = method::ADMIT,
    Remove = method::REMOVE,
    Transfer = method::TRANSFER,
    Probe = method::PROBE,
    Extensions = method::EXTENSIONS,
    RejectEntry = method::REJECT_ENTRY,
    Users = method::USERS,
    CheckLogin = method::CHECK_LOGIN,
    Archived = method::ARCHIVED,
}

/// A method whose calls are streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum StreamMethod {
    Backup = method::BACKUP,
    Snapshot = method::SNAPSHOT,
    Interactive = method::INTERACTIVE,
    Wait = method::WAIT,
}

impl Method {
    /// All methods.
    const ALL: [Self; 14] = [
        Self::Execute,
        Self::Query,
        Self::Status,
        Self::Verify,
        Self::Outcomes,
        Self::Admit,
        Self::Remove,
        Self::Transfer,
        Self::Probe,
        Self::Extensions,
        Self::RejectEntry,
        Self::Users,
        Self::CheckLogin,
        Self::Archived,
    ];

    /// Returns the method with a number.
    pub(crate) fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|method| *method as u16 == number)
    }

    /// Returns the right that it needs; what it asks for may need more ([`Right::of_command`]).
    pub(crate) fn right(self) -> Right {
        match self {
            Self::Query | Self::Status => Right::Read,
            Self::Execute | Self::Archived => Right::Write,
            Self::Verify
            | Self::Admit
            | Self::Remove
            | Self::Transfer
            | Self::Probe
            | Self::RejectEntry
            | Self::Users
            | Self::CheckLogin => Right::Admin,
            Self::Outcomes | Self::Extensions => Right::Node,
        }
    }
}

impl StreamMethod {
    /// All methods.
    const ALL: [Self; 4] = [Self::Backup, Self::Snapshot, Self::Interactive, Self::Wait];

    /// Returns the method with a number.
    pub(crate) fn of(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|method| *method as u16 == number)
    }

    /// Returns the right that it needs.
    pub(crate) fn right(self) -> Right {
        match self {
            Self::Snapshot | Self::Wait => Right::Read,
            Self::Interactive => Right::Write,
            // It holds the hashes of passwords and tokens.
            Self::Backup => Right::Admin,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

    use super::*;

    use quorate_model::keys::{KeyCommand, SpaceCommand};
    use quorate_model::{Appointment, Bulk, ItemsCommand, SessionId, Statement, UserCommand};

    const ROLES: [Role; 4] = [Role::ReadOnly, Role::ReadWrite, Role::Admin, Role::Peer];

    /// Every number is a method with a right, or is refused; and the methods are those that the guide lists.
    #[test]
    fn every_method_has_a_right() {
        let docs = include_str!("../../../docs/wire-format.md");
        let (_, methods) = docs.split_once("## Client methods").unwrap_or_default();
        let (of_clients, of_admins) = methods.split_once("## Admin methods").unwrap_or_default();
        let row = |section: &str, number: u16| {
            section.lines().find(|line| line.starts_with(&format!("| {number} |"))).map(str::to_owned)
        };
        for number in 0..=u16::MAX {
            let (call, stream) = (Method::of(number), StreamMethod::of(number));
            assert!(call.is_none() || stream.is_none(), "{number} is a call and a stream");
            let right = call.map(Method::right).or(stream.map(StreamMethod::right));
            let Some(right) = right else {
                assert_eq!(row(methods, number), None, "{number} is listed");
                continue;
            };
            let kind = if call.is_some() { "call" } else { "stream" };
            let roles = match right {
                Right::Read => "all",
                Right::Write => "peer, admin, read-write",
                Right::Admin => "peer, admin",
                Right::Node | Right::Nobody => "peer",
            };
            let is_listed = match row(of_clients, number) {
                Some(listed) => listed.starts_with(&format!("| {number} | {kind} | {roles} |")),
                None => right == Right::Admin && kind == "call" && row(of_admins, number).is_some(),
            };
            assert!(is_listed, "{number}: {kind}, {roles}");
            let is_allowed = |role: &Role| right.check(Right::of_connection(*role, None).unwrap()).is_ok();
            let allowed: Vec<Role> = ROLES.into_iter().filter(is_allowed).collect();
            assert!(allowed.contains(&Role::Peer), "{number}: {allowed:?}");
            assert_eq!(allowed.contains(&Role::ReadOnly), right == Right::Read, "{number}: {allowed:?}");
        }
    }

    /// One command of each kind. A kind that is missing here is found by the compiler, in [`Right::of_command`].
    #[test]
    fn every_command_has_a_right() {
        let name = || "ann".to_owned();
        let control = [
            (ControlCommand::OpenSession, Right::Write),
            (ControlCommand::CloseSession(SessionId(1)), Right::Write),
            (ControlCommand::Verify, Right::Admin),
            (ControlCommand::Tick, Right::Nobody),
            (ControlCommand::Raise(3), Right::Nobody),
            (ControlCommand::Appoint(Appointment { node: None, expected: 3 }), Right::Nobody),
            (ControlCommand::User(UserCommand::Remove(name())), Right::Admin),
            (ControlCommand::User(UserCommand::SetRole { name: name(), role: UserRole::Admin }), Right::Admin),
        ];
        let sql = [
            (SqlCommand::Statement(Statement::default()), Right::Write),
            (SqlCommand::Bulk(Bulk { sql: "".into(), rows: quorate_model::RowPacker::new(1).finish() }), Right::Write),
            (SqlCommand::Vacuum, Right::Write),
            (SqlCommand::Extend(Vec::new()), Right::Nobody),
        ];
        let all = control.map(|(command, right)| (Command::Control(command), right)).into_iter();
        let all = all.chain(sql.map(|(command, right)| (Command::Sql(command), right)));
        // A command that only reads is an entry too, if it is proposed.
        let describe = KeyCommand::Describe { key: "key".into() }.into();
        let others = [Command::Keys(SpaceCommand { space: 0, command: describe }), ItemsCommand::Abort.into()];
        for (command, right) in all.chain(others.map(|command| (command, Right::Write))) {
            assert_eq!(Right::of_command(&command), right, "{command:?}");
            for held in [Right::Read, Right::Write, Right::Admin, Right::Node] {
                assert_eq!(Right::check_command(&command, held).is_ok(), held >= right, "{command:?} {held:?}");
            }
        }
    }

    #[test]
    fn roles_of_users_and_of_secrets_mean_the_same() {
        let pairs =
            [(UserRole::Read, Role::ReadOnly), (UserRole::Write, Role::ReadWrite), (UserRole::Admin, Role::Admin)];
        for (user, secret) in pairs {
            assert_eq!(Right::from(user), Right::of_connection(secret, None).unwrap());
            let told = Identity::told("ann".to_owned(), user);
            assert_eq!(Right::of_connection(Role::User, Some(&told)).unwrap(), Right::from(user));
        }
    }
}
