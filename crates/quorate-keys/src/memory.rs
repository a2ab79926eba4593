//! The tables in memory: B-trees, those of a collection by its id.
//!
//! It undoes nothing: what is around it does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::ops::Bound::{Excluded, Included, Unbounded};

use bytes::Bytes;
use quorate_model::keys::{Kind, Order, Space, Span};

use crate::KeysError;
use crate::tables::{Element, Id, KeyRow, Part, Place, Score, Tables, Visit};

/// Tables in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    last_id: Id,
    names: BTreeMap<Space, Generation>,
    detached: BTreeMap<u64, Names>,
    keys: BTreeMap<Id, (Space, Bytes, KeyRow)>,
    collections: BTreeMap<Id, Collection>,
    due: BTreeSet<(u64, Id)>,
    trash: BTreeMap<Id, Kind>,
}

/// The ids of keys.
type Names = BTreeMap<Bytes, Id>;

/// The keys that came into a space since it was flushed, with a number above those of all others at that time.
type Generation = (u64, Names);

/// The rows of one id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Collection {
    elements: BTreeMap<Bytes, Element>,
    expiries: BTreeSet<(u64, Bytes)>,
    members: BTreeMap<Bytes, Score>,
    places: BTreeSet<Place>,
    blocks: BTreeMap<(u8, Place), u64>,
    items: BTreeMap<i64, Bytes>,
}

/// What collections that have no rows are read as.
static NOTHING: Collection = Collection {
    elements: BTreeMap::new(),
    expiries: BTreeSet::new(),
    members: BTreeMap::new(),
    places: BTreeSet::new(),
    blocks: BTreeMap::new(),
    items: BTreeMap::new(),
};

impl Memory {
    /// Returns the rows of all keys that are in a space, by id.
    pub fn rows(&self) -> impl Iterator<Item = &(Space, Bytes, KeyRow)> {
        self.keys.values().filter(|(space, key, row)| self.is_in(*space, key, row.id))
    }

    /// Returns the ids of the keys that were taken from their spaces.
    pub fn detached(&self) -> impl Iterator<Item = Id> {
        self.detached.values().flat_map(|names| names.values().copied())
    }

    /// Returns the ids that have elements, members, blocks or items.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        self.collections.keys().copied()
    }

    /// Returns the rows of due times.
    pub fn due(&self) -> impl Iterator<Item = (u64, Id)> {
        self.due.iter().copied()
    }

    /// Returns the ids in the trash.
    pub fn trash(&self) -> impl Iterator<Item = Id> {
        self.trash.keys().copied()
    }

    /// Returns whether a key of a space has this id.
    fn is_in(&self, space: Space, key: &[u8], id: Id) -> bool {
        self.names.get(&space).is_some_and(|(_, names)| names.get(key) == Some(&id))
    }

    fn of(&self, id: Id) -> &Collection {
        self.collections.get(&id).unwrap_or(&NOTHING)
    }

    fn change(&mut self, id: Id) -> &mut Collection {
        self.collections.entry(id).or_default()
    }

    /// Removes something of a collection, and the collection with its last row.
    fn remove(&mut self, id: Id, remove: impl FnOnce(&mut Collection)) {
        if let Some(collection) = self.collections.get_mut(&id) {
            remove(collection);
            if *collection == NOTHING {
                self.collections.remove(&id);
            }
        }
    }
}

impl Collection {
    fn remove_element(&mut self, field: &[u8]) {
        if let Some((field, Element { expires_at: Some(at), .. })) = self.elements.remove_entry(field) {
            self.expiries.remove(&(at, field));
        }
    }

    fn remove_member(&mut self, member: &[u8]) {
        if let Some((member, score)) = self.members.remove_entry(member) {
            self.places.remove(&(score, member));
        }
    }

