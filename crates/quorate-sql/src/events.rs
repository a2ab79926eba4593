//! The tables of events in SQLite.
//!
//! [`EventTables`] adds and reads events on a connection, the writer's or a reader's. The tables and the view are in
//! [`schema`], the SQL function `notify()` in [`function`].
//!
//! # Invariants
//!
//! - The rows are a function of the entries: they are compared between nodes as tables of users are.
//! - Events are only added at the end, and only removed at the start. One row says what was removed, so a reader knows
//!   exactly whether it has missed events.
//! - Who adds events removes what exceeds [`Retention`], in pieces of a bounded size.

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::StoreFault;
use quorate_model::events::limits::{
    ENTRY_EVENTS_MAX, KEPT_BYTES_MAX, KEPT_EVENTS_MAX, PAGE_BYTES_MAX, PAGE_LOOKED_AT_MAX, TRIMMED_PER_EVENT,
};
use quorate_model::events::{Event, EventId, EventsAnswer, EventsPage, EventsQuery};
use rusqlite::{Row, params};

use crate::ffi::database::Database;
use crate::keys::Ended;
use crate::metrics::Counts;
use crate::usage::{LARGE, copy_uncounted};

pub(crate) mod function;
pub(crate) mod schema;
#[cfg(test)]
mod tests;

const KEPT: &str = "SELECT events, bytes, removed, last FROM _quorate_events_kept WHERE id = 1";
const SET_KEPT: &str =
    "REPLACE INTO _quorate_events_kept (id, events, bytes, removed, last) VALUES (1, ?1, ?2, ?3, ?4)";
const ADD: &str = "INSERT INTO _quorate_events (id, channel, payload) VALUES (?1, ?2, ?3)";
const OLDEST: &str =
    "SELECT id, octet_length(channel), octet_length(payload) FROM _quorate_events ORDER BY id LIMIT ?1";
const REMOVE: &str = "DELETE FROM _quorate_events WHERE id <= ?1";
const AFTER: &str = "SELECT id, channel, payload FROM _quorate_events WHERE id > ?1 ORDER BY id";

type Done<T> = Result<T, Ended>;

/// How many events are kept. All nodes must keep the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The most events.
    pub events: u64,
    /// The most bytes of them.
    pub bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { events: KEPT_EVENTS_MAX, bytes: KEPT_BYTES_MAX }
    }
}

/// What is kept.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    events: u64,
    bytes: u64,
    /// The last event that was removed.
    removed: EventId,
    /// The last event that was added.
    last: EventId,
}

/// An event that is to be added: its channel, and what it says.
pub(crate) type Notice = (String, Bytes);

/// The tables of events in the database of a connection.
pub(crate) struct EventTables<'a, N>(&'a mut Database<N>);

impl<'a, N> EventTables<'a, N> {
    pub(crate) fn of(database: &'a mut Database<N>) -> Self {
        Self(database)
    }

    /// Returns the number that the next event of the entry at `index` gets; none if the entry has as many events as it
    /// may have.
    pub(crate) fn next(&mut self, index: u64) -> Done<Option<EventId>> {
        let last = self.kept()?.last;
        if last.index() != index {
            return Ok(Some(EventId::new(index, 0)));
        }
        Ok(last.ordinal().checked_add(1).map(|ordinal| EventId::new(index, ordinal)))
    }

    /// Adds events, the first of them under the number `first`, which [`EventTables::next`] has returned, and removes
    /// old ones. The caller has checked that the entry may have so many.
    pub(crate) fn add(&mut self, first: EventId, notices: &[Notice], retention: Retention) -> Done<()> {
        let mut kept = self.kept()?;
        for (id, (channel, payload)) in (first.number()..).zip(notices) {
            self.0.change(ADD, params![id.cast_signed(), channel, payload.as_ref()])?;
            if payload.len() >= LARGE {
                self.0.drop_values(ADD)?;
            }
            kept.events = kept.events.saturating_add(1);
            kept.bytes = kept.bytes.saturating_add(Event::size(channel, payload));
            kept.last = EventId::from_number(id);
        }
        self.trim(&mut kept, TRIMMED_PER_EVENT.saturating_mul(notices.len() as u64), retention)?;
        let values = [kept.events, kept.bytes, kept.removed.number(), kept.last.number()].map(u64::cast_signed);
        Ok(self.0.change(SET_KEPT, values)?)
    }

