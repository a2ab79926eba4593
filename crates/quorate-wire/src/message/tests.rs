//! Messages and their encodings, which a golden file pins.
#![allow(clippy::unwrap_used, reason = "tests")]

use futures_util::FutureExt;
use proptest::prelude::*;

use super::*;
use crate::frame::FrameReader;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn frame(message: Message) -> Vec<u8> {
    let mut out = BytesMut::new();
    let body = message.encode(&mut out);
    out.extend_from_slice(&body);
    out.to_vec()
}

fn parse(bytes: &[u8]) -> Result<Message, LinkError> {
    let mut reader = FrameReader::new(bytes, 1 << 20);
    let (kind, content) = reader.next().now_or_never().unwrap()?.unwrap();
    Message::decode(kind, content)
}

fn failure() -> impl Strategy<Value = CallFailure> {
    (1..8_u8, ".{0,100}").prop_map(|(code, text)| CallFailure::new(FailureKind::from_code(code), text))
}

/// Generates any message, with ids that sometimes collide.
pub(crate) fn any_message() -> impl Strategy<Value = Message> {
    let id = || prop_oneof![4 => 0..6_u64, 1 => any::<u64>()];
    let body = || prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from);
    prop_oneof![
        4 => (id(), any::<u32>(), 0..5_u16, body())
            .prop_map(|(id, millis, method, body)| Message::Call { id, millis, method, body }),
        1 => (id(), body()).prop_map(|(id, body)| Message::Reply { id, body }),
        1 => (id(), failure()).prop_map(|(id, failure)| Message::Failure { id, failure }),
        1 => id().prop_map(|id| Message::Cancel { id }),
        2 => (id(), 0..5_u16).prop_map(|(id, method)| Message::Open { id, method }),
        4 => (id(), body()).prop_map(|(id, body)| Message::Item { id, body }),
        1 => (id(), any::<u32>()).prop_map(|(id, amount)| Message::Credit { id, amount }),
        1 => id().prop_map(|id| Message::End { id }),
        1 => (id(), failure()).prop_map(|(id, failure)| Message::Abort { id, failure }),
        1 => id().prop_map(|id| Message::Stop { id }),
        1 => Just(Message::Ping),
        1 => Just(Message::Pong),
        1 => id().prop_map(|last_call| Message::Goodbye { last_call }),
    ]
}

/// Returns the frame of a message, for tests of other modules.
pub(crate) fn frame_of(message: Message) -> Vec<u8> {
    frame(message)
}

proptest! {
    #[test]
    fn a_message_round_trips(message in any_message()) {
        prop_assert_eq!(parse(&frame(message.clone())).unwrap(), message);
    }

    #[test]
    fn accepted_content_encodes_to_the_same_bytes(
        kind in any::<u8>(),
        content in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        if let Ok(message) = Message::decode(kind, Bytes::from(content.clone())) {
            // Failures don't round-trip: invalid UTF-8 in the text and unknown codes are replaced.
            if !matches!(message, Message::Failure { .. } | Message::Abort { .. }) {
                let written = frame(message);
                prop_assert_eq!(&written[crate::frame::HEADER_LEN..], &content[..]);
            }
        }
    }
}

#[test]
fn a_long_text_is_truncated_between_characters() {
    let text = "ä".repeat(FAILURE_TEXT_MAX);
    let sent = Message::Failure { id: 1, failure: CallFailure::new(FailureKind::Internal, format!("x{text}")) };
    let Message::Failure { failure, .. } = parse(&frame(sent)).unwrap() else { panic!("another message") };
    assert_eq!(failure.text, format!("x{}", "ä".repeat((FAILURE_TEXT_MAX - 1) / 2)));
}

#[test]
fn encodings_match_the_golden_file() {
    let body = || Bytes::from_static(b"body");
    let failure = || CallFailure::new(FailureKind::Overloaded, "too much");
    let messages = [
        ("call", Message::Call { id: 1, millis: 1500, method: 513, body: body() }),
        ("reply", Message::Reply { id: 1, body: body() }),
        ("failure", Message::Failure { id: 1, failure: failure() }),
        ("cancel", Message::Cancel { id: 1 }),
        ("open", Message::Open { id: 2, method: 513 }),
        ("item", Message::Item { id: 2, body: body() }),
        ("credit", Message::Credit { id: 2, amount: 65_536 }),
        ("end", Message::End { id: 2 }),
        ("abort", Message::Abort { id: 2, failure: failure() }),
        ("stop", Message::Stop { id: 2 }),
        ("ping", Message::Ping),
        ("pong", Message::Pong),
        ("goodbye", Message::Goodbye { last_call: 3 }),
    ];
    let golden: Vec<&str> = include_str!("../../tests/golden/messages-v1.txt").lines().collect();
    let written: Vec<String> =
        messages.iter().map(|(name, message)| format!("{name} {}", hex(&frame(message.clone())))).collect();
    assert_eq!(written, golden, "\n{}", written.join("\n"));
}
