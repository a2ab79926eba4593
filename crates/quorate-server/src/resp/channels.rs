//! Events, for the clients that have subscribed to channels.
//!
//! One listener gets all events of the cluster for all connections of the port, and each of these takes those that its
//! client has subscribed to.
//!
//! # Invariants
//!
//! - A connection that has [begun](Channels::begin) gets each event that is added from then on, in order, or learns
//!   that it has missed some.
//! - A connection that is slow holds up nobody: it misses what is more than [`EVENTS_WAITING_MAX`] events behind.
//! - Nothing is read while no connection listens.

use std::time::Duration;

use quorate::Events;
use quorate::events::{Event, ListenError, Listener};
use quorate_env::sleep;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::yield_now;

/// The most events that wait for a connection whose client is slow. Beyond that, it is closed. They have no more bytes
/// than all events that are kept.
pub const EVENTS_WAITING_MAX: usize = 1_024;

/// The most connections that begin to listen at the same time. More wait.
const BEGINNING_MAX: usize = 64;

/// The pause after the cluster could not be asked.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A message to the connections that listen.
#[derive(Clone, Debug)]
enum News {
    Event(Event),
    /// Events were removed before they were read.
    Missed,
}

/// The source of events of a port.
#[derive(Debug)]
pub(super) struct Channels {
    news: broadcast::Sender<News>,
    beginning: mpsc::Sender<oneshot::Sender<()>>,
}

/// What [`Channels`] needs to be run.
#[derive(Debug)]
pub(super) struct Pump {
    events: Events,
    news: broadcast::Sender<News>,
    beginning: mpsc::Receiver<oneshot::Sender<()>>,
}

/// The events for one connection.
#[derive(Debug)]
pub(super) struct Feed {
    news: broadcast::Receiver<News>,
    /// An event that was received and not taken yet.
    event: Option<Event>,
}

impl Channels {
    pub(super) fn new(events: Events) -> (Self, Pump) {
        let (news, _) = broadcast::channel(EVENTS_WAITING_MAX);
        let (sender, beginning) = mpsc::channel(BEGINNING_MAX);
        (Self { news: news.clone(), beginning: sender }, Pump { events, news, beginning })
    }

    /// Returns the events from now on; none if the port closes.
    pub(super) async fn begin(&self) -> Option<Feed> {
        // First, so that the pump sees that somebody listens.
        let feed = Feed { news: self.news.subscribe(), event: None };
        let (begun, told) = oneshot::channel();
        self.beginning.send(begun).await.ok()?;
        told.await.ok().map(|()| feed)
    }
}

impl Feed {
    /// Waits until there is an event to be taken; none if some were missed. May be dropped at any time.
    pub(super) async fn ready(&mut self) -> Option<()> {
        if self.event.is_none() {
            self.event = match self.news.recv().await {
                Ok(News::Event(event)) => Some(event),
                Ok(News::Missed) | Err(_) => return None,
            };
        }
        Some(())
    }

    /// Takes the event.
    pub(super) fn take(&mut self) -> Option<Event> {
        self.event.take()
    }
}

impl Pump {
    /// Passes events on, until all connections and their port are gone.
    pub(super) async fn run(mut self) {
        let mut listener = None;
        loop {
            let Some(open) = &mut listener else {
                let Some(begun) = self.beginning.recv().await else { return };
                listener = Some(self.listen().await);
                // One that has gone meanwhile does not listen.
                let _ = begun.send(());
                continue;
            };
            tokio::select! {
                next = open.next() => self.pass_on(next).await,
                begun = self.beginning.recv() => match begun {
                    Some(begun) => drop(begun.send(())),
                    None => return,
                },
            }
            if self.news.receiver_count() == 0 {
                listener = None;
            }
        }
    }

    /// Begins to listen to all channels.
    async fn listen(&self) -> Listener {
        loop {
            let mut listener = self.events.listen(std::iter::empty::<String>());
            match listener.begin().await {
                Ok(_) => return listener,
                Err(error) => tracing::debug!(%error, "could not listen to events"),
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn pass_on(&self, next: Result<Event, ListenError>) {
        match next {
            Ok(event) => {
                // Nobody is left to be told if it fails.
                let _ = self.news.send(News::Event(event));
                // Many events at once do not overtake connections that keep up.
                yield_now().await;
            }
            Err(ListenError::Gap { .. }) => drop(self.news.send(News::Missed)),
            Err(error) => {
                tracing::debug!(%error, "could not read events");
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}
