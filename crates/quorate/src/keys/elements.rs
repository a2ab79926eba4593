//! Hashes and sets.

use bytes::Bytes;
use quorate_model::keys::{
    Change, Collection, ElementCommand, Expiry, ExpiryCondition, HashCommand, Kind, SetCommand, SetOperation, Version,
};

use super::into_bytes::all;
use super::{ElementScan, IntoBytes, Keys, KeysCall, Put, When};

/// The hash of a key: values by their fields, each of which may expire. A hash without fields does not exist.
#[derive(Clone, Debug)]
pub struct Hash {
    keys: Keys,
    key: Bytes,
}

/// The set of a key: members, each of which may expire. A set without members does not exist.
#[derive(Clone, Debug)]
pub struct Set {
    keys: Keys,
    key: Bytes,
}

/// What hashes and sets have in common; a field is the member of a set.
macro_rules! collection {
    ($type:ident, $of:expr, $kind:expr) => {
        impl $type {
            pub(super) fn new(keys: Keys, key: Bytes) -> Self {
                Self { keys, key }
            }

            /// Removes fields, and returns how many there were.
            pub fn remove<B: IntoBytes>(&self, fields: impl IntoIterator<Item = B>) -> KeysCall<u64> {
                self.keys.run(ElementCommand::Remove { of: $of, key: self.key.clone(), fields: all(fields) })
            }

            /// Returns whether there is a field.
            pub fn contains(&self, field: impl IntoBytes) -> KeysCall<bool> {
                self.keys.run(ElementCommand::Contains { of: $of, key: self.key.clone(), fields: all([field]) })
            }

            /// Returns for each field whether it is there.
            pub fn contains_each<B: IntoBytes>(&self, fields: impl IntoIterator<Item = B>) -> KeysCall<Vec<bool>> {
                self.keys.run(ElementCommand::Contains { of: $of, key: self.key.clone(), fields: all(fields) })
            }

            /// Returns the elements in the order of their fields, a page at a time.
            pub fn scan(&self) -> ElementScan {
                ElementScan::new(self.keys.clone(), $of, self.key.clone())
            }

            /// Returns the number of fields.
            pub fn len(&self) -> KeysCall<u64> {
                self.keys.count(&self.key, $kind)
            }

            /// Lets fields expire. Returns for each what became of it.
            pub fn expire<B: IntoBytes>(
                &self,
                fields: impl IntoIterator<Item = B>,
                when: impl Into<When>,
            ) -> KeysCall<Vec<Change>> {
                let (at, relative) = when.into().nanos();
                self.set_expiry(all(fields), Some(at), relative)
            }

            /// Lets fields no longer expire. Returns for each what became of it.
            pub fn persist<B: IntoBytes>(&self, fields: impl IntoIterator<Item = B>) -> KeysCall<Vec<Change>> {
                self.set_expiry(all(fields), None, false)
            }

            /// Returns for each field the version of its last change, and when it expires.
            pub fn describe<B: IntoBytes>(
                &self,
                fields: impl IntoIterator<Item = B>,
            ) -> KeysCall<Vec<Option<(Version, Option<u64>)>>> {
                self.keys.run(ElementCommand::Describe { of: $of, key: self.key.clone(), fields: all(fields) })
            }

            /// Draws different elements at random, with their values. Of more than
            /// [`limits::FAIR_DRAW_MAX`](super::limits::FAIR_DRAW_MAX) not all have the same chance.
            pub fn draw(&self, count: u64) -> KeysCall<Vec<(Bytes, Bytes)>> {
                let (key, seed) = (self.key.clone(), self.keys.seed());
                self.keys.run(ElementCommand::Draw { of: $of, key, count, repeats: false, seed })
            }

            fn set_expiry(&self, fields: Vec<Bytes>, at: Option<u64>, relative: bool) -> KeysCall<Vec<Change>> {
                let (key, condition) = (self.key.clone(), ExpiryCondition::Always);
                self.keys.run(ElementCommand::Expire { of: $of, key, fields, at, condition, relative })
            }
        }
    };
}

collection!(Hash, Collection::Hash, Kind::Hash);
collection!(Set, Collection::Set, Kind::Set);

