//! A connection: one pipe for each direction, and the state of both.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use quorate_env::Instant;
use tokio::io::ReadBuf;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Dialer,
    Accepter,
}

/// A connection with both its directions.
#[derive(Debug)]
pub(super) struct Connection {
    dialer: Arc<str>,
    accepter: Arc<str>,
    there: Pipe,
    back: Pipe,
    /// Whether both ends get an error.
    is_broken: bool,
    /// Whether one node is gone without any notice to the other end, which waits.
    is_silent: bool,
    ends: u8,
}

/// One direction.
#[derive(Debug)]
struct Pipe {
    /// Chunks in flight or arrived, in order. An empty chunk is the end.
    chunks: VecDeque<Chunk>,
    /// The number of bytes in `chunks`.
    held: usize,
    /// The number of bytes that were read but whose acknowledgement could not reach the sender.
    unacknowledged: usize,
    capacity: usize,
    is_finished: bool,
    /// The bit to flip in the next bytes, modulo their number of bits.
    garbled: Option<u64>,
    /// When the sender learns that the reader is gone. What it sends until then is lost.
    reader_gone_at: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
struct Chunk {
    at: Instant,
    bytes: Bytes,
}

/// The result of a read.
pub(super) enum Arrival {
    /// This many bytes were read; 0 at the end.
    Bytes(usize),
    /// Nothing arrives before this time.
    At(Instant),
    /// Nothing arrives until the reader is woken.
    Nothing,
}

impl Connection {
    pub(super) fn new(dialer: &str, accepter: &str, capacity: usize) -> Self {
        Self {
            dialer: dialer.into(),
            accepter: accepter.into(),
            there: Pipe::new(capacity),
            back: Pipe::new(capacity),
            is_broken: false,
            is_silent: false,
            ends: 2,
        }
    }

    pub(super) fn nodes(&self) -> (&str, &str) {
        (&self.dialer, &self.accepter)
    }

    /// Returns the node at this end and the node at the other end.
    pub(super) fn nodes_from(&self, side: Side) -> (Arc<str>, Arc<str>) {
        let (dialer, accepter) = (Arc::clone(&self.dialer), Arc::clone(&self.accepter));
        match side {
            Side::Dialer => (dialer, accepter),
            Side::Accepter => (accepter, dialer),
        }
    }

    pub(super) fn has(&self, node: &str) -> bool {
        &*self.dialer == node || &*self.accepter == node
    }

    pub(super) fn joins(&self, a: &str, b: &str) -> bool {
        self.nodes() == (a, b) || self.nodes() == (b, a)
    }

    fn outgoing(&mut self, side: Side) -> &mut Pipe {
        match side {
            Side::Dialer => &mut self.there,
            Side::Accepter => &mut self.back,
        }
    }

    fn incoming(&mut self, side: Side) -> &mut Pipe {
        match side {
            Side::Dialer => &mut self.back,
            Side::Accepter => &mut self.there,
        }
    }

    /// Breaks the connection: both ends get an error from now on.
    pub(super) fn break_now(&mut self) {
        self.is_broken = true;
        self.wake_all();
    }

    /// Flips a bit in the next bytes of each direction.
    pub(super) fn garble(&mut self, bits: [u64; 2]) {
        for (pipe, bit) in [&mut self.there, &mut self.back].into_iter().zip(bits) {
            pipe.garbled = Some(bit);
        }
    }

    /// Handles the death of a node. Its peer gets the bytes in flight, and after them the end if `ends`, or else
    /// nothing.
    pub(super) fn node_died(&mut self, node: &str, ends: bool) {
        let side = if &*self.dialer == node { Side::Dialer } else { Side::Accepter };
        self.is_silent = true;
        if ends {
            self.outgoing(side).finish(Instant::now());
            self.incoming(side).remove_reader(Instant::now());
        }
        self.wake_all();
    }

    /// Resumes the delivery of bytes that were held back, not before `at`.
    pub(super) fn resume(&mut self, at: Instant) {
        for pipe in [&mut self.there, &mut self.back] {
            pipe.unacknowledged = 0;
            for chunk in &mut pipe.chunks {
                chunk.at = chunk.at.max(at);
            }
        }
        self.wake_all();
    }

