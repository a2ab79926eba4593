//! Elements of hashes and sets: commands on both, and what their own commands share.
//!
//! # Invariants
//!
//! - The row of the key counts its elements and those of them that have an expiry, with those that have expired.
//! - The row of due times of the key is not later than the first of these expiries.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_env::mutant::Mutant;
use quorate_model::keys::{
    Change, ElementCommand, Expiry, ExpiryCondition, KeyEvent, KeysReply, Kind, Order, Page, Span,
};

use crate::KeysError;
use crate::generic::expiry_change;
use crate::keys::{Keys, Open, ReplyBytes, check_fields, check_rows, elements_expired};
use crate::limits::READ_ROWS_MAX;
use crate::tables::{Element, Id, Tables, after};

impl<T: Tables> Keys<'_, T> {
    pub(crate) fn run_element(&mut self, command: &ElementCommand) -> Result<KeysReply, T::Error> {
        match command {
            ElementCommand::Remove { of, key, fields } => self.remove_fields(key, (*of).into(), fields),
            ElementCommand::Contains { of, key, fields } => {
                let flags = self.each_element(key, (*of).into(), fields, |element| element.is_some())?;
                Ok(KeysReply::Flags(flags))
            }
            ElementCommand::Scan { of, key, from, limit } => {
                let Some(open) = self.typed(key, (*of).into())? else { return Ok(no_elements()) };
                let rows = open.row.count.min(limit.saturating_add(open.row.volatile));
                self.context.charge_range(rows.min(READ_ROWS_MAX))?;
                let page = self.page(open.id(), Span { from: from.clone(), to: None }, *limit)?;
                Ok(KeysReply::Elements(page))
            }
            ElementCommand::Expire { of, key, fields, at, condition, relative } => {
                let at = self.context.time(*at, *relative)?;
                self.expire_fields(key, (*of).into(), fields, at, *condition)
            }
            ElementCommand::Describe { of, key, fields } => {
                let describe = |element: Option<Element>| element.map(|element| (element.version, element.expires_at));
                Ok(KeysReply::Described(self.each_element(key, (*of).into(), fields, describe)?))
            }
            ElementCommand::Draw { of, key, count, repeats, seed } => {
                let Some(open) = self.typed(key, (*of).into())? else { return Ok(no_elements()) };
                check_rows(if *repeats { *count } else { open.row.count.min(*count) }, READ_ROWS_MAX)?;
                let rows = self.draw(&open, *count, *repeats, *seed)?;
                Ok(KeysReply::Elements(Page { rows, next: None }))
            }
        }
    }

    /// Returns something of each of these elements, if it exists.
    pub(crate) fn each_element<R>(
        &mut self,
        key: &Bytes,
        kind: Kind,
        fields: &[Bytes],
        mut of: impl FnMut(Option<Element>) -> R,
    ) -> Result<Vec<R>, T::Error> {
        self.context.charge_rows(fields.len(), 0)?;
        let open = self.typed(key, kind)?;
        let mut found = Vec::with_capacity(fields.len());
        for field in fields {
            let element = open.as_ref().map(|open| self.live_element(open.id(), field)).transpose()?.flatten();
            found.push(of(element));
        }
        Ok(found)
    }

    /// Returns an element that exists.
    pub(crate) fn live_element(&mut self, id: Id, field: &[u8]) -> Result<Option<Element>, T::Error> {
        let element = self.tables.element(id, field)?;
        Ok(element.filter(|element| self.context.is_alive(element.expires_at) || Mutant::FieldIsAlive.is_on()))
    }

    /// Returns elements that exist, in the order of their fields.
    pub(crate) fn page(&mut self, id: Id, span: Span, limit: u64) -> Result<Page<(Bytes, Bytes)>, T::Error> {
        let (mut looked, mut bytes) = (0, ReplyBytes::default());
        let mut page = Page { rows: Vec::new(), next: None };
        let context = &*self.context;
        self.tables.elements(id, &span, Order::Up, &mut |(field, element)| {
            looked += 1;
            let here = after(&field);
            let is_alive = context.is_alive(element.expires_at);
            let is_full = is_alive && bytes.add(field.len() + element.value.len()).is_break();
            if is_alive {
                page.rows.push((field, element.value));
            }
            if is_full || page.rows.len() as u64 >= limit.max(1) || looked >= READ_ROWS_MAX {
                page.next = Some(here);
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(page)
    }

    /// Adds an element, or changes it, and returns whether it is new. One that has expired is not there afterwards.
    pub(crate) fn put(
        &mut self,
        open: &mut Open,
        field: &Bytes,
        value: Bytes,
        expires_at: Option<u64>,
    ) -> Result<bool, T::Error> {
        let old = self.tables.element(open.id(), field)?;
        let was_alive = old.as_ref().is_some_and(|old| self.context.is_alive(old.expires_at));
        if !self.context.is_alive(expires_at) {
            old.map_or(Ok(()), |old| self.drop_element(open, field, &old))?;
            return Ok(!was_alive);
        }
        open.row.count += u64::from(old.is_none());
        open.row.volatile -= u64::from(old.is_some_and(|old| old.expires_at.is_some()));
        open.row.volatile += u64::from(expires_at.is_some());
        self.tables.put_element(open.id(), field, &Element { version: self.context.version, expires_at, value })?;
        expires_at.map_or(Ok(()), |at| self.be_due(&mut open.row, at))?;
        Ok(!was_alive)
    }

    /// Removes an element.
    pub(crate) fn drop_element(&mut self, open: &mut Open, field: &[u8], element: &Element) -> Result<(), T::Error> {
        open.row.count -= 1;
        open.row.volatile -= u64::from(element.expires_at.is_some());
        self.tables.remove_element(open.id(), field)
    }

    pub(crate) fn remove_fields(&mut self, key: &Bytes, kind: Kind, fields: &[Bytes]) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(fields.len(), 0)?;
        let Some(mut open) = self.typed(key, kind)? else { return Ok(KeysReply::Count(0)) };
        let mut removed = 0;
        for field in fields {
            if let Some(element) = self.live_element(open.id(), field)? {
                self.drop_element(&mut open, field, &element)?;
                removed += 1;
            }
        }
        if removed > 0 {
            self.save(open, &[if kind == Kind::Set { KeyEvent::SetRemove } else { KeyEvent::HashRemove }])?;
        }
        Ok(KeysReply::Count(removed))
    }

    /// Sets the expiry of elements, or of members of a sorted set, or removes it.
    pub(crate) fn expire_fields(
        &mut self,
        key: &Bytes,
        kind: Kind,
        fields: &[Bytes],
        at: Option<u64>,
        condition: ExpiryCondition,
    ) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(fields.len(), 0)?;
        check_fields(fields)?;
        let Some(mut open) = self.typed(key, kind)? else {
            return Ok(KeysReply::Expired(vec![Change::Missing; fields.len()]));
        };
        let mut changes = Vec::with_capacity(fields.len());
        for field in fields {
            changes.push(match kind {
                Kind::SortedSet => self.expire_member(&mut open, field, at, condition)?,
                _ => self.expire_field(&mut open, field, at, condition)?,
            });
        }
        // One time is given for all, so no change is done where another one is a removal.
        let change = changes.iter().find(|change| matches!(change, Change::Done | Change::Removed));
        if let Some(change) = change {
            let event = match change {
                Change::Removed => elements_expired(kind),
                _ => expiry_set(kind, at.is_some()),
            };
            self.save(open, &[event])?;
        }
        Ok(KeysReply::Expired(changes))
    }

    /// Returns the events of an expiry with which elements were put.
    pub(crate) fn expiry_events(&self, kind: Kind, expiry: Expiry) -> &'static [KeyEvent] {
        let at = match expiry {
            Expiry::Never | Expiry::Keep => return &[],
            Expiry::At(at) => at,
            Expiry::In(nanos) => self.context.after(nanos),
        };
        match (kind, self.context.is_alive(Some(at))) {
            (Kind::Set, true) => &[KeyEvent::SetExpire],
            (Kind::Set, false) => &[KeyEvent::SetExpire, KeyEvent::SetExpired],
            (_, true) => &[KeyEvent::HashExpire],
            (_, false) => &[KeyEvent::HashExpire, KeyEvent::HashExpired],
        }
    }

    fn expire_field(
        &mut self,
        open: &mut Open,
        field: &Bytes,
        at: Option<u64>,
        condition: ExpiryCondition,
    ) -> Result<Change, T::Error> {
        let Some(element) = self.live_element(open.id(), field)? else { return Ok(Change::Missing) };
        let change = expiry_change(element.expires_at, at, condition, self.context.now);
        if matches!(change, Change::Done | Change::Removed) {
            self.put(open, field, element.value, at)?;
        }
        Ok(change)
    }
}

/// Returns the event that elements got an expiry, or lost it.
fn expiry_set(kind: Kind, has_expiry: bool) -> KeyEvent {
    match (kind, has_expiry) {
        (Kind::Set, true) => KeyEvent::SetExpire,
        (Kind::Set, false) => KeyEvent::SetPersist,
        (Kind::SortedSet, true) => KeyEvent::ScoreExpire,
        (Kind::SortedSet, false) => KeyEvent::ScorePersist,
        (_, true) => KeyEvent::HashExpire,
        (_, false) => KeyEvent::HashPersist,
    }
}

fn no_elements() -> KeysReply {
    KeysReply::Elements(Page { rows: Vec::new(), next: None })
}

/// # Errors
///
/// [`KeysError::TooLong`], if a field or a value is.
pub(crate) fn check_pairs(fields: &[(Bytes, Bytes)]) -> Result<(), KeysError> {
    check_fields(fields.iter().map(|(field, _)| field))?;
    fields.iter().try_for_each(|(_, value)| crate::keys::check_value(value))
}
