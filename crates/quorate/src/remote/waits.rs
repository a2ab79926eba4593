//! The waits of a client: one stream to one node carries all of them.
//!
//! The stream is opened for the first wait, and again after it has broken, possibly to another node. It ends with the
//! client.
//!
//! Invariants:
//! - A client has at most [`WAITS_PER_STREAM_MAX`] waiters; a waiter keeps its place until the node was told that it is
//!   gone. So the requests that wait to be sent are bounded too.
//! - When a stream ends, the client tells each waiter of it why.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::future::{Either, select};
use quorate_apply::waits::Woken;
use quorate_env::lock;
use quorate_model::{GroupId, Topic};
use quorate_wire::{StreamError, StreamReceiver, StreamSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::nodes::{Nodes, unreachable};
use super::snapshot::failed;
use crate::error::Error;
use crate::protocol::waits::{News, WAITS_PER_STREAM_MAX, WaitAsk, WaitTold};
use crate::protocol::{self, method};
use crate::runtime::Runtime;

/// The requests of one waiter: to register, and to leave.
const REQUESTS_PER_WAITER: usize = 2;

/// Registers waiters; see the module.
pub(super) struct Waits {
    runtime: Runtime,
    nodes: Arc<Nodes>,
    places: Arc<Semaphore>,
    line: tokio::sync::Mutex<Option<Arc<Line>>>,
}

/// A registered waiter. When it is dropped after it was woken, it has used its turn; [`Waiter::pass_on`] gives the turn
/// to the next waiter.
pub struct Waiter {
    number: u64,
    line: Arc<Line>,
    woken: oneshot::Receiver<Woken>,
    has_turn: bool,
    place: Option<OwnedSemaphorePermit>,
}

/// A stream, as its waiters see it. It ends when the last of them, and [`Waits`], have dropped this.
struct Line {
    requests: mpsc::Sender<Request>,
    callers: Arc<Callers>,
}

/// A request to the node, and the place of the waiter if it leaves.
struct Request(WaitAsk, Option<OwnedSemaphorePermit>);

/// Those who wait for news from a node.
struct Callers {
    addr: Arc<str>,
    /// The error after the stream has ended.
    table: Mutex<Result<Table, Error>>,
}

#[derive(Default)]
struct Table {
    by_number: BTreeMap<u64, Caller>,
    last_number: u64,
}

/// A caller that registers, or waits.
struct Caller {
    answer: Option<oneshot::Sender<Result<(), Error>>>,
    wake: oneshot::Sender<Woken>,
}

/// Where the node's answer to a registration arrives.
type Registered = oneshot::Receiver<Result<(), Error>>;

/// Tells the callers of the end even if the task that carries the stream is dropped.
struct EndedOnDrop(Arc<Callers>);

impl Waits {
    pub(super) fn new(runtime: Runtime, nodes: Arc<Nodes>) -> Self {
        let places = Arc::new(Semaphore::new(WAITS_PER_STREAM_MAX));
        Self { runtime, nodes, places, line: tokio::sync::Mutex::default() }
    }

    /// Registers a waiter for a topic of a group, behind those that wait on the same node already. The caller must look
    /// for what it waits for after this has returned.
    ///
    /// # Errors
    ///
    /// [`Error::Overloaded`] if the client or the node has too many waiters, [`Error::Unavailable`] if no node can be
    /// reached or the connection broke, and [`Error::Forbidden`] if nothing can be waited for in the group.
    pub(super) async fn register(&self, group: GroupId, topic: Topic) -> Result<Waiter, Error> {
        self.runtime.run(self.register_inside(group, topic)).await.unwrap_or(Err(Error::Closed))
    }

    async fn register_inside(&self, group: GroupId, topic: Topic) -> Result<Waiter, Error> {
        let full = format!("this client has {WAITS_PER_STREAM_MAX} waiters; wait for less at a time");
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Error::Overloaded(full.into()))?;
        let line = self.line().await?;
        let (waiter, registered) = line.add(place)?;
        line.ask(WaitAsk::register(waiter.number, group, topic), None);
        registered.await.unwrap_or_else(|_| Err(line.callers.why()))?;
        Ok(waiter)
    }

    /// Returns the stream that is open, or opens one.
    async fn line(&self) -> Result<Arc<Line>, Error> {
        let mut line = self.line.lock().await;
        if let Some(line) = line.as_ref().filter(|line| lock(&line.callers.table).is_ok()) {
            return Ok(Arc::clone(line));
        }
        let reached = self.nodes.reach().await.map_err(unreachable)?;
        let stream = reached.client.open_stream(method::WAIT).map_err(|error| failed(error, &reached.addr))?;
        let (requests, asked) = mpsc::channel(REQUESTS_PER_WAITER.saturating_mul(WAITS_PER_STREAM_MAX));
        let callers = Arc::new(Callers { addr: reached.addr, table: Mutex::new(Ok(Table::default())) });
        let ended = EndedOnDrop(Arc::clone(&callers));
        let task = async move {
            if let Err(error) = carry(stream, asked, &ended).await {
                ended.0.end(failed(error, &ended.0.addr));
            }
        };
        drop(self.runtime.env().spawn(task));
        Ok(Arc::clone(line.insert(Arc::new(Line { requests, callers }))))
    }
}

