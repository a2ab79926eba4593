//! What commands share: finding keys, making, saving and removing them, and their expiry.
//!
//! # Invariants
//!
//! - What has expired at the time of the context is not found, whether or not it was swept; neither is a collection all
//!   of whose elements have expired.
//! - A command that fails, or does not apply, has written nothing. So a command calls [`Keys::create`], which writes,
//!   only after its checks.
//! - What changes a key names its events ([`KeyEvent`]), in the order that Redis has.
//! - A key has at most one row of due times, [`KeyRow::due`], and that is not later than anything of it expires. A
//!   later expiry leaves it where it is, until the sweep moves it.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::keys::{Expiry, KeyEvent, Kind, Order, Space, Version};

use crate::KeysError;
use crate::context::Context;
use crate::limits::{FIELD_BYTES_MAX, KEY_BYTES_MAX, REPLY_BYTES_MAX, TIME_MAX, VALUE_BYTES_MAX};
use crate::tables::{Id, KeyRow, Tables};

/// The keys of a space, as a command sees them.
pub struct Keys<'a, T> {
    pub(crate) tables: &'a mut T,
    pub(crate) context: &'a mut Context,
    pub(crate) space: Space,
    /// The name under which the last search found no row, not even one that has expired.
    pub(crate) vacant: Option<(Space, Bytes)>,
}

/// A key with its row, which may have to be added yet.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) space: Space,
    pub(crate) key: Bytes,
    pub(crate) row: KeyRow,
    pub(crate) is_new: bool,
}

impl Open {
    pub(crate) fn id(&self) -> Id {
        self.row.id
    }
}

impl<'a, T: Tables> Keys<'a, T> {
    /// Returns the keys of a space in tables, for a command with a context.
    pub fn new(tables: &'a mut T, context: &'a mut Context, space: Space) -> Self {
        Self { tables, context, space, vacant: None }
    }

    /// Returns a key of this space that exists.
    pub(crate) fn find(&mut self, key: &Bytes) -> Result<Option<Open>, T::Error> {
        self.find_in(self.space, key)
    }

    pub(crate) fn find_in(&mut self, space: Space, key: &Bytes) -> Result<Option<Open>, T::Error> {
        check_bytes("key", key, KEY_BYTES_MAX)?;
        let Some(row) = self.tables.find_key(space, key)? else {
            self.vacant = Some((space, key.clone()));
            return Ok(None);
        };
        self.context.charge_bytes(row.value.len())?;
        let open = Open { space, key: key.clone(), row, is_new: false };
        Ok(self.is_alive(&open.row)?.then_some(open))
    }

    /// Returns a key that exists and holds a kind of value.
    pub(crate) fn typed(&mut self, key: &Bytes, kind: Kind) -> Result<Option<Open>, T::Error> {
        let found = self.find(key)?;
        if found.as_ref().is_some_and(|open| open.row.kind != kind) {
            return Err(KeysError::WrongType.into());
        }
        Ok(found)
    }

    /// Returns the first of some keys that exists, and holds a kind of value.
    pub(crate) fn first_of(&mut self, keys: &[Bytes], kind: Kind) -> Result<Option<Open>, T::Error> {
        self.context.charge_rows(keys.len(), 0)?;
        for key in keys {
            if let Some(open) = self.typed(key, kind)? {
                return Ok(Some(open));
            }
        }
        Ok(None)
    }

    /// Returns whether the key of a row exists.
    pub(crate) fn is_alive(&mut self, row: &KeyRow) -> Result<bool, T::Error> {
        if !self.context.is_alive(row.expires_at) && !Mutant::ExpiredIsAlive.is_on() {
            return Ok(false);
        }
        if row.volatile == 0 || row.count > row.volatile {
            return Ok(true);
        }
        Ok(self.expiry(row.id, Order::Down)?.is_some_and(|last| last > self.context.now))
    }

