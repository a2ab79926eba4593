//! Checks of limits, before a command is proposed or answered, and when its bytes arrive.

use super::limits::{CHANNEL_BYTES_MAX, FILTER_PARTS_MAX, PAGE_EVENTS_MAX, PATTERN_BYTES_MAX, PAYLOAD_BYTES_MAX};
use super::{EventsCommand, EventsQuery};
use crate::limits::{IN_PIECES, limit};
use crate::{Failure, FailureKind};

const SHORTER: &str = "give it a shorter name";

/// Checks the name of a channel and the size of what an event says.
pub fn check_event(channel: &str, payload: &[u8]) -> Result<(), Failure> {
    check_channel(channel)?;
    limit("bytes of an event", payload.len(), PAYLOAD_BYTES_MAX, IN_PIECES)
}

/// Fails if a text is not the name of a channel: it has 1 to [`CHANNEL_BYTES_MAX`] bytes, and no control characters.
fn check_channel(channel: &str) -> Result<(), Failure> {
    limit("bytes of the name of a channel", channel.len(), CHANNEL_BYTES_MAX, SHORTER)?;
    if channel.is_empty() || channel.contains(char::is_control) {
        let text = "the name of a channel has at least one character, and no control characters; choose another";
        return Err(Failure::new(FailureKind::Refused, text));
    }
    Ok(())
}

impl EventsCommand {
    /// Checks every limit except the encoded size.
    pub(crate) fn check_limits(&self) -> Result<(), Failure> {
        match self {
            Self::Notify { channel, payload } => check_event(channel, payload),
        }
    }
}

impl EventsQuery {
    /// Checks every limit.
    pub(crate) fn check_limits(&self) -> Result<(), Failure> {
        const FEWER: &str = "ask for fewer, or use patterns";
        limit("channels", self.filter.channels.len(), FILTER_PARTS_MAX, FEWER)?;
        limit("patterns of channels", self.filter.patterns.len(), FILTER_PARTS_MAX, FEWER)?;
        self.filter.channels.iter().try_for_each(|channel| check_channel(channel))?;
        let patterns = &mut self.filter.patterns.iter();
        patterns.try_for_each(|pattern| limit("bytes of a pattern", pattern.len(), PATTERN_BYTES_MAX, SHORTER))?;
        if (1..=PAGE_EVENTS_MAX).contains(&self.limit) {
            return Ok(());
        }
        let text = format!("a page of {} events: it may have 1 to {PAGE_EVENTS_MAX}", self.limit);
        Err(Failure::new(FailureKind::TooBig, text))
    }
}