    fn clear(&mut self, part: Part, limit: usize) -> usize {
        match part {
            Part::Elements => {
                let fields = first(self.elements.keys(), limit);
                fields.iter().map(|field| self.remove_element(field)).count()
            }
            Part::Members => {
                let members = first(self.members.keys(), limit);
                members.iter().map(|member| self.remove_member(member)).count()
            }
            Part::Blocks => first(self.blocks.keys(), limit).iter().map(|block| self.blocks.remove(block)).count(),
            Part::Items => first(self.items.keys(), limit).iter().map(|position| self.items.remove(position)).count(),
        }
    }
}

impl Tables for Memory {
    type Error = KeysError;

    fn new_id(&mut self) -> Result<Id, KeysError> {
        self.last_id += 1;
        Ok(self.last_id)
    }

    fn find_key(&mut self, space: Space, key: &[u8]) -> Result<Option<KeyRow>, KeysError> {
        let id = self.names.get(&space).and_then(|(_, names)| names.get(key));
        Ok(id.and_then(|id| self.keys.get(id)).map(|(.., row)| row.clone()))
    }

    fn key(&mut self, id: Id) -> Result<Option<(Space, Bytes, KeyRow)>, KeysError> {
        Ok(self.keys.get(&id).filter(|(space, key, _)| self.is_in(*space, key, id)).cloned())
    }

    fn add_key(&mut self, space: Space, key: &Bytes, row: &KeyRow) -> Result<(), KeysError> {
        let last = self.names.values().map(|(number, _)| number).chain(self.detached.keys()).max();
        let number = last.map_or(1, |last| last.saturating_add(1));
        self.names.entry(space).or_insert((number, Names::new())).1.insert(key.clone(), row.id);
        self.keys.insert(row.id, (space, key.clone(), row.clone()));
        Ok(())
    }

    fn update_key(&mut self, row: &KeyRow) -> Result<(), KeysError> {
        if let Some((.., old)) = self.keys.get_mut(&row.id) {
            *old = row.clone();
        }
        Ok(())
    }

    fn rename_key(&mut self, id: Id, space: Space, key: &Bytes) -> Result<(), KeysError> {
        let Some((.., row)) = self.keys.get(&id).cloned() else { return Ok(()) };
        self.remove_key(id)?;
        self.add_key(space, key, &row)
    }

    fn remove_key(&mut self, id: Id) -> Result<(), KeysError> {
        let Some((space, key, _)) = self.keys.remove(&id) else { return Ok(()) };
        let own = self.names.get_mut(&space).map(|(_, names)| names);
        for names in own.into_iter().chain(self.detached.values_mut()) {
            if names.get(&key) == Some(&id) {
                names.remove(&key);
            }
        }
        self.detached.retain(|_, names| !names.is_empty());
        Ok(())
    }

    fn count_keys(&mut self, space: Space) -> Result<u64, KeysError> {
        Ok(self.names.get(&space).map_or(0, |(_, names)| names.len() as u64))
    }

    fn detach_keys(&mut self, space: Space) -> Result<(), KeysError> {
        if self.count_keys(space)? > 0 {
            self.detached.extend(self.names.remove(&space));
        }
        Ok(())
    }

    fn first_detached(&mut self) -> Result<Option<KeyRow>, KeysError> {
        let names = self.detached.first_key_value().map(|(_, names)| names);
        let id = names.and_then(BTreeMap::first_key_value).map(|(_, id)| id);
        let row = id.and_then(|id| self.keys.get(id)).map(|(.., row)| row.clone());
        Ok(row.map(|row| KeyRow { value: Bytes::new(), ..row }))
    }

    fn keys(
        &mut self,
        space: Space,
        span: &Span,
        order: Order,
        visit: Visit<'_, (Bytes, KeyRow)>,
    ) -> Result<(), KeysError> {
        let Some((_, names)) = self.names.get(&space).filter(|_| !span.is_empty()) else { return Ok(()) };
        let row = |(key, id): (&Bytes, &Id)| self.keys.get(id).map(|(.., row)| (key.clone(), row.clone()));
        visit_all(names.range::<Bytes, _>(bounds(span)).filter_map(row), order, visit)
    }

