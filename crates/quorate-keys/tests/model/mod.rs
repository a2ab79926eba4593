//! The reference: what commands do, written in the most obvious way, on plain maps, with everything that has expired
//! removed before each command.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests stop at the first surprise")]

use std::collections::BTreeMap;

use bytes::Bytes;
use quorate_keys::{
    Change, Condition, ExpiryCondition, KeyCommand, KeyEntry, KeyInfo, KeysCommand, KeysError, KeysReply, Kind, Order,
    Page, Space, Span, Version, after, limits,
};

mod bits;
pub mod contents;
mod elements;
mod lists;
mod sorted_sets;
mod strings;

pub type Reply = Result<KeysReply, KeysError>;

/// A key with its space.
pub type Name = (Space, Bytes);

#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    String(Bytes),
    Hash(BTreeMap<Bytes, Field>),
    Set(BTreeMap<Bytes, Field>),
    /// The scores of the members, and when those of them expire that do.
    SortedSet(BTreeMap<Bytes, f64>, BTreeMap<Bytes, u64>),
    List(Vec<Bytes>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    pub value: Bytes,
    pub version: Version,
    pub expires_at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub held: Held,
    pub version: Version,
    pub expires_at: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub keys: BTreeMap<Name, Entry>,
    pub now: u64,
    pub version: Version,
}

impl Held {
    pub fn kind(&self) -> Kind {
        match self {
            Self::String(_) => Kind::String,
            Self::Hash(_) => Kind::Hash,
            Self::Set(_) => Kind::Set,
            Self::SortedSet(..) => Kind::SortedSet,
            Self::List(_) => Kind::List,
        }
    }

    fn empty(kind: Kind) -> Self {
        match kind {
            Kind::String => Self::String(Bytes::new()),
            Kind::Hash => Self::Hash(BTreeMap::new()),
            Kind::Set => Self::Set(BTreeMap::new()),
            Kind::SortedSet => Self::SortedSet(BTreeMap::new(), BTreeMap::new()),
            Kind::List => Self::List(Vec::new()),
        }
    }

    /// The number of elements; that of a string is 1.
    fn len(&self) -> usize {
        match self {
            Self::String(_) => 1,
            Self::Hash(fields) | Self::Set(fields) => fields.len(),
            Self::SortedSet(scores, _) => scores.len(),
            Self::List(items) => items.len(),
        }
    }
}

impl Model {
    /// Returns what the reply to a command has to be. Draws can't be foretold: theirs is checked, and taken over.
    pub fn run(&mut self, space: Space, command: &KeysCommand, actual: &Reply) -> Reply {
        self.expire();
        let reply = match command {
            KeysCommand::Key(command) => self.run_key(space, command, actual),
            KeysCommand::String(command) => self.run_string(space, command),
            KeysCommand::Bits(command) => self.run_bits(space, command),
            KeysCommand::Element(command) => self.run_element(space, command, actual),
            KeysCommand::Hash(command) => self.run_hash(space, command),
            KeysCommand::Set(command) => self.run_set(space, command, actual),
            KeysCommand::SortedSet(command) => self.run_sorted_set(space, command, actual),
            KeysCommand::List(command) => self.run_list(space, command),
        };
        self.expire();
        reply
    }

    /// Removes all that has expired, and empty collections.
    pub fn expire(&mut self) {
        let now = self.now;
        let is_alive = |expires_at: &Option<u64>| expires_at.is_none_or(|at| at > now);
        for entry in self.keys.values_mut() {
            match &mut entry.held {
                Held::Hash(fields) | Held::Set(fields) => fields.retain(|_, field| is_alive(&field.expires_at)),
                Held::SortedSet(scores, expiries) => {
                    scores.retain(|member, _| is_alive(&expiries.get(member).copied()));
                    expiries.retain(|member, _| scores.contains_key(member));
                }
                Held::String(_) | Held::List(_) => {}
            }
        }
        self.keys.retain(|_, entry| is_alive(&entry.expires_at) && entry.held.len() > 0);
    }

