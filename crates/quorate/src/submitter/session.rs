//! The sequences of a session, which make retries exactly-once, as a plain state machine.
//!
//! A write takes a [`Ticket`], sends its proposal under the ticket's session and sequence as often as necessary, and
//! returns the ticket when it will never send the proposal again. The cluster keeps the outcomes of the sequences above
//! the session's floor. Therefore the first copy of a proposal to arrive is applied, and all other copies get its
//! outcome.
//!
//! Invariants:
//! - The floor is below every ticket in use, so the cluster keeps every outcome that a caller may still request.
//! - Each sequence is issued once, and at most [`SESSION_WINDOW`] above the floor.
//! - A ticket belongs to the session that issued it; after that session has expired, the ticket changes nothing.

use std::collections::BTreeSet;

use quorate_model::limits::SESSION_WINDOW;
use quorate_model::{Origin, SessionId};

/// The session of one client.
#[derive(Debug, Default)]
pub(crate) struct Session {
    state: State,
    /// The last sequence that was issued.
    last: u64,
    /// The issued sequences that are in use.
    out: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    Opening,
    Open(SessionId),
}

/// The right to make one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    origin: Origin,
}

impl Ticket {
    /// Returns the origin that every copy of the proposal contains.
    pub(crate) fn origin(self) -> Origin {
        self.origin
    }

    /// Returns the session that issued the ticket.
    pub(crate) fn session(self) -> SessionId {
        self.origin.session
    }
}

/// The answer to a caller that wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The caller may write.
    Write(Ticket),
    /// The caller must open a session, and report the result ([`Session::opened`]).
    Open,
    /// The caller must wait until a ticket is returned or a session was opened.
    Wait,
}

impl Session {
    /// Requests a ticket.
    pub(crate) fn turn(&mut self) -> Turn {
        match self.state {
            State::None => {
                self.state = State::Opening;
                Turn::Open
            }
            State::Opening => Turn::Wait,
            State::Open(session) => {
                let floor = self.floor();
                if self.last.saturating_sub(floor) >= SESSION_WINDOW {
                    return Turn::Wait;
                }
                self.last = self.last.saturating_add(1);
                self.out.insert(self.last);
                Turn::Write(Ticket { origin: Origin { session, sequence: self.last, floor } })
            }
        }
    }

    /// Returns whether a session is being opened, so that no tickets exist.
    pub(crate) fn is_opening(&self) -> bool {
        self.state == State::Opening
    }

    /// Records the result of opening a session: the new one, or `None` if it failed.
    pub(crate) fn opened(&mut self, session: Option<SessionId>) {
        *self = Self { state: session.map_or(State::None, State::Open), ..Self::default() };
    }

    /// Returns a ticket: its proposal will not be sent again.
    pub(crate) fn finish(&mut self, ticket: Ticket) {
        if self.state == State::Open(ticket.session()) {
            self.out.remove(&ticket.origin.sequence);
        }
    }

    /// Records that the cluster no longer knows a session.
    pub(crate) fn expired(&mut self, session: SessionId) {
        if self.state == State::Open(session) {
            *self = Self::default();
        }
    }

    /// Ends the open session, if there is one, and returns it, so that it can be closed in the cluster. Its tickets are
    /// void from then on.
    pub(crate) fn end(&mut self) -> Option<SessionId> {
        let State::Open(session) = self.state else { return None };
        *self = Self::default();
        Some(session)
    }

    /// Returns the sequence up to which no ticket is in use.
    fn floor(&self) -> u64 {
        self.out.first().map_or(self.last, |first| first.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests;
