//! Hashes and sets.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use quorate_keys::{
    Change, Collection, Condition, ElementCommand, Expiry, ExpiryCondition, HashCommand, KeysError, KeysReply, Kind,
    Page, SetCommand, SetOperation, Space, after,
};

use super::strings::{add, add_float};
use super::{Entry, Field, Held, Model, Name, Reply, changed};

type Fields = BTreeMap<Bytes, Field>;

impl Model {
    fn fields(&self, name: &Name, kind: Kind) -> Result<Fields, KeysError> {
        Ok(match self.typed(name, kind)? {
            Some(Held::Hash(fields) | Held::Set(fields)) => fields.clone(),
            _ => Fields::new(),
        })
    }

    fn change_fields(&mut self, name: &Name, kind: Kind) -> &mut Fields {
        match self.change(name, kind) {
            Held::Hash(fields) | Held::Set(fields) => fields,
            _ => unreachable!(),
        }
    }

    pub fn run_element(&mut self, space: Space, command: &ElementCommand, actual: &Reply) -> Reply {
        let (name, kind) = match command {
            ElementCommand::Remove { of, key, .. }
            | ElementCommand::Contains { of, key, .. }
            | ElementCommand::Scan { of, key, .. }
            | ElementCommand::Expire { of, key, .. }
            | ElementCommand::Describe { of, key, .. }
            | ElementCommand::Draw { of, key, .. } => ((space, key.clone()), kind(*of)),
        };
        let old = self.fields(&name, kind)?;
        match command {
            ElementCommand::Remove { fields, .. } => {
                let removed: BTreeSet<_> = fields.iter().filter(|field| old.contains_key(*field)).collect();
                if !removed.is_empty() {
                    self.change_fields(&name, kind).retain(|field, _| !removed.contains(field));
                }
                Ok(KeysReply::Count(removed.len() as u64))
            }
            ElementCommand::Contains { fields, .. } => {
                Ok(KeysReply::Flags(fields.iter().map(|field| old.contains_key(field)).collect()))
            }
            ElementCommand::Scan { from, limit, .. } => {
                let limit = (*limit).max(1) as usize;
                let rows: Vec<_> = old.range(from.clone()..).take(limit).map(pair).collect();
                let next = rows.last().filter(|_| rows.len() == limit).map(|(field, _)| after(field));
                Ok(KeysReply::Elements(Page { rows, next }))
            }
            ElementCommand::Expire { fields, at, condition, relative, .. } => {
                let at = self.time(*at, *relative);
                let (now, version) = (self.now, self.version);
                let mut changes = Vec::new();
                for field in fields {
                    let change = self
                        .fields(&name, kind)?
                        .get_mut(field)
                        .map_or(Change::Missing, |element| changed(&mut element.expires_at, at, *condition, now));
                    if change == Change::Done {
                        let element = self.change_fields(&name, kind).get_mut(field).unwrap();
                        (element.expires_at, element.version) = (at, version);
                    } else if change == Change::Removed {
                        self.change_fields(&name, kind).remove(field);
                    }
                    changes.push(change);
                }
                Ok(KeysReply::Expired(changes))
            }
            ElementCommand::Describe { fields, .. } => {
                let describe = |field| old.get(field).map(|element: &Field| (element.version, element.expires_at));
                Ok(KeysReply::Described(fields.iter().map(describe).collect()))
            }
            ElementCommand::Draw { count, repeats, .. } => {
                let Ok(KeysReply::Elements(page)) = actual else { panic!("{actual:?}") };
                assert!(page.rows.iter().all(|(field, value)| old.get(field).is_some_and(|old| old.value == *value)));
                let distinct: BTreeSet<_> = page.rows.iter().collect();
                let expected = if *repeats && !old.is_empty() { *count } else { (*count).min(old.len() as u64) };
                assert_eq!(page.rows.len() as u64, expected);
                assert!(*repeats || distinct.len() == page.rows.len());
                actual.clone()
            }
        }
    }

