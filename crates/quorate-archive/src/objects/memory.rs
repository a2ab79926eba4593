//! A store in memory, for tests and simulations.
//!
//! Invariants:
//! - Requests take effect one at a time, so it is as consistent as a store may be. Only the troubles that a test orders
//!   happen.
//! - Versions are taken from the bytes, as in S3, so that no test relies on more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use quorate_env::{lock, sleep};
use xxhash_rust::xxh3::xxh3_64;

use super::{Answer, Folders, Listed, Object, Objects, ObjectsError, Upload, Version};

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// To create an object.
    Create,
    /// To replace an object.
    Replace,
    /// To write an object in pieces: each piece is a request, and so is the end.
    Upload,
    /// To read an object.
    Read,
    /// To list objects.
    List,
    /// To delete an object.
    Delete,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// How long it takes until the request has an effect.
    pub before: Duration,
    /// How long the answer takes from there.
    pub after: Duration,
    /// The request fails without an effect.
    pub is_refused: bool,
    /// The request takes effect, and its answer is an error.
    pub is_unanswered: bool,
}

type Troubles = dyn FnMut(Verb, &str) -> Trouble + Send;

/// A store in memory. Clones are the same store.
#[derive(Clone, Default)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    troubles: Arc<Mutex<Option<Box<Troubles>>>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Bytes>,
    requests: BTreeMap<Verb, u64>,
}

impl State {
    fn put(&mut self, key: &str, bytes: Bytes) -> Version {
        let version = version(&bytes);
        self.objects.insert(key.to_owned(), bytes);
        version
    }
}

impl Memory {
    /// Returns an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on `troubles` is asked what happens to each request.
    pub fn set_troubles(&self, troubles: impl FnMut(Verb, &str) -> Trouble + Send + 'static) {
        *lock(&self.troubles) = Some(Box::new(troubles));
    }

    /// From now on nothing goes wrong.
    pub fn end_troubles(&self) {
        *lock(&self.troubles) = None;
    }

    /// Returns how many requests of each kind were made.
    pub fn requests(&self) -> BTreeMap<Verb, u64> {
        self.state().requests.clone()
    }

    /// Returns a copy of all objects.
    pub fn contents(&self) -> BTreeMap<String, Bytes> {
        self.state().objects.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Carries out a request, with its trouble.
    async fn run<T>(&self, verb: Verb, key: &str, request: impl FnOnce(&mut State) -> T) -> Result<T, ObjectsError> {
        let trouble = lock(&self.troubles).as_mut().map(|troubles| troubles(verb, key)).unwrap_or_default();
        let wait = async |time: Duration| {
            if !time.is_zero() {
                sleep(time).await;
            }
        };
        let failed = || ObjectsError {
            what: format!("{verb:?} '{key}'"),
            is_retryable: true,
            source: "the store has trouble".into(),
        };
        wait(trouble.before).await;
        if trouble.is_refused {
            return Err(failed());
        }
        let answer = {
            let mut state = self.state();
            let count = state.requests.entry(verb).or_default();
            *count = count.saturating_add(1);
            request(&mut state)
        };
        wait(trouble.after).await;
        if trouble.is_unanswered { Err(failed()) } else { Ok(answer) }
    }
}

impl Objects for Memory {
    fn create<'a>(&'a self, key: &'a str, bytes: Bytes, _time: Option<i64>) -> Answer<'a, Option<Version>> {
        Box::pin(
            self.run(Verb::Create, key, move |state| (!state.objects.contains_key(key)).then(|| state.put(key, bytes))),
        )
    }

    fn replace<'a>(&'a self, key: &'a str, bytes: Bytes, expected: &'a Version) -> Answer<'a, Option<Version>> {
        Box::pin(self.run(Verb::Replace, key, move |state| {
            let is_expected = state.objects.get(key).is_some_and(|found| version(found) == *expected);
            is_expected.then(|| state.put(key, bytes))
        }))
    }

    fn upload<'a>(&'a self, key: &'a str, _time: Option<i64>) -> Answer<'a, Box<dyn Upload>> {
        let upload = Pieces { store: self.clone(), key: key.to_owned(), bytes: Vec::new() };
        Box::pin(self.run(Verb::Upload, key, move |_| Box::new(upload) as Box<dyn Upload>))
    }

    fn read<'a>(&'a self, key: &'a str, range: Option<Range<u64>>) -> Answer<'a, Option<Object>> {
        Box::pin(self.run(Verb::Read, key, move |state| {
            let bytes = state.objects.get(key)?;
            let length = bytes.len() as u64;
            let range = range.unwrap_or(0..length);
            let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let part = bytes.slice(at(range.start)..at(range.end).max(at(range.start)));
            Some(Object { bytes: part, length, version: version(bytes) })
        }))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<Listed>> {
        Box::pin(self.run(Verb::List, prefix, move |state| {
            let keys = state.objects.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
            keys.map(|(key, bytes)| Listed { key: key.clone(), length: bytes.len() as u64, time: None }).collect()
        }))
    }

    fn list_folders<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>> {
        Box::pin(self.run(Verb::List, prefix, move |state| {
            let keys = state.objects.keys().filter_map(|key| key.strip_prefix(prefix)?.split_once('/'));
            let folders: BTreeSet<_> = keys.map(|(folder, _)| folder.to_owned()).collect();
            folders.into_iter().collect()
        }))
    }

    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()> {
        Box::pin(self.run(Verb::Delete, key, move |state| drop(state.objects.remove(key))))
    }

    fn litestream_folders(&self) -> Folders {
        Folders::Flat
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("objects", &self.state().objects.len()).finish_non_exhaustive()
    }
}

/// An object that is being written.
struct Pieces {
    store: Memory,
    key: String,
    bytes: Vec<u8>,
}

impl Upload for Pieces {
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()> {
        let Self { store, key, bytes: all } = self;
        Box::pin(store.run(Verb::Upload, key, move |_| all.extend_from_slice(&bytes)))
    }

    fn finish<'a>(self: Box<Self>) -> Answer<'a, ()> {
        Box::pin(async move {
            let Self { store, key, bytes } = *self;
            store.run(Verb::Upload, &key, |state| drop(state.put(&key, bytes.into()))).await
        })
    }
}

fn version(bytes: &[u8]) -> Version {
    Version(format!("{:016x}", xxh3_64(bytes)))
}
