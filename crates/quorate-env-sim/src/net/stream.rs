//! The stream that the owner of one end of a connection holds.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use quorate_env::net::Stream;
use quorate_env::{Sleep, sleep_until};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::SimNet;
use super::connection::{Arrival, Side};

/// One end of a connection.
pub(super) struct SimStream {
    net: SimNet,
    number: u64,
    side: Side,
    /// Fires when the next bytes arrive.
    timer: Option<Pin<Box<Sleep>>>,
}

impl SimStream {
    pub(super) fn new(net: SimNet, number: u64, side: Side) -> Self {
        Self { net, number, side, timer: None }
    }

    /// Reads what has arrived. If nothing has, returns when the next bytes will, if that is known.
    fn read(&self, cx: &Context<'_>, buf: &mut ReadBuf<'_>) -> io::Result<Arrival> {
        let mut state = self.net.state();
        let state = &mut *state;
        let Some(connection) = state.connections.get(&self.number) else { return Ok(Arrival::Bytes(0)) };
        let (me, other) = connection.nodes_from(self.side);
        let (is_open, acknowledges) = (!state.is_cut(&other, &me), !state.is_cut(&me, &other));
        let Some(connection) = state.connections.get_mut(&self.number) else { return Ok(Arrival::Bytes(0)) };
        let arrival = connection.read(self.side, cx, buf, (is_open, acknowledges));
        match &arrival {
            Ok(Arrival::Bytes(count)) => {
                state.trace.add(&me, format_args!("got {count} bytes from {other} by #{}", self.number));
            }
            Err(error) => state.trace.add(&me, format_args!("#{} with {other}: {}", self.number, error.kind())),
            Ok(Arrival::At(_) | Arrival::Nothing) => {}
        }
        arrival
    }

    /// Writes a prefix of `slices` and returns its length.
    fn write(&self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut state = self.net.state();
        let delay = state.delay();
        // Some writes take less than there is room for.
        let limit = if state.rng.chance(0.1) { 1 + state.rng.below(1 << 12) } else { u64::MAX };
        let Some(connection) = state.connections.get_mut(&self.number) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let room = ready!(connection.poll_room(self.side, cx))?;
        let room = room.min(usize::try_from(limit).unwrap_or(usize::MAX));
        let bytes = gather(slices, room);
        let count = bytes.len();
        connection.write(self.side, bytes, delay);
        Poll::Ready(Ok(count))
    }
}

/// Returns the first `most` bytes of several slices.
fn gather(slices: &[IoSlice<'_>], most: usize) -> Bytes {
    let mut out = BytesMut::new();
    for slice in slices {
        let left = most - out.len();
        out.extend_from_slice(slice.get(..slice.len().min(left)).unwrap_or_default());
    }
    out.freeze()
}

impl Stream for SimStream {}

impl AsyncRead for SimStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            match this.read(cx, buf)? {
                Arrival::Bytes(_) => return Poll::Ready(Ok(())),
                Arrival::Nothing => return Poll::Pending,
                Arrival::At(at) => {
                    let timer = this.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
                    timer.as_mut().reset(at);
                    ready!(timer.as_mut().poll(cx));
                }
            }
        }
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.net.state();
        let delay = state.delay();
        if let Some(connection) = state.connections.get_mut(&self.number) {
            connection.finish(self.side, delay);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let mut state = self.net.state();
        let delay = state.delay();
        if state.connections.get_mut(&self.number).is_some_and(|connection| connection.close(self.side, delay)) {
            state.connections.remove(&self.number);
        }
    }
}

impl fmt::Debug for SimStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimStream(#{} {:?})", self.number, self.side)
    }
}
