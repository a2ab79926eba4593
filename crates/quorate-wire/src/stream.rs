//! Streams: items in both directions, each ordered and bounded by the reader's window.
//!
//! Invariants:
//! - The items that a sender has in flight never cost more than the window. A peer that exceeds it loses its
//!   connection.
//! - A reader gets all items that arrived before the end or the error.
//! - A stream is removed from the table when both its directions have ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use bytes::Bytes;
use quorate_env::lock;
use quorate_env::signal::Signal;
use tokio::sync::Semaphore;

use crate::error::{CallFailure, FailureKind, LinkError, StreamError};
use crate::limits::Limits;
use crate::message::Message;
use crate::outbox::Outbox;

/// The streams of one end of a connection.
#[derive(Debug)]
pub(crate) struct Streams {
    outbox: Arc<Outbox>,
    limits: Limits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<u64, Arc<Cell>>,
    last_id: u64,
    closed: bool,
}

/// The shared state of one stream.
#[derive(Debug)]
struct Cell {
    id: u64,
    /// The cost that this end may still send; closed when the other end no longer reads.
    credit: Semaphore,
    state: Mutex<State>,
    bell: Signal,
}

#[derive(Debug)]
struct State {
    /// Whether this end may still send.
    sending: bool,
    /// Whether this end still reads and the other end has not ended its direction.
    reading: bool,
    /// Why sending ended, if this end did not end it.
    send_error: Option<StreamError>,
    items: VecDeque<Bytes>,
    /// How the items end.
    end: Option<Result<(), StreamError>>,
    /// The cost that the other end may still send.
    granted: u32,
    /// The cost of items that were taken and not yet granted again.
    taken: u32,
}

impl Streams {
    pub(crate) fn new(outbox: &Arc<Outbox>, limits: Limits) -> Arc<Self> {
        Arc::new(Self { outbox: Arc::clone(outbox), limits, table: Mutex::default() })
    }

    /// Opens a stream from this end. Each half holds a clone of `keep`.
    pub(crate) fn open<K>(
        self: &Arc<Self>,
        method: u16,
        keep: &K,
    ) -> Result<(StreamSender, StreamReceiver), StreamError>
    where
        K: Clone + Send + Sync + 'static,
    {
        let mut table = self.table();
        if table.closed {
            return Err(StreamError::Broken);
        }
        if table.open.len() >= self.max() {
            return Err(StreamError::TooMany);
        }
        let id = table.last_id + 1;
        table.last_id = id;
        if !self.outbox.push(Message::Open { id, method }) {
            return Err(StreamError::Broken);
        }
        Ok(self.insert(&mut table, id, keep))
    }

    /// Accepts a stream that the other end opened. If there are too many, refuses it and returns `None`.
    pub(crate) fn accept(self: &Arc<Self>, id: u64) -> Result<Option<(StreamSender, StreamReceiver)>, LinkError> {
        let mut table = self.table();
        if id <= table.last_id {
            return Err(LinkError::Malformed("it reused the id of a stream"));
        }
        table.last_id = id;
        if table.closed || table.open.len() >= self.max() {
            let failure = CallFailure::new(FailureKind::Overloaded, "too many open streams");
            self.outbox.push(Message::Abort { id, failure });
            self.outbox.push(Message::Stop { id });
            return Ok(None);
        }
        Ok(Some(self.insert(&mut table, id, &())))
    }

    fn insert<K>(self: &Arc<Self>, table: &mut Table, id: u64, keep: &K) -> (StreamSender, StreamReceiver)
    where
        K: Clone + Send + Sync + 'static,
    {
        let window = self.limits.stream_window;
        let cell = Arc::new(Cell {
            id,
            credit: Semaphore::new(usize::try_from(window).unwrap_or(usize::MAX)),
            state: Mutex::new(State {
                sending: true,
                reading: true,
                send_error: None,
                items: VecDeque::new(),
                end: None,
                granted: window,
                taken: 0,
            }),
            bell: Signal::new(),
        });
        table.open.insert(id, Arc::clone(&cell));
        let half = |keep: K| Half {
            cell: Arc::clone(&cell),
            outbox: Arc::clone(&self.outbox),
            limits: self.limits,
            table: Arc::downgrade(self),
            _keep: Box::new(keep),
        };
        (StreamSender(half(keep.clone())), StreamReceiver(half(keep.clone())))
    }