    pub fn run_hash(&mut self, space: Space, command: &HashCommand) -> Reply {
        match command {
            HashCommand::Set { key, fields, condition, expiry } => {
                self.set_fields(&(space, key.clone()), fields, condition, *expiry)
            }
            HashCommand::Get { key, fields } => {
                let old = self.fields(&(space, key.clone()), Kind::Hash)?;
                let get = |field| old.get(field).map(|element: &Field| element.value.clone());
                Ok(KeysReply::Values(fields.iter().map(get).collect()))
            }
            HashCommand::GetExpire { key, fields, at, relative } => {
                let (of, condition) = (Collection::Hash, ExpiryCondition::Always);
                let get = HashCommand::Get { key: key.clone(), fields: fields.clone() };
                let values = self.run_hash(space, &get)?;
                let (key, fields, at, relative) = (key.clone(), fields.clone(), *at, *relative);
                let expire = ElementCommand::Expire { of, key, fields, at, condition, relative };
                self.run_element(space, &expire, &Ok(KeysReply::Done))?;
                Ok(values)
            }
            HashCommand::Take { key, fields } => {
                let name = (space, key.clone());
                let mut values = Vec::new();
                for field in fields {
                    let is_there = self.fields(&name, Kind::Hash)?.contains_key(field);
                    let taken = is_there.then(|| self.change_fields(&name, Kind::Hash).remove(field).unwrap().value);
                    values.push(taken);
                }
                self.fields(&name, Kind::Hash)?;
                Ok(KeysReply::Values(values))
            }
            HashCommand::Add { key, field, by } => {
                let name = (space, key.clone());
                let old = self.fields(&name, Kind::Hash)?.get(field).map(|element| element.value.clone());
                let sum = add(old, *by, KeysError::FieldNotInteger)?;
                self.put(&name, field, sum.to_string().into());
                Ok(KeysReply::Integer(sum))
            }
            HashCommand::AddFloat { key, field, by } => {
                if by == "inf" {
                    return Err(KeysError::Infinite);
                }
                add_float(None, by, KeysError::NotFloat)?;
                let name = (space, key.clone());
                let old = self.fields(&name, Kind::Hash)?.get(field).map(|element| element.value.clone());
                let sum = add_float(old, by, KeysError::FieldNotFloat)?;
                self.put(&name, field, sum.clone());
                Ok(KeysReply::Value(sum))
            }
        }
    }

    fn put(&mut self, name: &Name, field: &Bytes, value: Bytes) {
        let version = self.version;
        let fields = self.change_fields(name, Kind::Hash);
        let expires_at = fields.get(field).and_then(|element| element.expires_at);
        fields.insert(field.clone(), Field { value, version, expires_at });
    }

    fn set_fields(&mut self, name: &Name, fields: &[(Bytes, Bytes)], condition: &Condition, expiry: Expiry) -> Reply {
        let old = self.fields(name, Kind::Hash)?;
        let applies = |(field, _): &(Bytes, Bytes)| match condition {
            Condition::Always => true,
            Condition::Missing => !old.contains_key(field),
            Condition::Exists => old.contains_key(field),
            Condition::Version(version) => old.get(field).is_some_and(|old| old.version == *version),
            Condition::Value(value) => old.get(field).is_some_and(|old| old.value == *value),
        };
        if !fields.iter().all(applies) {
            return Ok(KeysReply::NotApplied);
        }
        let (version, mut added) = (self.version, 0);
        for (field, value) in fields {
            let relative = if let Expiry::In(nanos) = expiry { self.time(Some(nanos), true) } else { None };
            let current = self.change_fields(name, Kind::Hash);
            added += u64::from(!current.contains_key(field));
            let expires_at = match expiry {
                Expiry::Never => None,
                Expiry::Keep => current.get(field).and_then(|element| element.expires_at),
                Expiry::At(at) => Some(at),
                Expiry::In(_) => relative,
            };
            current.insert(field.clone(), Field { value: value.clone(), version, expires_at });
            // What has expired is gone at once, so that a field that comes twice is new twice.
            let now = self.now;
            self.change_fields(name, Kind::Hash).retain(|_, element| element.expires_at.is_none_or(|at| at > now));
        }
        Ok(KeysReply::Count(added))
    }

