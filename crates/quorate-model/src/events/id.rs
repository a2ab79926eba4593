//! The numbers of events.

use std::fmt;
use std::str::FromStr;

/// The bits for the place of an event among those of its entry.
const ORDINAL_BITS: u32 = 16;

/// The number of an event: the index of its entry, and its ordinal among the events of that, from 0. They rise for
/// ever, also over a restore. As a text it is both with a hyphen, for instance `1234-0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(u64);

/// A text that is not the number of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the number of an event is the index of its entry and its ordinal, for instance 1234-0")]
pub struct NotAnEventId;

impl EventId {
    /// The number before that of any event.
    pub const START: Self = Self(0);

    /// Returns the number of the event at a place of the entry at `index`.
    pub fn new(index: u64, ordinal: u16) -> Self {
        Self(index << ORDINAL_BITS | u64::from(ordinal))
    }

    /// Returns the number as it is stored: it is `index` times 65,536, plus `ordinal`.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the event with this stored number.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The index of the entry.
    pub fn index(self) -> u64 {
        self.0 >> ORDINAL_BITS
    }

    /// The place among the events of the entry.
    pub fn ordinal(self) -> u16 {
        self.0 as u16
    }

    /// Returns the number after which this event is the next one.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.index(), self.ordinal())
    }
}

impl FromStr for EventId {
    type Err = NotAnEventId;

    fn from_str(text: &str) -> Result<Self, NotAnEventId> {
        let (index, ordinal) = text.split_once('-').ok_or(NotAnEventId)?;
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let index = index.parse().ok().filter(|number: &u64| digits(index) && *number <= u64::MAX >> ORDINAL_BITS);
        let ordinal = ordinal.parse().ok().filter(|_| digits(ordinal));
        index.zip(ordinal).map(|(index, ordinal)| Self::new(index, ordinal)).ok_or(NotAnEventId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_is_written_and_nothing_else_is() {
        let highest = EventId::new(u64::MAX >> ORDINAL_BITS, u16::MAX);
        for id in [EventId::START, EventId::new(1, 0), EventId::new(1234, 5), highest] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "1", "-", "1-", "-1", "+1-0", "1-+0", "1-65536", "281474976710656-0", "1-0-0", " 1-0"] {
            assert_eq!(text.parse::<EventId>(), Err(NotAnEventId), "{text:?}");
        }
    }

    #[test]
    fn events_are_in_the_order_of_entries_and_then_of_ordinals() {
        let events = [EventId::START, EventId::new(1, 0), EventId::new(1, 9), EventId::new(2, 0)];
        assert!(events.is_sorted());
        assert_eq!(EventId::new(2, 0).before(), EventId::new(1, u16::MAX));
    }
}
