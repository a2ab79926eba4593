//! Events, and notifications of the key space, for the clients that have subscribed to channels.
//!
//! One listener gets all events of the cluster for all connections of the port, one watch gets the changes of keys that
//! the node applies, and each connection takes what its client has subscribed to.
//!
//! # Invariants
//!
//! - A connection that has [begun](Channels::begin) gets each event that is added from then on, in order, or learns
//!   that it has missed some.
//! - It gets the notifications of changes that the node has applied since then, in order; but changes for which there
//!   was no room, because the port could not keep up, have none.
//! - A connection that is slow holds up nobody: it misses what is more than [`EVENTS_WAITING_MAX`] messages behind.
//! - Nothing is read while no connection listens.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use quorate::Events;
use quorate::events::{Event, ListenError};
use quorate::keys::Watched;
use quorate_env::sleep;
use quorate_resp::Common;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::yield_now;

use super::metrics::Counts;
use super::notices::Notices;

/// The most events and notifications that wait for a connection whose client is slow. Beyond that, it is closed. They
/// have no more bytes than all events that are kept.
pub const EVENTS_WAITING_MAX: usize = 1_024;

/// The most connections that begin to listen at the same time. More wait.
const BEGINNING_MAX: usize = 64;

/// The pause after the cluster could not be asked.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A channel, and what is said there.
pub(super) type Message = (Bytes, Bytes);

/// What is sent to the connections that listen.
#[derive(Clone, Debug)]
enum News {
    Message(Message),
    /// Events were removed before they were read.
    Missed,
}

/// The source of events of a port.
#[derive(Debug)]
pub(super) struct Channels {
    beginning: mpsc::Sender<Beginning>,
}

/// Where a connection that begins gets what is sent from then on.
type Beginning = oneshot::Sender<broadcast::Receiver<News>>;

/// What [`Channels`] needs to be run.
#[derive(Debug)]
pub(super) struct Pump {
    events: Events,
    notices: Arc<Notices>,
    common: Arc<Common>,
    counts: Arc<Counts>,
    news: broadcast::Sender<News>,
    beginning: mpsc::Receiver<Beginning>,
}

/// The messages for one connection.
#[derive(Debug)]
pub(super) struct Feed {
    news: broadcast::Receiver<News>,
    /// A message that was received and not taken yet.
    message: Option<Message>,
}

impl Channels {
    /// Returns the channels for events and notices, and the pump that runs them and counts missed changes.
    pub(super) fn new(
        events: Events,
        notices: &Arc<Notices>,
        common: &Arc<Common>,
        counts: &Arc<Counts>,
    ) -> (Self, Pump) {
        let (news, _) = broadcast::channel(EVENTS_WAITING_MAX);
        let (sender, beginning) = mpsc::channel(BEGINNING_MAX);
        let (notices, common, counts) = (Arc::clone(notices), Arc::clone(common), Arc::clone(counts));
        (Self { beginning: sender }, Pump { events, notices, common, counts, news, beginning })
    }

    /// Returns the messages from now on; none if the port closes.
    pub(super) async fn begin(&self) -> Option<Feed> {
        let (begun, told) = oneshot::channel();
        self.beginning.send(begun).await.ok()?;
        Some(Feed { news: told.await.ok()?, message: None })
    }
}

impl Feed {
    /// Waits until there is a message to be taken; none if some were missed. May be dropped at any time.
    pub(super) async fn ready(&mut self) -> Option<()> {
        if self.message.is_none() {
            self.message = match self.news.recv().await {
                Ok(News::Message(message)) => Some(message),
                Ok(News::Missed) | Err(_) => return None,
            };
        }
        Some(())
    }

    /// Takes the message.
    pub(super) fn take(&mut self) -> Option<Message> {
        self.message.take()
    }
}

impl Pump {
    /// Passes messages on, until all connections and their port are gone.
    pub(super) async fn run(mut self) {
        let mut listener = None;
        loop {
            let Some(open) = &mut listener else {
                let Some(begun) = self.beginning.recv().await else { return };
                listener = Some(self.listen().await);
                self.notices.heard(true);
                self.begin(begun).await;
                continue;
            };
            let goes_on = tokio::select! {
                // A stream goes on with its look at the events, however often something else comes first.
                next = open.next() => self.pass_on(next).await,
                watched = self.notices.next() => {
                    self.notify(watched).await;
                    true
                }
                begun = self.beginning.recv() => match begun {
                    Some(begun) => {
                        self.begin(begun).await;
                        true
                    }
                    None => return,
                },
            };
            if !goes_on || self.news.receiver_count() == 0 {
                listener = None;
                self.notices.heard(false);
            }
        }
    }

    /// Lets a connection begin. It first sends the notifications of earlier entries to those that listen already.
    async fn begin(&self, begun: Beginning) {
        self.notify(self.notices.take()).await;
        // One that has gone meanwhile does not listen.
        let _ = begun.send(self.news.subscribe());
    }

    /// Begins to listen to all channels.
    async fn listen(&self) -> BoxStream<'static, Result<Event, ListenError>> {
        loop {
            let mut listener = self.events.listen(std::iter::empty::<String>());
            match listener.begin().await {
                Ok(_) => return listener.into_stream().boxed(),
                Err(error) => tracing::debug!(%error, "could not listen to events"),
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Publishes what there is to say about changes of keys, as far as anybody listens to it.
    async fn notify(&self, Watched { changes, missed }: Watched) {
        self.counts.missed.add(missed);
        let notifications = self.notices.get();
        for message in changes.iter().flat_map(|change| notifications.messages(change)) {
            if self.common.audience.reached(&message.0) > 0 {
                self.send(message).await;
            }
        }
    }

    async fn send(&self, message: Message) {
        // Nobody is left to be told if it fails.
        let _ = self.news.send(News::Message(message));
        // Many messages at once do not overtake connections that keep up.
        yield_now().await;
    }

    /// Sends the next event to the connections. Returns `false` if the stream of events has ended.
    async fn pass_on(&self, next: Option<Result<Event, ListenError>>) -> bool {
        let goes_on = next.is_some();
        match next {
            Some(Ok(event)) => self.send((event.channel.into(), event.payload)).await,
            Some(Err(ListenError::Gap { .. })) | None => drop(self.news.send(News::Missed)),
            Some(Err(error)) => {
                tracing::debug!(%error, "could not read events");
                sleep(RETRY_PAUSE).await;
            }
        }
        goes_on
    }
}