    /// Returns what a key of a kind holds.
    fn typed(&self, name: &Name, kind: Kind) -> Result<Option<&Held>, KeysError> {
        match self.keys.get(name) {
            Some(entry) if entry.held.kind() != kind => Err(KeysError::WrongType),
            found => Ok(found.map(|entry| &entry.held)),
        }
    }

    /// Returns what a key of a kind holds, to be changed. A missing one is made.
    fn change(&mut self, name: &Name, kind: Kind) -> &mut Held {
        let version = self.version;
        let entry = self.keys.entry(name.clone()).or_insert_with(|| Entry {
            held: Held::empty(kind),
            version,
            expires_at: None,
        });
        entry.version = version;
        &mut entry.held
    }

    fn run_key(&mut self, space: Space, command: &KeyCommand, actual: &Reply) -> Reply {
        match command {
            KeyCommand::Delete { keys, condition } => {
                let mut count = 0;
                for key in keys {
                    let name = (space, key.clone());
                    if self.keys.contains_key(&name) && self.applies(&name, condition) {
                        self.keys.remove(&name);
                        count += 1;
                    }
                }
                Ok(KeysReply::Count(count))
            }
            KeyCommand::Exists { keys } => {
                let count = keys.iter().filter(|key| self.keys.contains_key(&(space, (*key).clone()))).count();
                Ok(KeysReply::Count(count as u64))
            }
            KeyCommand::Describe { key } => {
                let found = self.keys.get(&(space, key.clone()));
                Ok(found.map_or(KeysReply::Missing, |entry| KeysReply::Key(info(entry))))
            }
            KeyCommand::Expect { key, version } => {
                let found = self.keys.get(&(space, key.clone())).map(|entry| entry.version);
                if found == *version { Ok(KeysReply::Done) } else { Err(KeysError::Conflict) }
            }
            KeyCommand::Count { key, kind } => {
                let found = self.typed(&(space, key.clone()), *kind)?;
                Ok(KeysReply::Count(found.map_or(0, |held| held.len() as u64)))
            }
            KeyCommand::Expire { key, at, condition, relative } => {
                Ok(self.expire_key(&(space, key.clone()), self.time(*at, *relative), *condition))
            }
            KeyCommand::Rename { key, to_space, to, replace } => {
                Ok(self.copy(&(space, key.clone()), (*to_space, to.clone()), *replace, true))
            }
            KeyCommand::Copy { key, to_space, to, replace } => {
                Ok(self.copy(&(space, key.clone()), (*to_space, to.clone()), *replace, false))
            }
            KeyCommand::CountAll => {
                // What has expired counts, too, until it is swept.
                let Ok(KeysReply::Count(count)) = actual else { panic!("{actual:?}") };
                assert!(*count >= self.names(space).count() as u64);
                actual.clone()
            }
            KeyCommand::Flush => {
                self.keys.retain(|(in_space, _), _| *in_space != space);
                Ok(KeysReply::Done)
            }
            KeyCommand::Draw { .. } => match actual {
                Ok(KeysReply::Value(key)) if self.names(space).any(|name| name == key) => actual.clone(),
                _ if self.names(space).next().is_none() => Ok(KeysReply::Missing),
                _ => panic!("{actual:?} was drawn"),
            },
            KeyCommand::Measure { key } => {
                let Some(entry) = self.keys.get(&(space, key.clone())) else { return Ok(KeysReply::Missing) };
                // What has expired counts, too, until it is swept.
                let Ok(KeysReply::Size(size)) = actual else { panic!("{actual:?}") };
                assert_eq!(size.kind, entry.held.kind());
                assert!(size.kind == Kind::String || size.count >= entry.held.len() as u64);
                actual.clone()
            }
            KeyCommand::Scan { span, order, limit, kind, values } => {
                Ok(self.scan(space, span, *order, *limit, *kind, *values))
            }
        }
    }

    fn names(&self, space: Space) -> impl Iterator<Item = &Bytes> {
        self.keys.keys().filter(move |(in_space, _)| *in_space == space).map(|(_, key)| key)
    }

    /// Returns the time of an expiry.
    fn time(&self, at: Option<u64>, relative: bool) -> Option<u64> {
        if relative { at.map(|nanos| self.now.saturating_add(nanos).min(limits::TIME_MAX)) } else { at }
    }

