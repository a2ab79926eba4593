//! A door for fuzzing: bytes as they come from the other end, decoded and encoded again.
//!
//! Invariant: nothing here decides anything; it calls what a connection calls.

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncRead;

use crate::frame::FrameReader;
use crate::handshake;
use crate::message::Message;

/// Hands the kind and the content of each frame to `each`. Whether the stream ended between two frames.
pub async fn frames(source: impl AsyncRead + Unpin, content_max: usize, mut each: impl FnMut(u8, Bytes)) -> bool {
    let mut reader = FrameReader::new(source, content_max);
    loop {
        match reader.next().await {
            Ok(Some((kind, content))) => each(kind, content),
            end => return end.is_ok(),
        }
    }
}

/// The whole frame of the message that a frame's content holds; `None` if it is none.
pub fn message(kind: u8, content: &[u8]) -> Option<Vec<u8>> {
    let mut out = BytesMut::new();
    let body = Message::decode(kind, Bytes::copy_from_slice(content)).ok()?.encode(&mut out);
    out.extend_from_slice(&body);
    Some(out.into())
}

/// The body of a message of the handshake, without its signature; `None` if it is none.
pub fn handshake(kind: u8, body: &[u8]) -> Option<Vec<u8>> {
    handshake::reencode(kind, body)
}
