//! What makes retries exactly-once: a session's sequences, as a plain state machine.
//!
//! A write takes a [`Ticket`], sends its proposal under the ticket's session and sequence as often as it must, and
//! gives the ticket back when it will never send it again. The cluster keeps the outcomes of the sequences above the
//! session's floor, so whichever copy of a proposal comes first is applied, and all others get its outcome.
//!
//! Invariants:
//! - The floor is below every ticket that is out: no outcome is given up that somebody may still ask for.
//! - No sequence is given out twice, and none further above the floor than [`SESSION_WINDOW`].
//! - A ticket belongs to the session that gave it out; when that has expired it changes nothing.

use std::collections::BTreeSet;

use quorate_model::limits::SESSION_WINDOW;
use quorate_model::{Origin, SessionId};

/// The session of one client.
#[derive(Debug, Default)]
pub(crate) struct Session {
    state: State,
    /// The last sequence that was given out.
    last: u64,
    /// Those of them that are out.
    out: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    Opening,
    Open(SessionId),
}

/// The right to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    origin: Origin,
}

impl Ticket {
    /// What every copy of the proposal carries.
    pub(crate) fn origin(self) -> Origin {
        self.origin
    }

    /// The session that gave it out.
    pub(crate) fn session(self) -> SessionId {
        self.origin.session
    }
}

/// The answer to who wants to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Go on.
    Write(Ticket),
    /// Open a session first, and say how that went ([`Session::opened`]).
    Open,
    /// Wait until a ticket comes back or a session was opened.
    Wait,
}

impl Session {
    /// Asks for a ticket.
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

    /// Whether a session is being opened, so that nobody has a ticket.
    pub(crate) fn is_opening(&self) -> bool {
        self.state == State::Opening
    }

    /// Says how opening a session went: the new one, or `None`.
    pub(crate) fn opened(&mut self, session: Option<SessionId>) {
        *self = Self { state: session.map_or(State::None, State::Open), ..Self::default() };
    }

    /// Gives a ticket back: its proposal will not be sent again.
    pub(crate) fn finish(&mut self, ticket: Ticket) {
        if self.state == State::Open(ticket.session()) {
            self.out.remove(&ticket.origin.sequence);
        }
    }

    /// Says that the cluster does not know a session any more.
    pub(crate) fn expired(&mut self, session: SessionId) {
        if self.state == State::Open(session) {
            *self = Self::default();
        }
    }

    /// Ends the open session, if there is one, so that the cluster can be told. Tickets that are out are worth nothing
    /// from then on.
    pub(crate) fn end(&mut self) -> Option<SessionId> {
        let State::Open(session) = self.state else { return None };
        *self = Self::default();
        Some(session)
    }

    /// The sequence up to which no ticket is out.
    fn floor(&self) -> u64 {
        self.out.first().map_or(self.last, |first| first.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests;