    fn expire_key(&mut self, name: &Name, at: Option<u64>, condition: ExpiryCondition) -> KeysReply {
        let (now, version) = (self.now, self.version);
        let Some(entry) = self.keys.get_mut(name) else { return KeysReply::Missing };
        match changed(&mut entry.expires_at, at, condition, now) {
            Change::NotApplied | Change::Missing => return KeysReply::NotApplied,
            Change::Done | Change::Removed => entry.version = version,
        }
        KeysReply::Done
    }

    fn copy(&mut self, name: &Name, to: Name, replace: bool, rename: bool) -> KeysReply {
        let Some(mut entry) = self.keys.get(name).cloned() else { return KeysReply::Missing };
        if (self.keys.contains_key(&to) && !replace) || (*name == to && !rename) {
            return KeysReply::NotApplied;
        }
        if rename {
            self.keys.remove(name);
        } else if let Held::Hash(fields) | Held::Set(fields) = &mut entry.held {
            fields.values_mut().for_each(|field| field.version = self.version);
        }
        entry.version = self.version;
        self.keys.insert(to, entry);
        KeysReply::Done
    }

    /// Returns a page. Whether there may be another one is said also if it turns out that there is none.
    fn scan(&self, space: Space, span: &Span, order: Order, limit: u64, kind: Option<Kind>, values: bool) -> KeysReply {
        let is_inside = |key: &Bytes| *key >= span.from && span.to.as_ref().is_none_or(|to| key < to);
        let wanted = |held: &Held| kind.is_none_or(|kind| kind == held.kind());
        let mut rows: Vec<KeyEntry> = Vec::new();
        for ((in_space, key), entry) in &self.keys {
            if *in_space == space && is_inside(key) && wanted(&entry.held) {
                let value = match &entry.held {
                    Held::String(value) if values => Some(value.clone()),
                    _ => None,
                };
                rows.push(KeyEntry { key: key.clone(), info: info(entry), value });
            }
        }
        if order == Order::Down {
            rows.reverse();
        }
        rows.truncate(limit.max(1) as usize);
        let next = rows.last().filter(|_| rows.len() as u64 >= limit.max(1)).map(|row| match order {
            Order::Up => after(&row.key),
            Order::Down => row.key.clone(),
        });
        KeysReply::Keys(Page { rows, next })
    }

    fn applies(&self, name: &Name, condition: &Condition) -> bool {
        let entry = self.keys.get(name);
        match condition {
            Condition::Always => true,
            Condition::Missing => entry.is_none(),
            Condition::Exists => entry.is_some(),
            Condition::Version(version) => entry.is_some_and(|entry| entry.version == *version),
            Condition::Value(value) => entry.is_some_and(|entry| entry.held == Held::String(value.clone())),
        }
    }
}

fn info(entry: &Entry) -> KeyInfo {
    KeyInfo { kind: entry.held.kind(), version: entry.version, expires_at: entry.expires_at }
}

/// Changes an expiry, and says what became of it.
fn changed(old: &mut Option<u64>, at: Option<u64>, condition: ExpiryCondition, now: u64) -> Change {
    let late = |at: Option<u64>| at.unwrap_or(u64::MAX);
    let applies = match condition {
        ExpiryCondition::Always => true,
        ExpiryCondition::Missing => old.is_none(),
        ExpiryCondition::Exists => old.is_some(),
        ExpiryCondition::Later => late(at) > late(*old),
        ExpiryCondition::Earlier => late(at) < late(*old),
    };
    if !applies || (at.is_none() && old.is_none()) {
        return Change::NotApplied;
    }
    *old = at;
    if at.is_some_and(|at| at <= now) { Change::Removed } else { Change::Done }
}

/// Returns the indexes from one to another, both inside, of so many things.
fn slice(count: usize, first: i64, last: i64) -> std::ops::Range<usize> {
    let count = count as i128;
    let place = |index: i64| if index < 0 { count + i128::from(index) } else { i128::from(index) };
    let first = place(first).clamp(0, count);
    let end = (place(last) + 1).clamp(first, count);
    first as usize..end as usize
}
