//! What is the same for all keys.

use bytes::Bytes;
use quorate_model::keys::{Condition, ExpiryCondition, KeyCommand, KeyInfo, Space, Version};

use super::into_bytes::all;
use super::{Hash, IntoBytes, Keys, KeysCall, List, Scan, Set, SortedSet, When};

/// Keys, whatever they hold.
impl Keys {
    /// Removes keys, and returns how many there were. Costs the same whatever a key holds.
    pub fn delete<B: IntoBytes>(&self, keys: impl IntoIterator<Item = B>) -> KeysCall<u64> {
        self.run(KeyCommand::Delete { keys: all(keys), condition: Condition::Always })
    }

    /// Removes a key if it meets a condition, and returns whether it did. [`Condition::Value`] is for strings only.
    pub fn delete_if(&self, key: impl IntoBytes, condition: Condition) -> KeysCall<bool> {
        self.run(KeyCommand::Delete { keys: all([key]), condition })
    }

    /// Returns the number of keys of the space. A key that has expired counts until it is removed.
    pub fn count_all(&self) -> KeysCall<u64> {
        self.run(KeyCommand::CountAll)
    }

    /// Removes all keys of the space, however many there are, in one step.
    pub fn flush(&self) -> KeysCall<()> {
        self.run(KeyCommand::Flush)
    }

    /// Returns how many of the keys exist; one counts as often as it is named.
    pub fn exist<B: IntoBytes>(&self, keys: impl IntoIterator<Item = B>) -> KeysCall<u64> {
        self.run(KeyCommand::Exists { keys: all(keys) })
    }

    /// Returns what a key holds, its version and its expiry.
    pub fn describe(&self, key: impl IntoBytes) -> KeysCall<Option<KeyInfo>> {
        self.run(KeyCommand::Describe { key: key.into_bytes() })
    }

    /// Fails with [`FailureKind::Conflict`](crate::FailureKind::Conflict) unless a key has this version, or is missing
    /// if there is none. As a step of a batch, it makes all of the batch depend on that; a pipeline has
    /// [`Keys::pipeline_if`] for it.
    pub fn expect(&self, key: impl IntoBytes, version: Option<Version>) -> KeysCall<()> {
        self.run(KeyCommand::Expect { key: key.into_bytes(), version })
    }

    /// Lets a key expire, and returns whether there is one. A time that has come removes it.
    pub fn expire(&self, key: impl IntoBytes, when: impl Into<When>) -> KeysCall<bool> {
        self.expire_if(key, when, ExpiryCondition::Always)
    }

    /// Lets a key expire if a condition holds, and returns whether it did.
    pub fn expire_if(&self, key: impl IntoBytes, when: impl Into<When>, condition: ExpiryCondition) -> KeysCall<bool> {
        let (at, relative) = when.into().nanos();
        self.run(KeyCommand::Expire { key: key.into_bytes(), at: Some(at), condition, relative })
    }

    /// Lets a key no longer expire, and returns whether it would have.
    pub fn persist(&self, key: impl IntoBytes) -> KeysCall<bool> {
        let condition = ExpiryCondition::Always;
        self.run(KeyCommand::Expire { key: key.into_bytes(), at: None, condition, relative: false })
    }

    /// Gives a key another name, replaces a key that has it, and returns whether there was one to rename.
    pub fn rename(&self, key: impl IntoBytes, to: impl IntoBytes) -> KeysCall<bool> {
        let (key, to, to_space) = (key.into_bytes(), to.into_bytes(), self.space);
        self.run(KeyCommand::Rename { key, to_space, to, replace: true })
    }

    /// Gives a key another name, unless a key has it, and returns whether it did.
    pub fn rename_if_free(&self, key: impl IntoBytes, to: impl IntoBytes) -> KeysCall<bool> {
        let (key, to, to_space) = (key.into_bytes(), to.into_bytes(), self.space);
        self.run(KeyCommand::Rename { key, to_space, to, replace: false })
    }

    /// Moves a key to another space, unless it has a key of that name, and returns whether it did.
    pub fn move_to(&self, key: impl IntoBytes, to_space: Space) -> KeysCall<bool> {
        let key = key.into_bytes();
        self.run(KeyCommand::Rename { key: key.clone(), to_space, to: key, replace: false })
    }

    /// Copies a key with its expiry, replaces a key that has the name, and returns whether there was one to copy. A
    /// collection may have [`limits::CHANGED_ROWS_MAX`](super::limits::CHANGED_ROWS_MAX) elements.
    pub fn copy(&self, key: impl IntoBytes, to: impl IntoBytes) -> KeysCall<bool> {
        let (key, to, to_space) = (key.into_bytes(), to.into_bytes(), self.space);
        self.run(KeyCommand::Copy { key, to_space, to, replace: true })
    }

    /// Returns keys in the order of their bytes, a page at a time.
    pub fn scan(&self) -> Scan {
        Scan::new(self.clone())
    }

    /// Returns the hash of a key.
    pub fn hash(&self, key: impl IntoBytes) -> Hash {
        Hash::new(self.clone(), key.into_bytes())
    }

    /// Returns the set of a key.
    pub fn set_of(&self, key: impl IntoBytes) -> Set {
        Set::new(self.clone(), key.into_bytes())
    }

    /// Returns the sorted set of a key.
    pub fn sorted_set(&self, key: impl IntoBytes) -> SortedSet {
        SortedSet::new(self.clone(), key.into_bytes())
    }

    /// Returns the list of a key.
    pub fn list(&self, key: impl IntoBytes) -> List {
        List::new(self.clone(), key.into_bytes())
    }

    pub(super) fn count(&self, key: &Bytes, kind: super::Kind) -> KeysCall<u64> {
        self.run(KeyCommand::Count { key: key.clone(), kind })
    }
}
