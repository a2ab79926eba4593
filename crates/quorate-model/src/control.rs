//! The family of commands that concern the cluster and its clients, whatever stores hold.

use crate::SessionId;

/// A command of this family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    /// Opens a session; its id is the index of the entry.
    OpenSession,
    /// Ends a session: later requests of it fail with [`FailureKind::SessionExpired`](crate::FailureKind).
    CloseSession(SessionId),
    /// Changes nothing. Every node takes the logical hash of its database as it stands right behind this entry. It must
    /// be the only command of its entry.
    Verify,
}

/// What a command of this family returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlReply {
    /// The command succeeded and returns nothing.
    Done,
    /// The session that was opened.
    Session(SessionId),
}

impl ControlCommand {
    /// Whether it must be the only command of its entry.
    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Verify)
    }
}
