//! Frames, the messages in them, and those of the handshake.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes};
use futures_util::FutureExt;
use quorate_wire::fuzzing;
use tokio::io::{AsyncRead, ReadBuf};

use crate::input::Input;

/// Bytes before a frame's content.
const HEADER: usize = 9;
/// Kinds of messages that carry a failure: of its text only what is UTF-8 and short enough is kept.
const FAILURES: [u8; 2] = [18, 28];
/// Kinds of handshake messages that say nothing but what this version knows.
const EXACT: std::ops::RangeInclusive<u8> = 2..=4;

/// A stream of bytes that comes a few at a time.
struct Trickle<'a> {
    bytes: &'a [u8],
    step: usize,
}

impl AsyncRead for Trickle<'_> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let (now, later) = this.bytes.split_at(this.step.min(this.bytes.len()).min(buf.remaining()));
        this.bytes = later;
        buf.put_slice(now);
        Poll::Ready(Ok(()))
    }
}

fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEADER + content.len());
    head.put_u32_le(u32::try_from(content.len()).unwrap_or(u32::MAX));
    head.put_u8(kind);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head), content);
    head.put_u32_le(crc);
    head.extend_from_slice(content);
    head
}

/// Frames with right checksums are delivered in order, however they come, up to the first that is too large, damaged
/// or cut; no other bytes pass for a frame.
pub fn frames(data: &[u8]) {
    let mut input = Input(data);
    let (step, content_max) = (usize::from(input.u8()).max(1), usize::from(input.u16() % 300));
    let (mut stream, mut expected, mut is_sound) = (Vec::new(), Vec::new(), true);
    while !input.is_empty() {
        let kind = input.u8();
        let content = input.short();
        let mut bytes = frame(kind, content);
        if input.rarely() {
            let place = usize::from(input.u16());
            let at = place / 8 % bytes.len();
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (place % 8);
                is_sound = false;
            }
        } else if input.rarely() {
            // What is no frame at all, or the beginning of one.
            bytes = input.short().to_vec();
            is_sound = is_sound && bytes.is_empty();
        } else if is_sound && content.len() <= content_max {
            expected.push((kind, Bytes::copy_from_slice(content)));
        } else {
            is_sound = false;
        }
        stream.extend(bytes);
    }
    let mut found = Vec::new();
    let source = Trickle { bytes: &stream, step };
    let ended = fuzzing::frames(source, content_max, |kind, content| found.push((kind, content))).now_or_never();
    if is_sound {
        assert_eq!((ended, &found), (Some(true), &expected), "a frame is lost");
        return;
    }
    // Bytes that are no frame may happen to be one, if the fuzzer goes so far as to compute a checksum.
    let known = found.get(..expected.len());
    assert_eq!(known, Some(&expected[..]), "a frame is lost");
    for (kind, content) in found {
        let whole = frame(kind, &content);
        assert!(stream.windows(whole.len()).any(|bytes| bytes == whole), "a frame that was not sent");
    }
}

/// A message that is read from a frame is written as the same frame; but for failures, whose text may be cut.
pub fn messages(data: &[u8]) {
    let mut input = Input(data);
    let (kind, content) = (input.u8(), input.0);
    let Some(once) = fuzzing::message(kind, content) else { return };
    assert_eq!(frame(kind, once.get(HEADER..).unwrap_or_default()), once, "another frame than its content asks for");
    assert!(FAILURES.contains(&kind) || once.get(HEADER..) == Some(content), "another message");
    assert_eq!(fuzzing::message(kind, once.get(HEADER..).unwrap_or_default()).as_ref(), Some(&once), "not the same");
}

/// The same of a message of the handshake; the first and the last words may be longer in later versions.
pub fn handshake(data: &[u8]) {
    let mut input = Input(data);
    let (kind, body) = (input.u8() % 8, input.0);
    let Some(once) = fuzzing::handshake(kind, body) else { return };
    assert!(body.starts_with(&once), "another message");
    assert!(!EXACT.contains(&kind) || once == body, "words that were passed over");
    assert_eq!(fuzzing::handshake(kind, &once).as_ref(), Some(&once), "not the same");
}
