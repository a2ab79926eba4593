//! Copies of collections.

use std::ops::ControlFlow;

use quorate_model::keys::{Kind, Order, Span};

use crate::keys::{Keys, Open, ReplyBytes, check_rows};
use crate::limits::CHANGED_ROWS_MAX;
use crate::tables::{Element, FIRST_PLACE, Tables, after};

/// The rows that are read at once.
const READ_AT_ONCE: usize = 256;

impl<T: Tables> Keys<'_, T> {
    /// Takes the steps for a copy.
    ///
    /// # Errors
    ///
    /// [`KeysError::TooManyRows`](crate::KeysError::TooManyRows).
    pub(crate) fn charge_copy(&mut self, open: &Open) -> Result<(), T::Error> {
        check_rows(open.row.count, CHANGED_ROWS_MAX)?;
        match open.row.kind {
            Kind::String => Ok(self.context.charge_bytes(open.row.value.len())?),
            Kind::SortedSet => {
                self.charge_members(open.row.count as usize)?;
                self.charge_expiries(&open.row, open.row.count as usize)
            }
            Kind::List => self.charge_items(open, 0, open.row.count),
            Kind::Hash | Kind::Set => self.charge_elements(open),
        }
    }

    fn charge_elements(&mut self, open: &Open) -> Result<(), T::Error> {
        self.context.charge_rows(2 * open.row.count as usize, 0)?;
        let (context, mut result) = (&mut *self.context, Ok(()));
        self.tables.elements(open.id(), &Span::ALL, Order::Up, &mut |(_, element)| {
            result = context.charge_bytes(element.value.len());
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(result?)
    }

    /// Copies what is not in the row of a key to one that has none of it.
    pub(crate) fn copy_parts(&mut self, open: &Open, copy: &mut Open) -> Result<(), T::Error> {
        match open.row.kind {
            Kind::String => Ok(()),
            Kind::Hash | Kind::Set => self.copy_elements(open, copy),
            Kind::SortedSet => self.copy_members(open, copy),
            Kind::List => self.copy_items(open, copy),
        }
    }

    fn copy_elements(&mut self, open: &Open, copy: &mut Open) -> Result<(), T::Error> {
        let mut span = Span::ALL;
        loop {
            let mut rows: Vec<(_, Element)> = Vec::new();
            let mut bytes = ReplyBytes::default();
            self.tables.elements(open.id(), &span, Order::Up, &mut |row| {
                let flow = bytes.add(row.0.len() + row.1.value.len());
                rows.push(row);
                if rows.len() >= READ_AT_ONCE { ControlFlow::Break(()) } else { flow }
            })?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            span.from = after(last);
            for (field, element) in rows {
                self.put(copy, &field, element.value, element.expires_at)?;
            }
        }
    }

    fn copy_members(&mut self, open: &Open, copy: &mut Open) -> Result<(), T::Error> {
        let mut from = FIRST_PLACE;
        loop {
            let mut places = Vec::new();
            self.tables.members(open.id(), &Span { from, to: None }, Order::Up, &mut |place| {
                places.push(place);
                if places.len() >= READ_AT_ONCE { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            let Some((score, last)) = places.last() else { return Ok(()) };
            from = (*score, after(last));
            for (score, member) in places {
                let expires_at = self.with_expiry(&open.row, &member, score)?.expires_at;
                if self.context.is_alive(expires_at) {
                    self.put_score(copy, &member, None, score)?;
                    self.put_expiry(copy, &member, None, expires_at)?;
                }
            }
        }
    }

    fn copy_items(&mut self, open: &Open, copy: &mut Open) -> Result<(), T::Error> {
        for position in (open.row.head..).take(open.row.count as usize) {
            if let Some(value) = self.tables.item(open.id(), position)? {
                self.tables.put_item(copy.id(), position, &value)?;
            }
        }
        (copy.row.head, copy.row.count) = (open.row.head, open.row.count);
        Ok(())
    }
}
