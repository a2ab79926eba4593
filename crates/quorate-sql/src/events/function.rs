//! The SQL function `notify(channel, payload)`: the statement that calls it adds an event.
//!
//! It only remembers the event. The machine adds it once the statement has succeeded ([`crate::machine`]), because a
//! function can't write to the database in which its statement runs.
//!
//! # Invariants
//!
//! - Whether a command finds the function depends only on the format level of the state before its entry, because nodes
//!   of older versions do not have it.
//! - What is remembered is bounded by the limits of an entry.

use std::sync::{Arc, Mutex};

use quorate_env::lock;
use quorate_env::mutant::Mutant;
use quorate_model::events::limits::{ENTRY_BYTES_MAX, ENTRY_EVENTS_MAX};
use quorate_model::events::{Event, check_event};
use quorate_model::{Failure, FailureKind};
use rusqlite::Connection;

use super::Notice;
use crate::ffi::functions::{self, Answer, Call, Failed};
use crate::functions::Meter;
use crate::usage::copy_uncounted;

/// Its name.
pub(crate) const NAME: &str = "notify";

/// The bytes of work that an event counts besides its own: what it costs to add it, and to remove it later.
const WORK_BYTES: u64 = 4 << 10;

/// Why a query that calls it is refused.
pub(crate) const IN_QUERY: &str = "notify() adds an event, which a query can't; use `execute`";

/// The events of the running statement, and what its entry may still add.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    notices: Vec<Notice>,
    /// The bytes of the events of the entry so far, with those above.
    bytes: u64,
    /// Why the last call failed.
    failure: Option<Failure>,
}

impl Notices {
    /// Begins an entry.
    pub(crate) fn begin(&self) {
        *lock(&self.0) = Inner::default();
    }

    /// Counts an event of the entry, or fails if the entry may not have it.
    pub(crate) fn count(&self, channel: &str, payload: &[u8]) -> Result<(), Failure> {
        lock(&self.0).count(channel, payload)
    }

    /// Returns the events of the statement that has succeeded.
    pub(crate) fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut lock(&self.0).notices)
    }

    /// Forgets the events of a statement that has failed. Returns why, if it was because of one of them.
    pub(crate) fn forget(&self) -> Option<Failure> {
        let mut inner = lock(&self.0);
        if !Mutant::FailedEventsKept.is_on() {
            inner.notices.clear();
        }
        inner.failure.take()
    }

    fn call(&self, call: &Call<'_>) -> Result<(), Failed> {
        let payload = call.bytes(1)?.unwrap_or_default();
        let mut inner = lock(&self.0);
        let channel = call.bytes(0)?.and_then(|channel| std::str::from_utf8(channel).ok());
        let checked = channel.ok_or_else(no_channel).and_then(|channel| {
            check_event(channel, payload)?;
            inner.count(channel, payload).map(|()| channel.to_owned())
        });
        match checked {
            Ok(channel) => {
                inner.notices.push((channel, copy_uncounted(payload)?.into()));
                Ok(())
            }
            Err(failure) => {
                let text = failure.message.clone();
                inner.failure = Some(failure);
                Err(Failed::Text(text))
            }
        }
    }
}

impl Inner {
    fn count(&mut self, channel: &str, payload: &[u8]) -> Result<(), Failure> {
        let bytes = self.bytes.saturating_add(Event::size(channel, payload));
        if bytes > ENTRY_BYTES_MAX {
            let text = format!("the events of an entry have at most {ENTRY_BYTES_MAX} bytes together; split it");
            return Err(Failure::new(FailureKind::TooBig, text));
        }
        if self.notices.len() >= ENTRY_EVENTS_MAX {
            return Err(too_many());
        }
        self.bytes = bytes;
        Ok(())
    }
}

pub(crate) fn too_many() -> Failure {
    Failure::new(FailureKind::TooBig, format!("an entry adds at most {ENTRY_EVENTS_MAX} events; split it"))
}

fn no_channel() -> Failure {
    Failure::new(FailureKind::Refused, "the first argument of notify() is the name of a channel, a text in UTF-8")
}

/// Registers the function on a write connection.
pub(crate) fn install(conn: &Connection, notices: &Arc<Notices>, meter: &Arc<dyn Meter>) -> rusqlite::Result<()> {
    let (notices, meter) = (Arc::clone(notices), Arc::clone(meter));
    functions::volatile(conn, c"notify", 2, move |call| {
        let size = call.bytes(1)?.map_or(0, <[u8]>::len) as u64;
        // If the statement must end now, the next step ends it.
        meter.charge(WORK_BYTES.saturating_add(size));
        notices.call(call).map(|()| Answer::Null)
    })
}

/// Removes the function from a write connection.
pub(crate) fn remove(conn: &Connection) -> rusqlite::Result<()> {
    conn.remove_function(NAME, 2)
}

/// Registers the function on a connection to a database that belongs to no store, and has no events.
pub(crate) fn install_without_effect(conn: &Connection) -> rusqlite::Result<()> {
    functions::volatile(conn, c"notify", 2, |_| Ok(Answer::Null))
}

/// Registers the name on a connection that only reads, so that what is said of a statement that calls it is not that
/// there is no such function.
pub(crate) fn install_refusal(conn: &Connection) -> rusqlite::Result<()> {
    functions::volatile(conn, c"notify", 2, |_| Err(Failed::Text(IN_QUERY.to_owned())))
}
