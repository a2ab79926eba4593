//! The family of commands that concern the cluster and its clients, independent of what stores hold.

use crate::SessionId;

/// A command of this family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlCommand {
    /// Opens a session; its id is the index of the entry.
    OpenSession,
    /// Ends a session: its later requests fail with [`FailureKind::SessionExpired`](crate::FailureKind).
    CloseSession(SessionId),
    /// Changes nothing. Every node computes the logical hash of its database as of this entry. It must be the only
    /// command of its entry.
    Verify,
}

/// The result of a command of this family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlReply {
    /// The command succeeded and returns nothing.
    Done,
    /// The session that was opened.
    Session(SessionId),
}

impl ControlCommand {
    /// Returns whether it must be the only command of its entry.
    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Verify)
    }
}
