//! Lists.

use bytes::Bytes;
use quorate_keys::{End, KeysError, KeysReply, Kind, ListCommand, Space};

use super::{Held, Model, Name, Reply, slice};

impl Model {
    fn items(&self, name: &Name) -> Result<Option<Vec<Bytes>>, KeysError> {
        Ok(self.typed(name, Kind::List)?.map(|held| match held {
            Held::List(items) => items.clone(),
            _ => unreachable!(),
        }))
    }

    fn put_items(&mut self, name: &Name, items: Vec<Bytes>) {
        *self.change(name, Kind::List) = Held::List(items);
    }

    pub fn run_list(&mut self, space: Space, command: &ListCommand) -> Reply {
        match command {
            ListCommand::Push { key, values, end, existing } => {
                let name = (space, key.clone());
                let old = self.items(&name)?;
                if *existing && old.is_none() {
                    return Ok(KeysReply::Count(0));
                }
                let mut items = old.unwrap_or_default();
                values.iter().for_each(|value| insert_at(&mut items, value.clone(), *end));
                let count = items.len() as u64;
                if !values.is_empty() {
                    self.put_items(&name, items);
                }
                Ok(KeysReply::Count(count))
            }
            ListCommand::Pop { key, count, end } => {
                let name = (space, key.clone());
                let Some(mut items) = self.items(&name)? else { return Ok(KeysReply::Missing) };
                let popped: Vec<_> = (0..*count).map_while(|_| remove_at(&mut items, *end)).collect();
                if !popped.is_empty() {
                    self.put_items(&name, items);
                }
                Ok(KeysReply::Members(popped))
            }
            ListCommand::PopFirst { keys, count, end } => self.pop_first(space, keys, *count, *end),
            ListCommand::Move { from, to, from_end, to_end } => {
                self.move_item((space, from.clone()), (space, to.clone()), *from_end, *to_end)
            }
            ListCommand::Index { key, index } => {
                let items = self.items(&(space, key.clone()))?.unwrap_or_default();
                let value = items.get(slice(items.len(), *index, *index)).and_then(|items| items.first().cloned());
                let is_inside = *index >= 0 || index.unsigned_abs() <= items.len() as u64;
                Ok(value.filter(|_| is_inside).map_or(KeysReply::Missing, KeysReply::Value))
            }
            ListCommand::Range { key, start, stop } => {
                let items = self.items(&(space, key.clone()))?.unwrap_or_default();
                Ok(KeysReply::Members(items[slice(items.len(), *start, *stop)].to_vec()))
            }
            ListCommand::Find { key, value, from, skip, limit, within } => {
                let items = self.items(&(space, key.clone()))?.unwrap_or_default();
                let found = positions(items, value, *from, *within as usize).into_iter();
                Ok(KeysReply::Indexes(found.skip(*skip as usize).take(*limit as usize).collect()))
            }
            ListCommand::Set { key, index, value } => {
                let name = (space, key.clone());
                let Some(mut items) = self.items(&name)? else { return Ok(KeysReply::Missing) };
                let index = if *index < 0 { i128::from(*index) + items.len() as i128 } else { i128::from(*index) };
                let index = usize::try_from(index).map_err(|_| KeysError::NoIndex)?;
                *items.get_mut(index).ok_or(KeysError::NoIndex)? = value.clone();
                self.put_items(&name, items);
                Ok(KeysReply::Done)
            }
            ListCommand::Trim { key, start, stop } => {
                let name = (space, key.clone());
                let Some(items) = self.items(&name)? else { return Ok(KeysReply::Missing) };
                let kept = items[slice(items.len(), *start, *stop)].to_vec();
                if kept.len() < items.len() {
                    self.put_items(&name, kept);
                }
                Ok(KeysReply::Done)
            }
            ListCommand::Insert { key, before, pivot, value } => {
                self.insert_item(&(space, key.clone()), *before, pivot, value)
            }
            ListCommand::Remove { key, count, value } => self.remove_items(&(space, key.clone()), *count, value),
        }
    }

    fn pop_first(&mut self, space: Space, keys: &[Bytes], count: u64, end: End) -> Reply {
        for key in keys {
            let pop = ListCommand::Pop { key: key.clone(), count, end };
            if let KeysReply::Members(popped) = self.run_list(space, &pop)? {
                return Ok(KeysReply::MembersOf(key.clone(), popped));
            }
        }
        Ok(KeysReply::Missing)
    }

    fn insert_item(&mut self, name: &Name, before: bool, pivot: &Bytes, value: &Bytes) -> Reply {
        let Some(mut items) = self.items(name)? else { return Ok(KeysReply::Missing) };
        let found = items.iter().position(|item| item == pivot);
        let Some(index) = found else { return Ok(KeysReply::NotApplied) };
        items.insert(index + usize::from(!before), value.clone());
        let count = items.len() as u64;
        self.put_items(name, items);
        Ok(KeysReply::Count(count))
    }

    fn move_item(&mut self, from: Name, to: Name, from_end: End, to_end: End) -> Reply {
        let Some(mut source) = self.items(&from)? else { return Ok(KeysReply::Missing) };
        self.items(&to)?;
        let value = remove_at(&mut source, from_end).unwrap();
        self.put_items(&from, source);
        let mut target = self.items(&to)?.unwrap_or_default();
        insert_at(&mut target, value.clone(), to_end);
        self.put_items(&to, target);
        Ok(KeysReply::Value(value))
    }

    fn remove_items(&mut self, name: &Name, count: i64, value: &Bytes) -> Reply {
        let Some(mut items) = self.items(name)? else { return Ok(KeysReply::Count(0)) };
        let mut left = if count == 0 { u64::MAX } else { count.unsigned_abs() };
        let before = items.len();
        if count < 0 {
            items.reverse();
        }
        items.retain(|item| {
            let is_removed = item == value && left > 0;
            left -= u64::from(is_removed);
            !is_removed
        });
        if count < 0 {
            items.reverse();
        }
        let removed = before - items.len();
        if removed > 0 {
            self.put_items(name, items);
        }
        Ok(KeysReply::Count(removed as u64))
    }
}

/// Returns the indexes of the items that equal a value, among the first ones from an end.
fn positions(items: Vec<Bytes>, value: &Bytes, from: End, within: usize) -> Vec<u64> {
    let mut numbered: Vec<_> = (0_u64..).zip(items).collect();
    if from == End::Right {
        numbered.reverse();
    }
    numbered.truncate(within);
    numbered.into_iter().filter(|(_, item)| item == value).map(|(index, _)| index).collect()
}

fn insert_at(items: &mut Vec<Bytes>, value: Bytes, end: End) {
    match end {
        End::Left => items.insert(0, value),
        End::Right => items.push(value),
    }
}

fn remove_at(items: &mut Vec<Bytes>, end: End) -> Option<Bytes> {
    match end {
        End::Left if items.is_empty() => None,
        End::Left => Some(items.remove(0)),
        End::Right => items.pop(),
    }
}
