//! Frames, the messages in them, and the messages of the handshake.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes};
use futures_util::FutureExt;
use quorate_wire::fuzzing;
use tokio::io::{AsyncRead, ReadBuf};

use crate::input::Input;

/// The bytes of a frame's header.
const HEADER: usize = 9;
/// The kinds of messages that carry a failure. Decoding keeps only as much of its text as is UTF-8 and short enough, so
/// these may change.
const FAILURES: [u8; 2] = [18, 28];
/// The kinds of handshake messages that may not have additions of later versions.
const EXACT: std::ops::RangeInclusive<u8> = 2..=4;

/// A stream that returns its bytes a few at a time.
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

/// Checks that frames with right checksums are returned in order, however many bytes are read at a time, up to the
/// first frame that is too large, damaged or cut, and that no other bytes are returned as a frame.
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
            // Random bytes, which may be the beginning of a frame.
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
    // Random bytes may form a frame by chance, if the fuzzer finds the right checksum.
    let known = found.get(..expected.len());
    assert_eq!(known, Some(&expected[..]), "a frame is lost");
    for (kind, content) in found {
        let whole = frame(kind, &content);
        assert!(stream.windows(whole.len()).any(|bytes| bytes == whole), "a frame that was not sent");
    }
}

/// Checks that a message which was decoded from a frame encodes to the same frame, except for failures, whose text may
/// be cut.
pub fn messages(data: &[u8]) {
    let mut input = Input(data);
    let (kind, content) = (input.u8(), input.0);
    let Some(once) = fuzzing::message(kind, content) else { return };
    assert_eq!(frame(kind, once.get(HEADER..).unwrap_or_default()), once, "the header does not match the content");
    assert!(
        FAILURES.contains(&kind) || once.get(HEADER..) == Some(content),
        "a message changed when it was encoded again"
    );
    let again = fuzzing::message(kind, once.get(HEADER..).unwrap_or_default());
    assert_eq!(again.as_ref(), Some(&once), "a second round trip changed it");
}

/// Checks the same of a message of the handshake. The first and the last messages may be longer in later versions.
pub fn handshake(data: &[u8]) {
    let mut input = Input(data);
    let (kind, body) = (input.u8() % 8, input.0);
    let Some(once) = fuzzing::handshake(kind, body) else { return };
    assert!(body.starts_with(&once), "a message changed when it was encoded again");
    assert!(!EXACT.contains(&kind) || once == body, "bytes at the end were ignored");
    assert_eq!(fuzzing::handshake(kind, &once).as_ref(), Some(&once), "a second round trip changed it");
}