    /// Handles a message about a stream. Messages about a stream that has ended here are late and are ignored.
    pub(crate) fn handle(&self, message: Message) -> Result<(), LinkError> {
        match message {
            Message::Item { id, body } => self.find(id).map_or(Ok(()), |cell| cell.arrived(body, &self.limits)),
            Message::Credit { id, amount } => self.find(id).map_or(Ok(()), |cell| cell.credited(amount, &self.limits)),
            Message::End { id } => self.ended(id, Ok(())),
            Message::Abort { id, failure } => self.ended(id, Err(StreamError::Failed(failure))),
            Message::Stop { id } => self.stopped(id),
            _ => Err(LinkError::Malformed("it sent a message that is not valid in this direction")),
        }
    }

    fn ended(&self, id: u64, end: Result<(), StreamError>) -> Result<(), LinkError> {
        if let Some(cell) = self.find(id) {
            cell.end_items(end);
            self.forget_if_over(&cell);
        }
        Ok(())
    }

    fn stopped(&self, id: u64) -> Result<(), LinkError> {
        if let Some(cell) = self.find(id) {
            cell.end_sending(StreamError::Stopped);
            self.forget_if_over(&cell);
        }
        Ok(())
    }

    /// Ends all streams because the connection broke or, with a failure, because the server is stopping.
    pub(crate) fn end_all(&self, failure: Option<&CallFailure>) {
        let open = {
            let mut table = self.table();
            table.closed = true;
            std::mem::take(&mut table.open)
        };
        for cell in open.into_values() {
            if let Some(failure) = failure {
                self.outbox.push(Message::Abort { id: cell.id, failure: failure.clone() });
                self.outbox.push(Message::Stop { id: cell.id });
            }
            cell.end_items(Err(StreamError::Broken));
            cell.end_sending(StreamError::Broken);
        }
    }

    fn find(&self, id: u64) -> Option<Arc<Cell>> {
        self.table().open.get(&id).cloned()
    }

    fn forget_if_over(&self, cell: &Cell) {
        let over = {
            let state = cell.state();
            !state.sending && !state.reading
        };
        if over {
            self.table().open.remove(&cell.id);
        }
    }

