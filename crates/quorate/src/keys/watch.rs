//! Watching keys: what a key is now, and what it becomes.
//!
//! A watch registers a waiter, then looks at its keys and compares their versions with those that it has returned; then
//! it waits until it is woken, and looks again. So it ends at the last state, whatever happens between two looks.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::try_unfold;
use futures_util::{FutureExt as _, Stream, TryStreamExt as _};
use quorate_env::{sleep, timeout};
use quorate_model::Topic;
use quorate_model::keys::{KeyInfo, Version};
use quorate_sql::keys::{topic, topic_of_changes, topic_of_space};

use super::{IntoBytes, Keys, Scan};
use crate::error::Error;

/// How often a watch looks although nothing has woken it: it may have looked at a node that was behind the one at which
/// it waits.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The least time between two looks at all keys with a prefix.
pub const PREFIX_LOOKS_APART: Duration = Duration::from_millis(50);

/// The most keys with a prefix that can be watched: each look reads all of them.
pub const WATCHED_KEYS_MAX: usize = 10_000;

/// A state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The key.
    pub key: Bytes,
    /// What is known of it; `None` if it does not exist.
    pub info: Option<KeyInfo>,
}

/// Watches one key, or all keys with a prefix. It returns their states: at first those that they have, and then each
/// one that it finds after a change. States that last only a moment may be left out, the last one never.
///
/// ```
/// # async fn f(keys: quorate::Keys) -> Result<(), quorate::Error> {
/// let mut watch = keys.watch("config");
/// loop {
///     let version = watch.next().await?.info.map(|info| info.version);
///     println!("version {version:?} has {:?}", keys.get("config").await?);
/// }
/// # }
/// ```
pub struct Watch {
    keys: Keys,
    /// The keys that it watches.
    scan: Scan,
    /// What wakes it.
    topics: Vec<Topic>,
    /// The least time between two looks.
    apart: Duration,
    /// The versions of the keys that exist, at the last look.
    known: BTreeMap<Bytes, Version>,
    /// The key, if it is one, until its first state is returned: that it is missing is a state, too.
    first: Option<Bytes>,
    /// States that were not returned yet.
    news: VecDeque<Seen>,
    /// Ends when there may be changes since the last look; none if a look is due.
    woken: Option<BoxFuture<'static, ()>>,
}

impl Keys {
    /// Watches a key.
    pub fn watch(&self, key: impl IntoBytes) -> Watch {
        let key = key.into_bytes();
        let scan = self.scan().range(key.clone(), [&key[..], b"\0"].concat());
        let topics = vec![topic(self.space, &key).watched(), topic_of_space(self.space).watched()];
        Watch::new(self, scan, topics, Duration::ZERO, Some(key))
    }

    /// Watches all keys that start with this, at most [`WATCHED_KEYS_MAX`]. After each change of the space, whatever
    /// its key, it reads all of them, at most once in [`PREFIX_LOOKS_APART`]. Events
    /// ([`Node::events`](crate::Node::events)) cost less where the writers can add them.
    pub fn watch_prefix(&self, prefix: impl IntoBytes) -> Watch {
        let topics = vec![topic_of_changes(self.space).watched()];
        Watch::new(self, self.scan().prefix(prefix), topics, PREFIX_LOOKS_APART, None)
    }
}

impl Watch {
    fn new(keys: &Keys, scan: Scan, topics: Vec<Topic>, apart: Duration, first: Option<Bytes>) -> Self {
        let (keys, known, news, woken) = (keys.clone(), BTreeMap::new(), VecDeque::new(), None);
        Self { keys, scan, topics, apart, known, first, news, woken }
    }

    /// Returns the next state, once there is one. The future may be dropped: nothing is missed.
    ///
    /// # Errors
    ///
    /// Those of [`Keys::scan`]; [`Error::TooLarge`] if there are more than [`WATCHED_KEYS_MAX`] keys; and
    /// [`Error::Overloaded`] if too many wait on the node. The next call tries again.
    pub async fn next(&mut self) -> Result<Seen, Error> {
        let runtime = self.keys.sql.submitter.runtime().clone();
        loop {
            if let Some(seen) = self.news.pop_front() {
                return Ok(seen);
            }
            runtime.run(self.look()).await.unwrap_or(Err(Error::Closed))?;
        }
    }

    /// Returns the states as a stream. It ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Seen, Error>> + Send {
        try_unfold(self, |mut watch| async { watch.next().await.map(|seen| Some((seen, watch))) })
    }

    /// Waits until there may be changes, and finds them.
    async fn look(&mut self) -> Result<(), Error> {
        if let Some(woken) = &mut self.woken {
            woken.await;
            // If this call fails from here on, or is dropped, the next one looks at once.
            self.woken = None;
        }
        let (told, apart) = (self.keys.told(&self.topics).await?, self.apart);
        let mut found = BTreeMap::new();
        let mut pages = pin!(self.scan.clone().pages());
        while let Some(page) = pages.try_next().await? {
            found.extend(page.into_iter().map(|entry| (entry.key, entry.info)));
            if found.len() > WATCHED_KEYS_MAX {
                let why = format!("more than {WATCHED_KEYS_MAX} keys start so; watch fewer at a time, or use events");
                return Err(Error::TooLarge(why.into()));
            }
        }
        let gone = self.known.keys().chain(&self.first).filter(|key| !found.contains_key(*key));
        let mut news: VecDeque<Seen> = gone.map(|key| Seen { key: key.clone(), info: None }).collect();
        let is_new = |key: &Bytes, info: &KeyInfo| self.known.get(key) != Some(&info.version);
        let new = found.iter().filter(|(key, info)| is_new(key, info));
        news.extend(new.map(|(key, info)| Seen { key: key.clone(), info: Some(info.clone()) }));
        self.known = found.into_iter().map(|(key, info)| (key, info.version)).collect();
        let woken = async move {
            // Whatever ends the wait, the next step is to look.
            drop(timeout(LOOK_EVERY, told).await);
            sleep(apart).await;
        };
        (self.news, self.first, self.woken) = (news, None, Some(woken.boxed()));
        Ok(())
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("scan", &self.scan).field("known", &self.known.len()).finish_non_exhaustive()
    }
}
