//! Entry points for fuzzing: they decode bytes as received from the other end, and encode the result again.
//!
//! Invariant: this module contains no logic; it calls the functions that a connection calls.

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncRead;

use crate::frame::FrameReader;
use crate::handshake;
use crate::message::Message;

/// Passes the kind and content of each frame to `each`. Returns true if the stream ended between two frames.
pub async fn frames(source: impl AsyncRead + Unpin, content_max: usize, mut each: impl FnMut(u8, Bytes)) -> bool {
    let mut reader = FrameReader::new(source, content_max);
    loop {
        match reader.next().await {
            Ok(Some((kind, content))) => each(kind, content),
            end => return end.is_ok(),
        }
    }
}

/// Decodes the content of a frame and returns the message as a complete frame; `None` if the content is invalid.
pub fn message(kind: u8, content: &[u8]) -> Option<Vec<u8>> {
    let mut out = BytesMut::new();
    let body = Message::decode(kind, Bytes::copy_from_slice(content)).ok()?.encode(&mut out);
    out.extend_from_slice(&body);
    Some(out.into())
}

/// Decodes a handshake message without its signature and encodes it again; `None` if it is invalid.
pub fn handshake(kind: u8, body: &[u8]) -> Option<Vec<u8>> {
    handshake::reencode(kind, body)
}