    fn max(&self) -> usize {
        usize::try_from(self.limits.streams).unwrap_or(usize::MAX)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

impl Cell {
    fn arrived(&self, body: Bytes, limits: &Limits) -> Result<(), LinkError> {
        let mut state = self.state();
        if state.end.is_some() {
            return Err(LinkError::Malformed("it sent an item after the end of a stream"));
        }
        let cost = limits.item_cost(body.len());
        let left = state.granted.checked_sub(cost);
        state.granted = left.ok_or(LinkError::Malformed("it sent an item beyond the window of a stream"))?;
        if state.reading {
            state.items.push_back(body);
            drop(state);
            self.bell.wake();
        }
        Ok(())
    }

    fn credited(&self, amount: u32, limits: &Limits) -> Result<(), LinkError> {
        let (amount, window) = (u64::from(amount), u64::from(limits.stream_window));
        let available = u64::try_from(self.credit.available_permits()).unwrap_or(u64::MAX);
        if available.saturating_add(amount) > window {
            return Err(LinkError::Malformed("it returned more credit than the window of a stream"));
        }
        self.credit.add_permits(usize::try_from(amount).unwrap_or(0));
        Ok(())
    }

    fn end_items(&self, end: Result<(), StreamError>) {
        let mut state = self.state();
        state.reading = false;
        state.end.get_or_insert(end);
        drop(state);
        self.bell.wake();
    }

    fn end_sending(&self, error: StreamError) {
        let mut state = self.state();
        if state.sending {
            state.sending = false;
            state.send_error = Some(error);
        }
        drop(state);
        self.credit.close();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// The part that both halves have in common.
struct Half {
    cell: Arc<Cell>,
    outbox: Arc<Outbox>,
    limits: Limits,
    table: Weak<Streams>,
    /// Keeps a client's connection open.
    _keep: Box<dyn Send + Sync>,
}

impl Half {
    fn over(&self) {
        if let Some(streams) = self.table.upgrade() {
            streams.forget_if_over(&self.cell);
        }
    }
}

/// The sending half of a stream. If it is dropped before [`StreamSender::finish`], the reader gets an error.
pub struct StreamSender(Half);

impl StreamSender {
    /// Sends an item. Waits while the reader's window is full, without a limit: the caller sets a deadline. If the
    /// future is dropped while it waits, nothing was sent. `Ok` means that the item was queued, not that it arrived.
    pub async fn send(&mut self, item: Bytes) -> Result<(), StreamError> {
        let Half { cell, outbox, limits, .. } = &self.0;
        if item.len() > limits.body_max() {
            return Err(StreamError::TooLarge { len: item.len(), max: limits.body_max() });
        }
        match cell.credit.acquire_many(limits.item_cost(item.len())).await {
            Ok(credit) => credit.forget(),
            Err(_) => return Err(self.error()),
        }
        if outbox.push(Message::Item { id: cell.id, body: item }) { Ok(()) } else { Err(StreamError::Broken) }
    }

    /// Waits until the other end stops reading or the connection breaks.
    pub async fn stopped(&self) -> StreamError {
        // More permits than the window can ever hold, so only closing the semaphore ends the wait.
        let _ = self.0.cell.credit.acquire_many(self.0.limits.stream_window.saturating_add(1)).await;
        self.error()
    }

    /// Ends this direction: all items were sent.
    pub fn finish(self) {
        self.end(|id| Message::End { id });
    }

    /// Ends this direction with a failure.
    pub fn fail(self, failure: CallFailure) {
        self.end(|id| Message::Abort { id, failure });
    }

    fn end(&self, message: impl FnOnce(u64) -> Message) {
        let Half { cell, outbox, .. } = &self.0;
        if std::mem::replace(&mut cell.state().sending, false) {
            outbox.push(message(cell.id));
            self.0.over();
        }
    }

    fn error(&self) -> StreamError {
        self.0.cell.state().send_error.clone().unwrap_or(StreamError::Broken)
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        self.end(|id| Message::Abort { id, failure: CallFailure::new(FailureKind::Abandoned, "") });
    }
}

/// The receiving half of a stream. If it is dropped before the end, the sender is told to stop.
pub struct StreamReceiver(Half);

impl StreamReceiver {
    /// Returns the next item; `None` at the end. Waits without a limit: the caller sets a deadline. Cancel-safe: no
    /// item is lost if the future is dropped.
    pub async fn recv(&mut self) -> Result<Option<Bytes>, StreamError> {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            self.0.cell.bell.wait().await;
        }
    }

    /// Returns the next item if it has already arrived.
    pub fn try_recv(&mut self) -> Option<Bytes> {
        self.take()?.ok()?
    }

    fn take(&mut self) -> Option<Result<Option<Bytes>, StreamError>> {
        let Half { cell, outbox, limits, .. } = &self.0;
        let mut state = cell.state();
        let Some(item) = state.items.pop_front() else {
            return state.end.clone().map(|end| end.map(|()| None));
        };
        state.taken = state.taken.saturating_add(limits.item_cost(item.len()));
        // Below half of the window the sender can't be waiting, because no item costs more than the other half.
        if state.end.is_none() && state.taken >= limits.stream_window / 2 {
            let amount = std::mem::take(&mut state.taken);
            state.granted = state.granted.saturating_add(amount);
            outbox.push(Message::Credit { id: cell.id, amount });
        }
        Some(Ok(Some(item)))
    }
}

impl Drop for StreamReceiver {
    fn drop(&mut self) {
        let Half { cell, outbox, .. } = &self.0;
        let mut state = cell.state();
        let items = std::mem::take(&mut state.items);
        let was_reading = std::mem::replace(&mut state.reading, false);
        drop(state);
        drop(items);
        if was_reading {
            outbox.push(Message::Stop { id: cell.id });
            self.0.over();
        }
    }
}

impl std::fmt::Debug for StreamSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamSender").field("id", &self.0.cell.id).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for StreamReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamReceiver").field("id", &self.0.cell.id).finish_non_exhaustive()
    }
}