impl Hash {
    /// Sets fields, at least one, and returns how many are new; nothing if a condition did not hold. [`Put`] has the
    /// options.
    pub fn set<F: IntoBytes, V: IntoBytes>(&self, fields: impl IntoIterator<Item = (F, V)>) -> Put<Option<u64>> {
        let fields = fields.into_iter().map(|(field, value)| (field.into_bytes(), value.into_bytes()));
        Put::fields(self.keys.clone(), self.key.clone(), fields.collect())
    }

    /// Returns the value of a field.
    pub fn get(&self, field: impl IntoBytes) -> KeysCall<Option<Bytes>> {
        self.keys.run(HashCommand::Get { key: self.key.clone(), fields: all([field]) })
    }

    /// Returns the values of fields.
    pub fn get_each<B: IntoBytes>(&self, fields: impl IntoIterator<Item = B>) -> KeysCall<Vec<Option<Bytes>>> {
        self.keys.run(HashCommand::Get { key: self.key.clone(), fields: all(fields) })
    }

    /// Returns the values of fields, and lets these expire (HGETEX). A time that has come removes a field.
    pub fn get_and_expire<B: IntoBytes>(
        &self,
        fields: impl IntoIterator<Item = B>,
        when: impl Into<When>,
    ) -> KeysCall<Vec<Option<Bytes>>> {
        let (key, fields, (at, relative)) = (self.key.clone(), all(fields), when.into().nanos());
        self.keys.run(HashCommand::GetExpire { key, fields, at: Some(at), relative })
    }

    /// Removes fields and returns their values (HGETDEL).
    pub fn take<B: IntoBytes>(&self, fields: impl IntoIterator<Item = B>) -> KeysCall<Vec<Option<Bytes>>> {
        self.keys.run(HashCommand::Take { key: self.key.clone(), fields: all(fields) })
    }

    /// Adds to an integer, and returns the sum. A missing field is 0.
    pub fn increment(&self, field: impl IntoBytes, by: i64) -> KeysCall<i64> {
        self.keys.run(HashCommand::Add { key: self.key.clone(), field: field.into_bytes(), by })
    }

    /// Adds to a decimal number, and returns the sum. A missing field is 0.
    pub fn increment_float(&self, field: impl IntoBytes, by: f64) -> KeysCall<f64> {
        let (key, field, by) = (self.key.clone(), field.into_bytes(), by.to_string().into());
        self.keys.run(HashCommand::AddFloat { key, field, by })
    }
}

impl Set {
    /// Adds members, at least one, and returns how many are new. One that is there keeps its expiry.
    pub fn add<B: IntoBytes>(&self, members: impl IntoIterator<Item = B>) -> KeysCall<u64> {
        self.keys.run(SetCommand::Add { key: self.key.clone(), members: all(members), expiry: Expiry::Never })
    }

    /// Adds members that expire, and returns how many are new. One that is there gets the expiry too.
    pub fn add_expiring<B: IntoBytes>(
        &self,
        members: impl IntoIterator<Item = B>,
        when: impl Into<When>,
    ) -> KeysCall<u64> {
        let expiry = when.into().into();
        self.keys.run(SetCommand::Add { key: self.key.clone(), members: all(members), expiry })
    }

    /// Draws members at random, removes and returns them.
    pub fn pop(&self, count: u64) -> KeysCall<Vec<Bytes>> {
        self.keys.run(SetCommand::Pop { key: self.key.clone(), count, seed: self.keys.seed() })
    }

    /// Moves a member to the set of another key, and returns whether there was one.
    pub fn move_to(&self, to: impl IntoBytes, member: impl IntoBytes) -> KeysCall<bool> {
        let (from, to, member) = (self.key.clone(), to.into_bytes(), member.into_bytes());
        self.keys.run(SetCommand::Move { from, to, member })
    }
}

/// Sets of several keys.
impl Keys {
    /// Combines sets, and returns the members in the order of their bytes. A missing key is an empty set.
    pub fn combine<B: IntoBytes>(
        &self,
        operation: SetOperation,
        keys: impl IntoIterator<Item = B>,
    ) -> KeysCall<Vec<Bytes>> {
        self.run(SetCommand::Combine { operation, keys: all(keys), store: None })
    }

    /// Combines sets, stores the result in a key, whatever that holds, and returns how many members it has.
    pub fn combine_into<B: IntoBytes>(
        &self,
        operation: SetOperation,
        keys: impl IntoIterator<Item = B>,
        store: impl IntoBytes,
    ) -> KeysCall<u64> {
        self.run(SetCommand::Combine { operation, keys: all(keys), store: Some(store.into_bytes()) })
    }
}
