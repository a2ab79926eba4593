//! An engine that keeps its data in memory: one ordered map, with a journal to undo changes.
//!
//! Committed data survive [`Memory::restarted`] as if they were on a disk, so the same tests run as for a file. They
//! can be encoded ([`state`]), and [`memory_store`](crate::memory_store) keeps them in a file.
//! [`items`](crate::items) is its store.
//!
//! # Invariants
//!
//! - The journal holds what every key changed in the open transaction had before, so going back through it restores the
//!   state at [`Engine::begin`], and going back to the mark of a scope the state when that was opened.
//! - Without an open transaction the journal is empty.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use bytes::Bytes;
use quorate_model::{Failure, REJECTIONS_MAX, StoreFault, StoreIdentity, Topic, User};
use xxhash_rust::xxh3::Xxh3;

use crate::{Allowance, AppliedRow, Engine, Records, RequestPlace, RequestRecord, Scope, SessionRecord};

mod state;

pub use state::STATE_BYTES_MAX;

/// The key of a record, or of an item of a store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Applied,
    Session(u64),
    /// The session and the sequence.
    Outcome(u64, u64),
    Rejection(u64),
    /// The table of a store, and the key in it.
    Row(u8, Bytes),
    /// The user's name.
    User(String),
    /// The number of a request with a key.
    Request(u64),
    /// The key of a request, and its number.
    RequestOf(Bytes, u64),
}

/// What is kept under a [`Key`].
#[derive(Clone, Debug, PartialEq, Eq)]
enum Record {
    Applied(AppliedRow),
    Session(SessionRecord),
    Outcome(Option<Vec<u8>>),
    Rejection,
    Row(Bytes),
    User(User),
    Request(RequestRecord),
    RequestOf,
}

/// The engine. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    map: BTreeMap<Key, Record>,
    /// The keys that the open transaction has changed, and what they had before.
    journal: Vec<(Key, Option<Record>)>,
    is_open: bool,
    /// The open scopes: the lengths of the journal and of the touched topics when each was opened.
    scopes: Vec<(Scope, usize, usize)>,
    /// The steps that are left of the entry's budget.
    pub(crate) budget: u64,
    /// The time of the entry that runs.
    pub(crate) now: u64,
    /// The topics that were touched.
    pub(crate) touched: Vec<Topic>,
    /// After how many more changes the engine has no room for another; `None` for never.
    room: Option<u64>,
}

impl Memory {
    /// Returns an empty engine for the data of a cluster, epoch and group.
    pub fn new(identity: StoreIdentity) -> Self {
        let applied = Record::Applied(AppliedRow::new(identity));
        Self { map: [(Key::Applied, applied)].into(), ..Self::default() }
    }

    /// Returns the engine as a restart after a crash finds it: it holds the committed data, and no open transaction.
    #[must_use]
    pub fn restarted(&mut self) -> Self {
        self.roll_back();
        Self { map: std::mem::take(&mut self.map), ..Self::default() }
    }

    /// Lets the engine fail with [`StoreFault::Full`] after this many more changes, or never (`None`).
    pub fn set_room(&mut self, changes: Option<u64>) {
        self.room = changes;
    }

    /// Returns the rows of all stores in the order of their keys: the table, the key and the value.
    pub fn rows(&self) -> impl Iterator<Item = (u8, &Bytes, &Bytes)> {
        self.map.iter().filter_map(|(key, record)| match (key, record) {
            (Key::Row(table, key), Record::Row(value)) => Some((*table, key, value)),
            _ => None,
        })
    }

