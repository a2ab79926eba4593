//! The bytes of a WebSocket: an upgraded connection, as the library of WebSockets wants it.
//!
//! Invariants:
//! - Until a client is let in, it can send only as many bytes as a small message has.
//! - A message above [`SMALL_BODY_BYTES_MAX`] is read in turn with the large bodies of all clients, and within
//!   [`BODY_TIME_MAX`].

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::rt::{Read as _, Write as _};
use hyper::upgrade::Upgraded;
use quorate_env::{Sleep, sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::door::BODY_TIME_MAX;
use crate::options::SMALL_BODY_BYTES_MAX;

/// A turn of a large message, held until its answer is there.
pub(super) type Turn = OwnedSemaphorePermit;

/// An upgraded connection that counts what it reads.
pub(super) struct Io {
    stream: Upgraded,
    large: Arc<Semaphore>,
    /// The bytes read since the last message.
    read: usize,
    is_let_in: bool,
    turn: TurnState,
    /// Fires when a large message has not arrived in time.
    late: Option<Pin<Box<Sleep>>>,
}

enum TurnState {
    None,
    Waits(BoxFuture<'static, Result<Turn, AcquireError>>),
    Has(Turn),
}

impl Io {
    pub(super) fn new(stream: Upgraded, large: Arc<Semaphore>) -> Self {
        Self { stream, large, read: 0, is_let_in: false, turn: TurnState::None, late: None }
    }

    /// Lets the client send larger messages.
    pub(super) fn let_in(&mut self) {
        self.is_let_in = true;
    }

    /// Notes that a message is read; returns its turn if it was a large one.
    pub(super) fn next_message(&mut self) -> Option<Turn> {
        (self.read, self.late) = (0, None);
        match std::mem::replace(&mut self.turn, TurnState::None) {
            TurnState::Has(turn) => Some(turn),
            TurnState::None | TurnState::Waits(_) => None,
        }
    }

    /// Waits until the message may go on.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.read < SMALL_BODY_BYTES_MAX {
            return Poll::Ready(Ok(()));
        }
        if !self.is_let_in {
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
        }
        let late = self.late.get_or_insert_with(|| Box::pin(sleep(BODY_TIME_MAX)));
        if late.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if let TurnState::None = self.turn {
            self.turn = TurnState::Waits(Arc::clone(&self.large).acquire_owned().boxed());
        }
        if let TurnState::Waits(waiting) = &mut self.turn {
            let turn = ready!(waiting.as_mut().poll(cx)).map_err(io::Error::other)?;
            self.turn = TurnState::Has(turn);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads without limits what nobody wants any more.
    pub(super) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut bytes = [0; 4 << 10];
        self.poll_fill(cx, &mut bytes)
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut read = hyper::rt::ReadBuf::new(bytes);
        ready!(Pin::new(&mut self.stream).poll_read(cx, read.unfilled()))?;
        Poll::Ready(Ok(read.filled().len()))
    }
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_turn(cx))?;
        let count = ready!(this.poll_fill(cx, buf.initialize_unfilled()))?;
        buf.advance(count);
        this.read = this.read.saturating_add(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").field("read", &self.read).finish_non_exhaustive()
    }
}
