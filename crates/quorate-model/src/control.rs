//! The family of commands that concern the cluster and its clients, independent of what stores hold.

use crate::archiver::ARCHIVER_LEVEL;
use crate::limits::BASE_LEVEL;
use crate::users::USERS_LEVEL;
use crate::{Appointment, Archiver, Failure, SessionId, UserCommand};

/// A command of this family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    /// Opens a session; its id is the index of the entry.
    OpenSession,
    /// Ends a session: its later requests fail with [`FailureKind::SessionExpired`](crate::FailureKind).
    CloseSession(SessionId),
    /// Changes nothing. Every node computes the logical hash of its database as of this entry. It must be the only
    /// command of its entry.
    Verify,
    /// Lets time pass up to the entry's stamp. Changes nothing but what is due by then.
    Tick,
    /// Lets entries use the format up to this level. Nodes that do not understand it stop at this entry.
    Raise(u32),
    /// Changes the users.
    User(UserCommand),
    /// Appoints the node that writes the archive.
    Appoint(Appointment),
}

/// The result of a command of this family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlReply {
    /// The command succeeded and returns nothing.
    Done,
    /// The session that was opened.
    Session(SessionId),
    /// An appointment has changed nothing, because this is the archiver at present, and not the expected one.
    Archiver(Option<Archiver>),
}

impl ControlCommand {
    /// Returns the format level that it needs.
    pub fn level(&self) -> u32 {
        match self {
            Self::OpenSession | Self::CloseSession(_) | Self::Verify | Self::Raise(_) => BASE_LEVEL,
            Self::Tick => 2,
            Self::User(_) => USERS_LEVEL,
            Self::Appoint(_) => ARCHIVER_LEVEL,
        }
    }

    /// Returns whether it must be the only command of its entry.
    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Verify)
    }

    /// Checks its limits.
    pub(crate) fn check_limits(&self) -> Result<(), Failure> {
        match self {
            Self::User(command) => command.check_limits(),
            Self::OpenSession
            | Self::CloseSession(_)
            | Self::Verify
            | Self::Tick
            | Self::Raise(_)
            | Self::Appoint(_) => Ok(()),
        }
    }
}

impl From<UserCommand> for ControlCommand {
    fn from(command: UserCommand) -> Self {
        Self::User(command)
    }
}