    /// Returns the hash of the rows of all stores: the XXH3 (64 bits, seed 0) of each row's table, key and value. The
    /// key and the value each follow their length (8 bytes, little-endian).
    pub fn rows_hash(&self) -> u64 {
        let mut hash = Xxh3::new();
        for (table, key, value) in self.rows() {
            hash.update(&[table]);
            for bytes in [key, value] {
                hash.update(&(bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
        }
        hash.digest()
    }

    /// Returns the applied row: the identity of the data, the latest stamp and the outcome hash. `None` if the data are
    /// damaged.
    pub fn applied_record(&self) -> Option<&AppliedRow> {
        match self.map.get(&Key::Applied) {
            Some(Record::Applied(row)) => Some(row),
            _ => None,
        }
    }

    /// Returns all committed data as a text, for comparison.
    #[cfg(test)]
    pub(crate) fn dump(&self) -> String {
        assert!(!self.is_open, "a transaction is open");
        format!("{:?}", self.map)
    }

    /// Returns a row of a store.
    pub(crate) fn row(&self, table: u8, key: &Bytes) -> Option<&Bytes> {
        match self.map.get(&Key::Row(table, key.clone())) {
            Some(Record::Row(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the first row of a table.
    pub(crate) fn first_row(&self, table: u8) -> Option<(&Bytes, &Bytes)> {
        match self.map.range(Key::Row(table, Bytes::new())..).next() {
            Some((Key::Row(found, key), Record::Row(value))) if *found == table => Some((key, value)),
            _ => None,
        }
    }

    /// Adds a row or replaces it.
    pub(crate) fn put_row(&mut self, table: u8, key: Bytes, value: Bytes) -> Result<(), StoreFault> {
        self.change(Key::Row(table, key), Some(Record::Row(value)))
    }

    /// Removes a row.
    pub(crate) fn remove_row(&mut self, table: u8, key: Bytes) -> Result<(), StoreFault> {
        self.change(Key::Row(table, key), None)
    }

    fn change(&mut self, key: Key, record: Option<Record>) -> Result<(), StoreFault> {
        if let Some(room) = &mut self.room {
            *room = room.checked_sub(1).ok_or_else(|| StoreFault::Full("no room was left".to_owned()))?;
        }
        let before = match record {
            Some(record) => self.map.insert(key.clone(), record),
            None => self.map.remove(&key),
        };
        self.journal.push((key, before));
        Ok(())
    }

    /// Undoes the changes after the first `kept` of the journal.
    fn undo(&mut self, kept: usize) {
        for (key, before) in self.journal.drain(kept.min(self.journal.len())..).rev() {
            match before {
                Some(record) => self.map.insert(key, record),
                None => self.map.remove(&key),
            };
        }
    }

    fn numbered(&self, number: u64) -> Option<&RequestRecord> {
        match self.map.get(&Key::Request(number)) {
            Some(Record::Request(request)) => Some(request),
            _ => None,
        }
    }

    fn remove_all(&mut self, keys: RangeInclusive<Key>) -> Result<(), StoreFault> {
        let found: Vec<Key> = self.map.range(keys).map(|(key, _)| key.clone()).collect();
        found.into_iter().try_for_each(|key| self.change(key, None))
    }
}

const ALL_REQUESTS: RangeInclusive<Key> = Key::Request(0)..=Key::Request(u64::MAX);

fn place((_, record): (&Key, &Record)) -> Option<RequestPlace> {
    match record {
        Record::Request(request) => Some(request.place),
        _ => None,
    }
}

impl Engine for Memory {
    fn begin(&mut self) -> Result<(), StoreFault> {
        self.is_open = true;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreFault> {
        self.journal.clear();
        self.scopes.clear();
        self.is_open = false;
        Ok(())
    }

    fn roll_back(&mut self) {
        self.undo(0);
        self.scopes.clear();
        self.touched.clear();
        self.is_open = false;
    }

    fn is_open(&self) -> bool {
        self.is_open
    }

    fn open_scope(&mut self, scope: Scope) -> Result<(), StoreFault> {
        self.scopes.push((scope, self.journal.len(), self.touched.len()));
        Ok(())
    }

    fn keep_scope(&mut self) -> Result<(), StoreFault> {
        self.scopes.pop();
        Ok(())
    }

    fn undo_scope(&mut self, _: &Failure) -> Result<(), StoreFault> {
        match self.scopes.pop() {
            Some((Scope::Bare, changes, _)) if self.journal.len() > changes => self.roll_back(),
            Some((_, changes, touched)) => {
                self.undo(changes);
                self.touched.truncate(touched);
            }
            None => {}
        }
        Ok(())
    }

    fn allow(&mut self, _: Allowance) {}

    fn is_closing(&self) -> bool {
        false
    }
}

impl Records for Memory {
    fn applied_row(&mut self) -> Result<AppliedRow, StoreFault> {
        self.applied_record().cloned().ok_or_else(|| StoreFault::Damaged("the applied row is missing".to_owned()))
    }

    fn write_applied_row(&mut self, row: &AppliedRow) -> Result<(), StoreFault> {
        self.change(Key::Applied, Some(Record::Applied(row.clone())))
    }

    fn sessions(&mut self) -> Result<Vec<(SessionRecord, u64)>, StoreFault> {
        let highest = |id| match self.map.range(Key::Outcome(id, 0)..=Key::Outcome(id, u64::MAX)).next_back() {
            Some((Key::Outcome(_, sequence), _)) => *sequence,
            _ => 0,
        };
        let session = |record: &Record| match record {
            Record::Session(session) => Some((session.clone(), highest(session.id))),
            _ => None,
        };
        Ok(self.map.values().filter_map(session).collect())
    }

    fn write_session(&mut self, session: &SessionRecord) -> Result<(), StoreFault> {
        self.change(Key::Session(session.id), Some(Record::Session(session.clone())))
    }

    fn remove_session(&mut self, id: u64) -> Result<(), StoreFault> {
        self.change(Key::Session(id), None)
    }

    fn outcome(&mut self, session: u64, sequence: u64) -> Result<Option<Option<Vec<u8>>>, StoreFault> {
        Ok(match self.map.get(&Key::Outcome(session, sequence)) {
            Some(Record::Outcome(outcome)) => Some(outcome.clone()),
            _ => None,
        })
    }

    fn write_outcome(&mut self, session: u64, sequence: u64, outcome: Option<&[u8]>) -> Result<(), StoreFault> {
        self.change(Key::Outcome(session, sequence), Some(Record::Outcome(outcome.map(<[u8]>::to_vec))))
    }

    fn remove_outcomes(&mut self, session: u64, upto: u64) -> Result<(), StoreFault> {
        self.remove_all(Key::Outcome(session, 0)..=Key::Outcome(session, upto))
    }

    fn rejections(&mut self) -> Result<Vec<u64>, StoreFault> {
        let index = |key: &Key| match key {
            Key::Rejection(index) => Some(*index),
            _ => None,
        };
        Ok(self.map.keys().filter_map(index).collect())
    }

    fn write_rejection(&mut self, index: u64) -> Result<(), StoreFault> {
        self.change(Key::Rejection(index), Some(Record::Rejection))?;
        let indexes = self.rejections()?;
        let surplus = indexes.len().saturating_sub(REJECTIONS_MAX);
        indexes.iter().take(surplus).try_for_each(|index| self.change(Key::Rejection(*index), None))
    }

    fn users(&mut self) -> Result<Vec<User>, StoreFault> {
        let user = |record: &Record| match record {
            Record::User(user) => Some(user.clone()),
            _ => None,
        };
        Ok(self.map.values().filter_map(user).collect())
    }

    fn write_user(&mut self, user: &User) -> Result<(), StoreFault> {
        self.change(Key::User(user.name.clone()), Some(Record::User(user.clone())))
    }

    fn remove_user(&mut self, name: &str) -> Result<(), StoreFault> {
        self.change(Key::User(name.to_owned()), None)
    }

    fn request(&mut self, key: &[u8]) -> Result<Option<RequestRecord>, StoreFault> {
        let key = Bytes::copy_from_slice(key);
        let numbers = Key::RequestOf(key.clone(), 0)..=Key::RequestOf(key, u64::MAX);
        Ok(match self.map.range(numbers).next_back() {
            Some((Key::RequestOf(_, number), _)) => self.numbered(*number).cloned(),
            _ => None,
        })
    }

    fn oldest_request(&mut self) -> Result<Option<RequestPlace>, StoreFault> {
        Ok(self.map.range(ALL_REQUESTS).next().and_then(place))
    }

    fn latest_request(&mut self) -> Result<Option<RequestPlace>, StoreFault> {
        Ok(self.map.range(ALL_REQUESTS).next_back().and_then(place))
    }

    fn write_request(&mut self, request: &RequestRecord) -> Result<(), StoreFault> {
        let number = request.place.number;
        self.change(Key::RequestOf(request.key.clone(), number), Some(Record::RequestOf))?;
        self.change(Key::Request(number), Some(Record::Request(request.clone())))
    }

    fn remove_request(&mut self, number: u64) -> Result<(), StoreFault> {
        let Some(key) = self.numbered(number).map(|request| request.key.clone()) else { return Ok(()) };
        self.change(Key::RequestOf(key, number), None)?;
        self.change(Key::Request(number), None)
    }
}