/// Carries requests and news until the stream or the client ends.
async fn carry(
    (mut sender, mut receiver): (StreamSender, StreamReceiver),
    mut asked: mpsc::Receiver<Request>,
    EndedOnDrop(callers): &EndedOnDrop,
) -> Result<(), StreamError> {
    let asking = async {
        while let Some(Request(ask, _place)) = asked.recv().await {
            sender.send(protocol::encode(&ask)).await?;
        }
        Ok(())
    };
    // News are taken while requests wait to be sent, so that the two ends never wait for each other.
    let hearing = async {
        while let Some(item) = receiver.recv().await? {
            callers.tell(protocol::decode(item).map_err(StreamError::Failed)?);
        }
        Ok(())
    };
    match select(pin!(asking), pin!(hearing)).await {
        Either::Left((ended, _)) | Either::Right((ended, _)) => ended,
    }
}

impl Line {
    /// Returns a new waiter, and where the node's answer to its registration arrives.
    fn add(self: &Arc<Self>, place: OwnedSemaphorePermit) -> Result<(Waiter, Registered), Error> {
        let ((answer, registered), (wake, woken)) = (oneshot::channel(), oneshot::channel());
        let mut table = lock(&self.callers.table);
        let table = table.as_mut().map_err(|error| error.clone())?;
        table.last_number = table.last_number.saturating_add(1);
        let number = table.last_number;
        table.by_number.insert(number, Caller { answer: Some(answer), wake });
        let waiter = Waiter { number, line: Arc::clone(self), woken, has_turn: false, place: Some(place) };
        Ok((waiter, registered))
    }

    fn ask(&self, ask: WaitAsk, place: Option<OwnedSemaphorePermit>) {
        // The channel has room for all requests of all waiters. After the end of the stream there is nothing to ask.
        let _ = self.requests.try_send(Request(ask, place));
    }
}

impl Callers {
    fn tell(&self, told: WaitTold) {
        let mut table = lock(&self.table);
        let Ok(table) = table.as_mut() else { return };
        // A caller that is gone needs no news.
        let Entry::Occupied(mut caller) = table.by_number.entry(told.number) else { return };
        match told.news() {
            News::Registered(result) => {
                let _ = caller.get_mut().answer.take().map(|answer| answer.send(result));
            }
            News::Woken(woken) => {
                let _ = caller.remove().wake.send(woken);
            }
        }
    }

    /// Tells all callers that the stream has ended. The first reason counts.
    fn end(&self, why: Error) {
        let mut table = lock(&self.table);
        if table.is_ok() {
            *table = Err(why);
        }
    }

    /// Returns why the stream has ended.
    fn why(&self) -> Error {
        lock(&self.table).as_ref().err().cloned().unwrap_or(Error::Closed)
    }
}

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        self.0.end(Error::Closed);
    }
}

impl Waiter {
    /// Waits until the waiter is woken. May be called again when its future was dropped, but not after it has returned.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the connection to the node broke: the waiter may have missed something, so the caller
    /// must register again and look. [`Error::Closed`] if the client was closed.
    pub async fn woken(&mut self) -> Result<Woken, Error> {
        let woken = (&mut self.woken).await.map_err(|_| self.line.callers.why())?;
        self.has_turn = true;
        Ok(woken)
    }

    /// Wakes the next waiter of the topic, because this one was woken and found nothing for itself.
    pub fn pass_on(mut self) {
        self.has_turn = false;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Ok(table) = lock(&self.line.callers.table).as_mut() {
            table.by_number.remove(&self.number);
        }
        self.line.ask(WaitAsk::leave(self.number, self.has_turn), self.place.take());
    }
}
