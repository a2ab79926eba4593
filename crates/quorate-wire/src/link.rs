//! The part of a connection that is the same at both ends: it receives messages and detects a silent other end.

use std::time::Duration;

use quorate_env::timeout;
use tokio::io::{AsyncRead, ReadHalf, WriteHalf};

use quorate_env::net::BoxStream;

use crate::error::LinkError;
use crate::frame::FrameReader;
use crate::limits::{HANDSHAKE_FRAME_MAX, KEEPALIVE, SILENCES_MAX};
use crate::message::Message;
use crate::outbox::Outbox;

pub(crate) type Reader = FrameReader<ReadHalf<BoxStream>>;
pub(crate) type Sink = WriteHalf<BoxStream>;

/// Splits a new connection into its two directions. Frames are limited to the size that a handshake needs.
pub(crate) fn split(stream: BoxStream) -> (Reader, Sink) {
    let (source, sink) = tokio::io::split(stream);
    (FrameReader::new(source, HANDSHAKE_FRAME_MAX), sink)
}

/// Returns the next message and handles pings and pongs itself; `None` if the other end closed the connection cleanly.
pub(crate) async fn receive<R: AsyncRead + Unpin>(
    reader: &mut FrameReader<R>,
    outbox: &Outbox,
) -> Result<Option<Message>, LinkError> {
    let mut silences = 0;
    loop {
        if let Some((kind, content)) = reader.parse()? {
            match Message::decode(kind, content)? {
                Message::Ping => drop(outbox.push(Message::Pong)),
                Message::Pong => {}
                message => return Ok(Some(message)),
            }
            continue;
        }
        match timeout(KEEPALIVE, reader.fill()).await {
            Ok(Ok(true)) => silences = 0,
            Ok(Ok(false)) => return Ok(None),
            Ok(Err(error)) => return Err(error),
            Err(_) if silences == SILENCES_MAX => return Err(LinkError::Silent),
            Err(_) => {
                silences += 1;
                outbox.push(Message::Ping);
            }
        }
    }
}

/// Returns a time in milliseconds for the wire. It is at least 1, so that a call is not expired when it arrives.
pub(crate) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
}
