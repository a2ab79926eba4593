//! Messages between nodes, and between clients and nodes.
//!
//! They may be read by another version, so fields that are not known are skipped, and one meaning has many encodings.
//! But what was read and written again reads as the same.

use bytes::Bytes;

use crate::input::Input;

/// Messages in which an error becomes its words: read again, these are in turn words of an error.
const WITH_ERRORS: &[&str] = &["executed", "answer", "snapshot opened", "snapshot piece"];

/// What nodes tell each other, and what the log keeps for consensus.
pub fn nodes(data: &[u8]) {
    round_trip(quorate_consensus::fuzzing::ALL, data);
}

/// What clients and nodes tell each other.
pub fn clients(data: &[u8]) {
    round_trip(quorate::fuzzing::ALL, data);
}

/// A kind of messages: its name, and what reads one and writes it again.
type Door<'a> = (&'a str, fn(Bytes) -> Option<Bytes>);

fn round_trip(doors: &[Door<'_>], data: &[u8]) {
    let mut input = Input(data);
    let number = usize::from(input.u8()) % doors.len();
    let Some((name, reencode)) = doors.get(number) else { return };
    let Some(once) = reencode(Bytes::copy_from_slice(input.0)) else { return };
    let twice = reencode(once.clone());
    assert!(twice.is_some(), "{name}: what was written can't be read");
    assert!(WITH_ERRORS.contains(name) || twice.as_ref() == Some(&once), "{name}: {once:02x?} became {twice:02x?}");
}
