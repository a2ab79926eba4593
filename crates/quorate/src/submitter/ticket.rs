//! Taking and returning the ticket of one write.

use std::ops::Deref;

use quorate_env::{Instant, timeout_at};
use quorate_model::limits::SESSION_WINDOW;
use quorate_model::{Origin, SessionId};

use super::Submitter;
use super::session::{Ticket, Turn};
use crate::error::Error;

/// A ticket that is returned when it is dropped, also if the caller's future is dropped.
pub(crate) struct Held<C: Deref<Target = Submitter>> {
    ticket: Ticket,
    client: C,
}

impl<C: Deref<Target = Submitter>> Held<C> {
    /// Waits for a ticket.
    pub(super) async fn take(client: C, deadline: Instant) -> Result<Self, Error> {
        loop {
            let turn = client.session().turn();
            match turn {
                Turn::Write(ticket) => {
                    client.freed.notify_one();
                    return Ok(Self { ticket, client });
                }
                Turn::Open => {
                    let mut opening = Opening { client: &client, opened: None };
                    opening.opened = Some(client.open(deadline).await?);
                }
                Turn::Wait => {
                    if timeout_at(deadline, client.freed.notified()).await.is_err() {
                        return Err(if client.session().is_opening() {
                            Error::Unavailable("no session could be opened in time".into())
                        } else {
                            Error::Overloaded(format!("{SESSION_WINDOW} writes of this handle are under way").into())
                        });
                    }
                }
            }
        }
    }

    /// Returns the origin that every copy of the proposal contains.
    pub(crate) fn origin(&self) -> Origin {
        self.ticket.origin()
    }

    /// Returns the session that issued the ticket.
    pub(super) fn session(&self) -> SessionId {
        self.ticket.session()
    }
}

impl<C: Deref<Target = Submitter>> Drop for Held<C> {
    fn drop(&mut self) {
        self.client.session().finish(self.ticket);
        self.client.freed.notify_one();
    }
}

/// Reports the result of opening a session, also if the caller's future is dropped.
struct Opening<'a> {
    client: &'a Submitter,
    opened: Option<SessionId>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.client.session().opened(self.opened);
        self.client.freed.notify_one();
    }
}