    /// Reads what has arrived. `is_open` tells whether bytes reach this end, and `acknowledges` whether
    /// acknowledgements reach the sender.
    pub(super) fn read(
        &mut self,
        side: Side,
        cx: &Context<'_>,
        buf: &mut ReadBuf<'_>,
        (is_open, acknowledges): (bool, bool),
    ) -> io::Result<Arrival> {
        if self.is_broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let pipe = self.incoming(side);
        pipe.reader = Some(cx.waker().clone());
        let now = Instant::now();
        let Some(chunk) = pipe.chunks.front_mut().filter(|_| is_open) else { return Ok(Arrival::Nothing) };
        if chunk.at > now {
            return Ok(Arrival::At(chunk.at));
        }
        let count = chunk.bytes.len().min(buf.remaining());
        if count == 0 {
            return Ok(Arrival::Bytes(0));
        }
        buf.put_slice(&chunk.bytes.split_to(count));
        if chunk.bytes.is_empty() {
            pipe.chunks.pop_front();
        }
        pipe.held -= count;
        if acknowledges {
            pipe.writer.take().into_iter().for_each(Waker::wake);
        } else {
            pipe.unacknowledged += count;
        }
        Ok(Arrival::Bytes(count))
    }

    /// Returns how many bytes can be written now.
    pub(super) fn poll_room(&mut self, side: Side, cx: &Context<'_>) -> Poll<io::Result<usize>> {
        if self.is_broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let pipe = self.outgoing(side);
        if pipe.is_finished || pipe.reader_gone_at.is_some_and(|at| at <= Instant::now()) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = pipe.capacity.saturating_sub(pipe.held + pipe.unacknowledged);
        if room > 0 {
            return Poll::Ready(Ok(room));
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Sends bytes.
    pub(super) fn write(&mut self, side: Side, bytes: Bytes, delay: Duration) {
        let pipe = self.outgoing(side);
        if !bytes.is_empty() && pipe.reader_gone_at.is_none() {
            pipe.held += bytes.len();
            let bytes = pipe.garbled.take().map_or_else(|| bytes.clone(), |bit| with_flipped_bit(&bytes, bit));
            pipe.push(bytes, Instant::now() + delay);
        }
    }

    /// Ends the direction from this end.
    pub(super) fn finish(&mut self, side: Side, delay: Duration) {
        if !self.is_silent {
            self.outgoing(side).finish(Instant::now() + delay);
        }
    }

    /// Closes an end that is dropped. Returns true if it was the last one.
    pub(super) fn close(&mut self, side: Side, delay: Duration) -> bool {
        self.finish(side, delay);
        if !self.is_silent {
            self.incoming(side).remove_reader(Instant::now() + delay);
        }
        self.ends = self.ends.saturating_sub(1);
        self.ends == 0
    }

    fn wake_all(&mut self) {
        for pipe in [&mut self.there, &mut self.back] {
            pipe.reader.take().into_iter().chain(pipe.writer.take()).for_each(Waker::wake);
        }
    }
}

impl Pipe {
    fn new(capacity: usize) -> Self {
        Self {
            chunks: VecDeque::new(),
            held: 0,
            unacknowledged: 0,
            capacity,
            is_finished: false,
            garbled: None,
            reader_gone_at: None,
            reader: None,
            writer: None,
        }
    }

    fn push(&mut self, bytes: Bytes, at: Instant) {
        // Bytes never arrive before those that were sent earlier.
        let at = self.chunks.back().map_or(at, |last| last.at.max(at));
        self.chunks.push_back(Chunk { at, bytes });
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    fn finish(&mut self, at: Instant) {
        if !std::mem::replace(&mut self.is_finished, true) {
            self.push(Bytes::new(), at);
        }
    }

    /// Removes the reader. Unread bytes are lost and their room is free again. The sender gets an error when it writes
    /// after `at`.
    fn remove_reader(&mut self, at: Instant) {
        self.chunks.clear();
        (self.held, self.unacknowledged) = (0, 0);
        self.reader_gone_at = Some(at);
        self.writer.take().into_iter().for_each(Waker::wake);
    }
}

/// Returns the bytes with one bit flipped.
fn with_flipped_bit(bytes: &Bytes, bit: u64) -> Bytes {
    let mut bytes = bytes.to_vec();
    let at = usize::try_from(bit / 8 % (bytes.len() as u64).max(1)).unwrap_or_default();
    bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (bit % 8));
    bytes.into()
}
