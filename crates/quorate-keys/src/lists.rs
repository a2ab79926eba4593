//! Commands on lists: the items have the positions from [`KeyRow::head`](crate::KeyRow::head) on, without gaps.

use std::ops::ControlFlow;

use bytes::Bytes;
use quorate_model::keys::{End, KeyEvent, KeysReply, Kind, ListCommand, Order, Span};

use crate::KeysError;
use crate::keys::{Keys, Open, ReplyBytes, check_rows, check_value};
use crate::limits::{CHANGED_ROWS_MAX, READ_ROWS_MAX};
use crate::strings::slice;
use crate::tables::Tables;

impl<T: Tables> Keys<'_, T> {
    pub(crate) fn run_list(&mut self, command: &ListCommand) -> Result<KeysReply, T::Error> {
        match command {
            ListCommand::Push { key, values, end, existing } => self.push(key, values, *end, *existing),
            ListCommand::Pop { key, count, end } => {
                let Some(open) = self.typed(key, Kind::List)? else { return Ok(KeysReply::Missing) };
                Ok(KeysReply::Members(self.pop_items(open, *count, *end)?))
            }
            ListCommand::PopFirst { keys, count, end } => {
                let Some(open) = self.first_of(keys, Kind::List)? else { return Ok(KeysReply::Missing) };
                let key = open.key.clone();
                Ok(KeysReply::MembersOf(key, self.pop_items(open, *count, *end)?))
            }
            ListCommand::Move { from, to, from_end, to_end } => self.move_item(from, to, *from_end, *to_end),
            ListCommand::Index { key, index } => {
                let Some(open) = self.typed(key, Kind::List)? else { return Ok(KeysReply::Missing) };
                let Some(index) = place(&open, *index) else { return Ok(KeysReply::Missing) };
                Ok(self.item_at(&open, index)?.map_or(KeysReply::Missing, KeysReply::Value))
            }
            ListCommand::Range { key, start, stop } => {
                let Some(open) = self.typed(key, Kind::List)? else { return Ok(KeysReply::Members(Vec::new())) };
                let (from, to) = slice(open.row.count, *start, *stop);
                check_rows(to - from, READ_ROWS_MAX)?;
                Ok(KeysReply::Members(self.items_in(&open, from, to, Order::Up)?))
            }
            ListCommand::Find { key, value, from, skip, limit, within } => {
                let Some(open) = self.typed(key, Kind::List)? else { return Ok(KeysReply::Indexes(Vec::new())) };
                let (count, most) = (open.row.count, skip.saturating_add(*limit));
                let within = count.min(*within);
                let (indexes, order) = match from {
                    End::Left => ((0, within), Order::Up),
                    End::Right => ((count - within, count), Order::Down),
                };
                let found = self.matches(&open, indexes, value, most, order)?;
                Ok(KeysReply::Indexes(found.into_iter().skip(*skip as usize).take(*limit as usize).collect()))
            }
            ListCommand::Set { key, index, value } => self.set_item(key, *index, value),
            ListCommand::Trim { key, start, stop } => self.trim(key, *start, *stop),
            ListCommand::Insert { key, before, pivot, value } => self.insert(key, *before, pivot, value),
            ListCommand::Remove { key, count, value } => self.remove_items(key, *count, value),
        }
    }

    fn push(&mut self, key: &Bytes, values: &[Bytes], end: End, existing: bool) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(values.len(), values.iter().map(Bytes::len).sum())?;
        values.iter().try_for_each(check_value)?;
        let found = self.typed(key, Kind::List)?;
        if values.is_empty() || (existing && found.is_none()) {
            return Ok(KeysReply::Count(found.map_or(0, |open| open.row.count)));
        }
        let mut open = self.found_or_new(found, key, Kind::List)?;
        for value in values {
            self.push_item(&mut open, value, end)?;
        }
        let count = open.row.count;
        self.save(open, &[pushed(end)])?;
        Ok(KeysReply::Count(count))
    }

    fn pop_items(&mut self, mut open: Open, count: u64, end: End) -> Result<Vec<Bytes>, T::Error> {
        let length = open.row.count;
        let count = count.min(length);
        check_rows(count, CHANGED_ROWS_MAX)?;
        self.context.charge_rows(count as usize, 0)?;
        let values = match end {
            End::Left => self.items_in(&open, 0, count, Order::Up)?,
            End::Right => self.items_in(&open, length - count, length, Order::Down)?,
        };
        for _ in 0..count {
            self.drop_item(&mut open, end)?;
        }
        if count > 0 {
            self.save(open, &[popped(end)])?;
        }
        Ok(values)
    }

    fn move_item(&mut self, from: &Bytes, to: &Bytes, from_end: End, to_end: End) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(3, 0)?;
        let Some(mut source) = self.typed(from, Kind::List)? else { return Ok(KeysReply::Missing) };
        let target = if from == to { None } else { self.typed(to, Kind::List)? };
        let index = match from_end {
            End::Left => 0,
            End::Right => source.row.count - 1,
        };
        let Some(value) = self.item_at(&source, index)? else { return Ok(KeysReply::Missing) };
        self.drop_item(&mut source, from_end)?;
        if from == to {
            self.push_item(&mut source, &value, to_end)?;
            self.save(source, &[pushed(to_end), popped(from_end)])?;
        } else {
            let mut target = self.found_or_new(target, to, Kind::List)?;
            self.push_item(&mut target, &value, to_end)?;
            self.save(target, &[pushed(to_end)])?;
            self.save(source, &[popped(from_end)])?;
        }
        Ok(KeysReply::Value(value))
    }

    fn set_item(&mut self, key: &Bytes, index: i64, value: &Bytes) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(1, value.len())?;
        check_value(value)?;
        let Some(open) = self.typed(key, Kind::List)? else { return Ok(KeysReply::Missing) };
        let index = place(&open, index).ok_or(KeysError::NoIndex)?;
        self.put_item_at(&open, index, value)?;
        self.save(open, &[KeyEvent::ListSet])?;
        Ok(KeysReply::Done)
    }

    fn trim(&mut self, key: &Bytes, start: i64, stop: i64) -> Result<KeysReply, T::Error> {
        let Some(mut open) = self.typed(key, Kind::List)? else { return Ok(KeysReply::Missing) };
        let (from, to) = slice(open.row.count, start, stop);
        let (kept, removed) = (to - from, open.row.count - (to - from));
        if kept == 0 {
            self.remove(&open, &[KeyEvent::ListTrim, KeyEvent::Delete])?;
        } else if removed > CHANGED_ROWS_MAX {
            self.keep_only(&open, from, to)?;
        } else if removed > 0 {
            self.context.charge_rows(removed as usize, 0)?;
            for _ in to..open.row.count {
                self.drop_item(&mut open, End::Right)?;
            }
            for _ in 0..from {
                self.drop_item(&mut open, End::Left)?;
            }
            self.save(open, &[KeyEvent::ListTrim])?;
        } else {
            self.context.note(open.space, key, &[KeyEvent::ListTrim]);
        }
        Ok(KeysReply::Done)
    }

    /// Makes a list of some items of another one, in its place.
    fn keep_only(&mut self, open: &Open, from: u64, to: u64) -> Result<(), T::Error> {
        check_rows(to - from, CHANGED_ROWS_MAX)?;
        self.charge_items(open, from, to)?;
        let mut list = self.create(open.space, &open.key, Kind::List)?;
        self.set_expiry(&mut list.row, open.row.expires_at)?;
        for index in from..to {
            if let Some(value) = self.item_at(open, index)? {
                self.push_item(&mut list, &value, End::Right)?;
            }
        }
        self.save(list, &[KeyEvent::ListTrim])
    }

    fn insert(&mut self, key: &Bytes, before: bool, pivot: &Bytes, value: &Bytes) -> Result<KeysReply, T::Error> {
        check_value(value)?;
        let Some(mut open) = self.typed(key, Kind::List)? else { return Ok(KeysReply::Missing) };
        let found = self.matches(&open, (0, open.row.count), pivot, 1, Order::Up)?;
        let Some(index) = found.first() else { return Ok(KeysReply::NotApplied) };
        let (left, count) = (if before { *index } else { index + 1 }, open.row.count);
        let moved = left.min(count - left);
        check_rows(moved, CHANGED_ROWS_MAX)?;
        self.context.charge_rows(1, value.len())?;
        let is_left_shorter = moved == left;
        let (from, to) = if is_left_shorter { (0, left) } else { (left, count) };
        self.charge_items(&open, from, to)?;
        if is_left_shorter {
            open.row.head -= 1;
            for to in 0..left {
                self.move_within(&open, to + 1, to)?;
            }
        } else {
            for from in (left..count).rev() {
                self.move_within(&open, from, from + 1)?;
            }
        }
        self.put_item_at(&open, left, value)?;
        open.row.count += 1;
        self.save(open, &[KeyEvent::ListInsert])?;
        Ok(KeysReply::Count(count + 1))
    }

    fn remove_items(&mut self, key: &Bytes, count: i64, value: &Bytes) -> Result<KeysReply, T::Error> {
        let Some(mut open) = self.typed(key, Kind::List)? else { return Ok(KeysReply::Count(0)) };
        let order = if count < 0 { Order::Down } else { Order::Up };
        let most = if count == 0 { u64::MAX } else { count.unsigned_abs() };
        let mut found = self.matches(&open, (0, open.row.count), value, most, order)?;
        found.sort_unstable();
        let (Some(first), Some(last)) = (found.first().copied(), found.last().copied()) else {
            return Ok(KeysReply::Count(0));
        };
        let (length, removed) = (open.row.count, found.len() as u64);
        let is_right_shorter = length - first <= last + 1;
        let (from, to) = if is_right_shorter { (first, length) } else { (0, last + 1) };
        check_rows(to - from, CHANGED_ROWS_MAX)?;
        self.charge_items(&open, from, to)?;
        let is_kept = |index: &u64| found.binary_search(index).is_err();
        if is_right_shorter {
            for (to, from) in (first..).zip((first..length).filter(is_kept)) {
                self.move_within(&open, from, to)?;
            }
        } else {
            for (to, from) in (0..=last).rev().zip((0..=last).rev().filter(is_kept)) {
                self.move_within(&open, from, to)?;
            }
        }
        for _ in 0..removed {
            self.drop_item(&mut open, if is_right_shorter { End::Right } else { End::Left })?;
        }
        self.save(open, &[KeyEvent::ListRemove])?;
        Ok(KeysReply::Count(removed))
    }

    /// Returns the indexes of the first items, in an order, that equal a value, from one index to below another.
    fn matches(
        &mut self,
        open: &Open,
        (from, to): (u64, u64),
        value: &Bytes,
        most: u64,
        order: Order,
    ) -> Result<Vec<u64>, T::Error> {
        self.context.charge_range((to - from).min(READ_ROWS_MAX))?;
        let head = open.row.head;
        let (mut found, mut looked, mut result) = (Vec::new(), 0, Ok(()));
        let context = &mut *self.context;
        self.tables.items(open.id(), &span(open, from, to), order, &mut |(position, item)| {
            looked += 1;
            result = context.charge_bytes(item.len());
            if item == *value {
                found.push(position.abs_diff(head));
            }
            let is_enough = found.len() as u64 >= most || looked >= READ_ROWS_MAX;
            if is_enough || result.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        result?;
        if (found.len() as u64) < most {
            check_rows(to - from, READ_ROWS_MAX)?;
        }
        Ok(found)
    }

    /// Takes the steps for items that are read and written, from one index to below another.
    pub(crate) fn charge_items(&mut self, open: &Open, from: u64, to: u64) -> Result<(), T::Error> {
        self.context.charge_rows(2 * (to - from) as usize, 0)?;
        let (context, mut result) = (&mut *self.context, Ok(()));
        self.tables.items(open.id(), &span(open, from, to), Order::Up, &mut |(_, value)| {
            result = context.charge_bytes(value.len());
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(result?)
    }

    /// Returns the items from one index to below another.
    fn items_in(&mut self, open: &Open, from: u64, to: u64, order: Order) -> Result<Vec<Bytes>, T::Error> {
        self.context.charge_range(to - from)?;
        let (mut values, mut bytes) = (Vec::new(), ReplyBytes::default());
        self.tables.items(open.id(), &span(open, from, to), order, &mut |(_, value)| {
            let flow = bytes.add(value.len());
            values.push(value);
            flow
        })?;
        bytes.check()?;
        Ok(values)
    }

    fn item_at(&mut self, open: &Open, index: u64) -> Result<Option<Bytes>, T::Error> {
        self.tables.item(open.id(), position(open, index))
    }

    fn put_item_at(&mut self, open: &Open, index: u64, value: &Bytes) -> Result<(), T::Error> {
        self.tables.put_item(open.id(), position(open, index), value)
    }

    /// Sets an item to what another one is.
    fn move_within(&mut self, open: &Open, from: u64, to: u64) -> Result<(), T::Error> {
        if from == to {
            return Ok(());
        }
        self.item_at(open, from)?.map_or(Ok(()), |value| self.put_item_at(open, to, &value))
    }

    fn push_item(&mut self, open: &mut Open, value: &Bytes, end: End) -> Result<(), T::Error> {
        if end == End::Left {
            open.row.head -= 1;
        }
        let index = if end == End::Left { 0 } else { open.row.count };
        open.row.count += 1;
        self.put_item_at(open, index, value)
    }

    fn drop_item(&mut self, open: &mut Open, end: End) -> Result<(), T::Error> {
        open.row.count -= 1;
        let index = if end == End::Left { 0 } else { open.row.count };
        self.tables.remove_item(open.id(), position(open, index))?;
        open.row.head += i64::from(end == End::Left);
        Ok(())
    }
}

fn pushed(end: End) -> KeyEvent {
    if end == End::Left { KeyEvent::LeftPush } else { KeyEvent::RightPush }
}

fn popped(end: End) -> KeyEvent {
    if end == End::Left { KeyEvent::LeftPop } else { KeyEvent::RightPop }
}

/// Returns the index from the start, if there is an item.
fn place(open: &Open, index: i64) -> Option<u64> {
    let count = open.row.count;
    let index = if index < 0 { count.checked_sub(index.unsigned_abs()) } else { Some(index.unsigned_abs()) };
    index.filter(|index| *index < count)
}

fn position(open: &Open, index: u64) -> i64 {
    open.row.head.saturating_add_unsigned(index)
}

fn span(open: &Open, from: u64, to: u64) -> Span<i64> {
    Span { from: position(open, from), to: Some(position(open, to)) }
}
