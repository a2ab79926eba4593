//! The frames of a WebSocket.
//!
//! Invariant: a text is sent in frames of at most [`FRAME_BYTES_MAX`] bytes, and copied no earlier than it is written.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::{Sink, Stream};
use quorate_env::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::io::Io;
use crate::options::{BODY_BYTES_MAX, FRAME_BYTES_MAX, SOCKET_CLOSE_TIME_MAX};

/// The bytes that are read at a time, for which each connection has a buffer.
const READ_BYTES: usize = 4 << 10;

/// The most bytes of the reason in a frame that closes.
const REASON_BYTES_MAX: usize = 123;

/// One end of a WebSocket.
#[derive(Debug)]
pub(super) struct Wire {
    socket: WebSocketStream<Io>,
    out: VecDeque<Out>,
    /// The bytes of the texts in `out`.
    waiting: usize,
    is_flushed: bool,
    /// Whether nothing more can be read from the socket.
    is_deaf: bool,
}

#[derive(Debug)]
enum Out {
    /// A text, or the part of it that the library has not taken yet.
    Text {
        rest: Bytes,
        is_begun: bool,
    },
    Other(Message),
}

impl Wire {
    pub(super) async fn new(io: Io) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(FRAME_BYTES_MAX)
            .max_message_size(Some(BODY_BYTES_MAX))
            .max_frame_size(Some(BODY_BYTES_MAX));
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        Self { socket, out: VecDeque::new(), waiting: 0, is_flushed: true, is_deaf: false }
    }

    pub(super) fn io(&mut self) -> &mut Io {
        self.socket.get_mut()
    }

    /// Returns the bytes of the texts that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn send_text(&mut self, text: Vec<u8>) {
        self.waiting = self.waiting.saturating_add(text.len());
        self.out.push_back(Out::Text { rest: text.into(), is_begun: false });
    }

    pub(super) fn send_ping(&mut self) {
        self.out.push_back(Out::Other(Message::Ping(Bytes::new())));
    }

    /// Writes what it can; ready when nothing waits.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while !self.out.is_empty() {
            ready!(Pin::new(&mut self.socket).poll_ready(cx))?;
            let Some(message) = self.next_frame() else { break };
            self.is_flushed = false;
            Pin::new(&mut self.socket).start_send(message)?;
        }
        if !self.is_flushed {
            ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
            self.is_flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn next_frame(&mut self) -> Option<Message> {
        let (rest, is_begun) = match self.out.pop_front()? {
            Out::Other(message) => return Some(message),
            Out::Text { rest, is_begun } => (rest, is_begun),
        };
        let mut rest = rest;
        let part = rest.split_to(rest.len().min(FRAME_BYTES_MAX));
        self.waiting = self.waiting.saturating_sub(part.len());
        let (code, is_final) = (if is_begun { Data::Continue } else { Data::Text }, rest.is_empty());
        if !is_final {
            self.out.push_front(Out::Text { rest, is_begun: true });
        }
        Some(Message::Frame(Frame::message(part, OpCode::Data(code), is_final)))
    }

    /// Reads a message; `None` when there will be no more.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Message, Error>>> {
        let read = ready!(Pin::new(&mut self.socket).poll_next(cx));
        self.is_deaf = !matches!(read, Some(Ok(_)));
        Poll::Ready(read)
    }

    /// Closes the WebSocket, or answers that it was closed, and waits until the client has taken it.
    pub(super) async fn close(mut self, why: Option<(CloseCode, &str)>) {
        if let Some((code, reason)) = why {
            let end = (0..=REASON_BYTES_MAX).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or_default();
            let reason = reason.get(..end).unwrap_or(reason).into();
            self.out.push_back(Out::Other(Message::Close(Some(CloseFrame { code, reason }))));
        } else {
            self.out.clear();
        }
        let _ = timeout(SOCKET_CLOSE_TIME_MAX, poll_fn(|cx| self.poll_end(cx))).await;
    }

    /// Writes what waits, and reads until the client ends. If the socket closed while bytes of the client are under
    /// way, the client's system could drop what it has not read.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_written = match self.poll_write(cx) {
            Poll::Ready(Err(_)) => return Poll::Ready(()),
            written => written.is_ready(),
        };
        while !self.is_deaf {
            match self.poll_read(cx) {
                Poll::Ready(Some(Ok(_))) => {
                    self.io().next_message();
                }
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Ready(Some(Err(_))) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        if !is_written {
            return Poll::Pending;
        }
        while ready!(self.io().poll_discard(cx)).is_ok_and(|count| count > 0) {}
        Poll::Ready(())
    }
}