    pub fn run_set(&mut self, space: Space, command: &SetCommand, actual: &Reply) -> Reply {
        match command {
            SetCommand::Add { key, members, expiry } => self.add_members(&(space, key.clone()), members, *expiry),
            SetCommand::Pop { key, count, .. } => {
                let name = (space, key.clone());
                let old = self.fields(&name, Kind::Set)?;
                let Ok(KeysReply::Members(members)) = actual else { panic!("{actual:?}") };
                let distinct: BTreeSet<_> = members.iter().collect();
                assert_eq!(distinct.len() as u64, (*count).min(old.len() as u64));
                assert_eq!(distinct.len(), members.len());
                for member in members {
                    assert!(self.change_fields(&name, Kind::Set).remove(member).is_some());
                }
                actual.clone()
            }
            SetCommand::Move { from, to, member } => {
                let (from, to) = ((space, from.clone()), (space, to.clone()));
                if self.typed(&from, Kind::Set)?.is_none() {
                    return Ok(KeysReply::Missing);
                }
                self.fields(&to, Kind::Set)?;
                if !self.fields(&from, Kind::Set)?.contains_key(member) {
                    return Ok(KeysReply::Missing);
                }
                if from != to {
                    let field = Field { value: Bytes::new(), version: self.version, expires_at: None };
                    self.change_fields(&from, Kind::Set).remove(member);
                    self.change_fields(&to, Kind::Set).insert(member.clone(), field);
                }
                Ok(KeysReply::Done)
            }
            SetCommand::Combine { operation, keys, store } => {
                let members = self.combine(space, *operation, keys)?;
                let Some(to) = store else { return Ok(KeysReply::Members(members.into_iter().collect())) };
                let count = members.len() as u64;
                let field = Field { value: Bytes::new(), version: self.version, expires_at: None };
                let held = Held::Set(members.into_iter().map(|member| (member, field.clone())).collect());
                self.keys.insert((space, to.clone()), Entry { held, version: self.version, expires_at: None });
                Ok(KeysReply::Count(count))
            }
        }
    }

    fn add_members(&mut self, name: &Name, members: &[Bytes], expiry: Expiry) -> Reply {
        let (now, version) = (self.now, self.version);
        let mut added = 0;
        for member in members {
            let old = self.fields(name, Kind::Set)?.get(member).cloned();
            let expires_at = match expiry {
                Expiry::At(at) => Some(at),
                Expiry::In(nanos) => self.time(Some(nanos), true),
                Expiry::Never | Expiry::Keep => old.as_ref().and_then(|old| old.expires_at),
            };
            if old.as_ref().is_some_and(|old| old.expires_at == expires_at) {
                continue;
            }
            added += u64::from(old.is_none());
            let fields = self.change_fields(name, Kind::Set);
            fields.insert(member.clone(), Field { value: Bytes::new(), version, expires_at });
            fields.retain(|_, element| element.expires_at.is_none_or(|at| at > now));
        }
        self.fields(name, Kind::Set)?;
        Ok(KeysReply::Count(added))
    }

    fn combine(&self, space: Space, operation: SetOperation, keys: &[Bytes]) -> Result<BTreeSet<Bytes>, KeysError> {
        let mut sets: Vec<BTreeSet<Bytes>> = Vec::new();
        for key in keys {
            sets.push(self.fields(&(space, key.clone()), Kind::Set)?.into_keys().collect());
        }
        let together = |left: BTreeSet<Bytes>, right: BTreeSet<Bytes>| match operation {
            SetOperation::Union => &left | &right,
            SetOperation::Intersection => &left & &right,
            SetOperation::Difference => &left - &right,
        };
        Ok(sets.into_iter().reduce(together).unwrap_or_default())
    }
}

fn kind(of: Collection) -> Kind {
    match of {
        Collection::Hash => Kind::Hash,
        Collection::Set => Kind::Set,
    }
}

fn pair((field, element): (&Bytes, &Field)) -> (Bytes, Bytes) {
    (field.clone(), element.value.clone())
}
