//! The family of events: messages on channels, kept in the order of the entries that added them.
//!
//! The number of an event consists of its entry and of its place among the events of that entry ([`EventId`]). So a
//! reader that continues after an event misses none and sees none twice. The store keeps the latest events, and answers
//! a query for older ones with [`EventsAnswer::Gap`].

use bytes::Bytes;

mod check;
mod glob;
mod id;
pub mod limits;

pub use check::check_event;
pub use glob::matches as glob_matches;
pub use id::{EventId, NotAnEventId};

/// The format level since which there are events.
pub const EVENTS_LEVEL: u32 = 6;

/// A command of the store of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventsCommand {
    /// Adds an event.
    Notify {
        /// The name of the channel: see [`check_event`].
        channel: String,
        /// What the event says.
        payload: Bytes,
    },
}

/// The reply to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventsReply {
    /// The event was added under this number.
    Notified(EventId),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub id: EventId,
    /// The channel.
    pub channel: String,
    /// What it says.
    pub payload: Bytes,
}

impl Event {
    /// Returns the bytes that an event counts where bytes of events are limited.
    pub fn size(channel: &str, payload: &[u8]) -> u64 {
        limits::EVENT_BYTES.saturating_add(channel.len() as u64).saturating_add(payload.len() as u64)
    }
}

/// Which events someone wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Those of these channels.
    pub channels: Vec<String>,
    /// Those of the channels that match one of these patterns, as in Redis: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a
    /// character that stands for itself.
    pub patterns: Vec<String>,
}

impl Filter {
    /// Returns whether the events of a channel are wanted. Without channels and patterns, all are.
    pub fn wants(&self, channel: &str) -> bool {
        self.channels.is_empty() && self.patterns.is_empty()
            || self.channels.iter().any(|wanted| wanted == channel)
            || self.patterns.iter().any(|pattern| glob_matches(pattern.as_bytes(), channel.as_bytes()))
    }
}

/// Asks for the next events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsQuery {
    /// Those after this one. None asks only for the number of the last event.
    pub after: Option<EventId>,
    /// Which of them.
    pub filter: Filter,
    /// The most events of the answer, from 1 to [`limits::PAGE_EVENTS_MAX`].
    pub limit: u32,
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventsAnswer {
    /// The next events.
    Page(EventsPage),
    /// Events after the one of the query are not kept any more.
    Gap {
        /// The oldest event that is kept.
        oldest: EventId,
    },
}

/// Events in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventsPage {
    /// The events.
    pub events: Vec<Event>,
    /// All events up to this number were looked at; the next query asks for those after it.
    pub upto: EventId,
    /// Whether there are later events.
    pub more: bool,
}
