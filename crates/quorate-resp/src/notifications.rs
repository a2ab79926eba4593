//! Notifications of the key space: which events a node publishes for its clients, and under which channels.
//!
//! Invariant: the text of a setting is the one that CONFIG GET of Valkey answers, also where it leaves out a letter.

use std::fmt;

use bytes::Bytes;
use quorate_model::keys::{EventClasses, KeyChange};

/// The parameter of CONFIG.
pub const NOTIFY: &str = "notify-keyspace-events";

/// The letters in the order of a text, each with the events that it stands for. Streams, evictions, modules and misses
/// of reads have none here.
const LETTERS: [(char, EventClasses); 14] = [
    ('g', EventClasses::GENERIC),
    ('$', EventClasses::STRING),
    ('l', EventClasses::LIST),
    ('s', EventClasses::SET),
    ('h', EventClasses::HASH),
    ('z', EventClasses::SORTED_SET),
    ('x', EventClasses::EXPIRED),
    ('e', EventClasses::NONE),
    ('t', EventClasses::NONE),
    ('d', EventClasses::NONE),
    ('n', EventClasses::NEW),
    (BY_KEY, EventClasses::NONE),
    (BY_EVENT, EventClasses::NONE),
    ('m', EventClasses::NONE),
];

/// Publishes each event to the channel of its key.
const BY_KEY: char = 'K';

/// Publishes each key to the channel of its event.
const BY_EVENT: char = 'E';

/// The letter for all of [`ALL`].
const A: char = 'A';
const ALL: &str = "g$lshzxetd";

/// Which notifications there are: the value of [`NOTIFY`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notifications {
    /// The letters that are set, by their places in [`LETTERS`].
    letters: u16,
}

impl Notifications {
    /// Returns the notifications for a text of letters; none if one of them is unknown.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut set = Self::default();
        // As in Redis, a zero ends the text.
        for byte in text.iter().take_while(|byte| **byte != 0) {
            match char::from(*byte) {
                A => ALL.chars().for_each(|letter| set.letters |= bit(letter)),
                letter if bit(letter) != 0 => set.letters |= bit(letter),
                _ => return None,
            }
        }
        Some(set)
    }

    /// Returns the classes of events that are published.
    pub fn classes(self) -> EventClasses {
        if !self.has(BY_KEY) && !self.has(BY_EVENT) {
            return EventClasses::NONE;
        }
        let set = LETTERS.iter().filter(|(letter, _)| self.has(*letter));
        set.fold(EventClasses::NONE, |all, (_, class)| all | *class)
    }

    /// Returns the messages about a change, each with its channel.
    pub fn messages(self, change: &KeyChange) -> impl Iterator<Item = (Bytes, Bytes)> {
        let KeyChange { space, key, event } = change;
        let channel = |kind, rest: &[u8]| Bytes::from([format!("__{kind}@{space}__:").as_bytes(), rest].concat());
        let event = event.name();
        let by_key = self.has(BY_KEY).then(|| (channel("keyspace", key), Bytes::from_static(event.as_bytes())));
        let by_event = self.has(BY_EVENT).then(|| (channel("keyevent", event.as_bytes()), key.clone()));
        by_key.into_iter().chain(by_event)
    }

    fn has(self, letter: char) -> bool {
        self.letters & bit(letter) != 0
    }
}

impl fmt::Display for Notifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_all = ALL.chars().all(|letter| self.has(letter));
        if has_all {
            write!(f, "{A}")?;
        }
        // Valkey does not name `n` beside `A`, although that does not stand for it.
        let is_named = |letter| !has_all || !(ALL.contains(letter) || letter == 'n');
        let named = LETTERS.iter().filter(|(letter, _)| self.has(*letter) && is_named(*letter));
        named.map(|(letter, _)| letter).try_for_each(|letter| write!(f, "{letter}"))
    }
}

/// Returns the bit of a letter; 0 if it is unknown.
fn bit(letter: char) -> u16 {
    LETTERS.iter().position(|(known, _)| *known == letter).map_or(0, |place| 1 << place)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use quorate_model::keys::KeyEvent;

    use super::*;

    fn of(text: &str) -> Notifications {
        Notifications::parse(text.as_bytes()).unwrap()
    }

    /// What CONFIG GET of Valkey 9.1 answers.
    #[test]
    fn a_setting_has_one_text() {
        let texts = [
            ("KEA", "AKE"),
            ("KEAn", "AKE"),
            ("KEAnm", "AKEm"),
            ("AKE", "AKE"),
            ("Ex", "xE"),
            ("Ex\0q", "xE"),
            ("xxE", "xE"),
            ("g$lshzxetd", "A"),
            ("g$lshzxet", "g$lshzxet"),
            ("nmEKg", "gnKEm"),
            ("KEtdn", "tdnKE"),
            ("mA", "Am"),
            ("", ""),
        ];
        for (given, text) in texts {
            assert_eq!(of(given).to_string(), text, "{given}");
            assert_eq!(of(text).to_string(), text, "{given}");
        }
        for wrong in ["KEAo", "c", " K"] {
            assert_eq!(Notifications::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn nothing_is_published_without_a_kind_of_channel() {
        assert!(of("A").classes().is_empty() && of("KE").classes().is_empty() && of("Ketdm").classes().is_empty());
        assert_eq!(of("Kx").classes(), EventClasses::EXPIRED);
        assert!(!of("KEA").classes().meet(EventClasses::NEW) && of("KEAn").classes().meet(EventClasses::NEW));
    }

    #[test]
    fn a_change_is_told_by_its_key_and_by_its_event() {
        let change = KeyChange { space: 3, key: "k".into(), event: KeyEvent::RenameTo };
        let messages = |text: &str| of(text).messages(&change).collect::<Vec<_>>();
        let by_key = (Bytes::from("__keyspace@3__:k"), Bytes::from("rename_to"));
        let by_event = (Bytes::from("__keyevent@3__:rename_to"), Bytes::from("k"));
        assert_eq!(messages("KEA"), [by_key.clone(), by_event.clone()]);
        assert_eq!((messages("Kg"), messages("Eg")), (vec![by_key], vec![by_event]));
    }
}