    /// Returns the first or the last expiry of an element.
    pub(crate) fn expiry(&mut self, id: Id, order: Order) -> Result<Option<u64>, T::Error> {
        let mut found = None;
        self.tables.expiries(id, order, &mut |(at, _)| {
            found = Some(at);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Returns the number of elements, members or items that exist.
    pub(crate) fn live_count(&mut self, row: &KeyRow) -> Result<u64, T::Error> {
        if row.volatile == 0 || self.expiry(row.id, Order::Up)?.is_none_or(|first| first > self.context.now) {
            return Ok(row.count);
        }
        self.context.charge_range(row.volatile)?;
        Ok(row.count - self.tables.count_expired(row.id, self.context.now)?)
    }

    /// Returns a key that was found, or else makes it.
    pub(crate) fn found_or_new(&mut self, found: Option<Open>, key: &Bytes, kind: Kind) -> Result<Open, T::Error> {
        found.map_or_else(|| self.create(self.space, key, kind), Ok)
    }

    /// Makes a key, in place of what is there under its name. It is new, unless something was there.
    pub(crate) fn create(&mut self, space: Space, key: &Bytes, kind: Kind) -> Result<Open, T::Error> {
        if !self.free(space, key)? {
            self.context.note(space, key, &[KeyEvent::New]);
        }
        let id = self.tables.new_id()?;
        let row = KeyRow {
            id,
            kind,
            version: Version::default(),
            expires_at: None,
            due: None,
            count: 0,
            volatile: 0,
            head: 0,
            value: Bytes::new(),
        };
        Ok(Open { space, key: key.clone(), row, is_new: true })
    }

    /// Saves a key that has changed by these events. A collection that has become empty is removed.
    pub(crate) fn save(&mut self, mut open: Open, events: &[KeyEvent]) -> Result<(), T::Error> {
        let Open { space, ref key, is_new, .. } = open;
        self.context.touch(space, key);
        self.context.note(space, key, events);
        self.vacant = None;
        if is_new || !Mutant::VersionKept.is_on() {
            open.row.version = self.context.version;
        }
        let is_empty = open.row.kind != Kind::String && open.row.count == 0;
        match (is_new, is_empty) {
            (true, false) => self.tables.add_key(space, key, &open.row),
            (false, false) => self.tables.update_key(&open.row),
            (_, true) => {
                self.context.note(space, key, &[KeyEvent::Delete]);
                self.remove_row(&open.row)
            }
        }
    }

    /// Removes what is under a name, also if it has expired, and returns whether it had not. That is only found out if
    /// anybody wants to know of events.
    pub(crate) fn free(&mut self, space: Space, key: &Bytes) -> Result<bool, T::Error> {
        if self.vacant.as_ref().is_some_and(|vacant| (vacant.0, &vacant.1) == (space, key)) {
            return Ok(false);
        }
        let Some(row) = self.tables.find_key(space, key)? else { return Ok(false) };
        let was_there = !self.context.notes() || self.is_alive(&row)?;
        if !was_there {
            let has_expired = !self.context.is_alive(row.expires_at);
            let events: &[_] =
                if has_expired { &[KeyEvent::Expired] } else { &[elements_expired(row.kind), KeyEvent::Delete] };
            self.context.note(space, key, events);
        }
        self.remove_row(&row)?;
        Ok(was_there)
    }

    /// Removes a key by these events.
    pub(crate) fn remove(&mut self, open: &Open, events: &[KeyEvent]) -> Result<(), T::Error> {
        self.context.touch(open.space, &open.key);
        self.context.note(open.space, &open.key, events);
        self.remove_row(&open.row)
    }

    /// Removes the row of a key. Other rows of its id are left to the sweep.
    pub(crate) fn remove_row(&mut self, row: &KeyRow) -> Result<(), T::Error> {
        self.tables.remove_key(row.id)?;
        if let Some(due) = row.due {
            self.tables.remove_due(due, row.id)?;
        }
        if row.count > 0 || (row.kind == Kind::SortedSet && row.head != 0) {
            self.tables.add_trash(row.id, row.kind)?;
        }
        Ok(())
    }

    /// Has the sweep look at a key at a time, or earlier.
    pub(crate) fn be_due(&mut self, row: &mut KeyRow, at: u64) -> Result<(), T::Error> {
        if row.due.is_some_and(|due| due <= at) {
            return Ok(());
        }
        self.move_due(row, Some(at))
    }

    /// Puts the row of due times of a key to a time, or removes it.
    pub(crate) fn move_due(&mut self, row: &mut KeyRow, at: Option<u64>) -> Result<(), T::Error> {
        if let Some(due) = std::mem::replace(&mut row.due, at) {
            self.tables.remove_due(due, row.id)?;
        }
        at.map_or(Ok(()), |at| self.tables.add_due(at, row.id))
    }

    /// Sets the expiry of a key that is saved afterwards.
    pub(crate) fn set_expiry(&mut self, row: &mut KeyRow, at: Option<u64>) -> Result<(), T::Error> {
        row.expires_at = at;
        at.map_or(Ok(()), |at| self.be_due(row, at))
    }
}

/// Returns the event that elements of a collection have expired.
pub(crate) fn elements_expired(kind: Kind) -> KeyEvent {
    match kind {
        Kind::Set => KeyEvent::SetExpired,
        Kind::SortedSet => KeyEvent::ScoreExpired,
        Kind::Hash | Kind::String | Kind::List => KeyEvent::HashExpired,
    }
}

/// Adds up the bytes of a reply.
#[derive(Default)]
pub(crate) struct ReplyBytes(usize);

impl ReplyBytes {
    /// Adds a row; breaks once there is as much as a reply may have.
    pub(crate) fn add(&mut self, bytes: usize) -> ControlFlow<()> {
        self.0 = self.0.saturating_add(bytes);
        if self.0 >= REPLY_BYTES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// # Errors
    ///
    /// [`KeysError::ReplyTooLong`], if a reply may not have as much as was added.
    pub(crate) fn check(&self) -> Result<(), KeysError> {
        if self.0 < REPLY_BYTES_MAX { Ok(()) } else { Err(KeysError::ReplyTooLong { max: REPLY_BYTES_MAX }) }
    }
}

/// # Errors
///
/// [`KeysError::TooManyRows`], if these are more than a command may look at, or change.
pub(crate) fn check_rows(rows: u64, max: u64) -> Result<(), KeysError> {
    if rows <= max { Ok(()) } else { Err(KeysError::TooManyRows { rows, max }) }
}

pub(crate) fn check_keys(keys: &[Bytes]) -> Result<(), KeysError> {
    keys.iter().try_for_each(|key| check_bytes("key", key, KEY_BYTES_MAX))
}

pub(crate) fn check_fields<'b>(fields: impl IntoIterator<Item = &'b Bytes>) -> Result<(), KeysError> {
    fields.into_iter().try_for_each(|field| check_bytes("field", field, FIELD_BYTES_MAX))
}

pub(crate) fn check_value(value: &Bytes) -> Result<(), KeysError> {
    check_bytes("value", value, VALUE_BYTES_MAX)
}

pub(crate) fn check_time(at: Option<u64>) -> Result<(), KeysError> {
    if at.is_none_or(|at| at <= TIME_MAX) { Ok(()) } else { Err(KeysError::InvalidExpiry) }
}

pub(crate) fn check_expiry(expiry: Expiry) -> Result<(), KeysError> {
    match expiry {
        Expiry::At(at) => check_time(Some(at)),
        Expiry::Never | Expiry::Keep | Expiry::In(_) => Ok(()),
    }
}

fn check_bytes(what: &'static str, bytes: &[u8], max: usize) -> Result<(), KeysError> {
    if bytes.len() <= max { Ok(()) } else { Err(KeysError::TooLong { what, bytes: bytes.len(), max }) }
}
