//! Setting strings and fields, under conditions and with expiries.

use std::marker::PhantomData;

use bytes::Bytes;
use quorate_model::keys::{Condition, Expiry, HashCommand, KeysCommand, StringCommand, Version};

use super::call::as_call;
use super::{FromReply, IntoBytes, Keys, KeysCall, When};

/// Sets a string ([`Keys::set`]), strings ([`Keys::set_all`]) or fields of a hash ([`Hash::set`](super::Hash::set)),
/// with options. What is set does
/// not expire unless one of them says so.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing until it is awaited, or is a step of a batch"]
pub struct Put<T> {
    keys: Keys,
    key: Bytes,
    what: What,
    condition: Condition,
    expiry: Expiry,
    result: PhantomData<fn() -> T>,
}

#[derive(Clone, Debug)]
enum What {
    String { value: Bytes, get: bool },
    Strings(Vec<(Bytes, Bytes)>),
    Fields(Vec<(Bytes, Bytes)>),
}

impl<T: FromReply> Put<T> {
    /// Sets it only if it is missing: the key, or each of the keys or fields.
    pub fn if_missing(self) -> Self {
        self.condition(Condition::Missing)
    }

    /// Sets it only if it exists: the key, or each of the keys or fields.
    pub fn if_exists(self) -> Self {
        self.condition(Condition::Exists)
    }

    /// Sets it only if it has this version. [`Keys::describe`] returns that of a key.
    pub fn if_version(self, version: Version) -> Self {
        self.condition(Condition::Version(version))
    }

    /// Sets it only if it has this value.
    pub fn if_value(self, value: impl IntoBytes) -> Self {
        self.condition(Condition::Value(value.into_bytes()))
    }

    /// Lets it expire: the key, or each of the keys or fields.
    pub fn expires(self, when: impl Into<When>) -> Self {
        Self { expiry: when.into().into(), ..self }
    }

    /// Lets it expire when it did before.
    pub fn keep_expiry(self) -> Self {
        Self { expiry: Expiry::Keep, ..self }
    }

    fn condition(self, condition: Condition) -> Self {
        Self { condition, ..self }
    }

    fn call(self) -> KeysCall<T> {
        let Self { keys, key, what, condition, expiry, .. } = self;
        keys.run(match what {
            What::String { value, get } => KeysCommand::from(StringCommand::Set { key, value, condition, expiry, get }),
            What::Strings(strings) => StringCommand::SetAll { strings, condition, expiry }.into(),
            What::Fields(fields) => HashCommand::Set { key, fields, condition, expiry }.into(),
        })
    }
}

impl Put<bool> {
    pub(super) fn string(keys: Keys, key: impl IntoBytes, value: impl IntoBytes) -> Self {
        Self::new(keys, key, What::String { value: value.into_bytes(), get: false })
    }

    pub(super) fn strings(keys: Keys, strings: Vec<(Bytes, Bytes)>) -> Self {
        Self::new(keys, Bytes::new(), What::Strings(strings))
    }

    /// Returns the string before, too, whether or not it is set. Then a key that holds something else fails.
    pub fn returning(self) -> Put<(bool, Option<Bytes>)> {
        let Self { keys, key, what, condition, expiry, .. } = self;
        let what = match what {
            What::String { value, .. } => What::String { value, get: true },
            several @ (What::Strings(_) | What::Fields(_)) => several,
        };
        Put { keys, key, what, condition, expiry, result: PhantomData }
    }
}

impl Put<Option<u64>> {
    pub(super) fn fields(keys: Keys, key: Bytes, fields: Vec<(Bytes, Bytes)>) -> Self {
        Self::new(keys, key, What::Fields(fields))
    }
}

impl<T> Put<T> {
    fn new(keys: Keys, key: impl IntoBytes, what: What) -> Self {
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        Self { keys, key: key.into_bytes(), what, condition, expiry, result: PhantomData }
    }
}

as_call!(Put<T> => T);
