//! Messages between nodes, and between clients and nodes.
//!
//! Another version may read them, so decoders skip unknown fields, and one message has many encodings. But a message
//! that is decoded and encoded again must decode to the same message.

use bytes::Bytes;

use crate::input::Input;

/// Messages in which an error is reduced to its text. Decoding gives another kind of error with this text, so the bytes
/// may change when the message is encoded again.
const WITH_ERRORS: &[&str] = &["executed", "answer", "snapshot opened", "snapshot piece"];

/// Checks the messages between nodes, and the records of consensus in the log.
pub fn nodes(data: &[u8]) {
    round_trip(quorate_consensus::fuzzing::ALL, data);
}

/// Checks the messages between clients and nodes.
pub fn clients(data: &[u8]) {
    round_trip(quorate::fuzzing::ALL, data);
}

/// A kind of message: its name, and a function that decodes such a message and encodes it again.
type MessageKind<'a> = (&'a str, fn(Bytes) -> Option<Bytes>);

fn round_trip(kinds: &[MessageKind<'_>], data: &[u8]) {
    let mut input = Input(data);
    let number = usize::from(input.u8()) % kinds.len();
    let Some((name, reencode)) = kinds.get(number) else { return };
    let Some(once) = reencode(Bytes::copy_from_slice(input.0)) else { return };
    let twice = reencode(once.clone());
    assert!(twice.is_some(), "{name}: an encoded message can't be decoded");
    assert!(WITH_ERRORS.contains(name) || twice.as_ref() == Some(&once), "{name}: {once:02x?} became {twice:02x?}");
}
