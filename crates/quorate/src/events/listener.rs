//! Listeners.
//!
//! A listener registers a waiter, then looks for events; if there are none, it waits until it is woken, and looks
//! again. So it misses nothing. It also looks again after [`LOOK_EVERY`], because it may have looked at a node that was
//! behind the one at which it waits.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::unfold;
use futures_util::{FutureExt as _, Stream};
use quorate_env::mutant::Mutant;
use quorate_env::timeout;
use quorate_model::Topic;
use quorate_model::events::limits::PAGE_EVENTS_MAX;
use quorate_model::events::{EventsAnswer, EventsQuery};

use super::{Event, EventId, Events, Filter};
use crate::error::Error;

/// How long a listener waits before it looks again although nothing has woken it.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The events of a page.
const PAGE_EVENTS: u32 = 100;

/// Why there is no next event.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Events that the listener did not get are not kept any more, because it was away or slow for too long. It can go
    /// on: the next event is the oldest one that is kept.
    #[error("events before {oldest} are not kept any more, and this listener did not get all of them; read the state")]
    Gap {
        /// The oldest event that is kept, whatever its channel.
        oldest: EventId,
    },
    /// The cluster could not be asked. The listener can try again, and misses nothing.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl ListenError {
    /// Whether the next call may return an event.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Gap { .. } => true,
            Self::Failed(error) => error.is_retryable(),
        }
    }
}

/// Gets the events of some channels, each once and in order.
///
/// Its place is the number of the last event that it has returned ([`Listener::position`]); a new listener
/// [after](Listener::after) that goes on where this one was. Without that it begins with the events that come after its
/// first use.
pub struct Listener {
    events: Events,
    filter: Filter,
    /// The last event that was returned, or the last that was looked at and not wanted; none before the first use.
    position: Option<EventId>,
    /// Events that were read and not returned yet.
    read: VecDeque<Event>,
    /// All events up to this one were read.
    upto: EventId,
    /// Whether there may be later events than those that were read, so that it looks before it waits.
    more: bool,
    /// Ends when there may be events that were not read; none before a waiter is registered.
    woken: Option<BoxFuture<'static, ()>>,
}

impl Listener {
    pub(super) fn new(events: Events, filter: Filter) -> Self {
        let (position, read, upto, more, woken) = (None, VecDeque::new(), EventId::START, false, None);
        Self { events, filter, position, read, upto, more, woken }
    }

    /// Adds the channels whose names match one of these patterns, as in Redis: `*`, `?`, `[a-c]`, `[^a]`, and `\`
    /// before a character that stands for itself.
    #[must_use]
    pub fn patterns(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.filter.patterns.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Goes on after an event. [`EventId::START`] begins with the oldest event that is kept, and returns a
    /// [`ListenError::Gap`] first if there were older ones.
    #[must_use]
    pub fn after(mut self, event: EventId) -> Self {
        self.go_to(if Mutant::EventHeardAgain.is_on() { event.before() } else { event });
        self
    }

    fn go_to(&mut self, event: EventId) {
        self.read.clear();
        (self.position, self.upto, self.more, self.woken) = (Some(event), event, false, None);
    }

    /// Returns the number after which a new listener goes on where this one is; none before the first use.
    pub fn position(&self) -> Option<EventId> {
        self.position
    }

    /// Makes sure that the listener gets all events that are added from now on, if it was not used before. Returns its
    /// position.
    pub async fn begin(&mut self) -> Result<EventId, Error> {
        if let Some(position) = self.position {
            return Ok(position);
        }
        let last = self.events.last_for(self.filter.clone()).await?;
        self.go_to(last);
        Ok(last)
    }

    /// Returns the next event, once there is one. The future may be dropped: the event is then returned by the next
    /// call.
    ///
    /// # Errors
    ///
    /// The listener can be used after an error that is retryable, and has missed nothing but what
    /// [`ListenError::Gap`] says.
    pub async fn next(&mut self) -> Result<Event, ListenError> {
        self.begin().await?;
        loop {
            if let Some(event) = self.read.pop_front() {
                self.position = Some(event.id);
                return Ok(event);
            }
            self.position = Some(self.upto);
            if !self.more {
                self.wait().await?;
            }
            self.look().await?;
        }
    }

    /// Waits until there may be events, and registers the waiter for later ones.
    async fn wait(&mut self) -> Result<(), Error> {
        let sql = &self.events.sql;
        if let Some(woken) = &mut self.woken {
            sql.submitter.runtime().run(woken).await.map_err(|_| Error::Closed)?;
            self.woken = None;
        }
        let woken = sql.submitter.register(Topic::EVENTS.watched(), sql.deadline()).await?;
        // A call that is dropped does not begin its time anew. Whatever ends it, the next step is to look.
        self.woken = Some(async move { drop(timeout(LOOK_EVERY, woken).await) }.boxed());
        // So the next call looks even if this one is dropped before it has.
        self.more = true;
        Ok(())
    }

    /// Reads a page. If this fails, or is dropped, the next call looks again before it waits.
    async fn look(&mut self) -> Result<(), ListenError> {
        let limit = PAGE_EVENTS.min(PAGE_EVENTS_MAX);
        let query = EventsQuery { after: Some(self.upto), filter: self.filter.clone(), limit };
        match self.events.ask(query).await {
            Ok(EventsAnswer::Page(page)) => {
                (self.upto, self.more) = (page.upto, page.more);
                self.read = page.events.into();
                Ok(())
            }
            Ok(EventsAnswer::Gap { oldest }) => {
                self.go_to(oldest.before());
                self.more = true;
                Err(ListenError::Gap { oldest })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the events as a stream. It ends after an error that is not retryable.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event, ListenError>> + Send {
        unfold(Some(self), |listener| async {
            let mut listener = listener?;
            let next = listener.next().await;
            let is_over = next.as_ref().is_err_and(|error| !error.is_retryable());
            Some((next, (!is_over).then_some(listener)))
        })
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { filter, position, .. } = self;
        f.debug_struct("Listener").field("filter", filter).field("position", position).finish_non_exhaustive()
    }
}