    fn element(&mut self, id: Id, field: &[u8]) -> Result<Option<Element>, KeysError> {
        Ok(self.of(id).elements.get(field).cloned())
    }

    fn put_element(&mut self, id: Id, field: &Bytes, element: &Element) -> Result<(), KeysError> {
        let collection = self.change(id);
        collection.remove_element(field);
        if let Some(at) = element.expires_at {
            collection.expiries.insert((at, field.clone()));
        }
        collection.elements.insert(field.clone(), element.clone());
        Ok(())
    }

    fn remove_element(&mut self, id: Id, field: &[u8]) -> Result<(), KeysError> {
        self.remove(id, |collection| collection.remove_element(field));
        Ok(())
    }

    fn elements(
        &mut self,
        id: Id,
        span: &Span,
        order: Order,
        visit: Visit<'_, (Bytes, Element)>,
    ) -> Result<(), KeysError> {
        if span.is_empty() {
            return Ok(());
        }
        let row = |(field, element): (&Bytes, &Element)| (field.clone(), element.clone());
        visit_all(self.of(id).elements.range::<Bytes, _>(bounds(span)).map(row), order, visit)
    }

    fn expiries(&mut self, id: Id, order: Order, visit: Visit<'_, (u64, Bytes)>) -> Result<(), KeysError> {
        visit_all(self.of(id).expiries.iter().cloned(), order, visit)
    }

    fn count_expired(&mut self, id: Id, now: u64) -> Result<u64, KeysError> {
        Ok(self.of(id).expiries.iter().take_while(|(at, _)| *at <= now).count() as u64)
    }

    fn score(&mut self, id: Id, member: &[u8]) -> Result<Option<Score>, KeysError> {
        Ok(self.of(id).members.get(member).copied())
    }

    fn put_member(&mut self, id: Id, member: &Bytes, score: Score) -> Result<(), KeysError> {
        let collection = self.change(id);
        collection.remove_member(member);
        collection.places.insert((score, member.clone()));
        collection.members.insert(member.clone(), score);
        Ok(())
    }

    fn remove_member(&mut self, id: Id, member: &[u8]) -> Result<(), KeysError> {
        self.remove(id, |collection| collection.remove_member(member));
        Ok(())
    }

    fn members(&mut self, id: Id, span: &Span<Place>, order: Order, visit: Visit<'_, Place>) -> Result<(), KeysError> {
        if span.is_empty() {
            return Ok(());
        }
        visit_all(self.of(id).places.range(bounds(span)).cloned(), order, visit)
    }

    fn scores(&mut self, id: Id, span: &Span, visit: Visit<'_, (Bytes, Score)>) -> Result<(), KeysError> {
        if span.is_empty() {
            return Ok(());
        }
        let row = |(member, score): (&Bytes, &Score)| (member.clone(), *score);
        visit_all(self.of(id).members.range::<Bytes, _>(bounds(span)).map(row), Order::Up, visit)
    }

    fn count_members(&mut self, id: Id, span: &Span<Place>) -> Result<u64, KeysError> {
        if span.is_empty() {
            return Ok(0);
        }
        Ok(self.of(id).places.range(bounds(span)).count() as u64)
    }

    fn put_block(&mut self, id: Id, level: u8, from: &Place, count: u64) -> Result<(), KeysError> {
        self.change(id).blocks.insert((level, from.clone()), count);
        Ok(())
    }

    fn remove_block(&mut self, id: Id, level: u8, from: &Place) -> Result<(), KeysError> {
        self.remove(id, |collection| _ = collection.blocks.remove(&(level, from.clone())));
        Ok(())
    }

