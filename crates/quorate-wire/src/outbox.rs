//! The queue of messages that one end of a connection sends, and the loop that writes them.
//!
//! The loop writes as many queued messages as possible at once. Small frames are copied together; large bodies are
//! written in place.
//!
//! Invariants:
//! - Messages are written in the order in which they were pushed.
//! - A call that was given up before the writer took it is never written. A call that the writer took may have arrived.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{Buf, Bytes, BytesMut};
use quorate_env::signal::Signal;
use quorate_env::{lock, timeout};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::LinkError;
use crate::frame::HEADER_LEN;
use crate::limits::{CONTROL_QUEUE_MAX, COPY_BELOW, HEAD_MAX, WRITE_BATCH, WRITE_STALL_MAX};
use crate::message::Message;

/// The state of a queued call. It decides the race between the writer and a caller that gives up.
#[derive(Debug, Default)]
pub(crate) struct Ticket(AtomicU8);

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Ticket {
    /// Claims the call for the writer. Returns false if it was given up.
    fn take(&self) -> bool {
        self.0.compare_exchange(WAITING, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives up the call for the caller. Returns true if none of it was or will be written.
    fn give_up(&self) -> bool {
        self.0.compare_exchange(WAITING, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire) != Err(TAKEN)
    }
}

/// A message in the queue.
#[derive(Debug)]
pub(crate) struct Item {
    message: Message,
    ticket: Option<Arc<Ticket>>,
    room: Option<OwnedSemaphorePermit>,
}

impl Item {
    pub(crate) fn call(message: Message, ticket: &Arc<Ticket>) -> Self {
        Self { message, ticket: Some(Arc::clone(ticket)), room: None }
    }

    pub(crate) fn reply(message: Message, room: OwnedSemaphorePermit) -> Self {
        Self { message, ticket: None, room: Some(room) }
    }
}

impl From<Message> for Item {
    fn from(message: Message) -> Self {
        Self { message, ticket: None, room: None }
    }
}

/// The queue. Pushing never waits, because a caller that pushes a body has already been admitted by a limit in bytes.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    bell: Signal,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    control: usize,
    closed: bool,
    overrun: bool,
}

impl Outbox {
    /// Queues a message. Returns false if the connection is closed.
    pub(crate) fn push(&self, item: impl Into<Item>) -> bool {
        let item = item.into();
        let mut queue = self.queue();
        if queue.closed {
            return false;
        }
        if item.message.is_control() {
            queue.control += 1;
            queue.overrun |= queue.control > CONTROL_QUEUE_MAX;
        }
        queue.items.push_back(item);
        drop(queue);
        self.bell.wake();
        true
    }

    /// Gives up a call. Returns true if none of it was or will be written.
    pub(crate) fn withdraw(&self, ticket: &Arc<Ticket>) -> bool {
        if !ticket.give_up() {
            return false;
        }
        let is_it = |item: &Item| item.ticket.as_ref().is_some_and(|its| Arc::ptr_eq(its, ticket));
        self.queue().items.retain(|item| !is_it(item));
        true
    }

    /// Closes the queue to new messages. Queued messages are still written.
    pub(crate) fn close(&self) {
        self.queue().closed = true;
        self.bell.wake();
    }

    /// Closes the queue to new messages and drops the queued ones.
    pub(crate) fn abort(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let dropped = std::mem::take(&mut queue.items);
        drop(queue);
        drop(dropped);
        self.bell.wake();
    }

    /// Moves queued messages into `batch`. Returns false if the queue is closed and empty, and so is the batch.
    fn take_into(&self, batch: &mut Batch) -> Result<bool, LinkError> {
        let mut queue = self.queue();
        if queue.overrun {
            return Err(LinkError::Stalled);
        }
        while batch.remaining() < WRITE_BATCH {
            let Some(item) = queue.items.pop_front() else { return Ok(!queue.closed || batch.has_remaining()) };
            if item.message.is_control() {
                queue.control -= 1;
            }
            if item.ticket.as_ref().is_none_or(|ticket| ticket.take()) {
                batch.add(item);
            }
        }
        Ok(true)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }
}

/// Writes queued messages until the queue is closed and empty, or the connection breaks.
pub(crate) async fn write_all<W: AsyncWrite + Unpin>(outbox: &Outbox, sink: &mut W) -> Result<(), LinkError> {
    let mut batch = Batch::default();
    while outbox.take_into(&mut batch)? {
        if !batch.has_remaining() {
            outbox.bell.wait().await;
            continue;
        }
        batch.seal();
        while batch.has_remaining() {
            let written = in_time(sink.write_buf(&mut batch)).await?;
            if written == 0 {
                return Err(LinkError::Io(io::ErrorKind::WriteZero.into()));
            }
        }
        batch.rooms.clear();
        in_time(sink.flush()).await?;
    }
    in_time(sink.shutdown()).await
}

/// Runs one step of writing under the time limit.
async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> Result<T, LinkError> {
    timeout(WRITE_STALL_MAX, step).await.map_err(|_| LinkError::Stalled)?.map_err(LinkError::Io)
}

/// The frames of one write.
#[derive(Default)]
struct Batch {
    parts: VecDeque<Bytes>,
    copied: BytesMut,
    remaining: usize,
    rooms: Vec<OwnedSemaphorePermit>,
}

impl Batch {
    fn add(&mut self, item: Item) {
        let body_len = item.message.body_len();
        let before = self.copied.len();
        self.copied.reserve(HEADER_LEN + HEAD_MAX + if body_len < COPY_BELOW { body_len } else { 0 });
        let body = item.message.encode(&mut self.copied);
        if body.len() < COPY_BELOW {
            self.copied.extend_from_slice(&body);
            self.remaining += self.copied.len() - before;
        } else {
            self.remaining += self.copied.len() - before + body.len();
            self.seal();
            self.parts.push_back(body);
        }
        self.rooms.extend(item.room);
    }

    /// Appends the copied bytes to the parts.
    fn seal(&mut self) {
        if !self.copied.is_empty() {
            self.parts.push_back(self.copied.split().freeze());
        }
    }
}

/// The source of the socket's vectored write. The batch must be sealed first.
impl Buf for Batch {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.parts.front().map(Bytes::as_ref).unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pairs = slices.iter_mut().zip(&self.parts);
        pairs.map(|(slice, part)| *slice = IoSlice::new(part)).count()
    }

    fn advance(&mut self, mut count: usize) {
        self.remaining = self.remaining.saturating_sub(count);
        while let Some(part) = self.parts.front_mut() {
            if count < part.len() {
                part.advance(count);
                return;
            }
            count -= part.len();
            self.parts.pop_front();
        }
    }
}
