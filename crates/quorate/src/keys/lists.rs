//! Lists.

use bytes::Bytes;
use quorate_model::keys::{End, Kind, ListCommand};

use super::into_bytes::all;
use super::{FromReply, IntoBytes, Keys, KeysCall, Pop};

/// The list of a key. An index counts from 0, a negative one from the end: -1 is the last item. A list without items
/// does not exist.
#[derive(Clone, Debug)]
pub struct List {
    keys: Keys,
    key: Bytes,
}

impl List {
    pub(super) fn new(keys: Keys, key: Bytes) -> Self {
        Self { keys, key }
    }

    /// Returns a call that takes something out of this list.
    fn taking<T: FromReply>(&self, command: ListCommand) -> Pop<T> {
        Pop::new(&self.keys, vec![self.key.clone()], command)
    }

    /// Pushes values before the first item, one after the other, and returns the length.
    pub fn push_left<B: IntoBytes>(&self, values: impl IntoIterator<Item = B>) -> KeysCall<u64> {
        self.push(values, End::Left, false)
    }

    /// Pushes values behind the last item, one after the other, and returns the length.
    pub fn push_right<B: IntoBytes>(&self, values: impl IntoIterator<Item = B>) -> KeysCall<u64> {
        self.push(values, End::Right, false)
    }

    /// Pushes values at an end, one after the other, if there is a list, and returns the length; 0 if there is none.
    pub fn push_if_exists<B: IntoBytes>(&self, values: impl IntoIterator<Item = B>, end: End) -> KeysCall<u64> {
        self.push(values, end, true)
    }

    /// Removes the first items and returns them.
    pub fn pop_left(&self, count: u64) -> Pop<Vec<Bytes>> {
        self.taking(ListCommand::Pop { key: self.key.clone(), count, end: End::Left })
    }

    /// Removes the last items and returns them, the last one first.
    pub fn pop_right(&self, count: u64) -> Pop<Vec<Bytes>> {
        self.taking(ListCommand::Pop { key: self.key.clone(), count, end: End::Right })
    }

    /// Moves an item from an end of this list to an end of a list, perhaps the same, and returns it.
    pub fn move_to(&self, from_end: End, to: impl IntoBytes, to_end: End) -> Pop<Option<Bytes>> {
        self.taking(ListCommand::Move { from: self.key.clone(), to: to.into_bytes(), from_end, to_end })
    }

    /// Returns an item.
    pub fn get(&self, index: i64) -> KeysCall<Option<Bytes>> {
        self.keys.run(ListCommand::Index { key: self.key.clone(), index })
    }

    /// Returns the items from one index to another, both inside.
    pub fn range(&self, start: i64, stop: i64) -> KeysCall<Vec<Bytes>> {
        self.keys.run(ListCommand::Range { key: self.key.clone(), start, stop })
    }

    /// Returns the index of the first item that equals a value (LPOS). Reads the items up to there, at most
    /// [`limits::READ_ROWS_MAX`](super::limits::READ_ROWS_MAX).
    pub fn find(&self, value: impl IntoBytes) -> KeysCall<Option<u64>> {
        self.keys.run(self.find_from(value, End::Left, 1))
    }

    /// Returns the indexes of items that equal a value, in the order in which they are found from an end, at most
    /// `limit`.
    pub fn find_each(&self, value: impl IntoBytes, from: End, limit: u64) -> KeysCall<Vec<u64>> {
        self.keys.run(self.find_from(value, from, limit))
    }

    /// Returns the number of items.
    pub fn len(&self) -> KeysCall<u64> {
        self.keys.count(&self.key, Kind::List)
    }

    /// Sets an item, and returns whether there is a list. An index that it does not have fails.
    pub fn set(&self, index: i64, value: impl IntoBytes) -> KeysCall<bool> {
        self.keys.run(ListCommand::Set { key: self.key.clone(), index, value: value.into_bytes() })
    }

    /// Keeps only the items from one index to another, both inside, and returns whether there is a list.
    pub fn trim(&self, start: i64, stop: i64) -> KeysCall<bool> {
        self.keys.run(ListCommand::Trim { key: self.key.clone(), start, stop })
    }

    /// Inserts a value before the first item that equals another value, and returns the length; nothing if there is no
    /// such item. Reads the items up to there.
    pub fn insert_before(&self, pivot: impl IntoBytes, value: impl IntoBytes) -> KeysCall<Option<u64>> {
        self.insert(true, pivot, value)
    }

    /// Inserts a value behind the first item that equals another value, as [`List::insert_before`] does before it.
    pub fn insert_after(&self, pivot: impl IntoBytes, value: impl IntoBytes) -> KeysCall<Option<u64>> {
        self.insert(false, pivot, value)
    }

    /// Removes items that equal a value, and returns how many: the first `count`, or, if that is negative, the last
    /// ones, or all if it is 0. Reads the items up to there.
    pub fn remove(&self, count: i64, value: impl IntoBytes) -> KeysCall<u64> {
        self.keys.run(ListCommand::Remove { key: self.key.clone(), count, value: value.into_bytes() })
    }

    fn find_from(&self, value: impl IntoBytes, from: End, limit: u64) -> ListCommand {
        let (key, value) = (self.key.clone(), value.into_bytes());
        ListCommand::Find { key, value, from, skip: 0, limit, within: u64::MAX }
    }

    fn push<B: IntoBytes>(&self, values: impl IntoIterator<Item = B>, end: End, existing: bool) -> KeysCall<u64> {
        self.keys.run(ListCommand::Push { key: self.key.clone(), values: all(values), end, existing })
    }

    fn insert(&self, before: bool, pivot: impl IntoBytes, value: impl IntoBytes) -> KeysCall<Option<u64>> {
        let (key, pivot, value) = (self.key.clone(), pivot.into_bytes(), value.into_bytes());
        self.keys.run(ListCommand::Insert { key, before, pivot, value })
    }
}

/// Lists of several keys.
impl Keys {
    /// Removes items of the first of these lists that exists, and returns its key with them, the outermost first
    /// (LMPOP).
    ///
    /// ```
    /// # async fn f(keys: quorate::Keys) -> Result<(), quorate::Error> {
    /// use quorate::keys::End;
    ///
    /// if let Some((queue, jobs)) = keys.pop_from_lists(["urgent", "usual"], 10, End::Left).await? {
    ///     println!("{} of {queue:?}", jobs.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn pop_from_lists<B: IntoBytes>(
        &self,
        keys: impl IntoIterator<Item = B>,
        count: u64,
        end: End,
    ) -> Pop<Option<(Bytes, Vec<Bytes>)>> {
        let keys = all(keys);
        Pop::new(self, keys.clone(), ListCommand::PopFirst { keys, count, end })
    }
}
