//! What a request is about: a key, or a field of a hash. Both have a value, a version and an expiry.

use bytes::Bytes;
use quorate::Keys;
use quorate::keys::limits::{FIELD_BYTES_MAX, KEY_BYTES_MAX};
use quorate::keys::{
    Collection, Condition, ElementCommand, Expiry, ExpiryCondition, HashCommand, KeyCommand, KeysCall, KeysCommand,
    KeysReply, Kind, StringCommand,
};
use quorate::keys::{KeyInfo, Replies};

use crate::asked::Asked;
use crate::error::Problem;

/// A key, or a field of a hash.
pub(crate) struct Target {
    keys: Keys,
    key: Bytes,
    field: Option<Bytes>,
}

impl Target {
    /// Returns what a request is about.
    pub(super) fn of(keys: &Keys, asked: &Asked<'_>) -> Result<Self, Problem> {
        Self::new(keys.space(asked.space()?), asked.key()?, asked.bytes("field").cloned())
    }

    /// Returns a key, or a field of it.
    pub(crate) fn new(keys: Keys, key: Bytes, field: Option<Bytes>) -> Result<Self, Problem> {
        if key.len() > KEY_BYTES_MAX || field.as_ref().is_some_and(|field| field.len() > FIELD_BYTES_MAX) {
            let help = format!("a key has at most {KEY_BYTES_MAX} bytes, and a field {FIELD_BYTES_MAX}");
            return Err(Problem::malformed(help));
        }
        Ok(Self { keys, key, field })
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn key(&self) -> Bytes {
        self.key.clone()
    }

    pub(crate) fn field(&self) -> Option<&Bytes> {
        self.field.as_ref()
    }

    fn call(&self, command: impl Into<KeysCommand>) -> KeysCall<KeysReply> {
        self.keys.run(command)
    }

    /// Returns what there is to know of it ([`described`]).
    pub(crate) fn describe(&self) -> KeysCall<KeysReply> {
        let key = self.key();
        match &self.field {
            None => self.call(KeyCommand::Describe { key }),
            Some(field) => {
                self.call(ElementCommand::Describe { of: Collection::Hash, key, fields: vec![field.clone()] })
            }
        }
    }

    /// Sets it. The reply is `true` if the condition holds, as [`is_done`] reads it.
    pub(crate) fn put(&self, value: Bytes, condition: Condition, expiry: Expiry) -> KeysCall<KeysReply> {
        let key = self.key();
        match &self.field {
            None => self.call(StringCommand::Set { key, value, condition, expiry, get: false }),
            Some(field) => self.call(HashCommand::Set { key, fields: vec![(field.clone(), value)], condition, expiry }),
        }
    }

    /// Removes it.
    pub(crate) fn remove(&self, condition: Condition) -> KeysCall<KeysReply> {
        let key = self.key();
        match (&self.field, condition) {
            (None, condition) => self.call(KeyCommand::Delete { keys: vec![key], condition }),
            // What is set to a time that has come is removed.
            (Some(_), condition @ Condition::Version(_)) => self.put(Bytes::new(), condition, Expiry::At(0)),
            (Some(field), _) => {
                self.call(ElementCommand::Remove { of: Collection::Hash, key, fields: vec![field.clone()] })
            }
        }
    }

    /// Sets its expiry, which may count from the entry, or removes it.
    pub(crate) fn expire(
        &self,
        (at, relative): (Option<u64>, bool),
        condition: ExpiryCondition,
    ) -> KeysCall<KeysReply> {
        let key = self.key();
        match &self.field {
            None => self.call(KeyCommand::Expire { key, at, condition, relative }),
            Some(field) => {
                let fields = vec![field.clone()];
                self.call(ElementCommand::Expire { of: Collection::Hash, key, fields, at, condition, relative })
            }
        }
    }

    /// Adds to a number: to an integer, if what is added is one.
    pub(crate) fn increment(&self, by: &Bytes) -> KeysCall<KeysReply> {
        let (key, integer) = (self.key(), std::str::from_utf8(by).ok().and_then(|text| text.parse().ok()));
        match (self.field.clone(), integer) {
            (None, Some(by)) => self.call(StringCommand::Add { key, by }),
            (None, None) => self.call(StringCommand::AddFloat { key, by: by.clone() }),
            (Some(field), Some(by)) => self.call(HashCommand::Add { key, field, by }),
            (Some(field), None) => self.call(HashCommand::AddFloat { key, field, by: by.clone() }),
        }
    }
}

/// Reads the reply to [`Target::describe`]. A field has the kind of its key.
pub(crate) fn described(reply: Option<KeysReply>) -> Option<KeyInfo> {
    match reply? {
        KeysReply::Key(info) => Some(info),
        KeysReply::Described(fields) => {
            let (version, expires_at) = fields.into_iter().next().flatten()?;
            Some(KeyInfo { kind: Kind::Hash, version, expires_at })
        }
        _ => None,
    }
}

/// Returns whether the command at this place found what it needs, and its condition held.
pub(crate) fn is_done(replies: &Replies, place: usize) -> bool {
    match replies.get::<KeysReply>(place) {
        Some(KeysReply::Set { applied, .. }) => applied,
        Some(KeysReply::Missing | KeysReply::NotApplied) | None => false,
        Some(KeysReply::Expired(changes)) => {
            changes.iter().any(|change| matches!(change, quorate::keys::Change::Done | quorate::keys::Change::Removed))
        }
        Some(_) => true,
    }
}