    /// Removes the oldest events, at most `max` of them, until the rest may be kept.
    fn trim(&mut self, kept: &mut Kept, max: u64, retention: Retention) -> Done<()> {
        let exceeds = |kept: &Kept| kept.events > retention.events || kept.bytes > retention.bytes;
        if !exceeds(kept) {
            return Ok(());
        }
        let mut rows = self.0.rows(OLDEST, [i64::try_from(max).unwrap_or(i64::MAX)])?;
        while exceeds(kept) && kept.events > 1 {
            let Some(row) = rows.next()? else { break };
            let size = Event::size("", &[]).saturating_add(unsigned(row, 1)?).saturating_add(unsigned(row, 2)?);
            kept.events = kept.events.saturating_sub(1);
            kept.bytes = kept.bytes.saturating_sub(size);
            kept.removed = id(row)?;
        }
        drop(rows);
        Ok(self.0.change(REMOVE, [kept.removed.number().cast_signed()])?)
    }

    /// Answers a query, whose limits were checked. Must run in a transaction.
    pub(crate) fn answer(&mut self, query: &EventsQuery) -> Done<EventsAnswer> {
        let kept = self.kept()?;
        let Some(after) = query.after else {
            return Ok(EventsAnswer::Page(EventsPage { upto: kept.last, ..EventsPage::default() }));
        };
        if after < kept.removed && !Mutant::GapNotTold.is_on() {
            let oldest = self.0.first_row(AFTER, [kept.removed.number().cast_signed()], id)?;
            return Ok(EventsAnswer::Gap { oldest: oldest.unwrap_or(kept.last) });
        }
        self.page(after, query).map(EventsAnswer::Page)
    }

    fn page(&mut self, after: EventId, query: &EventsQuery) -> Done<EventsPage> {
        let mut page = EventsPage { upto: after, ..EventsPage::default() };
        let (mut looked_at, mut bytes) = (0_u64, 0_u64);
        let mut rows = self.0.rows(AFTER, [i64::try_from(after.number()).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            let is_full = page.events.len() >= query.limit as usize || bytes >= PAGE_BYTES_MAX;
            if is_full || looked_at >= PAGE_LOOKED_AT_MAX {
                page.more = true;
                break;
            }
            looked_at = looked_at.saturating_add(1);
            page.upto = id(row)?;
            let channel = row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
            if query.filter.wants(channel) {
                let payload = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
                bytes = bytes.saturating_add(Event::size(channel, payload));
                let payload = copy_uncounted(payload)?.into();
                page.events.push(Event { id: page.upto, channel: channel.to_owned(), payload });
            }
        }
        Ok(page)
    }

    /// Returns what is kept, for metrics.
    pub(crate) fn counts(&mut self) -> Done<Counts> {
        let kept = self.kept()?;
        let first = self.0.first_row(AFTER, [kept.removed.number().cast_signed()], id)?;
        Ok(Counts {
            events: kept.events,
            event_bytes: kept.bytes,
            first_event: first.map_or(0, EventId::index),
            last_event: kept.last.index(),
            ..Counts::default()
        })
    }

    fn kept(&mut self) -> Done<Kept> {
        let kept = self.0.first_row(KEPT, [], |row| -> Done<Kept> {
            let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
            let (removed, last) = (EventId::from_number(number(2)?), EventId::from_number(number(3)?));
            Ok(Kept { events: number(0)?, bytes: number(1)?, removed, last })
        })?;
        Ok(kept.unwrap_or_default())
    }
}

/// Returns how many events an entry may have from its event `first` on.
pub(crate) fn room(first: EventId) -> usize {
    ENTRY_EVENTS_MAX.saturating_sub(first.ordinal().into())
}

fn id(row: &Row<'_>) -> Done<EventId> {
    unsigned(row, 0).map(EventId::from_number)
}

/// Returns a number that is never negative.
fn unsigned(row: &Row<'_>, column: usize) -> Done<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number)
        .map_err(|_| Ended::Fault(StoreFault::Damaged(format!("the tables of events: {number} is negative"))))
}
