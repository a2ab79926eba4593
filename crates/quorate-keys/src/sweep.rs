//! Removes what has expired, and the rest of spaces that were flushed and of collections that were deleted, a few rows
//! at a time.
//!
//! # Invariants
//!
//! - The sweep changes what tables hold, but no reply to a command, unless that says that it counts what has expired;
//!   versions, too, stay as they are.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_model::keys::{KeyEvent, Kind, Order, Space};

use crate::context::Context;
use crate::keys::{Keys, Open, elements_expired};
use crate::limits::SWEPT_ROWS_MAX;
use crate::tables::{Id, Part, Tables};

/// Removes keys and elements whose time has come, then keys of spaces that were flushed, and then rows of deleted
/// collections: together at most `limit`, and [`SWEPT_ROWS_MAX`]. Returns how many rows it looked at; 0 if there is
/// nothing to do. The context says which keys lost something, and notes their events.
///
/// # Errors
///
/// Those of the tables.
pub fn sweep<T: Tables>(tables: &mut T, context: &mut Context, limit: usize) -> Result<usize, T::Error> {
    let most = limit.min(SWEPT_ROWS_MAX);
    let mut left = most;
    while left > 0 {
        let Some((due, id)) = tables.first_due()?.filter(|(due, _)| *due <= context.now) else { break };
        let looked = match tables.key(id)? {
            Some((space, key, row)) if row.due == Some(due) => {
                Keys::new(tables, context, space).expire_due(Open { space, key, row, is_new: false }, left)?
            }
            _ => {
                tables.remove_due(due, id)?;
                1
            }
        };
        left = left.saturating_sub(looked);
    }
    while left > 0 {
        let Some(row) = tables.first_detached()? else { break };
        Keys::new(tables, context, Space::default()).remove_row(&row)?;
        left -= 1;
    }
    while left > 0 {
        let Some((id, kind)) = tables.first_trash()? else { break };
        left -= clear(tables, id, kind, left)?;
    }
    Ok(most - left)
}

/// Returns the earliest time at which something is to be swept, which may be only to find out that it is not; 0 if
/// there are rows of deleted collections, or keys of flushed spaces.
///
/// # Errors
///
/// Those of the tables.
pub fn next_due<T: Tables>(tables: &mut T) -> Result<Option<u64>, T::Error> {
    if tables.first_trash()?.is_some() || tables.first_detached()?.is_some() {
        return Ok(Some(0));
    }
    Ok(tables.first_due()?.map(|(due, _)| due))
}

/// Removes rows of an id in the trash, and that from it after the last ones. Returns how many, at least 1.
fn clear<T: Tables>(tables: &mut T, id: Id, kind: Kind, limit: usize) -> Result<usize, T::Error> {
    let parts: &[Part] = match kind {
        Kind::String => &[],
        Kind::Hash | Kind::Set => &[Part::Elements],
        Kind::SortedSet => &[Part::Members, Part::Blocks, Part::Elements],
        Kind::List => &[Part::Items],
    };
    let mut left = limit;
    for part in parts {
        left -= tables.clear(*part, id, left)?.min(left);
        if left == 0 {
            return Ok(limit);
        }
    }
    tables.remove_trash(id)?;
    Ok((limit - left).max(1))
}

impl<T: Tables> Keys<'_, T> {
    /// Removes a key that is due, or those of its elements that are, or puts its row of due times to a later time.
    fn expire_due(&mut self, mut open: Open, limit: usize) -> Result<usize, T::Error> {
        if !self.context.is_alive(open.row.expires_at) {
            self.remove(&open, &[KeyEvent::Expired])?;
            return Ok(1);
        }
        let expired = self.expired(open.id(), limit)?;
        for field in &expired {
            self.drop_expired(&mut open, field)?;
        }
        if !expired.is_empty() {
            self.context.touch(open.space, &open.key);
            self.context.note(open.space, &open.key, &[elements_expired(open.row.kind)]);
        }
        if open.row.kind != Kind::String && open.row.count == 0 {
            self.remove(&open, &[KeyEvent::Delete])?;
        } else {
            let first = if open.row.volatile > 0 { self.expiry(open.id(), Order::Up)? } else { None };
            let due = [first, open.row.expires_at].into_iter().flatten().min();
            self.move_due(&mut open.row, due)?;
            self.tables.update_key(&open.row)?;
        }
        Ok(expired.len().max(1))
    }

    fn drop_expired(&mut self, open: &mut Open, field: &Bytes) -> Result<(), T::Error> {
        if open.row.kind == Kind::SortedSet {
            let found = self.member(&open.row, field)?;
            return found.map_or(Ok(()), |found| self.drop_member(open, field, found));
        }
        let element = self.tables.element(open.id(), field)?;
        element.map_or(Ok(()), |element| self.drop_element(open, field, &element))
    }

    /// Returns the first fields that have expired.
    fn expired(&mut self, id: Id, limit: usize) -> Result<Vec<Bytes>, T::Error> {
        let (mut fields, now) = (Vec::new(), self.context.now);
        self.tables.expiries(id, Order::Up, &mut |(at, field)| {
            if at > now {
                return ControlFlow::Break(());
            }
            fields.push(field);
            if fields.len() >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(fields)
    }
}