    fn blocks(
        &mut self,
        id: Id,
        level: u8,
        span: &Span<Place>,
        order: Order,
        visit: Visit<'_, (Place, u64)>,
    ) -> Result<(), KeysError> {
        let row = |((_, from), count): (&(u8, Place), &u64)| (from.clone(), *count);
        visit_all(self.of(id).blocks_in(level, span).map(row), order, visit)
    }

    fn sum_blocks(&mut self, id: Id, level: u8, span: &Span<Place>) -> Result<u64, KeysError> {
        Ok(self.of(id).blocks_in(level, span).map(|(_, count)| count).sum())
    }

    fn item(&mut self, id: Id, position: i64) -> Result<Option<Bytes>, KeysError> {
        Ok(self.of(id).items.get(&position).cloned())
    }

    fn put_item(&mut self, id: Id, position: i64, value: &Bytes) -> Result<(), KeysError> {
        self.change(id).items.insert(position, value.clone());
        Ok(())
    }

    fn remove_item(&mut self, id: Id, position: i64) -> Result<(), KeysError> {
        self.remove(id, |collection| _ = collection.items.remove(&position));
        Ok(())
    }

    fn items(
        &mut self,
        id: Id,
        span: &Span<i64>,
        order: Order,
        visit: Visit<'_, (i64, Bytes)>,
    ) -> Result<(), KeysError> {
        if span.is_empty() {
            return Ok(());
        }
        let row = |(position, value): (&i64, &Bytes)| (*position, value.clone());
        visit_all(self.of(id).items.range(bounds(span)).map(row), order, visit)
    }

    fn add_due(&mut self, due: u64, id: Id) -> Result<(), KeysError> {
        self.due.insert((due, id));
        Ok(())
    }

    fn remove_due(&mut self, due: u64, id: Id) -> Result<(), KeysError> {
        self.due.remove(&(due, id));
        Ok(())
    }

    fn first_due(&mut self) -> Result<Option<(u64, Id)>, KeysError> {
        Ok(self.due.first().copied())
    }

    fn add_trash(&mut self, id: Id, kind: Kind) -> Result<(), KeysError> {
        self.trash.insert(id, kind);
        Ok(())
    }

    fn remove_trash(&mut self, id: Id) -> Result<(), KeysError> {
        self.trash.remove(&id);
        Ok(())
    }

    fn first_trash(&mut self) -> Result<Option<(Id, Kind)>, KeysError> {
        Ok(self.trash.first_key_value().map(|(id, kind)| (*id, *kind)))
    }

    fn clear(&mut self, part: Part, id: Id, limit: usize) -> Result<usize, KeysError> {
        let mut removed = 0;
        self.remove(id, |collection| removed = collection.clear(part, limit));
        Ok(removed)
    }
}

impl Collection {
    fn blocks_in(&self, level: u8, span: &Span<Place>) -> impl DoubleEndedIterator<Item = (&(u8, Place), &u64)> {
        let to = span.to.as_ref().map_or(Excluded((level + 1, crate::FIRST_PLACE)), |to| Excluded((level, to.clone())));
        let range = (Included((level, span.from.clone())), to);
        (!span.is_empty()).then(|| self.blocks.range(range)).into_iter().flatten()
    }
}

fn bounds<B>(span: &Span<B>) -> (Bound<&B>, Bound<&B>) {
    (Included(&span.from), span.to.as_ref().map_or(Unbounded, Excluded))
}

/// Visits rows in an order until the visitor breaks.
fn visit_all<R>(
    mut rows: impl DoubleEndedIterator<Item = R>,
    order: Order,
    visit: Visit<'_, R>,
) -> Result<(), KeysError> {
    let next = || match order {
        Order::Up => rows.next(),
        Order::Down => rows.next_back(),
    };
    _ = std::iter::from_fn(next).try_for_each(visit);
    Ok(())
}

fn first<'a, K: Clone + 'a>(keys: impl Iterator<Item = &'a K>, limit: usize) -> Vec<K> {
    keys.take(limit).cloned().collect()
}
