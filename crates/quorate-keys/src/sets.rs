//! Commands on sets: a member is the field of an element without a value.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_model::keys::{Expiry, KeyEvent, KeysReply, Kind, SetCommand, SetOperation, Span};

use crate::keys::{Keys, Open, ReplyBytes, check_expiry, check_fields, check_keys, check_rows};
use crate::limits::{CHANGED_ROWS_MAX, READ_ROWS_MAX};
use crate::tables::Tables;

impl<T: Tables> Keys<'_, T> {
    pub(crate) fn run_set(&mut self, command: &SetCommand) -> Result<KeysReply, T::Error> {
        match command {
            SetCommand::Add { key, members, expiry } => self.add_members(key, members, *expiry),
            SetCommand::Pop { key, count, seed } => self.pop_members(key, *count, *seed),
            SetCommand::Move { from, to, member } => self.move_member(from, to, member),
            SetCommand::Combine { operation, keys, store } => {
                let members = self.combine(*operation, keys)?;
                match store {
                    Some(to) => self.store_members(to, &members, stored(*operation)),
                    None => {
                        let mut bytes = ReplyBytes::default();
                        _ = members.iter().try_for_each(|member| bytes.add(member.len()));
                        bytes.check()?;
                        Ok(KeysReply::Members(members))
                    }
                }
            }
        }
    }

    fn add_members(&mut self, key: &Bytes, members: &[Bytes], expiry: Expiry) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(members.len(), 0)?;
        check_fields(members)?;
        check_expiry(expiry)?;
        let found = self.typed(key, Kind::Set)?;
        if members.is_empty() {
            return Ok(KeysReply::Count(0));
        }
        let mut open = self.found_or_new(found, key, Kind::Set)?;
        let (mut added, mut changed) = (0, open.is_new);
        for member in members {
            let old = self.live_element(open.id(), member)?;
            let expires_at = match expiry {
                Expiry::Never | Expiry::Keep if old.is_some() => continue,
                Expiry::Never | Expiry::Keep => None,
                Expiry::At(at) => Some(at),
                Expiry::In(nanos) => Some(self.context.after(nanos)),
            };
            if old.is_some_and(|old| old.expires_at == expires_at) {
                continue;
            }
            changed = true;
            added += u64::from(self.put(&mut open, member, Bytes::new(), expires_at)?);
        }
        if changed {
            if added > 0 {
                self.context.note(open.space, key, &[KeyEvent::SetAdd]);
            }
            let events = self.expiry_events(Kind::Set, expiry);
            self.save(open, events)?;
        }
        Ok(KeysReply::Count(added))
    }

    fn pop_members(&mut self, key: &Bytes, count: u64, seed: u64) -> Result<KeysReply, T::Error> {
        let Some(mut open) = self.typed(key, Kind::Set)? else { return Ok(KeysReply::Members(Vec::new())) };
        let count = count.min(open.row.count);
        check_rows(count, CHANGED_ROWS_MAX)?;
        self.context.charge_rows(count as usize, 0)?;
        let drawn = self.draw(&open, count, false, seed)?;
        let members: Vec<Bytes> = drawn.into_iter().map(|(member, _)| member).collect();
        for member in &members {
            if let Some(element) = self.tables.element(open.id(), member)? {
                self.drop_element(&mut open, member, &element)?;
            }
        }
        if !members.is_empty() {
            self.save(open, &[KeyEvent::SetPop])?;
        }
        Ok(KeysReply::Members(members))
    }

    fn move_member(&mut self, from: &Bytes, to: &Bytes, member: &Bytes) -> Result<KeysReply, T::Error> {
        self.context.charge_rows(2, 0)?;
        check_fields([member])?;
        let Some(mut source) = self.typed(from, Kind::Set)? else { return Ok(KeysReply::Missing) };
        let target = self.typed(to, Kind::Set)?;
        let Some(element) = self.live_element(source.id(), member)? else { return Ok(KeysReply::Missing) };
        if from == to {
            return Ok(KeysReply::Done);
        }
        self.drop_element(&mut source, member, &element)?;
        self.save(source, &[KeyEvent::SetRemove])?;
        let mut target = self.found_or_new(target, to, Kind::Set)?;
        let added = self.put(&mut target, member, Bytes::new(), None)?;
        self.save(target, if added { &[KeyEvent::SetAdd] } else { &[] })?;
        Ok(KeysReply::Done)
    }

    /// Returns the members of the combination of sets.
    fn combine(&mut self, operation: SetOperation, keys: &[Bytes]) -> Result<Vec<Bytes>, T::Error> {
        self.context.charge_rows(keys.len(), 0)?;
        let mut sets = Vec::with_capacity(keys.len());
        for key in keys {
            sets.push(self.typed(key, Kind::Set)?);
        }
        match operation {
            SetOperation::Union => self.union(&sets),
            SetOperation::Intersection => {
                let Some(sets) = sets.into_iter().collect::<Option<Vec<Open>>>() else { return Ok(Vec::new()) };
                let mut by_id: BTreeMap<_, _> = sets.into_iter().map(|set| (set.id(), set)).collect();
                let smallest = by_id.values().min_by_key(|set| set.row.count).map(Open::id);
                let Some(smallest) = smallest.and_then(|id| by_id.remove(&id)) else { return Ok(Vec::new()) };
                self.filter(&smallest, &by_id.into_values().collect::<Vec<_>>(), true)
            }
            SetOperation::Difference => {
                let mut sets = sets.into_iter();
                let Some(first) = sets.next().flatten() else { return Ok(Vec::new()) };
                self.filter(&first, &sets.flatten().collect::<Vec<_>>(), false)
            }
        }
    }

    fn union(&mut self, sets: &[Option<Open>]) -> Result<Vec<Bytes>, T::Error> {
        let rows = sets.iter().flatten().fold(0, |rows: u64, set| rows.saturating_add(set.row.count));
        check_rows(rows, READ_ROWS_MAX)?;
        let mut members = BTreeSet::new();
        for set in sets.iter().flatten() {
            members.extend(self.members_of(set)?);
        }
        Ok(members.into_iter().collect())
    }

    /// Returns the members of a set that all others have, or none of them.
    fn filter(&mut self, set: &Open, others: &[Open], wanted: bool) -> Result<Vec<Bytes>, T::Error> {
        let lookups = set.row.count.saturating_mul(others.len() as u64);
        check_rows(set.row.count.saturating_add(lookups), READ_ROWS_MAX)?;
        self.context.charge_rows(lookups as usize, 0)?;
        let mut kept = Vec::new();
        'members: for member in self.members_of(set)? {
            for other in others {
                if self.live_element(other.id(), &member)?.is_some() != wanted {
                    continue 'members;
                }
            }
            kept.push(member);
        }
        Ok(kept)
    }

    pub(crate) fn members_of(&mut self, set: &Open) -> Result<Vec<Bytes>, T::Error> {
        self.context.charge_range(set.row.count)?;
        let page = self.page(set.id(), Span::ALL, u64::MAX)?;
        let mut bytes = ReplyBytes::default();
        _ = page.rows.iter().try_for_each(|(member, _)| bytes.add(member.len()));
        bytes.check()?;
        Ok(page.rows.into_iter().map(|(member, _)| member).collect())
    }

    /// Puts a set of members into a key, whatever it holds.
    fn store_members(&mut self, to: &Bytes, members: &[Bytes], event: KeyEvent) -> Result<KeysReply, T::Error> {
        check_keys(std::slice::from_ref(to))?;
        check_rows(members.len() as u64, CHANGED_ROWS_MAX)?;
        self.context.charge_rows(members.len(), 0)?;
        if members.is_empty() {
            self.find(to)?.map_or(Ok(()), |open| self.remove(&open, &[KeyEvent::Delete]))?;
            return Ok(KeysReply::Count(0));
        }
        let mut open = self.create(self.space, to, Kind::Set)?;
        for member in members {
            self.put(&mut open, member, Bytes::new(), None)?;
        }
        self.save(open, &[event])?;
        Ok(KeysReply::Count(members.len() as u64))
    }
}

/// Returns the event that a combination was stored.
fn stored(operation: SetOperation) -> KeyEvent {
    match operation {
        SetOperation::Union => KeyEvent::SetUnion,
        SetOperation::Intersection => KeyEvent::SetIntersection,
        SetOperation::Difference => KeyEvent::SetDifference,
    }
}
