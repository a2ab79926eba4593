//! The messages after the handshake, and their encodings (docs/wire-format.md).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::{CallFailure, FailureKind, LinkError};
use crate::frame::put_frame;
use crate::limits::FAILURE_TEXT_MAX;

/// One message, which is one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Calls a method. The server gives up after `millis`.
    Call { id: u64, millis: u32, method: u16, body: Bytes },
    /// Answers a call.
    Reply { id: u64, body: Bytes },
    /// Answers a call with a failure.
    Failure { id: u64, failure: CallFailure },
    /// The caller no longer waits for the reply.
    Cancel { id: u64 },
    /// Opens a stream.
    Open { id: u64, method: u16 },
    /// An item of a stream.
    Item { id: u64, body: Bytes },
    /// The sender may send items with this additional cost.
    Credit { id: u64, amount: u32 },
    /// No more items follow in this direction.
    End { id: u64 },
    /// No more items follow in this direction, because of a failure.
    Abort { id: u64, failure: CallFailure },
    /// The reader of the other direction takes no more items.
    Stop { id: u64 },
    /// Asks for a `Pong`.
    Ping,
    /// Answers a `Ping`.
    Pong,
    /// The server is stopping. It did not process calls with ids above `last_call`.
    Goodbye { last_call: u64 },
}

const CALL: u8 = 16;
const REPLY: u8 = 17;
const FAILURE: u8 = 18;
const CANCEL: u8 = 19;
const OPEN: u8 = 24;
const ITEM: u8 = 25;
const CREDIT: u8 = 26;
const END: u8 = 27;
const ABORT: u8 = 28;
const STOP: u8 = 29;
const PING: u8 = 32;
const PONG: u8 = 33;
const GOODBYE: u8 = 34;

impl Message {
    /// Returns whether the message enters the queue without being counted against a limit in bytes.
    pub(crate) fn is_control(&self) -> bool {
        !matches!(self, Self::Call { .. } | Self::Reply { .. } | Self::Item { .. })
    }

    /// Returns the length of the body, in bytes.
    pub(crate) fn body_len(&self) -> usize {
        match self {
            Self::Call { body, .. } | Self::Reply { body, .. } | Self::Item { body, .. } => body.len(),
            _ => 0,
        }
    }

    /// Appends the frame without the body and returns the body, which the caller writes after it.
    pub(crate) fn encode(self, out: &mut BytesMut) -> Bytes {
        match self {
            Self::Call { id, millis, method, body } => {
                let head = |out: &mut BytesMut| {
                    out.put_u64_le(id);
                    out.put_u32_le(millis);
                    out.put_u16_le(method);
                };
                put_frame(out, CALL, head, &body);
                return body;
            }
            Self::Reply { id, body } => {
                put_frame(out, REPLY, |out| out.put_u64_le(id), &body);
                return body;
            }
            Self::Item { id, body } => {
                put_frame(out, ITEM, |out| out.put_u64_le(id), &body);
                return body;
            }
            Self::Open { id, method } => {
                let head = |out: &mut BytesMut| {
                    out.put_u64_le(id);
                    out.put_u16_le(method);
                };
                put_frame(out, OPEN, head, &[]);
            }
            Self::Credit { id, amount } => {
                let head = |out: &mut BytesMut| {
                    out.put_u64_le(id);
                    out.put_u32_le(amount);
                };
                put_frame(out, CREDIT, head, &[]);
            }
            Self::Failure { id, failure } => put_failure(out, FAILURE, id, &failure),
            Self::Abort { id, failure } => put_failure(out, ABORT, id, &failure),
            Self::Cancel { id } => put_frame(out, CANCEL, |out| out.put_u64_le(id), &[]),
            Self::End { id } => put_frame(out, END, |out| out.put_u64_le(id), &[]),
            Self::Stop { id } => put_frame(out, STOP, |out| out.put_u64_le(id), &[]),
            Self::Goodbye { last_call } => put_frame(out, GOODBYE, |out| out.put_u64_le(last_call), &[]),
            Self::Ping => put_frame(out, PING, |_| {}, &[]),
            Self::Pong => put_frame(out, PONG, |_| {}, &[]),
        }
        Bytes::new()
    }

    /// Decodes the content of a frame. Extra bytes after a message that has no body are an error.
    pub(crate) fn decode(kind: u8, content: Bytes) -> Result<Self, LinkError> {
        let mut rest = content;
        let message = match kind {
            PING => Self::Ping,
            PONG => Self::Pong,
            CALL..=GOODBYE => {
                let id = take(rest.try_get_u64_le())?;
                Self::decode_with_id(kind, id, &mut rest)?
            }
            _ => return Err(LinkError::Malformed("it sent a frame of an unknown kind")),
        };
        if rest.is_empty() {
            Ok(message)
        } else {
            Err(LinkError::Malformed("it sent a frame that is too long for its kind"))
        }
    }

    fn decode_with_id(kind: u8, id: u64, rest: &mut Bytes) -> Result<Self, LinkError> {
        Ok(match kind {
            CALL => {
                let (millis, method) = (take(rest.try_get_u32_le())?, take(rest.try_get_u16_le())?);
                Self::Call { id, millis, method, body: std::mem::take(rest) }
            }
            REPLY => Self::Reply { id, body: std::mem::take(rest) },
            FAILURE => Self::Failure { id, failure: take_failure(rest)? },
            CANCEL => Self::Cancel { id },
            OPEN => Self::Open { id, method: take(rest.try_get_u16_le())? },
            ITEM => Self::Item { id, body: std::mem::take(rest) },
            CREDIT => Self::Credit { id, amount: take(rest.try_get_u32_le())? },
            END => Self::End { id },
            ABORT => Self::Abort { id, failure: take_failure(rest)? },
            STOP => Self::Stop { id },
            GOODBYE => Self::Goodbye { last_call: id },
            _ => return Err(LinkError::Malformed("it sent a frame of an unknown kind")),
        })
    }
}

/// Returns the beginning of a text, at most `max` bytes.
pub(crate) fn shortened(text: &str, max: usize) -> &str {
    let end = (0..=max).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text.get(..end).unwrap_or(text)
}

fn put_failure(out: &mut BytesMut, kind: u8, id: u64, failure: &CallFailure) {
    let text = shortened(&failure.text, FAILURE_TEXT_MAX);
    let head = |out: &mut BytesMut| {
        out.put_u64_le(id);
        out.put_u8(failure.kind.code());
        out.put_slice(text.as_bytes());
    };
    put_frame(out, kind, head, &[]);
}

fn take_failure(rest: &mut Bytes) -> Result<CallFailure, LinkError> {
    let kind = FailureKind::from_code(take(rest.try_get_u8())?);
    if rest.len() > FAILURE_TEXT_MAX {
        return Err(LinkError::Malformed("it sent a failure whose text is too long"));
    }
    let text = String::from_utf8_lossy(&std::mem::take(rest)).into_owned();
    Ok(CallFailure { kind, text })
}

fn take<T>(field: Result<T, bytes::TryGetError>) -> Result<T, LinkError> {
    field.map_err(|_| LinkError::Malformed("it sent a frame that is too short for its kind"))
}

#[cfg(test)]
pub(crate) mod tests;
