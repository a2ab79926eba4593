//! Adapters of a connection and the clock of `quorate-env` to hyper's traits.
//!
//! Invariant: a write that makes no progress for `stall_max` ends the connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::ReadBufCursor;
use quorate_env::net::BoxStream;
use quorate_env::{Instant, Sleep, sleep, sleep_until};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The maximum number of bytes of one read.
const READ_CHUNK: usize = 4 << 10;

/// A connection that fails if a write stalls.
pub struct HttpStream {
    stream: BoxStream,
    stall_max: Duration,
    /// Fires when the waiting write has stalled for too long.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl HttpStream {
    /// Returns a stream on a connection.
    pub fn new(stream: BoxStream, stall_max: Duration) -> Self {
        Self { stream, stall_max, stalled: None }
    }

    /// Fails a write that waits for too long.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        let stall_max = self.stall_max;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall_max)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl hyper::rt::Read for HttpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut chunk = [0; READ_CHUNK];
        let room = chunk.get_mut(..buf.remaining().min(READ_CHUNK)).unwrap_or_default();
        let mut read = ReadBuf::new(room);
        ready!(Pin::new(&mut self.get_mut().stream).poll_read(cx, &mut read))?;
        buf.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for HttpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.bounded(cx, poll)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_flush(cx);
        this.bounded(cx, poll)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.bounded(cx, poll)
    }
}

/// The clock of `quorate-env`.
#[derive(Clone, Copy, Debug)]
pub struct EnvTimer;

struct EnvSleep(Pin<Box<Sleep>>);

impl hyper::rt::Timer for EnvTimer {
    fn sleep(&self, time: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(EnvSleep(Box::pin(sleep(time))))
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(EnvSleep(Box::pin(sleep_until(Instant::from_std(deadline)))))
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }
}

impl hyper::rt::Sleep for EnvSleep {}

impl Future for EnvSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}
