//! Events: messages on channels, replicated, in the same database and the same transactions as SQL and keys.
//!
//! An event is numbered by the entry that added it. Whoever listens from a number on gets each later event of its
//! channels once and in order, whatever fails meanwhile: nodes, the leader, the connection, or the listener itself, if
//! it remembers the number of the last event that it has dealt with. `docs/events.md` says more.
//!
//! ```
//! # async fn f(events: quorate::Events, sql: quorate::Sql) -> Result<(), Box<dyn std::error::Error>> {
//! use quorate::{params, steps};
//!
//! let mut orders = events.listen(["orders"]);
//! orders.begin().await?;
//!
//! // With a row, or neither of them.
//! sql.batch(steps![
//!     ("INSERT INTO orders (item) VALUES (?)", params!["tea"]),
//!     events.notify("orders", "tea"),
//! ])
//! .await?;
//!
//! let event = orders.next().await?;
//! assert_eq!((event.channel.as_str(), &event.payload[..]), ("orders", &b"tea"[..]));
//! // Later, and in another process:
//! let orders = events.listen(["orders"]).after(event.id);
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//!
//! - A listener asks for events; nothing is kept for it, on a node or here, but one page. So one that is slow costs
//!   nothing, and is told when events that it did not get are gone ([`ListenError::Gap`]).

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use quorate_model::events::{EventsAnswer, EventsCommand, EventsQuery, EventsReply};
use quorate_model::{Command, CommandResult, Position, Read, UserRole};

use crate::error::Error;
use crate::keys::IntoBytes;
use crate::level::Level;
use crate::params::BatchStep;
use crate::sql::Sql;
use crate::submitter::ReadAnswer;

mod listener;

pub use quorate_model::events::{Event, EventId, Filter, NotAnEventId, limits};

pub use self::listener::{ListenError, Listener};

/// A handle to the events: those of a node in this process ([`Node::events`](crate::Node::events)), or those of a
/// remote cluster ([`Client::events`](crate::Client::events)). Cheap to clone.
///
/// It has the options of an [`Sql`] handle; the methods that change them are documented there.
#[derive(Clone, Debug)]
pub struct Events {
    sql: Sql,
}

impl Sql {
    /// Returns the handle to the events of the database, with the options of this one.
    pub fn events(&self) -> Events {
        Events { sql: self.clone() }
    }
}

impl Events {
    /// Returns a call that adds an event. Awaited, it returns the event's number.
    ///
    /// The name of a channel has at least one character, no control characters, and at most
    /// [`limits::CHANNEL_BYTES_MAX`] bytes. A channel needs nothing before its first event.
    pub fn notify(&self, channel: impl Into<String>, payload: impl IntoBytes) -> Notify {
        let command = EventsCommand::Notify { channel: channel.into(), payload: payload.into_bytes() };
        Notify { sql: self.sql.clone(), command }
    }

    /// Returns a listener for the events of these channels, from its first use on. Without channels, and without
    /// [patterns](Listener::patterns), it gets the events of all.
    pub fn listen(&self, channels: impl IntoIterator<Item = impl Into<String>>) -> Listener {
        let channels = channels.into_iter().map(Into::into).collect();
        Listener::new(self.clone(), Filter { channels, patterns: Vec::new() })
    }

    /// Returns the number of the last event; [`EventId::START`] before the first one.
    pub async fn last(&self) -> Result<EventId, Error> {
        self.last_for(Filter::default()).await
    }

    /// Returns the number of the last event, whatever its channel, if a filter can be listened with.
    async fn last_for(&self, filter: Filter) -> Result<EventId, Error> {
        let query = EventsQuery { filter, limit: 1, ..EventsQuery::default() };
        match self.ask(query).await? {
            EventsAnswer::Page(page) => Ok(page.upto),
            EventsAnswer::Gap { .. } => Err(other_answer()),
        }
    }

    async fn ask(&self, query: EventsQuery) -> Result<EventsAnswer, Error> {
        match self.sql.read(Read::Events(query)).await? {
            ReadAnswer::Events(answer) => Ok(answer),
            _ => Err(other_answer()),
        }
    }
}

/// Options, as [`Sql`] has them.
impl Events {
    /// See [`Sql::at`]. A listener at a level below [`Level::Linearizable`] may get an event a little later, but never
    /// misses one.
    #[must_use]
    pub fn at(&self, level: Level) -> Self {
        Self { sql: self.sql.at(level) }
    }

    /// See [`Sql::with_role`].
    #[must_use]
    pub fn with_role(&self, role: UserRole) -> Self {
        Self { sql: self.sql.with_role(role) }
    }

    /// See [`Sql::with_deadline`].
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        Self { sql: self.sql.with_deadline(deadline) }
    }

    /// See [`Sql::with_key`].
    #[must_use]
    pub fn with_key(&self, key: impl Into<Vec<u8>>) -> Self {
        Self { sql: self.sql.with_key(key) }
    }

    /// See [`Sql::with_archived_writes`].
    #[must_use]
    pub fn with_archived_writes(&self) -> Self {
        Self { sql: self.sql.with_archived_writes() }
    }
}

/// An event that is to be added. Await it to add it, exactly once, or make it a step of a batch, a pipeline or a
/// transaction.
///
/// # Errors
///
/// Those of [`Sql::execute`].
#[derive(Clone, Debug)]
#[must_use = "an event is added when this is awaited, or as a step of a batch"]
pub struct Notify {
    sql: Sql,
    command: EventsCommand,
}

impl Notify {
    /// Adds the event, and returns the position of the write too.
    pub async fn with_position(self) -> Result<(EventId, Position), Error> {
        let written = self.sql.write(BatchStep(Command::Events(self.command))).await?;
        match written.reply.results.into_iter().next() {
            Some(CommandResult::Events(EventsReply::Notified(id))) => Ok((id, written.position)),
            _ => Err(other_answer()),
        }
    }
}

impl IntoFuture for Notify {
    type Output = Result<EventId, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { self.with_position().await.map(|(id, _)| id) }.boxed()
    }
}

impl From<Notify> for BatchStep {
    fn from(notify: Notify) -> Self {
        Self(Command::Events(notify.command))
    }
}

/// The error for an answer of another kind than the question.
fn other_answer() -> Error {
    Error::Unavailable("the cluster answered a request for events with a reply of another kind".into())
}
