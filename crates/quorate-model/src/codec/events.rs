//! The family of events: see `docs/model-format.md`.

use super::decode::Field::{Bytes as Content, Number};
use super::decode::{Decode, Fields, Flaw, Part, empty, only_field, push, text};
use super::encode::{Empty, Message, Out};
use crate::events::limits::{FILTER_PARTS_MAX, PAGE_EVENTS_MAX};
use crate::events::{Event, EventId, EventsAnswer, EventsCommand, EventsPage, EventsQuery, EventsReply};

/// A channel, and what an event on it says.
struct Notice<'a>(&'a str, &'a [u8]);

impl Message for Notice<'_> {
    fn put(&self, out: &mut impl Out) {
        out.text_unless_empty(1, self.0);
        out.bytes_unless_empty(2, self.1);
    }
}

impl Message for EventsCommand {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Notify { channel, payload } => out.message(1, &Notice(channel, payload)),
        }
    }
}

impl Decode for EventsCommand {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let (1, Content(part)) = only_field(part)? else { return Err(Flaw::Unknown) };
        let Event { channel, payload, id: EventId::START } = Event::decode(part)? else { return Err(Flaw::Unknown) };
        Ok(Self::Notify { channel, payload })
    }
}

impl Message for EventsReply {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Notified(id) => out.number(1, id.number()),
        }
    }
}

impl Decode for EventsReply {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (1, Number(id)) => Ok(Self::Notified(EventId::from_number(id))),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Message for Event {
    fn put(&self, out: &mut impl Out) {
        Notice(&self.channel, &self.payload).put(out);
        out.number_unless_0(3, self.id.number());
    }
}

impl Decode for Event {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let (mut channel, mut payload, mut id) = Default::default();
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => channel = text(part)?,
                (2, Content(part)) => payload = part.slice(),
                (3, Number(number)) => id = EventId::from_number(number),
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(Self { id, channel, payload })
    }
}

impl Message for EventsQuery {
    fn put(&self, out: &mut impl Out) {
        self.after.iter().for_each(|after| out.number(1, after.number()));
        out.texts(2, &self.filter.channels);
        out.texts(3, &self.filter.patterns);
        out.number_unless_0(4, self.limit.into());
    }
}

impl Decode for EventsQuery {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut query = Self::default();
        for field in Fields::of(part) {
            match field? {
                (1, Number(after)) => query.after = Some(EventId::from_number(after)),
                (2, Content(part)) => push(&mut query.filter.channels, FILTER_PARTS_MAX, text(part)?)?,
                (3, Content(part)) => push(&mut query.filter.patterns, FILTER_PARTS_MAX, text(part)?)?,
                (4, Number(limit)) => query.limit = super::decode::small(limit)?,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(query)
    }
}

impl Message for EventsAnswer {
    fn put(&self, out: &mut impl Out) {
        match self {
            Self::Page(page) => out.message(1, page),
            Self::Gap { oldest } => out.number(2, oldest.number()),
        }
    }
}

impl Decode for EventsAnswer {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        match only_field(part)? {
            (1, Content(part)) => EventsPage::decode(part).map(Self::Page),
            (2, Number(oldest)) => Ok(Self::Gap { oldest: EventId::from_number(oldest) }),
            _ => Err(Flaw::Unknown),
        }
    }
}

impl Message for EventsPage {
    fn put(&self, out: &mut impl Out) {
        out.messages(1, &self.events);
        out.number_unless_0(2, self.upto.number());
        if self.more {
            out.message(3, &Empty);
        }
    }
}

impl Decode for EventsPage {
    fn decode(part: Part<'_>) -> Result<Self, Flaw> {
        let mut page = Self::default();
        for field in Fields::of(part) {
            match field? {
                (1, Content(part)) => push(&mut page.events, PAGE_EVENTS_MAX as usize, Event::decode(part)?)?,
                (2, Number(upto)) => page.upto = EventId::from_number(upto),
                (3, Content(part)) => page.more = empty(part, true)?,
                _ => return Err(Flaw::Unknown),
            }
        }
        Ok(page)
    }
}
